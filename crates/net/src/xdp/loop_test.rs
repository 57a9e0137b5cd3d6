//! Two interfaces that a cable, or a switch, joins: what one of them sends past the stack, the other
//! one gets past the stack. So a user sees what a card and its driver do, with nobody else's
//! program at the other end.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use super::client::{Receiver, Sender};
use super::frame::Link;
use super::queue::Room;
use super::{Claim, Interface, LINK, Mode, Way, XdpError, await_link, find};
use crate::batch::BATCH;

/// Where the datagrams are from and to: addresses for measuring (RFC 2544 appendix C.2.2), which
/// neither interface needs to have.
const FROM: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);
const TO: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 2);
/// The port for discarding (RFC 863), for the case that somebody else gets them.
const PORT: u16 = 9;
/// Octets of a datagram: about as many as a query has.
const LENGTH: usize = 50;
/// Datagrams that are handed to the interface together.
const TOGETHER: usize = 64;
/// What was sent may still be on its way for so long.
const ON_ITS_WAY: Duration = Duration::from_millis(200);

/// What became of a loop test.
#[derive(Clone, Copy, Debug)]
pub struct LoopTest {
    /// How the datagrams left.
    pub out: Way,
    /// How they came.
    pub back: Way,
    /// How many the one interface took.
    pub sent: u64,
    /// How many came by the other one.
    pub received: u64,
    /// How many of those that are missing found no room in the rings of the other one.
    pub dropped: u64,
    /// For how long they were sent.
    pub time: Duration,
}

/// Sends datagrams from one interface to another one for `time`, as fast as it takes them, and counts
/// what comes. Both must be in this network namespace.
///
/// # Errors
/// See [`XdpError`].
pub fn loop_test(from: &str, to: &str, mode: Mode, time: Duration) -> Result<LoopTest, XdpError> {
    let link = link(from, to)?;
    let claim = Claim::of(IpAddr::V4(TO), PORT..=PORT);
    let receiving = Interface::open_found(&find(to)?, &[claim], mode, Room::client)?;
    let sending = Interface::open_found(&find(from)?, &[], mode, Room::client)?;
    [from, to].into_iter().try_for_each(|name| await_link(name, LINK))?;
    let (out, back) = (sending.way(), receiving.way());
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

/// The Ethernet addresses of frames from one interface to another one.
fn link(from: &str, to: &str) -> Result<Link, XdpError> {
    let mut link = [0; 12];
    for (name, place) in [(to, 0..6), (from, 6..12)] {
        link[place].copy_from_slice(&find(name)?.mac);
    }
    Ok(link)
}

/// Sends until `time` is over; returns how many datagrams the interface has taken. One that takes
/// none at the moment is asked again.
fn send(sender: &mut Sender, link: &Link, time: Duration) -> io::Result<u64> {
    let (from, to) = (SocketAddr::new(FROM.into(), PORT), SocketAddr::new(TO.into(), PORT));
    let payloads = [0; TOGETHER * LENGTH];
    let (mut sent, end) = (0, Instant::now() + time);
    while Instant::now() < end {
        sent += sender.send(&payloads, LENGTH, link, from, to)? as u64;
    }
    Ok(sent)
}

/// Counts what comes, until as many have come as were sent or what is missing has had its time.
fn count(receivers: &mut [Receiver], all_sent: &OnceLock<u64>) -> io::Result<u64> {
    let (mut received, mut end) = (0, None);
    loop {
        for receiver in &mut *receivers {
            receiver.receive(0, BATCH, |_| received += 1)?;
        }
        let Some(sent) = all_sent.get() else { continue };
        let now = Instant::now();
        if received >= *sent || now >= *end.get_or_insert(now + ON_ITS_WAY) {
            return Ok(received);
        }
    }
}
