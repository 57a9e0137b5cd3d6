//! Upstream answers for tests, assembled octet by octet, independently of the code that parses them.

use std::sync::Arc;

use wire::view::rtype;

use crate::name::LowerName;
use crate::resolver::answer::{Answer, DnssecRecords, Unusable};
use crate::resolver::outcome::{CachedAnswer, Outcome};
use crate::resolver::scope::Scope;
use crate::resolver::ttl::TtlLimits;

/// A section of a message. The value is the offset of the section's record count in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer = 6,
    Authority = 8,
    Additional = 10,
}

/// An upstream message under construction. Its names are uncompressed.
#[derive(Clone)]
pub(crate) struct TestAnswer {
    question: Vec<u8>,
    flags: [u8; 2],
    records: Vec<(Section, Vec<u8>)>,
}

/// Returns an answer without records to a question of class IN.
pub(crate) fn said(name: &str, qtype: u16) -> TestAnswer {
    let question = [wire(name), qtype.to_be_bytes().into(), vec![0, 1]].concat();
    TestAnswer { question, flags: [0x81, 0x80], records: Vec::new() }
}

/// Returns a name in wire format.
pub(crate) fn wire(name: &str) -> Vec<u8> {
    name.parse::<LowerName>().unwrap().wire().to_vec()
}

/// Returns the octets of a record of class IN.
pub(crate) fn record(owner: &[u8], rtype: u16, ttl: u32, data: &[u8]) -> Vec<u8> {
    let mut octets = owner.to_vec();
    octets.extend(rtype.to_be_bytes());
    octets.extend([0, 1]);
    octets.extend(ttl.to_be_bytes());
    octets.extend((data.len() as u16).to_be_bytes());
    octets.extend(data);
    octets
}

impl TestAnswer {
    pub(crate) fn with(mut self, section: Section, record: Vec<u8>) -> TestAnswer {
        self.records.push((section, record));
        self
    }

    pub(crate) fn answer(self, owner: &str, rtype: u16, ttl: u32, data: &[u8]) -> TestAnswer {
        self.with(Section::Answer, record(&wire(owner), rtype, ttl, data))
    }

    pub(crate) fn a(self, owner: &str, ttl: u32, address: &str) -> TestAnswer {
        let address: std::net::Ipv4Addr = address.parse().unwrap();
        self.answer(owner, rtype::A, ttl, &address.octets())
    }

    pub(crate) fn aaaa(self, owner: &str, ttl: u32, address: &str) -> TestAnswer {
        let address: std::net::Ipv6Addr = address.parse().unwrap();
        self.answer(owner, rtype::AAAA, ttl, &address.octets())
    }

    pub(crate) fn cname(self, owner: &str, ttl: u32, target: &str) -> TestAnswer {
        self.answer(owner, rtype::CNAME, ttl, &wire(target))
    }

    /// Adds a signature over the records with the owner name `owner` and the type `covered`.
    pub(crate) fn rrsig(self, owner: &str, covered: u16) -> TestAnswer {
        let mut data = covered.to_be_bytes().to_vec();
        data.extend([15, 1, 0, 0, 1, 44, 0, 0, 0, 2, 0, 0, 0, 1, 0, 7]);
        data.extend(wire("test"));
        data.extend([0; 64]);
        self.answer(owner, rtype::RRSIG, 300, &data)
    }

    pub(crate) fn soa(self, zone: &str, ttl: u32, minimum: u32) -> TestAnswer {
        let mut data = [wire("ns.test"), wire("hostmaster.test")].concat();
        for number in [1, 2, 3, 4, minimum] {
            data.extend(u32::to_be_bytes(number));
        }
        self.with(Section::Authority, record(&wire(zone), rtype::SOA, ttl, &data))
    }

    /// Adds an SOA record with the given TTL and a MINIMUM of 300 s, as in a NODATA response.
    pub(crate) fn nodata(self, ttl: u32) -> TestAnswer {
        self.soa("test", ttl, 300)
    }

    /// Sets the AD bit of the message.
    pub(crate) fn set_authentic(&mut self) {
        self.flags[1] |= 0x20;
    }

    pub(crate) fn rcode(mut self, code: u8) -> TestAnswer {
        self.flags[1] = self.flags[1] & 0xf0 | code;
        self
    }

    /// Adds an OPT record with an Extended DNS Error (RFC 8914).
    pub(crate) fn ede(self, code: u16) -> TestAnswer {
        let option = [&[0, 15, 0, 2][..], &code.to_be_bytes()].concat();
        self.with(Section::Additional, record(&[0], rtype::OPT, 0, &option))
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut message = vec![0, 0, self.flags[0], self.flags[1], 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend(&self.question);
        for section in [Section::Answer, Section::Authority, Section::Additional] {
            for (_, record) in self.records.iter().filter(|(at, _)| *at == section) {
                message.extend(record);
                let count =
                    u16::from_be_bytes([message[section as usize], message[section as usize + 1]])
                        + 1;
                message[section as usize..section as usize + 2]
                    .copy_from_slice(&count.to_be_bytes());
            }
        }
        message
    }

    pub(crate) fn parse(&self) -> Result<Answer, Unusable> {
        Answer::parse(&self.bytes(), &self.question, &TtlLimits::default())
    }

    pub(crate) fn parse_in(&self, scope: Scope<'_>) -> Result<Answer, Unusable> {
        Answer::parse_in(
            &self.bytes(),
            &self.question,
            &TtlLimits::default(),
            Some(scope),
            DnssecRecords::AsReceived,
        )
    }

    /// Returns the answer as the cache returns it after `age` seconds.
    pub(crate) fn aged(&self, age: u32) -> Outcome {
        Outcome::Answered(CachedAnswer {
            age,
            ..CachedAnswer::fresh(Arc::new(self.parse().unwrap()))
        })
    }

    pub(crate) fn kept(&self) -> Outcome {
        self.aged(0)
    }
}
