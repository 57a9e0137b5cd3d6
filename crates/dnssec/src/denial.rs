//! Proofs that a name, a type or a delegation does not exist.

use domain::base::iana::{ExtendedErrorCode, Rtype};

use crate::limits::{Limits, Work};
use crate::name::Name;
use crate::nsec::{self, Nsec};
use crate::nsec3::{Chain, Nsec3};
use crate::proof::{Delegation, Proof};
use crate::rrset::RrSet;
use crate::verdict::{Fault, Verdict};

/// The NSEC and NSEC3 records of a response that one zone has signed validly.
#[derive(Debug)]
pub(crate) struct Denial {
    zone: Name,
    nsec: Vec<Nsec>,
    nsec3: Vec<Nsec3>,
}

impl Denial {
    /// Returns a denial without records.
    pub(crate) fn new(zone: Name) -> Denial {
        Denial { zone, nsec: Vec::new(), nsec3: Vec::new() }
    }

    /// True if there are no records.
    pub(crate) fn is_empty(&self) -> bool {
        self.nsec.is_empty() && self.nsec3.is_empty()
    }

    /// Adds an RRset with a valid signature. RRsets of other types, and those that are unusable, are ignored.
    pub(crate) fn add(&mut self, set: &RrSet) {
        match set.rtype {
            Rtype::NSEC => self.nsec.extend(Nsec::from_set(set, &self.zone)),
            Rtype::NSEC3 => self.nsec3.extend(Nsec3::all_of_set(set, &self.zone)),
            _ => {}
        }
    }

    /// True if the hashes have more iterations than permitted.
    fn has_excessive_iterations(&self, limits: &Limits) -> bool {
        self.nsec3.iter().any(|record| record.parameters.iterations > limits.iterations)
    }

    /// Returns the verdict on the proof that `prove` returns for NSEC or for NSEC3 records. NSEC records are used if
    /// there are any.
    fn verdict(
        &self,
        limits: &Limits,
        work: &mut Work,
        with_nsec: impl FnOnce(&[Nsec]) -> Proof,
        with_nsec3: impl FnOnce(&mut Chain<'_>) -> Result<Proof, Fault>,
    ) -> Verdict {
        if with_nsec(&self.nsec) == Proof::Given {
            return Verdict::secure(u32::MAX);
        }
        if self.has_excessive_iterations(limits) {
            let cause = ExtendedErrorCode::UNSUPPORTED_NSEC3_ITERATIONS_VALUE;
            return Verdict::insecure(Some(cause));
        }
        let Some(mut chain) = Chain::new(&self.zone, &self.nsec3, limits, work) else {
            return Verdict::bogus(Fault::NoProof);
        };
        match with_nsec3(&mut chain) {
            Ok(Proof::Given) => Verdict::secure(u32::MAX),
            Ok(Proof::OptOut) => Verdict::insecure(None),
            Ok(Proof::Missing) => Verdict::bogus(Fault::NoProof),
            Err(fault) => Verdict::bogus(fault),
        }
    }

    /// Returns the verdict on the claim that a name has no records of a type.
    pub(crate) fn no_data(
        &self,
        name: &Name,
        rtype: Rtype,
        limits: &Limits,
        work: &mut Work,
    ) -> Verdict {
        self.verdict(
            limits,
            work,
            |records| nsec::no_data(records, name, rtype),
            |chain| chain.no_data(name, rtype),
        )
    }

    /// Returns the verdict on the claim that a name does not exist.
    pub(crate) fn no_name(&self, name: &Name, limits: &Limits, work: &mut Work) -> Verdict {
        self.verdict(
            limits,
            work,
            |records| nsec::no_name(records, name),
            |chain| chain.no_name(name),
        )
    }

    /// Returns the verdict on the claim that a name does not exist and is answered by the wildcard below `encloser`.
    pub(crate) fn no_closer_name(
        &self,
        name: &Name,
        encloser: &Name,
        limits: &Limits,
        work: &mut Work,
    ) -> Verdict {
        self.verdict(
            limits,
            work,
            |records| nsec::no_closer_name(records, name, encloser),
            |chain| chain.no_closer_name(name, encloser),
        )
    }

    /// Returns what the records prove about a delegation at this name. If the hashes have too many iterations, the name
    /// counts as an unsigned delegation.
    ///
    /// # Errors
    /// Returns a fault if the limit on hashes is reached.
    pub(crate) fn delegation(
        &self,
        name: &Name,
        limits: &Limits,
        work: &mut Work,
    ) -> Result<(Delegation, Option<ExtendedErrorCode>), Fault> {
        let found = nsec::delegation(&self.nsec, name);
        if found != Delegation::Unproven {
            return Ok((found, None));
        }
        if self.has_excessive_iterations(limits) {
            let cause = ExtendedErrorCode::UNSUPPORTED_NSEC3_ITERATIONS_VALUE;
            return Ok((Delegation::Unsigned, Some(cause)));
        }
        match Chain::new(&self.zone, &self.nsec3, limits, work) {
            Some(mut chain) => Ok((chain.delegation(name)?, None)),
            None => Ok((Delegation::Unproven, None)),
        }
    }
}
