//! All functions that call the kernel directly: batched UDP I/O, clocks, CPU pinning and drop counters. This is the
//! only crate with `unsafe`.
//!
//! ```text
//! clock ─ sleep_until ─► socket::Endpoint ── send / send_segmented ──► wire
//!                        batch::ReceiveBatch ◄── recvmmsg, kernel timestamps ── wire
//!                        batch::ServerBatch ◄─► recvmmsg + sendmmsg, for servers that answer at once (AuthDNS)
//!                        queue::SendQueue ── sendmmsg + GSO ──► wire, for servers that answer later (dns64d)
//! xdp::Server ◄─► AF_XDP rings, kernel bypass, for servers that answer at once (AuthDNS)
//! drops, queueing: packets lost in the host               tap: datagrams to our ports that reached the interface
//! neighbour: reachability of the next hop                 affinity: pinning and scheduling of threads
//! router: router advertisements of a link                 descriptors: limit of open sockets
//! ethtool: properties of an interface                     cpu_time: CPU time by kind (user, system, stolen …)
//! interfaces: addresses of each interface                 status: Unix sockets that report a program's state
//! address: addresses with a zone identifier, whose interface is looked up when a socket is opened
//! allocator: arenas of the C library
//! ```
#![deny(unsafe_op_in_unsafe_fn)]

pub mod address;
pub mod affinity;
pub mod allocator;
pub mod batch;
pub mod clock;
mod control;
pub mod cpu_time;
pub mod descriptors;
pub mod drops;
pub mod ethtool;
pub mod interfaces;
pub mod neighbour;
mod netlink;
pub mod path_counters;
mod peer;
pub mod poller;
pub mod ports;
pub mod queue;
pub mod queueing;
pub mod router;
pub mod socket;
pub mod status;
pub mod tap;
#[cfg(test)]
mod testing;
pub mod xdp;
