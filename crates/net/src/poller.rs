//! Waiting for many sockets at once (epoll).

use std::io;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::socket::Endpoint;

/// Waits until some of its sockets have something to read.
pub struct Poller {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl Poller {
    /// A poller that reports up to `capacity` sockets at once.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn new(capacity: usize) -> io::Result<Poller> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Poller { epoll, events: vec![EpollEvent::empty(); capacity.max(1)] })
    }

    /// Watches `endpoint` and reports it as `token`.
    ///
    /// # Errors
    /// If it is watched already, or the kernel is out of memory.
    pub fn add(&self, endpoint: &Endpoint, token: usize) -> io::Result<()> {
        self.epoll.add(endpoint.socket(), EpollEvent::new(EpollFlags::EPOLLIN, token as u64)).map_err(Into::into)
    }

    /// The tokens of the sockets that can be read, none if `timeout` passes first. A signal counts as a timeout.
    ///
    /// # Errors
    /// Whatever epoll_wait(2) reports otherwise.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<impl Iterator<Item = usize> + '_> {
        let millis = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
        let ready = match self.epoll.wait(&mut self.events, EpollTimeout::from(millis)) {
            Ok(n) => n,
            Err(nix::Error::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        Ok(self.events[..ready].iter().map(|event| event.data() as usize))
    }
}
