//! A response in preparation: RRsets, the signatures that are to be made, and the signatures.

use domain::base::cmp::CanonicalOrd;
use domain::base::iana::{Class, Rcode, Rtype, SecurityAlgorithm};
use domain::base::name::ToName;
use domain::base::{MessageBuilder, Record, Ttl};
use domain::rdata::ZoneRecordData;
use domain::rdata::dnssec::{ProtoRrsig, Timestamp};
use testbed::signed::{TestName, TestRecord};

use crate::keys::{KeyId, Pool, record, set_owner};
use crate::tree::{Rrset, Zone, ZoneKey};

/// Time before and after now in which signatures are valid, in seconds.
const DAY: u32 = 86_400;
/// Maximum number of NSEC3 iterations that validators accept.
const MOST_ITERATIONS: u16 = 50;
/// Size of UDP messages that the server accepts, in octets.
const UDP_SIZE: u16 = 4096;

/// Section of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// A signature that is to be made.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) key: KeyId,
    /// Owner name in the signed data, which is a wildcard for expanded records.
    pub(crate) owner: TestName,
    pub(crate) covered: Rtype,
    pub(crate) algorithm: SecurityAlgorithm,
    pub(crate) labels: u8,
    pub(crate) ttl: u32,
    /// Inception and expiration, in seconds since 1970.
    pub(crate) valid: (u32, u32),
    pub(crate) tag: u16,
    pub(crate) signer: TestName,
}

impl Plan {
    /// Returns the plan of a correct signature by a key of a zone.
    pub(crate) fn new(pool: &Pool, zone: &Zone, key: ZoneKey, set: &Rrset, now: u32) -> Plan {
        Plan {
            key: key.id,
            owner: set.owner.clone(),
            covered: set.rtype(),
            algorithm: pool.algorithm(key.id),
            labels: set.owner.rrsig_label_count(),
            ttl: set.ttl,
            valid: (now - DAY, now + DAY),
            tag: pool.dnskey(key.id, key.flags).key_tag(),
            signer: zone.apex.clone(),
        }
    }

    /// Returns the signature of these records.
    ///
    /// # Panics
    /// Does not panic: the signature is short.
    fn signature(&self, pool: &Pool, records: &[TestRecord]) -> TestRecord {
        let (inception, expiration) = self.valid;
        let header = ProtoRrsig::new(
            self.covered,
            self.algorithm,
            self.labels,
            Ttl::from_secs(self.ttl),
            Timestamp::from(expiration),
            Timestamp::from(inception),
            self.tag,
            self.signer.clone(),
        );
        let mut signed = Vec::new();
        let Ok(()) = header.compose_canonical(&mut signed);
        let mut data: Vec<_> = records.iter().map(Record::data).collect();
        data.sort_by(|one, other| one.canonical_cmp(other));
        data.dedup_by(|one, other| one.canonical_cmp(other).is_eq());
        for data in data {
            let record = Record::new(&self.owner, Class::IN, Ttl::from_secs(self.ttl), data);
            let Ok(()) = record.compose_canonical(&mut signed);
        }
        let signature = header.into_rrsig(pool.sign(self.key, &signed)).expect("it is short");
        let (owner, ttl) = (records[0].owner(), records[0].ttl().as_secs());
        record(owner, ttl, ZoneRecordData::Rrsig(signature))
    }
}

/// An RRset of a response, with its signatures.
#[derive(Clone, Debug)]
pub(crate) struct Set {
    pub(crate) section: Section,
    pub(crate) records: Vec<TestRecord>,
    pub(crate) plans: Vec<Plan>,
    pub(crate) signatures: Vec<TestRecord>,
}

impl Set {
    /// Returns an RRset without signatures.
    pub(crate) fn unsigned(section: Section, set: &Rrset) -> Set {
        let records =
            set.data.iter().map(|data| record(&set.owner, set.ttl, data.clone())).collect();
        Set { section, records, plans: Vec::new(), signatures: Vec::new() }
    }

    /// Returns the type of the records, or that of the signatures if there are no records.
    pub(crate) fn rtype(&self) -> Rtype {
        self.records.first().map_or(Rtype::RRSIG, Record::rtype)
    }

    /// True for records that prove that a name or type does not exist.
    pub(crate) fn is_proof(&self) -> bool {
        matches!(self.rtype(), Rtype::NSEC | Rtype::NSEC3)
    }

    /// Changes the owner name of the records and of the signatures.
    pub(crate) fn set_owner(&mut self, owner: &TestName) {
        for one in self.records.iter_mut().chain(&mut self.signatures) {
            set_owner(one, owner);
        }
    }
}

/// A response in preparation.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) rcode: Rcode,
    pub(crate) sets: Vec<Set>,
}

impl Draft {
    /// Makes the planned signatures.
    pub(crate) fn sign(&mut self, pool: &Pool) {
        for set in self.sets.iter_mut().filter(|set| !set.records.is_empty()) {
            let made = set.plans.iter().map(|plan| plan.signature(pool, &set.records));
            set.signatures.extend(made);
        }
    }

    /// True if an NSEC3 record has the flag Opt-Out, or more iterations than validators accept. Then a denial, or the name,
    /// may be insecure.
    pub(crate) fn has_weak_proof(&self) -> bool {
        self.sets.iter().flat_map(|set| &set.records).any(|record| match record.data() {
            ZoneRecordData::Nsec3(nsec3) => nsec3.opt_out() || nsec3.iterations() > MOST_ITERATIONS,
            _ => false,
        })
    }

    /// Removes the aliases of these names.
    pub(crate) fn remove_aliases(&mut self, names: &[TestName]) {
        self.sets.retain(|set| {
            let Some(record) = set.records.first() else { return true };
            let owner = record.owner();
            !match set.rtype() {
                Rtype::CNAME => names.contains(owner),
                Rtype::DNAME => names.iter().any(|name| name.ends_with(owner) && name != owner),
                _ => false,
            }
        });
    }

    /// Returns the response to a question as a message with ID 0.
    ///
    /// # Panics
    /// Panics if the message is longer than 64 KiB.
    pub(crate) fn message(&self, name: &TestName, rtype: Rtype) -> Vec<u8> {
        let mut builder = MessageBuilder::new_vec();
        let header = builder.header_mut();
        header.set_qr(true);
        header.set_aa(true);
        header.set_rcode(self.rcode);
        let mut question = builder.question();
        question.push((name, rtype)).expect("a short question");
        let of = |section| {
            let sets = self.sets.iter().filter(move |set| set.section == section);
            sets.flat_map(|set| set.records.iter().chain(&set.signatures))
        };
        let mut answer = question.answer();
        for record in of(Section::Answer) {
            answer.push(record).expect("a short message");
        }
        let mut authority = answer.authority();
        for record in of(Section::Authority) {
            authority.push(record).expect("a short message");
        }
        let mut additional = authority.additional();
        for record in of(Section::Additional) {
            additional.push(record).expect("a short message");
        }
        let opt = additional.opt(|opt| {
            opt.set_udp_payload_size(UDP_SIZE);
            opt.set_dnssec_ok(true);
            Ok(())
        });
        opt.expect("a short message");
        additional.finish()
    }
}
