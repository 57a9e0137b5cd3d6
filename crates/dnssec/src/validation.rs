//! Validation of one response (RFC 4035 §5).

use bytes::Bytes;
use domain::base::iana::{ExtendedErrorCode, Rcode, Rtype};
use domain::base::name::{NameBuilder, ToName};
use domain::base::wire::ParseError;
use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;

use crate::context::{Context, Query, Validator};
use crate::denial::Denial;
use crate::limits::{Limit, Work};
use crate::name::Name;
use crate::nsec3::owner_hash;
use crate::rrset::{Response, Section};
use crate::signature::verify;
use crate::verdict::{Fault, Security, Verdict};
use crate::zone_cache::Trust;
use crate::zones::zone_of;

/// Maximum size of a response with DS or DNSKEY records, in octets.
const MOST_OCTETS: usize = 16 << 10;
/// Maximum number of aliases in a response.
const MOST_ALIASES: usize = 32;

/// Result of a step of a validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The response to this query is needed. See [`Validation::add`].
    Query(Query),
    /// The validation has ended.
    Ended(Verdict),
}

/// Validation of one response.
pub struct Validation {
    octets: Bytes,
    /// Alias target at which the response is cut.
    end: Option<Name>,
    /// The response, after it has been read in the first step.
    response: Option<Checking>,
    fetched: Vec<(Query, Option<Bytes>)>,
    work: Work,
}

/// A response that is being checked.
struct Checking {
    name: Name,
    rtype: Rtype,
    end: Option<Name>,
    response: Response,
    answer: Vec<Option<Checked>>,
    authority: Vec<Option<Checked>>,
    /// True if the records after `end` are not used.
    is_cut: bool,
}

/// Result of the check of an RRset.
#[derive(Clone, Debug)]
struct Checked {
    verdict: Verdict,
    /// Closest encloser, if the RRset was expanded from a wildcard.
    expanded_below: Option<Name>,
    /// Zone of a secure RRset.
    zone: Option<Name>,
}

#[derive(Clone, Copy)]
enum Part {
    Answer,
    Authority,
}

impl Validation {
    /// Begins the validation of a response to a query with DO and CD set. `end` is the alias target whose records the
    /// caller does not use; the response is validated up to this target. The response is read in the first step.
    pub fn new(octets: Bytes, end: Option<&Name>) -> Validation {
        let end = end.map(ToName::to_canonical_name);
        let (fetched, work) = (Vec::new(), Work::default());
        Validation { octets, end, response: None, fetched, work }
    }

    /// Adds the response to a query, or `None` if there is none.
    /// A response of more than [`MOST_OCTETS`] octets counts as none.
    pub fn add(&mut self, query: Query, response: Option<Bytes>) {
        let response = response.filter(|octets| octets.len() <= MOST_OCTETS);
        self.fetched.push((query, response));
    }

    /// Continues the validation until a response is missing, or until its end. `now` is the time in seconds since 1970.
    /// `is_over` returns true if the validation has used the CPU time that the caller allows. A malformed response is
    /// bogus.
    pub fn step(
        &mut self,
        validator: &Validator,
        now: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Progress {
        let response = match self.response.take() {
            Some(response) => Ok(response),
            None => Checking::parse(&self.octets, self.end.clone()),
        };
        let Ok(mut response) = response else {
            return Progress::Ended(Verdict::bogus(Fault::Wrong));
        };
        let mut context = Context::new(validator, &self.fetched, &mut self.work, now, is_over);
        let result = response.evaluate(&mut context);
        self.response = Some(response);
        match result {
            Ok(verdict) => Progress::Ended(verdict),
            Err(_) if self.fetched.len() >= validator.limits.queries => {
                Progress::Ended(Verdict::bogus(Fault::Limit(Limit::Queries)))
            }
            Err(query) => Progress::Query(query),
        }
    }
}

impl Checking {
    fn parse(octets: &Bytes, end: Option<Name>) -> Result<Checking, ParseError> {
        let message = Message::from_octets(octets.clone()).map_err(|_| ParseError::ShortInput)?;
        let question = message.sole_question()?;
        let response = Response::parse(octets)?;
        Ok(Checking {
            name: question.qname().to_canonical_name(),
            rtype: question.qtype(),
            end,
            answer: vec![None; response.answer.len()],
            authority: vec![None; response.authority.len()],
            response,
            is_cut: false,
        })
    }

    fn evaluate(&mut self, context: &mut Context<'_>) -> Result<Verdict, Query> {
        let denies =
            self.response.rcode == Rcode::NXDOMAIN || self.response.rcode == Rcode::YXDOMAIN;
        if self.rtype == Rtype::RRSIG && !denies {
            // Signatures are not signed.
            return Ok(Verdict::insecure(None));
        }
        let verdict = self.follow(context)?;
        // The AD bit covers the whole authority section (RFC 4035 §3.2.3).
        if verdict.security == Security::Secure
            && !self.is_cut
            && !self.has_secure_authority(context)?
        {
            return Ok(Verdict::bogus(Fault::Wrong));
        }
        Ok(verdict)
    }

    /// True if all SOA, NSEC and NSEC3 records in the authority section are secure. Their signatures without records are
    /// not, and neither are such signatures of the type of the question. The owner of an NSEC3 record must be a hash.
    fn has_secure_authority(&mut self, context: &mut Context<'_>) -> Result<bool, Query> {
        let is_checked = |rtype| rtype == Rtype::SOA || is_proof(rtype);
        let needs_records = |rtype| is_checked(rtype) || rtype == self.rtype;
        if self.response.authority.types_without_records().any(needs_records) {
            return Ok(false);
        }
        let sets = self.response.authority.iter();
        let sets = sets.filter(|(_, set)| is_checked(set.rtype));
        let indices: Vec<usize> = sets.map(|(index, _)| index).collect();
        for index in indices {
            let checked = self.check(Part::Authority, index, context)?;
            let set = self.response.authority.get(index);
            let is_misplaced = set.rtype == Rtype::NSEC3
                && checked.zone.is_some_and(|zone| owner_hash(&set.owner, &zone).is_none());
            if checked.verdict.security != Security::Secure || is_misplaced {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Follows the aliases from the queried name, and returns the verdict on the records that lead to its end.
    fn follow(&mut self, context: &mut Context<'_>) -> Result<Verdict, Query> {
        let mut name = self.name.clone();
        let mut verdict = Verdict::secure(u32::MAX);
        for aliases in 0..=MOST_ALIASES {
            if verdict.security == Security::Bogus {
                return Ok(verdict);
            }
            if aliases > 0 && self.end.as_ref() == Some(&name) {
                self.is_cut = true;
                return Ok(verdict);
            }
            let found = self.found(&name);
            let dname =
                if found.is_empty() || self.is_for_aliases() { self.dname(&name) } else { None };
            if let Some((index, target)) = dname {
                for other in found {
                    if self.response.answer.get(other).rtype != Rtype::CNAME {
                        verdict = verdict.and(self.positive(other, context)?);
                    }
                }
                verdict = verdict.and(self.dname_verdict(index, &name, context)?);
                match target {
                    Some(target) => name = target,
                    None if self.response.rcode == Rcode::YXDOMAIN => return Ok(verdict),
                    None => return Ok(Verdict::bogus(Fault::Wrong)),
                }
                if self.rtype == Rtype::CNAME && self.response.rcode == Rcode::NOERROR {
                    return Ok(verdict);
                }
            } else if !found.is_empty() {
                for index in found {
                    verdict = verdict.and(self.positive(index, context)?);
                }
                // Records of the name contradict an RCODE that denies them. The RCODE is not signed.
                let contradicts = self.response.rcode != Rcode::NOERROR;
                let is_secure = verdict.security == Security::Secure;
                return Ok(if contradicts && is_secure {
                    Verdict::bogus(Fault::Wrong)
                } else {
                    verdict
                });
            } else if let Some((index, target)) = self.cname(&name) {
                verdict = verdict.and(self.positive(index, context)?);
                name = target;
            } else {
                return Ok(verdict.and(self.denied(&name, context)?));
            }
        }
        Ok(Verdict::bogus(Fault::Wrong))
    }

    /// Returns the RRsets that answer the question at this name.
    fn found(&self, name: &Name) -> Vec<usize> {
        if self.rtype != Rtype::ANY {
            return self.response.answer.find(name, self.rtype).into_iter().collect();
        }
        let at_name = self.response.answer.iter().filter(|(_, set)| set.owner == *name);
        at_name.map(|(index, _)| index).collect()
    }

    /// True if an alias answers the question.
    fn is_for_aliases(&self) -> bool {
        matches!(self.rtype, Rtype::CNAME | Rtype::ANY)
    }

    /// Returns the DNAME record that applies to this name, and the name to which it leads, or `None` if that name would be
    /// too long. A CNAME record of the name is not used: it is synthesized from the DNAME record and not signed (RFC 6672
    /// §5.3.1).
    fn dname(&self, name: &Name) -> Option<(usize, Option<Name>)> {
        let sets = self.response.answer.iter();
        let above = sets.filter(|(_, set)| set.is_dname_above(name));
        let (index, set) = above.max_by_key(|(_, set)| set.owner.label_count())?;
        let Some(AllRecordData::Dname(dname)) = set.data().next() else { return None };
        Some((index, substitute(name, &set.owner, dname.dname())))
    }

    /// Returns the verdict on a DNAME record that applies to `name`. If the record is not secure, the name must not be in
    /// a signed zone: a trust anchor can be between them.
    fn dname_verdict(
        &mut self,
        index: usize,
        name: &Name,
        context: &mut Context<'_>,
    ) -> Result<Verdict, Query> {
        let verdict = self.positive(index, context)?;
        if matches!(verdict.security, Security::Secure | Security::Bogus) {
            return Ok(verdict);
        }
        let of_name = unsigned(&zone_of(name, context)?, Fault::NoSignature);
        Ok(if of_name.security == Security::Bogus { of_name } else { verdict })
    }

    fn cname(&self, name: &Name) -> Option<(usize, Name)> {
        let index = self.response.answer.find(name, Rtype::CNAME)?;
        match self.response.answer.get(index).data().next() {
            Some(AllRecordData::Cname(cname)) => Some((index, cname.cname().to_canonical_name())),
            _ => None,
        }
    }

    /// Returns the verdict on an RRset of the answer section, with the proof that a wildcard needs (RFC 4035 §5.3.4).
    fn positive(&mut self, index: usize, context: &mut Context<'_>) -> Result<Verdict, Query> {
        let checked = self.check(Part::Answer, index, context)?;
        let (Some(encloser), Some(zone)) = (checked.expanded_below, checked.zone) else {
            return Ok(checked.verdict);
        };
        let (owner, rtype) = {
            let set = self.response.answer.get(index);
            (set.owner.clone(), set.rtype)
        };
        if rtype == Rtype::DNAME {
            // RFC 6672 §3.3 leaves wildcards with DNAME records undefined.
            return Ok(Verdict::bogus(Fault::Wrong));
        }
        let (denial, ttl, worst) = self.denial(&zone, context)?;
        if denial.is_empty() {
            return Ok(worst);
        }
        let (limits, work) = context.limits_and_work();
        let proof = denial.no_closer_name(&owner, &encloser, limits, work);
        Ok(checked.verdict.and(proof).and(Verdict::secure(ttl)))
    }

    /// Returns the verdict on the claim that a name has no records of the type of the question, or does not exist.
    fn denied(&mut self, name: &Name, context: &mut Context<'_>) -> Result<Verdict, Query> {
        let rtype = self.rtype;
        // DS records, and the proof of their absence, are in the parent zone.
        let is_above = |zone: &&Name| {
            name.ends_with(*zone) && (rtype != Rtype::DS || **zone != *name || name.is_root())
        };
        let proofs = self.response.authority.iter().filter(|(_, set)| is_proof(set.rtype));
        let signers = proofs.filter_map(|(_, set)| set.signer());
        let signer = signers.filter(is_above).max_by_key(|zone| zone.label_count()).cloned();
        let proven = match signer {
            Some(signer) => match zone_of(&signer, context)? {
                Trust::Keys(zone) if zone.name == signer => {
                    Some((self.proof(name, &signer, context)?, signer))
                }
                _ => None,
            },
            None => None,
        };
        if let Some((verdict, _)) = &proven
            && verdict.security == Security::Secure
        {
            return Ok(*verdict);
        }
        // An incomplete proof counts only if its zone is that of the name, or has the SOA record of the response.
        let trust = zone_of(&start(name, rtype), context)?;
        Ok(match (&trust, proven) {
            (Trust::Keys(zone), Some((verdict, signer))) if zone.name == signer => verdict,
            // The name may be an unsigned delegation (Opt-Out), but this response is from the signed zone above it.
            (Trust::Insecure(_), Some((verdict, signer)))
                if verdict.security == Security::Bogus && !self.has_soa_below(&signer, name) =>
            {
                verdict
            }
            _ => unsigned(&trust, Fault::NoProof),
        })
    }

    /// True if the authority section has the SOA record of a zone below `zone` that contains the name.
    fn has_soa_below(&self, zone: &Name, name: &Name) -> bool {
        let is_below =
            |owner: &Name| name.ends_with(owner) && owner.ends_with(zone) && owner != zone;
        let mut authority = self.response.authority.iter();
        authority.any(|(_, set)| set.rtype == Rtype::SOA && is_below(&set.owner))
    }

    /// Returns the verdict on the proof by the records of this zone.
    fn proof(
        &mut self,
        name: &Name,
        zone: &Name,
        context: &mut Context<'_>,
    ) -> Result<Verdict, Query> {
        let mut verdict = Verdict::secure(u32::MAX);
        let soas = self.response.authority.iter().filter(|(_, set)| set.rtype == Rtype::SOA);
        let soas: Vec<(usize, bool)> =
            soas.map(|(index, set)| (index, set.owner == *zone)).collect();
        for (index, is_own) in soas {
            if !is_own {
                return Ok(Verdict::bogus(Fault::NoProof));
            }
            verdict = self.check(Part::Authority, index, context)?.verdict;
            if verdict.security != Security::Secure {
                return Ok(verdict);
            }
        }
        let (denial, ttl, worst) = self.denial(zone, context)?;
        if denial.is_empty() {
            return Ok(worst);
        }
        let rtype = self.rtype;
        let (limits, work) = context.limits_and_work();
        let proof = match self.response.rcode {
            Rcode::NXDOMAIN => denial.no_name(name, limits, work),
            Rcode::NOERROR => denial.no_data(name, rtype, limits, work),
            _ => Verdict::bogus(Fault::Wrong),
        };
        Ok(verdict.and(proof).and(Verdict::secure(ttl)))
    }

    /// Returns the NSEC and NSEC3 records with a valid signature of this zone, and their smallest TTL. Also returns the
    /// verdict on the records that have none.
    fn denial(
        &mut self,
        zone: &Name,
        context: &mut Context<'_>,
    ) -> Result<(Denial, u32, Verdict), Query> {
        let mut denial = Denial::new(zone.clone());
        let (mut ttl, mut worst) = (u32::MAX, Verdict::bogus(Fault::NoProof));
        let proofs = self.response.authority.iter().filter(|(_, set)| is_proof(set.rtype));
        let proofs: Vec<usize> = proofs.map(|(index, _)| index).collect();
        for index in proofs {
            let set = self.response.authority.get(index);
            if set.signer() != Some(zone) {
                continue;
            }
            let checked = self.check(Part::Authority, index, context)?;
            if checked.verdict.security != Security::Secure {
                worst = checked.verdict;
            } else if checked.expanded_below.is_none() {
                denial.add(self.response.authority.get(index));
                ttl = ttl.min(checked.verdict.ttl);
            }
        }
        Ok((denial, ttl, worst))
    }

    /// Checks the signatures of an RRset, or returns the result of an earlier check.
    fn check(
        &mut self,
        part: Part,
        index: usize,
        context: &mut Context<'_>,
    ) -> Result<Checked, Query> {
        let (section, results): (&Section, &mut Vec<Option<Checked>>) = match part {
            Part::Answer => (&self.response.answer, &mut self.answer),
            Part::Authority => (&self.response.authority, &mut self.authority),
        };
        if let Some(Some(known)) = results.get(index) {
            return Ok(known.clone());
        }
        let set = section.get(index);
        let signed = match set.signer() {
            Some(signer) => Some(zone_of(signer, context)?),
            None => None,
        };
        let trust = match signed {
            Some(trust @ Trust::Keys(_)) => trust,
            // An unsigned zone may have a signed zone between it and the name only if a trust anchor is there.
            _ => zone_of(&start(&set.owner, set.rtype), context)?,
        };
        let checked = match &trust {
            Trust::Keys(zone) => match verify(set, zone, &mut context.checks()) {
                Ok(verified) => Checked {
                    verdict: Verdict::secure(verified.ttl),
                    expanded_below: verified.expanded_below,
                    zone: Some(zone.name.clone()),
                },
                Err(fault) => Checked::without_zone(Verdict::bogus(fault)),
            },
            other => Checked::without_zone(unsigned(other, Fault::NoSignature)),
        };
        if let Some(result) = results.get_mut(index) {
            *result = Some(checked.clone());
        }
        Ok(checked)
    }
}

impl Checked {
    fn without_zone(verdict: Verdict) -> Checked {
        Checked { verdict, expanded_below: None, zone: None }
    }
}

fn is_proof(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::NSEC | Rtype::NSEC3)
}

/// Returns the name whose zone has the records of this owner and type. DS records are in the parent zone.
fn start(owner: &Name, rtype: Rtype) -> Name {
    let parent = owner.parent().filter(|_| rtype == Rtype::DS);
    parent.unwrap_or_else(|| owner.clone())
}

/// Returns the verdict on data without a valid signature. `fault` is the fault if the zone is signed.
fn unsigned(trust: &Trust, fault: Fault) -> Verdict {
    let verdict =
        |security, extended_error| Verdict { security, extended_error, ..Verdict::insecure(None) };
    match trust {
        Trust::Keys(_) => Verdict::bogus(fault),
        Trust::Insecure(cause) => Verdict::insecure(*cause),
        Trust::Bogus(fault) => Verdict::bogus(*fault),
        Trust::Indeterminate => {
            verdict(Security::Indeterminate, Some(ExtendedErrorCode::DNSSEC_INDETERMINATE))
        }
        Trust::Unchecked(seconds) => Verdict {
            ttl: *seconds,
            ..verdict(Security::Unchecked, Some(ExtendedErrorCode::NEGATIVE_TRUST_ANCHOR))
        },
    }
}

/// Replaces the suffix `owner` of a name by `target` (RFC 6672 §2.2). Returns `None` if the result is too long.
fn substitute(name: &Name, owner: &Name, target: &ParsedName<Bytes>) -> Option<Name> {
    let kept = name.label_count() - owner.label_count();
    let mut builder = NameBuilder::new_bytes();
    for label in name.iter().take(kept) {
        builder.append_label(label.as_slice()).ok()?;
    }
    let target: Name = target.to_canonical_name();
    builder.append_origin(&target).ok()
}
