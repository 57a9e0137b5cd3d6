//! Limits on the work for one response. They bound the CPU time that a hostile zone can cause (KeyTrap,
//! CVE-2023-50387, and NSEC3 closest encloser proofs, CVE-2023-50868).

/// Limits on the validation of one response.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of signature checks.
    pub checks: u32,
    /// Maximum number of signature checks that fail.
    pub failed_checks: u32,
    /// Maximum number of DNSKEY records with the same key tag in a zone.
    pub keys_with_one_tag: usize,
    /// Maximum number of additional iterations of an NSEC3 hash. A denial with more iterations counts as insecure (RFC
    /// 9276 §3.2).
    pub iterations: u16,
    /// Maximum number of NSEC3 hashes.
    pub hashes: u32,
    /// Maximum number of queries for DS and DNSKEY records.
    pub queries: usize,
    /// True if signatures of the algorithms 5 and 7, and DS digests of type 1, are accepted. All use SHA-1 (RFC
    /// 9905).
    pub accept_sha1: bool,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            checks: 64,
            failed_checks: 8,
            keys_with_one_tag: 4,
            iterations: 50,
            hashes: 128,
            queries: 48,
            accept_sha1: false,
        }
    }
}

/// Limit that ended a validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// [`Limits::checks`].
    Checks,
    /// [`Limits::failed_checks`].
    FailedChecks,
    /// [`Limits::keys_with_one_tag`].
    KeysWithOneTag,
    /// [`Limits::hashes`].
    Hashes,
    /// [`Limits::queries`].
    Queries,
    /// The CPU time that the caller allows.
    Time,
}

/// Work done so far for one response.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    checks: u32,
    failed_checks: u32,
    hashes: u32,
}

impl Work {
    /// Counts a signature check that is about to begin.
    ///
    /// # Errors
    /// Returns the limit that forbids the check.
    pub(crate) fn begin_check(&mut self, limits: &Limits) -> Result<(), Limit> {
        if self.failed_checks >= limits.failed_checks {
            return Err(Limit::FailedChecks);
        }
        if self.checks >= limits.checks {
            return Err(Limit::Checks);
        }
        self.checks += 1;
        Ok(())
    }

    /// Counts a failed signature check.
    pub(crate) fn fail_check(&mut self) {
        self.failed_checks += 1;
    }

    /// Counts an NSEC3 hash that is about to be computed.
    ///
    /// # Errors
    /// Returns the limit that forbids the hash.
    pub(crate) fn begin_hash(&mut self, limits: &Limits) -> Result<(), Limit> {
        if self.hashes >= limits.hashes {
            return Err(Limit::Hashes);
        }
        self.hashes += 1;
        Ok(())
    }
}
