//! Loop test of two interfaces joined by a cable or a switch: datagrams sent by AF_XDP on one interface are received by
//! AF_XDP on the other. The result depends only on the network cards and their drivers, because no other program takes
//! part.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use super::error::XdpError;
use super::exchange::{Receiver, Sender};
use super::filter::Claim;
use super::frame::Link;
use super::interface::{Interface, LINK, await_link, find};
use super::mode::{AttachMode, Mode};
use super::queue::Capacity;
use crate::batch::BATCH;

/// Source and destination address of the test datagrams, from the range for benchmarks (RFC 2544 appendix C.2.2). The
/// interfaces do not need to have these addresses.
const FROM: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);
const TO: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 2);
/// The discard port (RFC 863). Any other host that receives the datagrams by mistake ignores them.
const PORT: u16 = 9;
/// Length of the payload in octets, about that of a query.
const LENGTH: usize = 50;
/// Number of datagrams handed to the interface per call.
const DATAGRAMS_PER_CALL: usize = 64;
/// Time limit for the arrival of datagrams that are still in flight after the last one was sent.
const IN_FLIGHT_TIME: Duration = Duration::from_millis(200);

/// Result of a loop test.
#[derive(Clone, Copy, Debug)]
pub struct LoopTest {
    /// XDP attach mode of the interface that sends the test datagrams.
    pub out: AttachMode,
    /// XDP attach mode of the interface that receives the test datagrams.
    pub back: AttachMode,
    /// Number of datagrams that the sending interface accepted.
    pub sent: u64,
    /// Number of datagrams received on the receiving interface.
    pub received: u64,
    /// Number of datagrams that reached the receiving interface, but were dropped because a ring was full or no buffer
    /// was free.
    pub dropped: u64,
    /// Duration of sending.
    pub time: Duration,
}

/// Sends datagrams from one interface to a different one for the duration `time`, as fast as the sending interface
/// accepts them. Returns the numbers of sent and received datagrams. Both interfaces must be in this network namespace.
///
/// # Errors
/// See [`XdpError`].
pub fn loop_test(from: &str, to: &str, mode: Mode, time: Duration) -> Result<LoopTest, XdpError> {
    let link = link(from, to)?;
    let claim = Claim::to_address(IpAddr::V4(TO), PORT..=PORT);
    let receiving = Interface::open_found(&find(to)?, &[claim], mode, Capacity::client)?;
    let sending = Interface::open_found(&find(from)?, &[], mode, Capacity::client)?;
    [from, to].into_iter().try_for_each(|name| await_link(name, LINK))?;
    let (out, back) = (sending.attach_mode(), receiving.attach_mode());
    let mut senders = sending.into_exchanges();
    let mut receivers: Vec<Receiver> =
        receiving.into_exchanges().into_iter().map(|exchange| exchange.receiver).collect();
    let all_sent = OnceLock::new();
    let (sent, received) = thread::scope(|scope| {
        let counting = scope.spawn(|| count(&mut receivers, &all_sent));
        let sent = send(&mut senders[0].sender, &link, time);
        all_sent.get_or_init(|| *sent.as_ref().unwrap_or(&0));
        (sent, counting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let lost = |name: &str| {
        let interface = name.to_owned();
        move |source| XdpError::Lost { interface, source }
    };
    let dropped = receivers.iter().map(Receiver::drops).sum::<io::Result<u64>>();
    let dropped = dropped.map_err(lost(to))?;
    let (sent, received) = (sent.map_err(lost(from))?, received.map_err(lost(to))?);
    Ok(LoopTest { out, back, sent, received, dropped, time })
}

/// Returns the two Ethernet addresses of frames that are sent from the interface `from` to the interface `to`.
fn link(from: &str, to: &str) -> Result<Link, XdpError> {
    let mut link = [0; 12];
    for (name, place) in [(to, 0..6), (from, 6..12)] {
        link[place].copy_from_slice(&find(name)?.mac);
    }
    Ok(link)
}

/// Sends datagrams for the duration `time`, and returns the number of datagrams that the interface accepted. Sending is
/// retried while the interface accepts no datagrams.
fn send(sender: &mut Sender, link: &Link, time: Duration) -> io::Result<u64> {
    let (from, to) = (SocketAddr::new(FROM.into(), PORT), SocketAddr::new(TO.into(), PORT));
    let payloads = [0; DATAGRAMS_PER_CALL * LENGTH];
    let (mut sent, end) = (0, Instant::now() + time);
    while Instant::now() < end {
        sent += sender.send(&payloads, LENGTH, link, from, to)? as u64;
    }
    Ok(sent)
}

/// Counts received datagrams until all sent datagrams have arrived, or until [`IN_FLIGHT_TIME`] has passed after the
/// last one was sent.
fn count(receivers: &mut [Receiver], all_sent: &OnceLock<u64>) -> io::Result<u64> {
    let (mut received, mut end) = (0, None);
    loop {
        for receiver in &mut *receivers {
            receiver.receive(0, BATCH, |_| received += 1)?;
        }
        let Some(sent) = all_sent.get() else { continue };
        let now = Instant::now();
        if received >= *sent || now >= *end.get_or_insert(now + IN_FLIGHT_TIME) {
            return Ok(received);
        }
    }
}
