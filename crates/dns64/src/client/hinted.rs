//! Address hints of HTTPS and SVCB records for a client (RFC 9460 §7.3).
//!
//! An `ipv6hint` is synthesized only if the target has no AAAA records. The AAAA records of the
//! target are therefore queried first:
//!
//! ```text
//! HTTPS answer ─► open_target ─► AAAA query for the target ─► open_target ─► … ─► push
//! ```

use domain::base::message_builder::AnswerBuilder;
use domain::base::name::ToName;
use domain::base::rdata::{ComposeRecordData, UnknownRecordData};
use domain::base::{Record, Ttl};
use domain::rdata::AllRecordData;
use wire::view::rtype;

use crate::name::LowerName;
use crate::name::compressor::Compressor;
use crate::resolver::answer::{AnswerKind, AnswerRecord, ReadRecord};
use crate::resolver::outcome::{CachedAnswer, Outcome};
use crate::translation::decision::aaaa_addresses;
use crate::translation::hints::{Native, Service};
use crate::translation::policy::{MAX_SYNTHESIZED, Policy, Rules, TTL_WITHOUT_SOA};

/// Maximum number of upstream queries that one client query may cause for the targets of address hints.
const MAX_QUESTIONS: usize = 4;

/// An answer with HTTPS or SVCB records, and the answers for the targets of these records.
#[derive(Clone, Copy)]
pub(super) struct HintedAnswer<'a> {
    services: &'a CachedAnswer,
    /// Outcomes of the AAAA queries for the targets of the records. If a target is an alias, the outcomes for the names
    /// in its alias chain are included.
    targets: &'a [Outcome],
    rules: &'a Rules<'a>,
}

/// Result of the search for the AAAA records of an address hint's target.
enum TargetLookup<'a> {
    /// The AAAA records of this name must be queried next.
    Open(&'a [u8]),
    Known(Native),
}

impl<'a> HintedAnswer<'a> {
    /// Combines the answer `services` with the answers for the targets of its records. The list `known` contains
    /// `services`, followed by the answers for the targets.
    pub(super) fn new(
        services: &'a CachedAnswer,
        known: &'a [Outcome],
        rules: &'a Rules<'a>,
    ) -> HintedAnswer<'a> {
        let is_it =
            |outcome: &Outcome| outcome.kept().is_some_and(|kept| std::ptr::eq(kept, services));
        let place = known.iter().position(is_it);
        let targets = place.and_then(|place| known.get(place + 1..)).unwrap_or_default();
        HintedAnswer { services, targets, rules }
    }

    /// Returns the name whose AAAA records must be queried before hints are synthesized. Returns `None` if
    /// [`MAX_QUESTIONS`] queries have already been sent. Also returns `None` after a failed query, because HTTPS
    /// records are useful even if no addresses of the target are known (RFC 9460 §4.2).
    pub(super) fn open_target(&self) -> Option<LowerName> {
        let has_failed = self.targets.iter().any(|outcome| outcome.kept().is_none());
        if has_failed || self.targets.len() >= MAX_QUESTIONS {
            return None;
        }
        let answer = &self.services.answer;
        answer.answers().filter(is_service).find_map(|record| {
            let read = answer.read(&record)?;
            let data = service_data(&read)?;
            let service = Service::read(&data)?;
            let (target, policy) = self.target(&service, &read);
            if !service.is_synthesized(policy, self.rules.client) {
                return None;
            }
            match self.find(target.wire(), policy) {
                TargetLookup::Open(name) => Some(LowerName::from_wire(name)),
                TargetLookup::Known(_) => None,
            }
        })
    }

    /// Appends the whole answer section with the address hints for the client. Returns `None` if a record is
    /// malformed.
    pub(super) fn push(&self, answer: &mut AnswerBuilder<Compressor>) -> Option<()> {
        let kept = self.services;
        let (changed, lifetime) = self.rewritten();
        let is_changed = changed.iter().any(Option::is_some);
        let mut changed = changed.into_iter();
        for record in kept.answer.answers() {
            if answer.as_target().is_full() {
                break;
            }
            // A signature does not match changed records, so it is omitted.
            if is_changed && record.covered().is_some_and(is_service_type) {
                continue;
            }
            let mut read = kept.answer.read(&record)?;
            let left = kept.left(record.ttl);
            if !is_service(&record) {
                read.set_ttl(Ttl::from_secs(left));
                answer.push(read).ok()?;
                continue;
            }
            // All records of an RRset must have the same TTL (RFC 2181 §5.2).
            read.set_ttl(Ttl::from_secs(left.min(lifetime)));
            match changed.next().flatten() {
                Some(data) => {
                    let data = UnknownRecordData::from_octets(read.rtype(), data).ok()?;
                    answer.push(Record::new(read.owner(), read.class(), read.ttl(), data)).ok()?;
                }
                None => answer.push(read).ok()?,
            }
        }
        Some(())
    }

    /// Returns the new data of each HTTPS or SVCB record, and the maximum TTL of the records in seconds. If a record
    /// is unchanged, its new data are `None`.
    fn rewritten(&self) -> (Vec<Option<Vec<u8>>>, u32) {
        let answer = &self.services.answer;
        let records = || answer.answers().filter(is_service);
        let most = MAX_SYNTHESIZED / records().count().max(1);
        let mut lifetime = u32::MAX;
        let changed = records().map(|record| {
            let read = answer.read(&record)?;
            let data = service_data(&read)?;
            let service = Service::read(&data)?;
            let (target, policy) = self.target(&service, &read);
            let (native, known) = match self.find(target.wire(), policy) {
                TargetLookup::Open(_) => (Native::Unknown, u32::MAX),
                TargetLookup::Known(native @ Native::None(left)) => (native, left),
                TargetLookup::Known(native) => (native, u32::MAX),
            };
            let data = service.rewritten(policy, self.rules.client, native, most)?;
            lifetime = lifetime.min(known).min(policy.lifetime(self.rules.now));
            Some(data)
        });
        (changed.collect(), lifetime)
    }

    /// Returns the name to which the address hints in a record belong, and the policy for the AAAA records of this
    /// name.
    fn target(&self, service: &Service<'_>, record: &ReadRecord<'_>) -> (LowerName, &'a Policy) {
        let target = match service.target() {
            Some(target) => LowerName::from_wire(target),
            None => LowerName::from_wire(record.owner().to_vec().as_slice()),
        };
        let policy = self.rules.others.policy_by_name(self.rules.client, target.wire());
        (target, policy)
    }

    /// Searches the known answers for the AAAA records of a hint's target. Aliases of the target are followed.
    fn find<'n>(&self, target: &'n [u8], policy: &Policy) -> TargetLookup<'n>
    where
        'a: 'n,
    {
        if policy.ignore_aaaa {
            return TargetLookup::Known(Native::None(u32::MAX));
        }
        let answers = || self.targets.iter().filter_map(Outcome::kept);
        let mut name = target;
        // If there are more aliases than answers, the aliases form a loop.
        for _ in 0..=self.targets.len() {
            let Some(kept) = answers().find(|kept| kept.answer.name() == name) else {
                return TargetLookup::Open(name);
            };
            match kept.answer.kind() {
                AnswerKind::Unfinished => name = kept.answer.target(),
                _ => return TargetLookup::Known(native(kept, policy)),
            }
        }
        TargetLookup::Known(Native::Unknown)
    }
}

/// Derives from the answer to an AAAA query whether a name has native AAAA records.
fn native(kept: &CachedAnswer, policy: &Policy) -> Native {
    let denial = kept.answer.negative_ttl().map_or(TTL_WITHOUT_SOA, |ttl| kept.left(ttl));
    match kept.answer.kind() {
        AnswerKind::Data
            if aaaa_addresses(&kept.answer).any(|address| !policy.excludes(address)) =>
        {
            Native::Some
        }
        AnswerKind::Data | AnswerKind::NoData => Native::None(denial),
        AnswerKind::NxDomain | AnswerKind::Unfinished | AnswerKind::Failed => Native::Unknown,
    }
}

fn is_service_type(rtype: u16) -> bool {
    matches!(rtype, rtype::HTTPS | rtype::SVCB)
}

fn is_service(record: &AnswerRecord<'_>) -> bool {
    is_service_type(record.rtype)
}

/// Returns the data of an HTTPS or SVCB record with uncompressed names, or `None` if it is
/// malformed.
fn service_data(record: &ReadRecord<'_>) -> Option<Vec<u8>> {
    let (AllRecordData::Https(_) | AllRecordData::Svcb(_)) = record.data() else { return None };
    let mut data = Vec::new();
    record.data().compose_rdata(&mut data).ok()?;
    Some(data)
}
