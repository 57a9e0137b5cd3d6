//! Source of the queries: generated names, or the lines of a query file in dnsperf's format.
//!
//! The questions of a file are stored in memory in wire format, each with the length of its name. The questions are
//! read in sequence, so their positions need not be stored. While queries are sent, no text is parsed and no file is
//! read.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use domain::base::Name;
use domain::base::iana::{Class, Rtype};
use wire::name::{Domain, NameRange};
use wire::rcode::Rcode;
use wire::template::{HEADER_LEN, QueryTemplate};
use wire::view::Message;

use crate::measurer::expect::whole_rcode;

/// Maximum number of skipped lines that are reported individually.
const WARNINGS: usize = 10;
/// Length, in octets, of the type and class that follow a question's name.
const FIXED: usize = 4;

/// Source of a client's queries.
#[derive(Clone, Debug)]
pub enum Source {
    /// AAAA queries for generated names, which AuthDNS serves.
    Names(Names),
    /// The queries of a file.
    File(Arc<QueryFile>),
}

/// AAAA queries for names that AuthDNS serves, in sequence.
#[derive(Clone, Debug)]
pub struct Names {
    template: QueryTemplate,
    block: NameRange,
    first: u64,
    count: u64,
}

impl Names {
    /// Creates queries for `count` names below `domain`, starting at position `first` of the block of names. Returns
    /// `None` if the block is too small.
    pub fn new(domain: &Domain, block: NameRange, first: u64, count: u64) -> Option<Names> {
        let fits = first.checked_add(count)? <= block.count();
        fits.then(|| Names { template: QueryTemplate::aaaa(domain), block, first, count })
    }
}

/// Questions of a query file in wire format. Each is stored as the length of its name, the name, type and class.
#[derive(Debug, Default)]
pub struct QueryFile {
    records: Vec<u8>,
    count: u64,
    skipped: SkippedLines,
}

/// Malformed lines of a query file.
#[derive(Debug, Default)]
struct SkippedLines {
    /// Line number and fault of each of the first [`WARNINGS`] malformed lines.
    first: Vec<(u64, String)>,
    count: u64,
}

/// A query file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file does not exist, or cannot be read.
    #[error("cannot read the query file {path}: {source}")]
    Io {
        /// Path of the query file; `-` means standard input.
        path: PathBuf,
        /// Error returned by the system.
        source: io::Error,
    },
    /// The file contains no question. The fields describe the first of its malformed lines.
    #[error(
        "{path}, line {line}: {why}; a line is a name and a type, for example: www.example.com A"
    )]
    Line {
        /// Path of the query file; `-` means standard input.
        path: PathBuf,
        /// Line number, starting with 1.
        line: u64,
        /// Text of the error.
        why: String,
    },
    /// The file contains neither a question nor a malformed line.
    #[error("{path} contains no question")]
    Empty {
        /// Path of the query file; `-` means standard input.
        path: PathBuf,
    },
}

impl QueryFile {
    /// Reads the query file `path`; `-` means standard input.
    ///
    /// Each line has the format `name type [class]`. Empty lines and lines that begin with `;` or `#` are skipped.
    /// Malformed lines are skipped with [warnings](QueryFile::warnings).
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or contains no question.
    pub fn read(path: &Path) -> Result<QueryFile, FileError> {
        let io = |source| FileError::Io { path: path.into(), source };
        if path.as_os_str() == "-" {
            return QueryFile::parse(io::stdin().lock(), path, 0);
        }
        let file = File::open(path).map_err(io)?;
        let len = file.metadata().map_err(io)?.len();
        QueryFile::parse(BufReader::with_capacity(1 << 20, file), path, len as usize)
    }

    /// Parses the text of a query file. `path` is used only in error messages.
    ///
    /// # Errors
    /// Returns the same errors as [`QueryFile::read`].
    pub fn parse(mut input: impl BufRead, path: &Path, len: usize) -> Result<QueryFile, FileError> {
        // A stored question is typically up to a quarter longer than its line `name type\n`.
        let mut queries =
            QueryFile { records: Vec::with_capacity(len + len / 4), ..QueryFile::default() };
        let (mut line, mut number) = (Vec::new(), 0);
        loop {
            line.clear();
            number += 1;
            let read = input.read_until(b'\n', &mut line);
            if read.map_err(|source| FileError::Io { path: path.into(), source })? == 0 {
                break;
            }
            let text = str::from_utf8(&line).map_err(|_| "it is not text".to_owned());
            if let Err(why) = text.and_then(|text| queries.push(text)) {
                queries.skipped.add(number, why);
            }
        }
        if queries.count == 0 {
            let path = path.into();
            return Err(match queries.skipped.first.into_iter().next() {
                Some((line, why)) => FileError::Line { path, line, why },
                None => FileError::Empty { path },
            });
        }
        queries.records.shrink_to_fit();
        Ok(queries)
    }

    /// Adds the question of one line of the query file.
    fn push(&mut self, line: &str) -> Result<(), String> {
        if line.starts_with([';', '#']) {
            return Ok(());
        }
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next() else { return Ok(()) };
        let rtype = words.next().ok_or("the type is missing")?;
        let class = words.next().unwrap_or("IN");
        if let Some(more) = words.next() {
            return Err(format!("there is extra text after the class: '{more}'"));
        }
        let wire =
            Name::<Vec<u8>>::from_str(name).map_err(|e| format!("'{name}' is not a name ({e})"))?;
        let rtype = Rtype::from_str(rtype).map_err(|_| format!("'{rtype}' is not a type"))?;
        let class = Class::from_str(class).map_err(|_| format!("'{class}' is not a class"))?;
        self.records.push(wire.as_slice().len() as u8);
        self.records.extend(wire.as_slice());
        self.records.extend(rtype.to_int().to_be_bytes());
        self.records.extend(class.to_int().to_be_bytes());
        self.count += 1;
        Ok(())
    }

    /// Returns a warning for each of the first [`WARNINGS`] malformed lines of the file `path`, and one warning for all
    /// further malformed lines.
    pub fn warnings(&self, path: &Path) -> Vec<String> {
        let (path, skipped) = (path.display(), &self.skipped);
        let first = skipped.first.iter();
        let mut warnings: Vec<String> =
            first.map(|(line, why)| format!("{path}, line {line} is skipped: {why}")).collect();
        match skipped.count - skipped.first.len() as u64 {
            0 => {}
            1 => warnings.push(format!("{path}: another malformed line is skipped")),
            more => warnings.push(format!("{path}: {more} more malformed lines are skipped")),
        }
        warnings
    }

    /// Returns the size of the stored questions in octets.
    pub fn octets(&self) -> usize {
        self.records.capacity()
    }

    /// Returns the question at `at`, and the position of the next question.
    #[inline]
    fn question(&self, at: usize) -> (&[u8], usize) {
        let end = at + 1 + usize::from(self.records[at]) + FIXED;
        (&self.records[at + 1..end], end)
    }
}

impl SkippedLines {
    fn add(&mut self, line: u64, why: String) {
        self.count += 1;
        if self.first.len() < WARNINGS {
            self.first.push((line, why));
        }
    }
}

/// A question that has been sent. A question with a generated name is stored as the address that is encoded in the
/// name. A question of a file is stored as its position in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentQuestion(u64);

impl SentQuestion {
    /// Returns the address that is encoded in the name of this question. The name must be generated.
    pub(super) fn address(self) -> Ipv4Addr {
        Ipv4Addr::from(self.0 as u32)
    }
}

impl Source {
    /// Returns the number of questions.
    pub fn count(&self) -> u64 {
        match self {
            Source::Names(names) => names.count,
            Source::File(file) => file.count,
        }
    }

    /// Appends the query for the question `asked` to the buffer `out`. The header has id 0 and the RD flag.
    #[inline]
    pub(super) fn write(&self, asked: SentQuestion, out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Source::Names(names) => {
                out.extend_from_slice(names.template.bytes());
                QueryTemplate::patch(&mut out[start..], 0, asked.address());
            }
            Source::File(file) => {
                out.extend_from_slice(&[0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(file.question(asked.0 as usize).0);
            }
        }
    }

    /// Returns the position of the answer section in `message`, a reply with the ID of the query for `asked`. Returns
    /// `None` if the reply is for a different question.
    #[inline]
    pub(super) fn answers_at(
        &self,
        message: &Message<'_>,
        bytes: &[u8],
        asked: SentQuestion,
    ) -> Option<usize> {
        let (is_it, len) = match self {
            Source::Names(names) => {
                (names.template.is_question_of(bytes, asked.address()), names.template.len())
            }
            Source::File(file) => {
                let (question, _) = file.question(asked.0 as usize);
                let len = HEADER_LEN + question.len();
                let name = question.len() - FIXED;
                let is_it = bytes.get(HEADER_LEN..len).is_some_and(|theirs| {
                    theirs[..name].eq_ignore_ascii_case(&question[..name])
                        && theirs[name..] == question[name..]
                });
                (is_it, len)
            }
        };
        match message.qdcount() {
            1 if is_it => Some(len),
            // A server that did not parse the query may omit the question from an error reply.
            0 if whole_rcode(message, HEADER_LEN) != Rcode::NOERROR => Some(HEADER_LEN),
            _ => None,
        }
    }

    /// Returns the sequence of questions for the thread with the index `client_thread` if there are `of` threads. If
    /// `repeat` is true, the sequence is cyclic.
    pub(super) fn cursor(&self, client_thread: usize, of: usize, repeat: bool) -> Cursor {
        let (client_thread, of) = (client_thread as u64, of as u64);
        match self {
            Source::Names(names) => {
                let share = names.count / of;
                let first = names.first + share * client_thread;
                let count = if client_thread + 1 == of {
                    names.count - share * client_thread
                } else {
                    share
                };
                Cursor { at: 0, end: count, first, skip: 0, step: 1, repeat }
            }
            Source::File(file) => Cursor {
                at: 0,
                end: file.records.len() as u64,
                first: 0,
                skip: client_thread,
                step: of,
                repeat,
            },
        }
    }
}

/// A thread's position in the sequence of questions. The thread sends either a contiguous range of names, or every n-th
/// line of a file.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// For generated names, index of the next name; index 0 is the name at position `first` in the block of names. For
    /// a query file, offset of the next question.
    at: u64,
    end: u64,
    first: u64,
    /// Number of lines to skip before the next question.
    skip: u64,
    step: u64,
    repeat: bool,
}

impl Cursor {
    /// Returns the next question; `None` if there are no more questions.
    #[inline]
    pub(super) fn next(&mut self, source: &Source) -> Option<SentQuestion> {
        loop {
            if self.at >= self.end {
                if !self.repeat || self.end == 0 {
                    return None;
                }
                self.at = 0;
            }
            let at = self.at;
            match source {
                Source::Names(names) => {
                    self.at += 1;
                    return Some(SentQuestion(
                        u32::from(names.block.address(self.first + at)).into(),
                    ));
                }
                Source::File(file) => {
                    self.at = file.question(at as usize).1 as u64;
                    if self.skip == 0 {
                        self.skip = self.step - 1;
                        return Some(SentQuestion(at));
                    }
                    self.skip -= 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<QueryFile, FileError> {
        QueryFile::parse(text.as_bytes(), Path::new("queries"), text.len())
    }

    #[test]
    fn lines_become_questions() {
        let text = "; a comment\n\nwww.example.com A\nexample.org.\tTYPE65280\r\nversion.bind txt CH\n# another\n. NS\n";
        let queries = Source::File(Arc::new(file(text).unwrap()));
        assert_eq!(queries.count(), 4);
        let mut cursor = queries.cursor(0, 1, false);
        let mut asked = Vec::new();
        while let Some(next) = cursor.next(&queries) {
            let mut query = Vec::new();
            queries.write(next, &mut query);
            let message = domain::base::Message::from_octets(query.clone()).unwrap();
            assert!(message.header().rd());
            let question = message.sole_question().unwrap();
            asked.push(format!("{} {} {}", question.qname(), question.qtype(), question.qclass()));
            // A copy of the query, in any letter case, is an answer to this query and to no other query.
            query[2] |= 0x80;
            let at = queries.answers_at(&Message::new(&query).unwrap(), &query, next);
            assert_eq!(at, Some(query.len()));
            query.iter_mut().skip(12).for_each(u8::make_ascii_uppercase);
            let end = query.len();
            query[end - 1] ^= 2;
            assert_eq!(queries.answers_at(&Message::new(&query).unwrap(), &query, next), None);
        }
        assert_eq!(
            asked,
            ["www.example.com A IN", "example.org TYPE65280 IN", "version.bind TXT CH", " NS IN"]
        );
    }

    #[test]
    fn malformed_lines_are_skipped_with_a_warning() {
        let text = b"a A\nwww.example.com\nm\xfcnchen A\n\n;\na..b A\nb A\n";
        let queries = QueryFile::parse(&text[..], Path::new("queries"), text.len()).unwrap();
        let warnings = queries.warnings(Path::new("queries"));
        assert_eq!((queries.count, warnings.len()), (2, 3), "{warnings:?}");
        let begins = [
            "queries, line 2 is skipped: the type is missing",
            "queries, line 3 is skipped: it is not text",
            "queries, line 6 is skipped: 'a..b' is not a name",
        ];
        for (warning, begin) in warnings.iter().zip(begins) {
            assert!(warning.starts_with(begin), "{warning}");
        }
        // The number of warnings is limited, so that they do not hide the rest of the output.
        let of = |malformed| {
            let text = format!("{}b A\n", "a\n".repeat(malformed));
            file(&text).unwrap().warnings(Path::new("queries"))
        };
        assert_eq!((of(0).len(), of(10).len()), (0, 10));
        assert_eq!(of(11)[10], "queries: another malformed line is skipped");
        assert_eq!(of(2_000)[10..], ["queries: 1990 more malformed lines are skipped"]);
    }

    #[test]
    fn file_without_a_question_is_refused_with_its_first_fault() {
        for (text, hint) in [
            (";\nwww.example.com\n", "line 2: the type is missing"),
            ("\n\n;\na..b A\nc\n", "line 4: 'a..b' is not a name"),
            ("a AAAAA\n", "'AAAAA' is not a type"),
            ("a A XX\n", "'XX' is not a class"),
            ("a A IN 4\n", "extra text after the class"),
            (";\n", "contains no question"),
            ("", "contains no question"),
        ] {
            let error = file(text).unwrap_err().to_string();
            assert!(error.starts_with("queries") && error.contains(hint), "{error}");
        }
    }

    #[test]
    fn threads_share_the_lines_cyclically() {
        let text: String = (0..10).map(|n| format!("n{n} A\n")).collect();
        let queries = Source::File(Arc::new(file(&text).unwrap()));
        let take = |client_thread, of, repeat, n| {
            let mut cursor = queries.cursor(client_thread, of, repeat);
            std::iter::from_fn(|| cursor.next(&queries)).take(n).collect::<Vec<_>>()
        };
        let mut all: Vec<u64> = (0..3)
            .flat_map(|client_thread| take(client_thread, 3, false, 99))
            .map(|SentQuestion(at)| at)
            .collect();
        all.sort_unstable();
        let whole: Vec<u64> =
            take(0, 1, false, 99).into_iter().map(|SentQuestion(at)| at).collect();
        assert_eq!((all.len(), &all), (10, &whole));
        // 12 steps of 3 lines from line 1 on end at line (1 + 12 · 3) mod 10.
        assert_eq!(take(1, 3, true, 13)[12], SentQuestion(whole[7]));
        assert_eq!(take(5, 7, true, 2), [SentQuestion(whole[5]), SentQuestion(whole[2])]);
    }

    #[test]
    fn names_are_shared_in_runs() {
        let names =
            Names::new(&Domain::dns64perf(), "10.0.0.0/24".parse().unwrap(), 6, 10).unwrap();
        let names = Source::Names(names);
        let mut second = names.cursor(1, 3, false);
        let addresses: Vec<_> =
            std::iter::from_fn(|| second.next(&names)).map(|a| a.address().octets()[3]).collect();
        assert_eq!(addresses, [9, 10, 11]);
        let mut last = names.cursor(2, 3, true);
        let addresses: Vec<_> = std::iter::from_fn(|| last.next(&names))
            .take(5)
            .map(|a| a.address().octets()[3])
            .collect();
        assert_eq!(addresses, [12, 13, 14, 15, 12]);
        assert!(
            Names::new(&Domain::dns64perf(), "10.0.0.0/24".parse().unwrap(), 250, 10).is_none()
        );
    }
}
