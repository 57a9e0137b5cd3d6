//! The log on standard error. Writing a line never blocks a thread, even if the reader has stopped
//! or the disk is full.
//!
//! ```text
//! any thread ─► tracing ─► queue ─► a thread ─► standard error
//!                            └ queue full: dropped, and reported later
//! ```

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::observe::queue::{HeapSize, QueueReceiver, QueueSender, Received, queue};
use crate::observe::standard_error;

/// Maximum number of lines in the queue.
const PLACES: usize = 4_096;
/// Maximum total length of the lines in the queue, in octets.
const OCTETS: usize = 1 << 20;
/// Time limit for writing the remaining lines at the end of the process.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// An item in the queue of the log thread: a line, or a request for notification.
enum Waiting {
    Line(Vec<u8>),
    /// A request for notification after all earlier items have been written.
    Mark(SyncSender<()>),
}

impl HeapSize for Waiting {
    fn octets(&self) -> usize {
        match self {
            Waiting::Line(line) => line.len(),
            Waiting::Mark(_) => 0,
        }
    }
}

/// Log output of the crate `tracing`. Each write contains one line.
pub(super) struct Log {
    inlet: QueueSender<Waiting>,
    /// Receiving end of the queue. `None` after a thread has begun to read from it.
    outlet: Mutex<Option<QueueReceiver<Waiting>>>,
    /// Number of lines lost since the last report of losses.
    lost: AtomicU64,
}

impl Log {
    pub(super) fn new() -> Arc<Log> {
        let (inlet, outlet) = queue(PLACES, OCTETS);
        Arc::new(Log { inlet, outlet: Mutex::new(Some(outlet)), lost: AtomicU64::new(0) })
    }

    fn take_outlet(&self) -> Option<QueueReceiver<Waiting>> {
        self.outlet.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Starts the thread that writes lines. Lines logged earlier wait in the queue. If the process
    /// restricts itself (`harden::confine`), this function must be called afterwards, so that the
    /// restrictions also apply to the new thread.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be created.
    pub(super) fn begin(self: &Arc<Log>) -> io::Result<()> {
        let Some(outlet) = self.take_outlet() else { return Ok(()) };
        let log = Arc::clone(self);
        let mut to = destination();
        let work = move || log.write(&outlet, &mut *to);
        thread::Builder::new().name("log".into()).spawn(work).map(drop)
    }

    /// Writes queued lines for as long as the process runs.
    fn write(&self, outlet: &QueueReceiver<Waiting>, to: &mut dyn Write) {
        loop {
            match outlet.next(Duration::from_secs(3_600)) {
                Received::One(waiting) => self.write_one(waiting, to),
                Received::Nothing => {}
                Received::Over => return,
            }
        }
    }

    fn write_one(&self, waiting: Waiting, to: &mut dyn Write) {
        match waiting {
            // A line that cannot be written is lost, because the error cannot be reported
            // elsewhere.
            Waiting::Line(line) => {
                let _one = standard_error::WRITE_LOCK.lock();
                let _ = to.write_all(&line);
            }
            Waiting::Mark(written) => drop(written.try_send(())),
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!("{lost} log lines dropped: the reader of standard error is too slow");
        }
    }

    /// Waits up to one second until all queued lines are written.
    pub(super) fn flush(&self) {
        if let Some(outlet) = self.take_outlet() {
            let mut to = destination();
            while let Received::One(waiting) = outlet.next(Duration::ZERO) {
                self.write_one(waiting, &mut *to);
            }
            return;
        }
        let (written, is_written) = sync_channel(1);
        if self.inlet.put(Waiting::Mark(written)) {
            let _ = is_written.recv_timeout(SHUTDOWN_TIMEOUT);
        }
    }
}

impl Write for &Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.inlet.put(Waiting::Line(line.to_vec())) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns standard error. If standard error is closed, returns a writer that discards all output.
fn destination() -> Box<dyn Write + Send> {
    match standard_error::open() {
        Ok(file) => Box::new(file),
        Err(_) => Box::new(io::sink()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Forwards written lines, and fails on lines that begin with "full".
    struct Reader(std::sync::mpsc::Sender<String>);

    impl Write for Reader {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            if line.starts_with(b"full") {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.send(String::from_utf8(line.to_vec()).unwrap()).unwrap();
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logging_never_blocks_and_drops_lines_instead() {
        let log = Log::new();
        for line in ["one\n", "full\n", "two\n"] {
            (&*log).write_all(line.as_bytes()).unwrap();
        }
        // Without a reader, lines that do not fit are counted, and no thread blocks.
        for _ in 0..PLACES {
            (&*log).write_all(b"more\n").unwrap();
        }
        assert_eq!(log.lost.load(Ordering::Relaxed), 3);
        let (sender, receiver) = channel();
        let outlet = log.take_outlet().unwrap();
        let of_thread = Arc::clone(&log);
        let writer = thread::spawn(move || {
            for _ in 0..PLACES {
                let Received::One(waiting) = outlet.next(SHUTDOWN_TIMEOUT) else {
                    panic!("none waits")
                };
                of_thread.write_one(waiting, &mut Reader(sender.clone()));
            }
            outlet
        });
        let outlet = writer.join().unwrap();
        let written: Vec<String> = receiver.try_iter().collect();
        assert_eq!((&*written[0], &*written[1]), ("one\n", "two\n"));
        assert_eq!((written.len(), log.lost.load(Ordering::Relaxed)), (PLACES - 1, 0));
        // A waiting flush is notified after everything is written.
        let of_thread = Arc::clone(&log);
        let writer = thread::spawn(move || {
            let Received::One(waiting) = outlet.next(SHUTDOWN_TIMEOUT) else { panic!("no mark") };
            of_thread.write_one(waiting, &mut io::sink());
            matches!(outlet.next(Duration::ZERO), Received::Nothing)
        });
        log.flush();
        assert!(writer.join().unwrap());
    }
}
