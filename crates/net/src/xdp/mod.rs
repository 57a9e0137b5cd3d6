//! AF_XDP: datagrams between an interface and this process, bypassing the kernel's network stack.
//!
//! ```text
//! interface ─► filter (BPF) ─── ours ───► receive ring of the queue ─► frame ─► Server ─► answer
//!     ▲            └─ all else ─► stack                                              │
//!     └──────────────────────── transmit ring ◄── the same frame, turned round ◄─────┘
//! ```
//!
//! [`Interface::open`] loads and attaches the filter and opens a socket for each queue. A [`Server`] answers the
//! packets of one queue. A [`Client`] sends queries. Its [`Sender`] writes datagrams into frames reserved for sending
//! and hands them to the first queue. Its [`Receiver`] reads the replies of all queues. An [`Exchange`] of one queue is
//! for a program that forwards queries: it receives queries, sends its own queries on the same queue, and replies
//! later.
//!
//! The filter is attached by a BPF link. The kernel removes the link when the process ends for any reason, so that
//! nothing is left on the interface. The filter selects only datagrams to the configured addresses and ports. A
//! [`Claim`] combines a range of addresses with a set of ports. Ordinary sockets receive all other datagrams.
//!
//! Every datagram has a timestamp from the filter, so that its waiting time in a ring can be measured. The kernel
//! counts packets that are dropped because a ring is full or no frame is free. [`Server::drops`] includes this count.

mod bpf;
mod client;
mod error;
mod exchange;
mod filter;
mod frame;
mod insn;
mod interface;
mod loop_test;
mod mode;
mod outbox;
mod ports;
mod queue;
mod ring;
mod server;

pub use self::client::Client;
pub use self::error::XdpError;
pub use self::exchange::{Arrived, Exchange, Receiver, Sender, receive_frame};
pub use self::filter::{Claim, Ports};
pub use self::frame::Link as EthernetLink;
pub use self::interface::{Interface, Probed, check, interface_of, may_join, probe};
pub use self::loop_test::{LoopTest, loop_test};
pub use self::mode::{AttachMode, Mode};
pub use self::outbox::Outbox;
pub use self::ports::PortSet;
pub use self::queue::stamped;
pub use self::server::{Server, answer_frame};
