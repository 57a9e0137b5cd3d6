//! The tester of RFC 8219 §9.2: Measurer and AuthDNS, and the reference DUT that validates them.
//!
//! ```text
//!            measurer                                                authdns / reference_dut
//! plan ─► sender ─► (wire) ─► receiver ─► ledger ─► result           worker: recvmmsg ─► answer ─► sendmmsg
//!         t₁+i·T             expect: is   per query  verdict                                 │
//!                            it right?    outcome    counts                              delay_line
//! ```
//!
//! Each pair has one sender thread and one receiver thread, which share only a ledger
//! (`measurer::ledger`). There is no allocation and no lock while a trial runs.
#![forbid(unsafe_code)]

pub mod authdns;
pub mod client;
pub mod delay_line;
mod interface_drops;
pub mod intervals;
pub mod measurer;
mod port;
pub mod reference_dut;
mod tcp;
pub mod upstream_queries;
mod waits;
pub mod xdp;
