//! Validation of one response (RFC 4035 §5).

use bytes::Bytes;
use domain::base::iana::{ExtendedErrorCode, OptRcode, Rtype};
use domain::base::name::{NameBuilder, ToName};
use domain::base::wire::ParseError;
use domain::base::{Message, ParsedName};
use domain::rdata::AllRecordData;

use crate::context::{Context, Query, Validator};
use crate::denial::Denial;
use crate::limits::{Limit, Work};
use crate::name::Name;
use crate::rrset::{Response, Section};
use crate::signature::verify;
use crate::verdict::{Fault, Security, Verdict};
use crate::zone_cache::Trust;
use crate::zones::zone_of;

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
    name: Name,
    rtype: Rtype,
    /// Alias target at which the response is cut.
    end: Option<Name>,
    response: Response,
    answer: Vec<Option<Checked>>,
    authority: Vec<Option<Checked>>,
    fetched: Vec<(Query, Option<Bytes>)>,
    work: Work,
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
    /// caller does not use; the response is validated up to this target.
    ///
    /// # Errors
    /// Returns an error if the response is malformed.
    pub fn new(octets: &Bytes, end: Option<&Name>) -> Result<Validation, ParseError> {
        let message = Message::from_octets(octets.clone()).map_err(|_| ParseError::ShortInput)?;
        let question = message.sole_question()?;
        let response = Response::parse(octets)?;
        Ok(Validation {
            name: question.qname().to_canonical_name(),
            rtype: question.qtype(),
            end: end.map(ToName::to_canonical_name),
            answer: vec![None; response.answer.len()],
            authority: vec![None; response.authority.len()],
            response,
            fetched: Vec::new(),
            work: Work::default(),
        })
    }

    /// Adds the response to a query, or `None` if there is none.
    pub fn add(&mut self, query: Query, response: Option<Bytes>) {
        self.fetched.push((query, response));
    }

    /// Continues the validation until a response is missing, or until its end. `now` is the time in seconds since 1970.
    /// `is_over` returns true if the validation has used the CPU time that the caller allows.
    pub fn step(
        &mut self,
        validator: &Validator,
        now: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Progress {
        let fetched = std::mem::take(&mut self.fetched);
        let mut work = self.work;
        // Times in signatures are modulo 2³² (RFC 4034 §3.1.5).
        let now = now as u32;
        let mut context = Context::new(validator, &fetched, &mut work, now, is_over);
        let result = self.evaluate(&mut context);
        self.work = work;
        self.fetched = fetched;
        match result {
            Ok(verdict) => Progress::Ended(verdict),
            Err(_) if self.fetched.len() >= validator.limits.queries => {
                Progress::Ended(Verdict::bogus(Fault::Limit(Limit::Queries)))
            }
            Err(query) => Progress::Query(query),
        }
    }

    fn evaluate(&mut self, context: &mut Context<'_>) -> Result<Verdict, Query> {
        if self.rtype == Rtype::RRSIG {
            // Signatures are not signed.
            return Ok(Verdict::insecure(None));
        }
        let mut name = self.name.clone();
        let mut verdict = Verdict::secure(u32::MAX);
        for aliases in 0..=MOST_ALIASES {
            if verdict.security == Security::Bogus
                || (aliases > 0 && self.end.as_ref() == Some(&name))
            {
                return Ok(verdict);
            }
            let found = self.found(&name);
            if !found.is_empty() {
                for index in found {
                    verdict = verdict.and(self.positive(index, context)?);
                }
                return Ok(verdict);
            }
            if let Some((index, target)) = self.dname(&name) {
                verdict = verdict.and(self.positive(index, context)?);
                match target {
                    Some(target) => name = target,
                    None if self.response.rcode == OptRcode::YXDOMAIN => return Ok(verdict),
                    None => return Ok(Verdict::bogus(Fault::Wrong)),
                }
            } else if let Some((index, target)) = self.cname(&name) {
                verdict = verdict.and(self.positive(index, context)?);
                name = target;
            } else {
                let is_unfinished = aliases > 0
                    && self.response.rcode == OptRcode::NOERROR
                    && !self.response.authority.iter().any(|(_, set)| {
                        matches!(set.rtype, Rtype::SOA | Rtype::NSEC | Rtype::NSEC3)
                    });
                if is_unfinished {
                    return Ok(verdict);
                }
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

    /// Returns the DNAME record that applies to this name, and the name to which it leads. The target is `None` if it is
    /// too long, or if the response has an alias with a different target.
    fn dname(&self, name: &Name) -> Option<(usize, Option<Name>)> {
        let sets = self.response.answer.iter();
        let above = sets.filter(|(_, set)| {
            set.rtype == Rtype::DNAME && name.ends_with(&set.owner) && *name != set.owner
        });
        let (index, set) = above.max_by_key(|(_, set)| set.owner.label_count())?;
        let Some(AllRecordData::Dname(dname)) = set.data().next() else { return None };
        let target = substitute(name, &set.owner, dname.dname());
        let written = self.cname(name).map(|(_, target)| target);
        let contradicts = written.is_some_and(|written| target.as_ref() != Some(&written));
        Some((index, target.filter(|_| !contradicts)))
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
        let zone = match signer {
            Some(signer) => match zone_of(&signer, context)? {
                Trust::Keys(zone) if zone.name == signer => Some(signer),
                _ => None,
            },
            None => None,
        };
        let Some(zone) = zone else {
            let trust = zone_of(&start(name, rtype), context)?;
            return Ok(unsigned(&trust, Fault::NoProof));
        };
        let mut verdict = Verdict::secure(u32::MAX);
        let soa = self.response.authority.iter().find(|(_, set)| set.rtype == Rtype::SOA);
        if let Some(index) = soa.map(|(index, _)| index) {
            verdict = self.check(Part::Authority, index, context)?.verdict;
            if verdict.security != Security::Secure {
                return Ok(verdict);
            }
        }
        let (denial, ttl, worst) = self.denial(&zone, context)?;
        if denial.is_empty() {
            return Ok(worst);
        }
        let (limits, work) = context.limits_and_work();
        let proof = match self.response.rcode {
            OptRcode::NXDOMAIN => denial.no_name(name, limits, work),
            _ => denial.no_data(name, rtype, limits, work),
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
        Trust::Unchecked => {
            verdict(Security::Unchecked, Some(ExtendedErrorCode::NEGATIVE_TRUST_ANCHOR))
        }
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
