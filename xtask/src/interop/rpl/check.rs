//! Queries to dns64d, and the comparison of its responses with those of a scenario.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use domain::base::iana::{ExtendedErrorCode, Rcode, Rtype};
use domain::base::opt::ExtendedError;
use domain::base::{Message, MessageBuilder, Record, RecordData};
use domain::rdata::AllRecordData;

use super::reader::{Entry, Name};

/// Time limit of a query.
const LIMIT: Duration = Duration::from_secs(15);

/// Parts of a response that are compared, and the reason for an error.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    rcode: Rcode,
    /// True if the AD bit is set. `None` if the query requests neither AD nor DO.
    authentic: Option<bool>,
    /// Records of the answer section without signatures and TTLs, as text in lower case.
    answer: BTreeSet<String>,
    /// Extended errors (RFC 8914), which are not compared.
    reasons: Vec<ExtendedErrorCode>,
}

impl Outcome {
    /// Returns the differences between this response and the expected one, or `None` if they are equal. A SERVFAIL because
    /// the upstream has no response differs from one because of a validation.
    pub(super) fn difference(&self, expected: &Outcome) -> Option<String> {
        let mut parts = Vec::new();
        if self.header() != expected.header() {
            parts.push(format!("expected {}, received {}", expected.header(), self.header()));
        }
        if self.reasons.contains(&ExtendedErrorCode::NO_REACHABLE_AUTHORITY) {
            parts.push("no response of the upstream".into());
        }
        let [missing, extra] =
            [expected.answer.difference(&self.answer), self.answer.difference(&expected.answer)];
        parts.extend(missing.map(|record| format!("missing: {record}")));
        parts.extend(extra.map(|record| format!("extra: {record}")));
        let is_equal = parts.is_empty();
        parts.extend(self.reasons.iter().map(ExtendedErrorCode::to_string));
        (!is_equal).then(|| parts.join("; "))
    }

    /// Returns RCODE and AD bit as text.
    fn header(&self) -> String {
        let authentic = match self.authentic {
            Some(true) => " with AD",
            Some(false) => " without AD",
            None => "",
        };
        format!("{}{authentic}", self.rcode)
    }

    /// Returns the response that a scenario expects to a query.
    ///
    /// # Errors
    /// Returns an error if the query has no question.
    pub(super) fn expected(query: &Entry, response: &Entry) -> Result<Outcome> {
        let (_, rtype) = query.question.as_ref().context("a query without a question")?;
        let answer = response.answer.iter().filter(|record| is_compared(record.rtype(), *rtype));
        Ok(Outcome {
            rcode: response.header.rcode,
            authentic: asks_for_ad(query).then_some(response.header.authentic),
            answer: answer.map(text).collect(),
            reasons: Vec::new(),
        })
    }

    /// Reads the response to a query.
    fn received(query: &Entry, rtype: Rtype, response: &Message<Bytes>) -> Result<Outcome> {
        let mut answer = BTreeSet::new();
        for record in response.answer()? {
            let record = record?.to_any_record::<AllRecordData<_, _>>()?;
            if is_compared(record.rtype(), rtype) {
                answer.insert(text(&record));
            }
        }
        let authentic = asks_for_ad(query).then_some(response.header().ad());
        let opt = response.opt();
        let options = opt.iter().flat_map(|opt| opt.opt().iter::<ExtendedError<_>>());
        let reasons = options.flatten().map(|error| error.code()).collect();
        Ok(Outcome { rcode: response.header().rcode(), authentic, answer, reasons })
    }
}

/// True if records of this type are compared. Signatures are not, except as data.
fn is_compared(rtype: Rtype, queried: Rtype) -> bool {
    rtype != Rtype::RRSIG || queried == Rtype::RRSIG
}

fn asks_for_ad(query: &Entry) -> bool {
    query.header.dnssec_ok || query.header.authentic
}

fn text<N: fmt::Display, D: fmt::Display + RecordData>(record: &Record<N, D>) -> String {
    format!("{} {} {}", record.owner(), record.rtype(), record.data()).to_lowercase()
}

/// Sends a query to dns64d over TCP, and returns its response.
///
/// # Errors
/// Returns an error if there is no response in time, or if it is malformed.
pub(super) fn ask(port: u16, query: &Entry) -> Result<Outcome> {
    let (name, rtype) = query.question.as_ref().context("a query without a question")?;
    let message = message(query, name, *rtype)?;
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(&[&(message.len() as u16).to_be_bytes()[..], &message].concat())?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).context("no response")?;
    let mut response = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut response).context("no complete response")?;
    let Ok(response) = Message::from_octets(Bytes::from(response)) else {
        bail!("the response is malformed")
    };
    Outcome::received(query, *rtype, &response)
}

fn message(query: &Entry, name: &Name, rtype: Rtype) -> Result<Vec<u8>> {
    let mut builder = MessageBuilder::new_vec();
    let header = builder.header_mut();
    header.set_random_id();
    header.set_rd(true);
    header.set_ad(query.header.authentic);
    header.set_cd(query.header.checking_disabled);
    let mut question = builder.question();
    question.push((name, rtype))?;
    let mut additional = question.additional();
    // Extended errors need EDNS.
    additional.opt(|opt| {
        opt.set_udp_payload_size(4096);
        opt.set_dnssec_ok(query.header.dnssec_ok);
        Ok(())
    })?;
    Ok(additional.finish())
}
