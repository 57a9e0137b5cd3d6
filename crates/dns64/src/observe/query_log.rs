//! The query log: one line for each answered query, or for one in N answered queries.

use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use dnssec::Security;
use domain::base::iana::Rtype;
use nix::unistd::Uid;
use serde::Serialize;
use units::Nanos;
use wire::rcode::Rcode;

use super::queue::{HeapSize, QueueReceiver, QueueSender, Received, queue};
use super::standard_error::WRITE_LOCK;
use crate::config::{LogFormat, QueryLogKeys};
use crate::metrics::{Count, WorkerMetrics};
use crate::name::{LowerName, text};
use crate::translation::decision::Decision;
use crate::transport::Transport;

/// Maximum number of entries in the queue.
const PLACES: usize = 16_384;
/// Maximum total length of the queried names in all queued entries, in octets.
const OCTETS: usize = 4 << 20;
/// Number of buffered octets at which the buffer is written.
const BUFFER: usize = 64 << 10;
/// Interval at which the writer checks for a request to reopen the file.
const TICK: Duration = Duration::from_millis(500);

/// Log entry for an answered query.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Time of the reply, in nanoseconds since 1970.
    pub(crate) when: Nanos,
    /// Time from query to reply.
    pub(crate) took: Nanos,
    /// Address of the client.
    pub(crate) client: IpAddr,
    /// Queried name and type, or `None` if they could not be parsed.
    pub(crate) question: Option<(LowerName, u16)>,
    /// Transport of the query.
    pub(crate) transport: Transport,
    /// RCODE of the reply.
    pub(crate) rcode: Rcode,
    /// Decision behind the reply, for example to synthesize AAAA records.
    pub(crate) decision: Decision,
    /// True if the reply depends on an expired answer.
    pub(crate) stale: bool,
    /// Worst result of the DNSSEC validation of the answers on which the reply depends; `None` if none was validated.
    pub(crate) security: Option<Security>,
}

impl HeapSize for Entry {
    fn octets(&self) -> usize {
        self.question.as_ref().map_or(0, |(name, _)| name.wire().len())
    }
}

/// A line of the query log in JSON. The names and the order of the keys are a stable interface.
#[derive(Serialize)]
struct Line<'a> {
    time: &'a str,
    client: IpAddr,
    name: Option<&'a str>,
    #[serde(rename = "type")]
    rtype: Option<&'a str>,
    transport: &'static str,
    rcode: &'a str,
    decision: Decision,
    stale: bool,
    took_us: u64,
    dnssec: Option<String>,
}

impl Entry {
    /// Appends the line for this entry to `out`.
    fn write(&self, format: LogFormat, out: &mut Vec<u8>) {
        let when = UNIX_EPOCH + Duration::from(self.when);
        let time = humantime::format_rfc3339_millis(when).to_string();
        let question = self.question.as_ref();
        let question =
            question.map(|(name, rtype)| (text(name.wire()), Rtype::from_int(*rtype).to_string()));
        let (name, rtype) = match &question {
            Some((name, rtype)) => (Some(name.as_str()), Some(rtype.as_str())),
            None => (None, None),
        };
        let (transport, rcode) = (self.transport.label(), format!("{:?}", self.rcode));
        let took_us = self.took.0 / 1_000;
        match format {
            LogFormat::Text => {
                // Escape spaces, so that a name cannot change the columns.
                let name = name.map_or("-".to_owned(), |name| name.replace("\\ ", "\\032"));
                let rtype = rtype.unwrap_or("-");
                let (client, decision) = (self.client, self.decision.word());
                let stale = if self.stale { " stale" } else { "" };
                let security = self.security.map(|security| format!(" {security}"));
                let security = security.unwrap_or_default();
                // Writing to a vector does not fail.
                let _ = writeln!(
                    out,
                    "{time} {client} {name} {rtype} {transport} {rcode} {decision} {took_us}us{stale}{security}"
                );
            }
            LogFormat::Json => {
                let line = Line {
                    time: &time,
                    client: self.client,
                    name,
                    rtype,
                    transport,
                    rcode: &rcode,
                    decision: self.decision,
                    stale: self.stale,
                    took_us,
                    dnssec: self.security.map(|security| security.to_string()),
                };
                // All values can be represented in JSON.
                let _ = serde_json::to_writer(&mut *out, &line);
                out.push(b'\n');
            }
        }
    }
}

/// Handle that one thread uses to pass entries to the writer.
#[derive(Clone)]
pub(super) struct Lines {
    inlet: QueueSender<Entry>,
    /// Sampling interval N: one in N queries is logged.
    sample: u32,
    /// Number of queries since the last logged query.
    since: u32,
}

impl Lines {
    /// Counts an answered query. Returns true if the query must be logged.
    #[inline]
    pub(super) fn is_due(&mut self) -> bool {
        self.since += 1;
        let is_due = self.since >= self.sample;
        if is_due {
            self.since = 0;
        }
        is_due
    }

    /// Queues an entry. Returns false if the queue is full.
    pub(super) fn put(&self, entry: Entry) -> bool {
        self.inlet.put(entry)
    }
}

/// Opens a file for appending, and creates it if it does not exist. A new file is readable only by
/// its owner and its group.
///
/// # Errors
/// Returns an error if a system call fails, or if the file is a pipe without a reader. Also returns an error if the
/// process runs as root and the path is a symbolic link. The folder of the link may belong to a different user, and
/// this user could make root write to any file.
pub(super) fn append_to(path: &Path) -> io::Result<File> {
    let links = if Uid::effective().is_root() { libc::O_NOFOLLOW } else { 0 };
    let flags = libc::O_NONBLOCK | links;
    File::options().append(true).create(true).mode(0o640).custom_flags(flags).open(path)
}

/// Destination of the query log.
pub(super) trait Target: Write + Send {
    /// True if the destination is an empty file.
    fn is_empty(&self) -> bool;

    /// Opens the destination again by its path, and returns it. A missing file is created. Returns `None` if the
    /// destination has no path.
    fn reopened(&self, path: Option<&Path>) -> io::Result<Option<Box<dyn Target>>>;
}

impl Target for File {
    fn is_empty(&self) -> bool {
        self.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0)
    }

    fn reopened(&self, path: Option<&Path>) -> io::Result<Option<Box<dyn Target>>> {
        let Some(path) = path else { return Ok(None) };
        Ok(Some(Box::new(append_to(path)?)))
    }
}

/// State of the thread that writes the query log.
pub(super) struct Writer {
    outlet: QueueReceiver<Entry>,
    target: Box<dyn Target>,
    path: Option<PathBuf>,
    format: LogFormat,
    reopen: Arc<AtomicBool>,
    /// Lines that have not been written yet.
    buffer: Vec<u8>,
    /// Number of lines in the write buffer.
    lines: u64,
    /// True if the last write failed.
    fails: bool,
    /// True if the output ends with a partial line.
    is_torn: bool,
}

/// Creates a query log that is written to `target`. Returns the handle that accepts entries, and the writer.
pub(super) fn lines(
    keys: &QueryLogKeys,
    target: Box<dyn Target>,
    reopen: Arc<AtomicBool>,
) -> (Lines, Writer) {
    let (inlet, outlet) = queue(PLACES, OCTETS);
    let path = keys.file().map(Into::into);
    let writer = Writer {
        outlet,
        target,
        path,
        format: keys.format,
        reopen,
        buffer: Vec::with_capacity(2 * BUFFER),
        lines: 0,
        fails: false,
        is_torn: false,
    };
    (Lines { inlet, sample: keys.sample, since: 0 }, writer)
}

impl Writer {
    /// Writes entries until all senders have been dropped.
    pub(super) fn run(mut self, metrics: &WorkerMetrics) {
        loop {
            let next = match self.outlet.next(Duration::ZERO) {
                Received::Nothing => {
                    self.flush(metrics);
                    self.outlet.next(TICK)
                }
                next => next,
            };
            if self.reopen.swap(false, Ordering::Relaxed) {
                self.flush(metrics);
                self.reopen();
            }
            match next {
                Received::One(entry) => {
                    entry.write(self.format, &mut self.buffer);
                    self.lines += 1;
                    if self.buffer.len() >= BUFFER {
                        self.flush(metrics);
                    }
                }
                Received::Nothing => {}
                Received::Over => return self.flush(metrics),
            }
        }
    }

    /// Writes the buffer. Lines that cannot be written are dropped as a whole. After a partial
    /// line, the next entry starts on a new line.
    fn flush(&mut self, metrics: &WorkerMetrics) {
        if self.lines == 0 {
            return;
        }
        // With this lock, lines of this log and of the server's log are not mixed on standard error.
        let _one = self.path.is_none().then(|| WRITE_LOCK.lock());
        let end_of_line = if self.is_torn { self.put(b"\n").0 } else { Ok(()) };
        let buffer = std::mem::take(&mut self.buffer);
        let (written, octets) = match end_of_line {
            Ok(()) => self.put(&buffer),
            error => (error, 0),
        };
        let whole = buffer[..octets].iter().filter(|octet| **octet == b'\n').count() as u64;
        (self.buffer, self.lines) = (buffer, self.lines - whole);
        self.buffer.clear();
        metrics.add(Count::LogWritten, whole);
        metrics.add(Count::LogDropped, std::mem::take(&mut self.lines));
        let failed = std::mem::replace(&mut self.fails, written.is_err());
        match written {
            Err(error) if !failed => tracing::warn!("cannot write the query log: {error}"),
            Ok(()) if failed => tracing::info!("writing the query log works again"),
            _ => {}
        }
    }

    /// Writes octets until all are written or an error occurs. Returns the result, and the number of octets written.
    fn put(&mut self, octets: &[u8]) -> (io::Result<()>, usize) {
        let mut at = 0;
        let written = loop {
            match self.target.write(&octets[at..]) {
                _ if at == octets.len() => break self.target.flush(),
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(more) => at += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        if at > 0 {
            self.is_torn = octets[at - 1] != b'\n';
        }
        (written, at)
    }

    fn reopen(&mut self) {
        match self.target.reopened(self.path.as_deref()) {
            // If the file was not renamed, it may still end with a partial line.
            Ok(Some(target)) => {
                self.is_torn &= !target.is_empty();
                self.target = target;
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(
                    "cannot reopen the query log, continuing with the open file: {error}"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn entry(name: Option<&str>) -> Entry {
        Entry {
            when: Nanos(1_767_322_923_004_000_000),
            took: Nanos(12_345_678),
            client: "192.0.2.7".parse().unwrap(),
            question: name.map(|name| (name.parse().unwrap(), 28)),
            transport: Transport::Udp,
            rcode: Rcode::NOERROR,
            decision: Decision::TranslatedNoData,
            stale: false,
            security: None,
        }
    }

    fn line(entry: &Entry, format: LogFormat) -> String {
        let mut out = Vec::new();
        entry.write(format, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_line_has_client_question_and_decision() {
        assert_eq!(
            line(&entry(Some("WWW.example")), LogFormat::Text),
            "2026-01-02T03:02:03.004Z 192.0.2.7 www.example. AAAA UDP NOERROR translated-no-data 12345us\n"
        );
        let stale = Entry { stale: true, question: None, ..entry(None) };
        assert_eq!(
            line(&stale, LogFormat::Text),
            "2026-01-02T03:02:03.004Z 192.0.2.7 - - UDP NOERROR translated-no-data 12345us stale\n"
        );
        assert_eq!(
            line(&entry(Some("www.example")), LogFormat::Json),
            "{\"time\":\"2026-01-02T03:02:03.004Z\",\"client\":\"192.0.2.7\",\"name\":\"www.example.\",\"type\":\"AAAA\",\
             \"transport\":\"UDP\",\"rcode\":\"NOERROR\",\"decision\":\"translated-no-data\",\"stale\":false,\"took_us\":12345,\"dnssec\":null}\n"
        );
        let secure = Entry { security: Some(Security::Secure), ..stale };
        assert!(line(&secure, LogFormat::Text).ends_with(" 12345us stale secure\n"));
        assert!(line(&secure, LogFormat::Json).ends_with(",\"dnssec\":\"secure\"}\n"));
        // A newline in a name must not start a second line, and a space must not start a column.
        let mut odd = entry(Some("www.example"));
        odd.question = Some((LowerName::from_wire(b"\x05a\nb c\0"), 65_280));
        let odd = line(&odd, LogFormat::Text);
        assert!(odd.lines().count() == 1 && odd.contains(" a\\010b\\032c. TYPE65280 "), "{odd}");
        let root = line(&entry(Some(".")), LogFormat::Text);
        assert!(root.contains(" 192.0.2.7 . AAAA "), "{root}");
    }

    /// Collects the output. Writing fails while the flag is set.
    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<(Vec<u8>, bool)>>);

    impl Write for Sink {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let mut sink = self.0.lock().unwrap();
            if sink.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            sink.0.extend(octets);
            Ok(octets.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Target for Sink {
        fn is_empty(&self) -> bool {
            self.0.lock().unwrap().0.is_empty()
        }
        fn reopened(&self, _: Option<&Path>) -> io::Result<Option<Box<dyn Target>>> {
            Ok(None)
        }
    }

    #[test]
    fn lines_are_sampled_and_drops_are_counted() {
        let keys = QueryLogKeys { sample: 3, ..QueryLogKeys::default() };
        for fails in [false, true] {
            let sink = Sink::default();
            sink.0.lock().unwrap().1 = fails;
            let (mut lines, writer) = lines(&keys, Box::new(sink.clone()), Arc::default());
            let put = (0..10).filter(|_| lines.is_due() && lines.put(entry(Some("a.test"))));
            assert_eq!(put.count(), 3);
            drop(lines);
            let metrics = WorkerMetrics::default();
            writer.run(&metrics);
            let written = sink.0.lock().unwrap().0.iter().filter(|octet| **octet == b'\n').count();
            let counted = (metrics.get(Count::LogWritten), metrics.get(Count::LogDropped));
            assert_eq!((written, counted), if fails { (0, (0, 3)) } else { (3, (3, 0)) });
        }
    }

    /// A disk that becomes full in the middle of the second line of three, and later has room
    /// again.
    #[test]
    fn a_partly_written_line_affects_no_other_line() {
        struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);
        impl Write for Disk {
            fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
                let mut disk = self.0.lock().unwrap();
                let room = disk.1.min(octets.len());
                if room == 0 && !octets.is_empty() {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                disk.0.extend(&octets[..room]);
                disk.1 -= room;
                Ok(room)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl Target for Disk {
            fn is_empty(&self) -> bool {
                self.0.lock().unwrap().0.is_empty()
            }
            fn reopened(&self, _: Option<&Path>) -> io::Result<Option<Box<dyn Target>>> {
                Ok(Some(Box::new(Disk(Arc::clone(&self.0)))))
            }
        }
        let one = line(&entry(Some("a.test")), LogFormat::Text);
        let disk = Arc::new(Mutex::new((Vec::new(), one.len() + 10)));
        let (lines, mut writer) =
            lines(&QueryLogKeys::default(), Box::new(Disk(Arc::clone(&disk))), Arc::default());
        let metrics = WorkerMetrics::default();
        let counted = || (metrics.get(Count::LogWritten), metrics.get(Count::LogDropped));
        let flush = |writer: &mut Writer, n: u64| {
            for _ in 0..n {
                writer.buffer.extend(one.as_bytes());
            }
            writer.lines = n;
            writer.flush(&metrics);
        };
        flush(&mut writer, 3);
        assert_eq!(counted(), (1, 2));
        flush(&mut writer, 1);
        assert_eq!(counted(), (1, 3), "still full");
        // A reload reopens the file, which was not renamed.
        writer.reopen();
        disk.lock().unwrap().1 = 1 << 20;
        flush(&mut writer, 2);
        assert_eq!(counted(), (3, 3));
        let text = String::from_utf8(disk.lock().unwrap().0.clone()).unwrap();
        let found: Vec<&str> = text.lines().collect();
        let one = one.trim_end();
        assert_eq!(found, [one, &one[..10], one, one]);
        drop(lines);
    }

    #[test]
    fn reopening_creates_a_new_file_after_a_rename() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("queries.log");
        let to = Some(crate::config::LogTarget::File(path.clone()));
        let keys = QueryLogKeys { to, ..QueryLogKeys::default() };
        let reopen = Arc::<AtomicBool>::default();
        let target = Box::new(append_to(&path).unwrap());
        let (mut lines, writer) = lines(&keys, target, Arc::clone(&reopen));
        let metrics = WorkerMetrics::default();
        std::thread::scope(|scope| {
            scope.spawn(|| writer.run(&metrics));
            let count = |path: &PathBuf| {
                std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
            };
            let wait = |path: &PathBuf| {
                let give_up = std::time::Instant::now() + Duration::from_secs(30);
                while count(path) != 1 {
                    assert!(std::time::Instant::now() < give_up, "never in {}", path.display());
                    std::thread::sleep(Duration::from_millis(5));
                }
            };
            assert!(lines.is_due() && lines.put(entry(Some("a.test"))));
            wait(&path);
            let old = folder.path().join("queries.log.1");
            std::fs::rename(&path, &old).unwrap();
            reopen.store(true, Ordering::Relaxed);
            assert!(lines.put(entry(Some("b.test"))));
            wait(&path);
            assert_eq!(count(&old), 1);
            drop(lines);
        });
    }
}
