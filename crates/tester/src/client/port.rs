//! A source port with its queries in flight. The queries can be found by message id and by age.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use net::poller::Poller;
use net::queue::SendQueue;
use net::socket::Endpoint;
use rand::seq::SliceRandom;
use units::Nanos;
use wire::tsig::Mac;

use super::source::{SentQuestion, Source};
use super::stream::Stream;
use super::{ClientSettings, Transport};

/// Delay before the next attempt after a failed connection.
const RECONNECT: Nanos = Nanos::from_millis(100);

/// A query in flight.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    pub(super) asked: SentQuestion,
    pub(super) sent: Nanos,
    pub(super) over_tcp: bool,
}

/// The queries in flight on a port, by message id.
pub(super) struct Flights {
    by_id: Box<[Option<Flight>]>,
    /// MACs of signed requests, by id; empty if nothing is signed.
    macs: Box<[Mac]>,
    /// Free ids. The id that was freed first is used next.
    free: VecDeque<u16>,
    /// Ids and send times of the queries, oldest first. Answered queries remain until they are the oldest.
    order: VecDeque<(u16, Nanos)>,
    pub(super) in_flight: usize,
}

impl Flights {
    fn new(most: usize, is_signed: bool, repeats: bool) -> Flights {
        // Ids are random. It suffices to use a few times more ids than there are queries in flight, and a small table
        // stays in the CPU's cache. All ids are used if the same query may soon be repeated, because a late response
        // must not be matched to a repeated query with the same id.
        let mut ids: Vec<u16> = (0..=u16::MAX).collect();
        ids.shuffle(&mut rand::rng());
        if !repeats {
            ids.truncate((most * 4).next_power_of_two().clamp(256, 65_536));
        }
        Flights {
            by_id: vec![None; 65_536].into(),
            macs: vec![Mac::EMPTY; if is_signed { 65_536 } else { 0 }].into(),
            free: ids.into(),
            order: VecDeque::with_capacity(most.min(65_536) * 2),
            in_flight: 0,
        }
    }

    /// Reserves an id for a new query; `None` if all ids are in flight.
    #[inline]
    pub(super) fn take_id(&mut self) -> Option<u16> {
        self.free.pop_front()
    }

    /// Makes a reserved id available again, because it was not used for a query.
    pub(super) fn return_id(&mut self, id: u16) {
        self.free.push_front(id);
    }

    /// Records a query that is about to be sent.
    #[inline]
    pub(super) fn enter(&mut self, id: u16, flight: Flight, mac: Mac) {
        self.by_id[usize::from(id)] = Some(flight);
        if let Some(slot) = self.macs.get_mut(usize::from(id)) {
            *slot = mac;
        }
        self.order.push_back((id, flight.sent));
        self.in_flight += 1;
    }

    /// Returns the query in flight that has the message id `id`; `None` if there is no such query.
    #[inline]
    pub(super) fn get(&self, id: u16) -> Option<Flight> {
        self.by_id[usize::from(id)]
    }

    /// Returns the MAC of the signed request that has the message id `id`.
    pub(super) fn mac(&self, id: u16) -> Mac {
        self.macs.get(usize::from(id)).copied().unwrap_or(Mac::EMPTY)
    }

    /// Records that a query is repeated over TCP.
    pub(super) fn goes_on_over_tcp(&mut self, id: u16, mac: Mac) {
        if let Some(flight) = &mut self.by_id[usize::from(id)] {
            flight.over_tcp = true;
        }
        if let Some(slot) = self.macs.get_mut(usize::from(id)) {
            *slot = mac;
        }
    }

    /// Removes a finished query.
    #[inline]
    pub(super) fn leave(&mut self, id: u16) {
        self.by_id[usize::from(id)] = None;
        self.free.push_back(id);
        self.in_flight -= 1;
    }

    /// Removes and returns the oldest query if it was sent at `moment` or earlier; `None` if there is no such query.
    pub(super) fn give_up(&mut self, moment: Nanos) -> Option<Flight> {
        while let Some(&(id, sent)) = self.order.front() {
            let flight = self.by_id[usize::from(id)].filter(|flight| flight.sent == sent);
            if flight.is_some() && sent > moment {
                return None;
            }
            self.order.pop_front();
            if flight.is_some() {
                self.leave(id);
                return flight;
            }
        }
        None
    }

    /// Removes all queries sent over TCP and returns their number.
    pub(super) fn drop_tcp(&mut self) -> u64 {
        let gone: Vec<u16> = (0..=u16::MAX)
            .filter(|&id| self.get(id).is_some_and(|flight| flight.over_tcp))
            .collect();
        gone.iter().for_each(|&id| self.leave(id));
        gone.len() as u64
    }
}

/// A source port with its socket or connection, and the queries in flight on it.
pub(super) struct Port {
    pub(super) flights: Flights,
    /// Maximum number of queries in flight.
    pub(super) most: usize,
    pub(super) udp: Option<(Endpoint, SendQueue)>,
    pub(super) stream: Option<Stream>,
    /// Time before which no new connection is started.
    not_before: Nanos,
    /// Time of the first connection attempt.
    pub(super) first_try: Option<Nanos>,
    /// Number of connections that could not be started, and the last error.
    pub(super) refused: (u64, Option<io::Error>),
    /// True if the socket or stream may have more data than was read the last time.
    pub(super) has_more: bool,
    local: Option<SocketAddr>,
    token: usize,
}

/// Decodes a token of the poller. Returns the port's index, and true if the token identifies the port's TCP stream.
pub(super) fn port_of(token: usize) -> (usize, bool) {
    (token / 2, token % 2 == 1)
}

impl Port {
    /// Creates a port. `number` is its index among the ports of all threads, and `at` is its index among the ports of
    /// this thread.
    pub(super) fn new(
        settings: &ClientSettings,
        number: usize,
        at: usize,
        most: usize,
        poller: &Poller,
    ) -> io::Result<Port> {
        let local = settings.local.map(|mut local| {
            if local.port() != 0 {
                local.set_port(local.port().wrapping_add(number as u16));
            }
            local
        });
        let udp = (settings.transport != Transport::Tcp).then(|| -> io::Result<_> {
            let endpoint = Endpoint::connect_from(local, settings.server)?;
            if let Some(octets) = settings.buffer {
                endpoint.limit_buffers(octets)?;
            }
            endpoint.use_kernel_timestamps()?;
            if settings.offload {
                endpoint.use_receive_offload();
            }
            poller.add(&endpoint, at * 2)?;
            Ok((
                endpoint,
                if settings.offload { SendQueue::new() } else { SendQueue::without_offload() },
            ))
        });
        Ok(Port {
            flights: Flights::new(
                most,
                settings.additional.key().is_some(),
                matches!(settings.source, Source::File(_)),
            ),
            most,
            udp: udp.transpose()?,
            stream: None,
            not_before: Nanos(0),
            first_try: None,
            refused: (0, None),
            has_more: false,
            // The TCP stream of a UDP port uses any local port.
            local: local.filter(|_| settings.transport == Transport::Tcp),
            token: at * 2 + 1,
        })
    }

    /// Returns the connection, and starts one if there is none. After a failed attempt, returns `None` until the next
    /// attempt is allowed.
    pub(super) fn stream(
        &mut self,
        settings: &ClientSettings,
        poller: &Poller,
        now: Nanos,
    ) -> Option<&mut Stream> {
        if self.stream.is_none() && now >= self.not_before {
            self.first_try.get_or_insert(now);
            match Stream::begin(settings.server, self.local, settings.buffer, poller, self.token) {
                Ok(stream) => self.stream = Some(stream),
                Err(error) => {
                    self.not_before = now + RECONNECT;
                    self.refused = (self.refused.0 + 1, Some(error));
                }
            }
        }
        self.stream.as_mut()
    }

    /// Drops the connection after it has ended. If it delivered no message, no new connection is started for a while.
    pub(super) fn disconnect(&mut self, now: Nanos, was_of_use: bool) {
        self.stream = None;
        if !was_of_use {
            self.not_before = now + RECONNECT;
        }
    }
}
