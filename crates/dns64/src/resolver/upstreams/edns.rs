//! What is remembered of an upstream's EDNS: one that answered without EDNS a question that it
//! rejected with EDNS is asked without EDNS for ten minutes (RFC 6891 §6.2.2). Then it is tried
//! again, as it may have been replaced by a newer one.

use method::units::Nanos;

/// How long an upstream is asked without EDNS.
const PLAIN: Nanos = Nanos::from_millis(600_000);

/// The memory of one upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EdnsMemory {
    plain_until: Nanos,
}

impl EdnsMemory {
    /// Whether the upstream is to be asked with EDNS.
    pub(super) fn is_used(&self, now: Nanos) -> bool {
        now >= self.plain_until
    }

    /// The upstream has answered a question without EDNS that it rejected with EDNS: it is asked
    /// without until ten minutes from `now`.
    pub(super) fn found_plain(&mut self, now: Nanos) {
        self.plain_until = now + PLAIN;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edns_is_tried_again_after_a_while() {
        let mut edns = EdnsMemory::default();
        assert!(edns.is_used(Nanos(0)));
        edns.found_plain(Nanos::SECOND);
        assert!(!edns.is_used(Nanos::SECOND) && !edns.is_used(PLAIN));
        assert!(edns.is_used(Nanos::SECOND + PLAIN));
    }
}
