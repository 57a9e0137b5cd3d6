//! Writes one record per query to a file. The format is that of dns64perf++ (`.csv`) or Parquet with typed columns
//! (`.parquet`).
//!
//! ```text
//! receivers ─ batches of records ─► bounded queue ─► writer thread ─► temporary file ─ rename ─► the file
//! ```
//!
//! A full queue means that the disk is too slow. The trial is then invalid; records are never dropped silently.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use columnar::{Column, Writer};
use method::records::{Outcome, Record};
use tempfile::NamedTempFile;
use units::{Nanos, Qps};
use wire::name::Domain;

use super::names::NameSequence;
use super::plan::TrialPlan;

/// Number of records per batch.
const BATCH: usize = 8192;
/// Maximum number of batches that wait to be written to disk. Together, these batches contain 524,288 records (about 34
/// MB), which is about five seconds of queries at 100,000 queries per second.
const QUEUE: usize = 64;

/// Reasons why records could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The file name's extension is neither .csv nor .parquet.
    #[error("--records {path}: the name must end in .csv or .parquet")]
    Extension {
        /// File name that the user gave (`--records`).
        path: PathBuf,
    },
    /// The disk is full, or the folder is missing or not writable.
    #[error("cannot write the records {path}: {source}")]
    Io {
        /// The file of the records (`--records`).
        path: PathBuf,
        /// Error returned by the system.
        source: io::Error,
    },
}

/// Data of a trial for the header of its record file, and for computing the name of a query from its index.
#[derive(Clone)]
pub struct RecordContext {
    server: SocketAddr,
    count: u64,
    threads: u16,
    rate: Qps,
    domain: Domain,
    names: NameSequence,
    /// Wall-clock time at the start of the trial, for file formats that contain dates.
    wall_start: Nanos,
}

impl RecordContext {
    /// Creates the record data of a trial that is carried out according to `plan` and starts at the wall-clock time
    /// `wall_start`.
    pub fn new(plan: &TrialPlan, wall_start: Nanos) -> RecordContext {
        RecordContext {
            server: plan.server,
            count: plan.schedule().count(),
            threads: plan.threads,
            rate: plan.rate,
            domain: plan.domain.clone(),
            names: plan.name_sequence(),
            wall_start,
        }
    }

    fn name(&self, record: &Record) -> String {
        self.domain.name_of(self.names.address(record.index))
    }
}

/// Writer of the records of one trial.
pub struct Recorder {
    path: PathBuf,
    queue: SyncSender<Vec<Record>>,
    overflow: Arc<AtomicU64>,
    writer: JoinHandle<Result<NamedTempFile, RecordError>>,
}

impl Recorder {
    /// Checks that a file name determines the format of the records.
    ///
    /// # Errors
    /// Returns [`RecordError::Extension`] if the file name's extension is unknown.
    pub(crate) fn check_name(path: &Path) -> Result<(), RecordError> {
        let is_known = path.extension().is_some_and(|e| e == "csv" || e == "parquet");
        if is_known { Ok(()) } else { Err(RecordError::Extension { path: path.into() }) }
    }

    /// Checks that a file of this name can be written. A temporary file is created and removed for this.
    ///
    /// # Errors
    /// Returns an error if the name's extension is unknown, or if the folder is not writable.
    pub fn try_name(path: &Path) -> Result<(), RecordError> {
        Recorder::check_name(path)?;
        begun(path).map(drop)
    }

    /// Opens a temporary file beside `path` and starts the writer.
    ///
    /// # Errors
    /// Returns any error from [`Recorder::try_name`], or an error if no thread can be started.
    pub fn start(path: &Path, context: RecordContext) -> Result<Recorder, RecordError> {
        Recorder::check_name(path)?;
        let format =
            if path.extension().is_some_and(|e| e == "csv") { write_csv } else { write_parquet };
        let file = begun(path)?;
        let (queue, batches) = sync_channel(QUEUE);
        let owned = path.to_owned();
        let writer = std::thread::Builder::new()
            .name("records".into())
            .spawn(move || {
                let written = format(file.as_file(), &context, &batches);
                written.map_err(|source| RecordError::Io { path: owned, source }).map(|()| file)
            })
            .map_err(|source| RecordError::Io { path: path.into(), source })?;
        Ok(Recorder { path: path.into(), queue, overflow: Arc::default(), writer })
    }

    /// Returns the object through which the receiver of a pair of threads adds its records.
    pub(crate) fn for_pair(&self) -> PairRecorder {
        let batch = Vec::with_capacity(BATCH);
        PairRecorder { batch, queue: self.queue.clone(), overflow: Arc::clone(&self.overflow) }
    }

    /// Writes the remaining records and renames the temporary file to its final name. Each `PairRecorder` must be
    /// dropped before this call.
    ///
    /// Returns the number of records lost because the disk was too slow. If records were lost, no file is kept.
    ///
    /// # Errors
    /// Returns an error if the file could not be written completely. No file is kept in this case.
    pub fn finish(self) -> Result<u64, RecordError> {
        drop(self.queue);
        let file = self.writer.join().expect("the writer does not panic")?;
        let lost = self.overflow.load(Ordering::Relaxed);
        if lost > 0 {
            return Ok(lost);
        }
        let at = |source| RecordError::Io { path: self.path.clone(), source };
        file.as_file().sync_all().map_err(at)?;
        file.persist(&self.path).map_err(|e| at(e.error))?;
        Ok(0)
    }

    /// Discards all records and writes no file. Each `PairRecorder` must be dropped before this call.
    pub fn discard(self) {
        drop(self.queue);
        // Dropping the writer's return value removes the temporary file.
        drop(self.writer.join());
    }
}

/// Creates a temporary file beside `path`, to be renamed when it is complete.
fn begun(path: &Path) -> Result<NamedTempFile, RecordError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // The mode is that of ordinary files, to which the kernel applies the umask. The default would be 0600.
    let mode = std::fs::Permissions::from_mode(0o666);
    let mut builder = tempfile::Builder::new();
    let file = builder.prefix(".dns64bench-").permissions(mode).tempfile_in(folder);
    file.map_err(|source| RecordError::Io { path: path.into(), source })
}

/// Object through which one pair of threads adds its records.
pub(crate) struct PairRecorder {
    batch: Vec<Record>,
    queue: SyncSender<Vec<Record>>,
    overflow: Arc<AtomicU64>,
}

impl PairRecorder {
    /// Adds a record without waiting for the disk.
    #[inline]
    pub(crate) fn push(&mut self, record: Record) {
        self.batch.push(record);
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH));
        if let Err(error) = self.queue.try_send(batch) {
            let (std::sync::mpsc::TrySendError::Full(lost)
            | std::sync::mpsc::TrySendError::Disconnected(lost)) = error;
            self.overflow.fetch_add(lost.len() as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for PairRecorder {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes the format of dns64perf++ (docs/src/formats.md): a header, then columns separated by `;`. Times are in
/// nanoseconds since 1970.
fn write_csv(
    file: &File,
    context: &RecordContext,
    batches: &Receiver<Vec<Record>>,
) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    writeln!(out, "dns64perf++ test parameters")?;
    writeln!(out, "server: {}", context.server.ip())?;
    writeln!(out, "port: {}", context.server.port())?;
    writeln!(out, "number of requests: {}", context.count)?;
    writeln!(out, "burst size: 1")?;
    writeln!(out, "number of threads: {}", context.threads)?;
    // The delay is the interval between two queries of one thread, as on dns64perf++'s command line.
    let delay = Nanos::SECOND.0 * u64::from(context.threads) / context.rate.0;
    writeln!(out, "delay between bursts: {delay} ns\n")?;
    writeln!(out, "query;thread id;tsent [ns];treceived [ns];received;answered;rtt [ns]")?;
    for record in batches.iter().flatten() {
        let sent = context.wall_start + record.sent;
        write!(out, "{}.;{};{};", context.name(&record), record.pair, sent.0)?;
        match record.received {
            Some(received) => {
                let answered = u8::from(
                    matches!(record.outcome, Outcome::Valid | Outcome::Late)
                        && record.rcode == Some(0),
                );
                let rtt = received.since(record.sent);
                writeln!(out, "{};1;{answered};{}", (sent + rtt).0, rtt.0)?;
            }
            None => writeln!(out, "0;0;0;-1")?,
        }
    }
    out.flush()
}

const PARQUET_SCHEMA: &str = "message dns64bench_record {
    REQUIRED INT64 index;
    REQUIRED BYTE_ARRAY name (UTF8);
    REQUIRED INT32 pair;
    REQUIRED INT64 scheduled;
    REQUIRED INT64 sent;
    OPTIONAL INT64 received;
    REQUIRED BYTE_ARRAY outcome (UTF8);
    OPTIONAL INT32 rcode;
}";

/// Number of rows in each row group of the Parquet file.
const ROW_GROUP: usize = 16 * BATCH;

fn write_parquet(
    file: &File,
    context: &RecordContext,
    batches: &Receiver<Vec<Record>>,
) -> io::Result<()> {
    let mut writer = Writer::new(file, PARQUET_SCHEMA)?;
    let mut rows = Vec::with_capacity(ROW_GROUP + BATCH);
    for batch in batches {
        rows.extend(batch);
        if rows.len() >= ROW_GROUP {
            writer.write_row_group(&|position| column(position, &rows, context))?;
            rows.clear();
        }
    }
    if !rows.is_empty() {
        writer.write_row_group(&|position| column(position, &rows, context))?;
    }
    writer.close()
}

/// Returns the column of the Parquet file ([`PARQUET_SCHEMA`]) at index `position`. Indices and times are below 2⁶³.
fn column(position: usize, rows: &[Record], context: &RecordContext) -> Column {
    let int64 = |value: fn(&Record) -> u64| {
        Column::Int64(rows.iter().map(|row| value(row) as i64).collect())
    };
    match position {
        0 => int64(|row| row.index.0),
        1 => Column::Text(rows.iter().map(|row| context.name(row)).collect()),
        2 => Column::Int32(rows.iter().map(|row| row.pair.into()).collect()),
        3 => int64(|row| row.scheduled.0),
        4 => int64(|row| row.sent.0),
        5 => Column::OptionalInt64(
            rows.iter().map(|row| row.received.map(|time| time.0 as i64)).collect(),
        ),
        6 => Column::Text(rows.iter().map(|row| row.outcome.as_str().to_owned()).collect()),
        _ => Column::OptionalInt32(rows.iter().map(|row| row.rcode.map(i32::from)).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use method::records::Wrong;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use units::QueryIndex;

    fn write(file: &str, n: u64) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        let plan = TrialPlan::new("[2001:2::1]:53".parse().unwrap(), Qps(1000));
        let recorder =
            Recorder::start(&path, RecordContext::new(&plan, Nanos(1_700_000_000_000_000_000)))
                .unwrap();
        let mut pair = recorder.for_pair();
        for i in 0..n {
            let received = (i % 3 != 0).then(|| Nanos(i * 1000 + 250));
            let outcome = match i % 3 {
                0 => Outcome::Lost,
                1 => Outcome::Valid,
                _ => Outcome::Wrong(Wrong::Rcode(2)),
            };
            let rcode = received.map(|_| if i % 3 == 1 { 0 } else { 2 });
            let (index, at) = (QueryIndex(i), Nanos(i * 1000));
            pair.push(Record { index, pair: 0, scheduled: at, sent: at, received, outcome, rcode });
        }
        drop(pair);
        assert_eq!(recorder.finish().unwrap(), 0);
        (folder, path)
    }

    #[test]
    fn csv_is_the_format_of_dns64perf() {
        let (_folder, path) = write("r.csv", 3);
        let text = std::fs::read_to_string(path).unwrap();
        let expected = "dns64perf++ test parameters\nserver: 2001:2::1\nport: 53\nnumber of requests: 60000\nburst size: 1\n\
            number of threads: 1\ndelay between bursts: 1000000 ns\n\n\
            query;thread id;tsent [ns];treceived [ns];received;answered;rtt [ns]\n\
            010-000-000-000.dns64perf.test.;0;1700000000000000000;0;0;0;-1\n\
            010-000-000-001.dns64perf.test.;0;1700000000000001000;1700000000000001250;1;1;250\n\
            010-000-000-002.dns64perf.test.;0;1700000000000002000;1700000000000002250;1;0;250\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn parquet_has_typed_columns_over_several_row_groups() {
        let n = (ROW_GROUP + 5) as u64;
        let (_folder, path) = write("r.parquet", n);
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        assert_eq!(reader.metadata().file_metadata().num_rows() as u64, n);
        assert_eq!(reader.num_row_groups(), 2);
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().take(3).map(Result::unwrap).collect();
        assert_eq!(rows[1].get_string(1).unwrap(), "010-000-000-001.dns64perf.test");
        assert_eq!((rows[1].get_long(5).unwrap(), rows[1].get_int(7).unwrap()), (1250, 0));
        assert!(rows[0].get_long(5).is_err(), "lost: no receive time");
        assert_eq!(rows[2].get_string(6).unwrap(), "wrong_rcode");
    }

    #[test]
    fn a_slow_disk_is_reported_not_hidden() {
        let (queue, _batches) = sync_channel(1);
        let overflow = Arc::new(AtomicU64::new(0));
        let mut pair = PairRecorder { batch: Vec::new(), queue, overflow: Arc::clone(&overflow) };
        let record = Record {
            index: QueryIndex(0),
            pair: 0,
            scheduled: Nanos(0),
            sent: Nanos(0),
            received: None,
            outcome: Outcome::Lost,
            rcode: None,
        };
        (0..3 * BATCH).for_each(|_| pair.push(record));
        assert_eq!(overflow.load(Ordering::Relaxed), 2 * BATCH as u64);
    }

    #[test]
    fn unusable_paths_are_rejected_before_the_trial() {
        let context = || {
            let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1));
            RecordContext::new(&plan, Nanos(0))
        };
        assert!(matches!(
            Recorder::start(Path::new("x.txt"), context()),
            Err(RecordError::Extension { .. })
        ));
        assert!(matches!(
            Recorder::start(Path::new("/nowhere/x.csv"), context()),
            Err(RecordError::Io { .. })
        ));
    }

    #[test]
    fn a_full_disk_leaves_no_file() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1));
        let context = RecordContext::new(&plan, Nanos(0));
        let (queue, batches) = sync_channel(1);
        drop(queue);
        let error = write_csv(&file, &context, &batches).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
