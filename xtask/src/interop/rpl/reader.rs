//! Reader of Unbound's replay files (`testcode/replay.h` and `testcode/testpkts.h` in Unbound's source).
//!
//! ```text
//! server:                       configuration up to CONFIG_END
//! RANGE_BEGIN 0 100             steps during which the servers have these entries
//!   ENTRY_BEGIN … ENTRY_END     matched query, header and sections of the response
//! RANGE_END
//! STEP 1 QUERY                  followed by the entry of the query
//! STEP 10 CHECK_ANSWER          followed by the entry of the expected response
//! ```

use std::str::{FromStr, Lines};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::name::FlattenInto;
use domain::rdata::ZoneRecordData;
use domain::rdata::dnssec::Timestamp;
use domain::zonefile::inplace::{Entry as ZoneEntry, Zonefile};

/// A name in a scenario.
pub(super) type Name = domain::base::Name<Bytes>;
/// Data of a record in a scenario.
pub(super) type Data = ZoneRecordData<Bytes, Name>;
/// A record in a scenario.
pub(super) type Record = domain::base::Record<Name, Data>;

/// TTL of records without a TTL, in seconds, as in Unbound's reader.
const DEFAULT_TTL: u32 = 3600;

/// Content of a replay file.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) config: Config,
    pub(super) ranges: Vec<Range>,
    pub(super) steps: Vec<Step>,
}

/// Settings of the server that affect dns64d.
#[derive(Clone, Debug, Default)]
pub(super) struct Config {
    /// DS and DNSKEY records from which validation begins.
    pub(super) anchors: Vec<Record>,
    /// Names below which nothing is validated.
    pub(super) insecure: Vec<String>,
    /// Time of all validations. If Unbound ignores the times of signatures, this is the time of the newest signature.
    pub(super) date: Option<Timestamp>,
    /// True if the number of NSEC3 iterations is limited.
    pub(super) limits_iterations: bool,
}

/// Entries of one server, or of all servers, during a number of steps.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) entries: Vec<Entry>,
}

/// An event and its step number.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) number: u32,
    pub(super) event: Event,
}

/// Event of a step.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Query(Entry),
    CheckAnswer(Entry),
    /// Time passes; in seconds.
    Elapse(f64),
    /// The step has no effect on dns64d.
    Nothing,
}

/// A message, and the queries that it matches.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    /// Line of the file, for error messages.
    pub(super) line: usize,
    pub(super) matches: Matches,
    pub(super) header: Header,
    pub(super) question: Option<(Name, Rtype)>,
    pub(super) answer: Vec<Record>,
    pub(super) authority: Vec<Record>,
    pub(super) additional: Vec<Record>,
}

/// Parts of a query that must be equal to those of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Matches {
    pub(super) name: bool,
    pub(super) subdomain: bool,
    pub(super) rtype: bool,
    pub(super) tcp_only: bool,
}

/// Header of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) rcode: Rcode,
    pub(super) authoritative: bool,
    pub(super) recursion_desired: bool,
    pub(super) truncated: bool,
    pub(super) authentic: bool,
    pub(super) checking_disabled: bool,
    pub(super) dnssec_ok: bool,
}

impl Default for Header {
    fn default() -> Header {
        Header {
            rcode: Rcode::NOERROR,
            authoritative: false,
            recursion_desired: false,
            truncated: false,
            authentic: false,
            checking_disabled: false,
            dnssec_ok: false,
        }
    }
}

impl Scenario {
    /// Reads a replay file.
    ///
    /// # Errors
    /// Returns an error with the line number if the file has an unknown word, or a malformed record.
    pub(super) fn read(text: &str) -> Result<Scenario> {
        let mut reader = Reader { lines: text.lines(), number: 0 };
        let config = reader.config().with_context(|| format!("line {}", reader.number))?;
        let mut scenario = Scenario { config, ranges: Vec::new(), steps: Vec::new() };
        reader.body(&mut scenario).with_context(|| format!("line {}", reader.number))?;
        scenario.config.date = scenario.config.date.or_else(|| scenario.newest_signature());
        Ok(scenario)
    }

    fn newest_signature(&self) -> Option<Timestamp> {
        let records = self.entries().flat_map(Entry::records);
        let times = records.filter_map(|record| match record.data() {
            ZoneRecordData::Rrsig(signature) => Some(signature.inception()),
            _ => None,
        });
        times.max_by_key(|time| time.into_int())
    }

    /// Returns all entries, including those of queries and expected responses.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        let of_servers = self.ranges.iter_mut().flat_map(|range| &mut range.entries);
        let of_steps = self.steps.iter_mut().filter_map(|step| match &mut step.event {
            Event::Query(entry) | Event::CheckAnswer(entry) => Some(entry),
            Event::Elapse(_) | Event::Nothing => None,
        });
        of_servers.chain(of_steps)
    }

    /// Returns all entries, including those of queries and expected responses.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry> {
        let of_servers = self.ranges.iter().flat_map(|range| &range.entries);
        let of_steps = self.steps.iter().filter_map(|step| match &step.event {
            Event::Query(entry) | Event::CheckAnswer(entry) => Some(entry),
            Event::Elapse(_) | Event::Nothing => None,
        });
        of_servers.chain(of_steps)
    }
}

impl Entry {
    /// Returns the answer, authority and additional sections.
    pub(super) fn sections_mut(&mut self) -> [&mut Vec<Record>; 3] {
        [&mut self.answer, &mut self.authority, &mut self.additional]
    }

    /// Returns the records of all sections.
    pub(super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.answer.iter().chain(&self.authority).chain(&self.additional)
    }
}

/// Lines of a file, without comments and empty lines.
struct Reader<'a> {
    lines: Lines<'a>,
    /// Number of the line that was read last.
    number: usize,
}

impl<'a> Reader<'a> {
    /// Returns the next line that is not empty.
    fn next(&mut self) -> Option<&'a str> {
        for line in self.lines.by_ref() {
            self.number += 1;
            let line = line.split(';').next().unwrap_or_default().trim();
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    }

    fn expect(&mut self) -> Result<&'a str> {
        self.next().context("the file ends too early")
    }

    fn config(&mut self) -> Result<Config> {
        let mut config = Config::default();
        loop {
            let line = self.expect()?;
            if line == "CONFIG_END" {
                return Ok(config);
            }
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.split('#').next().unwrap_or_default().trim().trim_matches('"');
            match key {
                "trust-anchor" => config.anchors.push(record(value)?),
                "val-nsec3-keysize-iterations" => config.limits_iterations = true,
                "domain-insecure" => config.insecure.push(value.to_owned()),
                "val-override-date" if value != "-1" => {
                    config.date = Some(Timestamp::from_str(value).context("val-override-date")?);
                }
                _ => {}
            }
        }
    }

    fn body(&mut self, scenario: &mut Scenario) -> Result<()> {
        loop {
            let line = self.expect()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["SCENARIO_END", ..] => return Ok(()),
                ["SCENARIO_BEGIN", ..] => {}
                ["RANGE_BEGIN", first, last] => {
                    let (first, last) = (first.parse()?, last.parse()?);
                    scenario.ranges.push(Range { first, last, entries: self.range()? });
                }
                ["STEP", number, event @ ..] => {
                    let (number, event) = (number.parse()?, self.event(event)?);
                    scenario.steps.push(Step { number, event });
                }
                _ => bail!("unexpected line '{line}'"),
            }
        }
    }

    fn range(&mut self) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        loop {
            let line = self.expect()?;
            match line.split_whitespace().next().unwrap_or_default() {
                "RANGE_END" => return Ok(entries),
                // Responses are flattened, so their server does not matter.
                "ADDRESS" => {}
                // Like Unbound's reader, which also accepts ENTRY_BEGING.
                word if word.starts_with("ENTRY_BEGIN") => entries.push(self.entry()?),
                _ => bail!("unexpected line '{line}' in a range"),
            }
        }
    }

    fn event(&mut self, words: &[&str]) -> Result<Event> {
        Ok(match words {
            ["QUERY", ..] => Event::Query(self.entry_of_step()?),
            ["CHECK_ANSWER", ..] => Event::CheckAnswer(self.entry_of_step()?),
            ["TIME_PASSES", "ELAPSE", seconds] => Event::Elapse(seconds.parse()?),
            ["NOTHING" | "TRAFFIC", ..] => Event::Nothing,
            _ => bail!("unknown event {words:?}"),
        })
    }

    fn entry_of_step(&mut self) -> Result<Entry> {
        let line = self.expect()?;
        ensure!(line == "ENTRY_BEGIN", "'{line}' instead of ENTRY_BEGIN");
        self.entry()
    }

    /// Reads an entry after its first line.
    fn entry(&mut self) -> Result<Entry> {
        let mut entry = Entry { line: self.number, ..Entry::default() };
        let mut section = "";
        loop {
            let line = self.expect()?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["ENTRY_END", ..] => return Ok(entry),
                ["MATCH", words @ ..] => entry.matches.add(words)?,
                ["REPLY", words @ ..] => entry.header.add(words)?,
                // The ID, and the question unless it is matched, are always those of the query.
                ["ADJUST", words @ ..]
                    if words.iter().all(|word| ["copy_id", "copy_query"].contains(word)) => {}
                ["SECTION", name] => section = name,
                _ => entry.add(section, line)?,
            }
        }
    }
}

impl Entry {
    /// Adds a line of a section.
    fn add(&mut self, section: &str, line: &str) -> Result<()> {
        match section {
            "QUESTION" => self.question = Some(question(line)?),
            "ANSWER" => self.answer.push(record(line)?),
            "AUTHORITY" => self.authority.push(record(line)?),
            "ADDITIONAL" => self.additional.push(record(line)?),
            _ => bail!("unknown line '{line}'"),
        }
        Ok(())
    }
}

impl Matches {
    fn add(&mut self, words: &[&str]) -> Result<()> {
        for word in words {
            match *word {
                "qname" => self.name = true,
                "qtype" => self.rtype = true,
                "subdomain" => self.subdomain = true,
                "question" => (self.name, self.rtype) = (true, true),
                "TCP" => self.tcp_only = true,
                // Parts of a response that are always compared, or never.
                "opcode" | "all" | "ttl" | "rcode" | "answer" | "all_noedns" => {}
                word if word.starts_with("ede=") => {}
                _ => bail!("unknown word '{word}' after MATCH"),
            }
        }
        Ok(())
    }
}

impl Header {
    fn add(&mut self, words: &[&str]) -> Result<()> {
        for word in words {
            match *word {
                "AA" => self.authoritative = true,
                "TC" => self.truncated = true,
                "AD" => self.authentic = true,
                "CD" => self.checking_disabled = true,
                "DO" => self.dnssec_ok = true,
                "NOERROR" => self.rcode = Rcode::NOERROR,
                "FORMERR" => self.rcode = Rcode::FORMERR,
                "SERVFAIL" => self.rcode = Rcode::SERVFAIL,
                "NXDOMAIN" => self.rcode = Rcode::NXDOMAIN,
                "NOTIMPL" => self.rcode = Rcode::NOTIMP,
                "REFUSED" => self.rcode = Rcode::REFUSED,
                "YXDOMAIN" => self.rcode = Rcode::YXDOMAIN,
                "RD" => self.recursion_desired = true,
                "QR" | "RA" | "QUERY" => {}
                _ => bail!("unknown word '{word}' after REPLY"),
            }
        }
        Ok(())
    }
}

/// Reads the name and the type of a question.
fn question(line: &str) -> Result<(Name, Rtype)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, rest @ ..] = words.as_slice() else { bail!("no question") };
    let rtype = rest.iter().find(|word| **word != "IN").context("a question without a type")?;
    let rtype = Rtype::from_str(rtype).map_err(|_| anyhow::anyhow!("unknown type {rtype}"))?;
    Ok((name.parse().context("name of a question")?, rtype))
}

/// Reads a record in the form of a zone file. The origin is the root.
fn record(line: &str) -> Result<Record> {
    let text = format!("$TTL {DEFAULT_TTL}\n{}\n", normalized(line));
    let mut file = Zonefile::from(text.as_str());
    file.set_origin(Name::root_bytes());
    file.set_default_class(Class::IN);
    let entry = file.next_entry().map_err(|error| anyhow::anyhow!("{error} in '{line}'"))?;
    match entry {
        Some(ZoneEntry::Record(record)) => Ok(record.flatten_into()),
        _ => bail!("no record in '{line}'"),
    }
}

/// Returns a record with algorithms as numbers, and with the data that a signature lacks: the padding, or one octet if
/// there are none at all, so that the signature is wrong.
fn normalized(line: &str) -> String {
    let number = |word| match word {
        "DSA" => "3",
        "RSASHA1" => "5",
        word => word,
    };
    let mut words: Vec<&str> = line.split_whitespace().map(number).collect();
    // Before the type: owner, TTL and class. After it: type covered, algorithm, labels, TTL, expiration, inception, tag
    // and signer.
    let Some(at) = words.iter().take(4).position(|word| *word == "RRSIG") else {
        return words.join(" ");
    };
    let length: usize = words.iter().skip(at + 9).map(|word| word.len()).sum();
    words.extend(match length % 4 {
        0 if length == 0 => Some("AA=="),
        2 => Some("=="),
        3 => Some("="),
        _ => None,
    });
    words.join(" ")
}

#[cfg(test)]
pub(super) mod testing {
    use super::Scenario;

    /// Returns a scenario with these entries.
    pub(crate) fn scenario(entries: &[&str]) -> Scenario {
        let entries: String =
            entries.iter().map(|entry| format!("ENTRY_BEGIN\n{entry}ENTRY_END\n")).collect();
        let text = format!("CONFIG_END\nRANGE_BEGIN 0 9\n{entries}RANGE_END\nSCENARIO_END\n");
        Scenario::read(&text).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
server:
\ttrust-anchor: \"example.com. 3600 IN DS 2854 3 1 46e4ffc6e9a4793b488954bd3f0cc6af0dfb201b\"
\tval-override-date: \"20070916134226\"
stub-zone:
\tstub-addr: 193.0.14.129 \t# K.ROOT-SERVERS.NET.
CONFIG_END

SCENARIO_BEGIN Test
RANGE_BEGIN 0 100
\tADDRESS 1.2.3.4
ENTRY_BEGIN
MATCH opcode qtype qname
ADJUST copy_id
REPLY QR AA NXDOMAIN
SECTION QUESTION
www.example.com. IN A
SECTION AUTHORITY
www.example.com.	IN	NSEC	example.com. A RRSIG NSEC ; a comment
www.example.com. 3600 IN RRSIG NSEC 3 3 3600 20070926135752 20070829135752 2854 example.com.
ENTRY_END
RANGE_END
STEP 1 QUERY
ENTRY_BEGIN
REPLY RD DO
SECTION QUESTION
www.example.com. IN A
ENTRY_END
STEP 5 TIME_PASSES ELAPSE 0.05
SCENARIO_END
";

    #[test]
    fn a_file_is_read() {
        let scenario = Scenario::read(FILE).unwrap();
        assert_eq!(scenario.config.anchors.len(), 1);
        assert_eq!(scenario.config.date.unwrap().into_int(), 1_189_950_146);
        let entry = &scenario.ranges[0].entries[0];
        assert_eq!(entry.header.rcode, Rcode::NXDOMAIN);
        assert!(entry.matches.name && entry.matches.rtype && !entry.matches.subdomain);
        let Data::Rrsig(signature) = entry.authority[1].data() else { panic!("{entry:?}") };
        assert_eq!(signature.signature().len(), 1);
        assert!(matches!(&scenario.steps[0].event, Event::Query(query) if query.header.dnssec_ok));
        assert!(matches!(scenario.steps[1].event, Event::Elapse(_)));
    }

    #[test]
    fn without_a_date_the_newest_signature_counts() {
        let scenario = Scenario::read(&FILE.replace("20070916134226", "-1")).unwrap();
        assert_eq!(scenario.config.date.unwrap().to_string(), "1188395872");
    }

    #[test]
    fn an_error_names_the_line() {
        let broken = FILE.replace("MATCH opcode", "MATCH colour");
        let error = format!("{:#}", Scenario::read(&broken).unwrap_err());
        assert_eq!(error, "line 12: unknown word 'colour' after MATCH");
    }
}
