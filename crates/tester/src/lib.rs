//! The tester of RFC 8219 §9.2: Measurer and AuthDNS, and the reference DUT that validates them.
//!
//! ```text
//!            measurer                                                authdns / reference_dut
//! plan ─► sender ─► (wire) ─► receiver ─► ledger ─► result           worker: recvmmsg ─► answer ─► sendmmsg
//!         t₁+i·T             expect: is   per query  verdict                                 │
//!                            it right?    outcome    counts                              delay_line
//! ```
//!
//! The Measurer works with pairs of threads. The sender and the receiver of a pair share only a ledger of send times
//! (`measurer::ledger`). No memory is allocated and no lock is taken while a trial runs.
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
