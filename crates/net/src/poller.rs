//! Waiting for multiple sockets at once (epoll).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// Waits for any of several sockets to become readable.
pub struct Poller {
    epoll: Epoll,
    events: Vec<EpollEvent>,
}

impl Poller {
    /// Creates a poller that reports up to `capacity` sockets at once.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptor left.
    pub fn new(capacity: usize) -> io::Result<Poller> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        Ok(Poller { epoll, events: vec![EpollEvent::empty(); capacity.max(1)] })
    }

    /// Watches a socket or an [`Alarm`] until it is closed. While it is readable, [`Poller::wait`] returns `token`.
    ///
    /// # Errors
    /// Returns an error if `watched` is already watched, or the kernel is out of memory.
    pub fn add(&self, watched: &impl AsFd, token: usize) -> io::Result<()> {
        self.epoll
            .add(watched, EpollEvent::new(EpollFlags::EPOLLIN, token as u64))
            .map_err(Into::into)
    }

    /// Stops watching a socket.
    ///
    /// # Errors
    /// Returns an error if the socket is not watched.
    pub fn remove(&self, watched: &impl AsFd) -> io::Result<()> {
        self.epoll.delete(watched).map_err(Into::into)
    }

    /// Watches a stream socket until it is closed. Each time that it becomes connected, readable or writable
    /// (edge-triggered), [`Poller::wait`] returns `token`. The caller must then read and write until the socket would
    /// block.
    ///
    /// # Errors
    /// Returns the same errors as [`Poller::add`].
    pub fn add_stream(&self, watched: &impl AsFd, token: usize) -> io::Result<()> {
        let both = EpollFlags::EPOLLIN
            | EpollFlags::EPOLLOUT
            | EpollFlags::EPOLLRDHUP
            | EpollFlags::EPOLLET;
        self.epoll.add(watched, EpollEvent::new(both, token as u64)).map_err(Into::into)
    }

    /// Waits until a watched socket or alarm is ready, and returns the tokens of those that are ready. Returns no
    /// tokens after `timeout` or after a signal.
    ///
    /// # Errors
    /// Returns any error from epoll_wait(2) except `EINTR`.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<impl Iterator<Item = usize> + '_> {
        // The timeout is rounded up. If a wait ended too early, the caller would repeat it at once and use CPU time.
        let is_whole = timeout.subsec_nanos().is_multiple_of(1_000_000);
        let millis = timeout.as_millis() + u128::from(!is_whole);
        let millis = u16::try_from(millis).unwrap_or(u16::MAX);
        let ready = match self.epoll.wait(&mut self.events, EpollTimeout::from(millis)) {
            Ok(n) => n,
            Err(nix::Error::EINTR) => 0,
            Err(e) => return Err(e.into()),
        };
        Ok(self.events[..ready].iter().map(|event| event.data() as usize))
    }
}

/// Event that wakes a thread which waits in a [`Poller`] (eventfd).
pub struct Alarm {
    event: EventFd,
}

impl Alarm {
    /// Creates an alarm that is not raised.
    ///
    /// # Errors
    /// Returns an error if the process has no file descriptor left.
    pub fn new() -> io::Result<Alarm> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Alarm { event })
    }

    /// Wakes the thread that waits for this alarm in its [`Poller`].
    pub fn ring(&self) {
        // Writing fails only if the counter is full, after 2⁶⁴ − 1 calls. The alarm is then already raised.
        let _ = self.event.write(1);
    }

    /// Resets the alarm. A woken thread must reset the alarm before it looks for its new work. Otherwise it could miss
    /// an alarm that is raised in between.
    pub fn reset(&self) {
        // An error means that the alarm was not raised.
        let _ = self.event.read();
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.event.as_fd()
    }
}
