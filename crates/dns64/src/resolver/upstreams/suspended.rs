//! A property of queries that is omitted for an upstream that cannot handle it: EDNS (RFC 6891
//! §6.2.2), or random letter case. The property is tried again after ten minutes, because the
//! upstream may have been replaced by a newer server.

use units::Nanos;

/// Time for which a property (EDNS or random letter case) is omitted from queries to an upstream.
const LEFT_OUT: Nanos = Nanos::from_millis(600_000);

/// Time until which a property (EDNS or random letter case) is omitted from queries to one upstream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suspended {
    until: Nanos,
}

impl Suspended {
    /// True if queries to the upstream use the property (EDNS or random letter case) at time `now`.
    pub(super) fn is_over(&self, now: Nanos) -> bool {
        now >= self.until
    }

    /// Records that queries to the upstream must omit the property (EDNS or random letter case) for ten minutes from
    /// `now`.
    pub(super) fn begin(&mut self, now: Nanos) {
        self.until = now + LEFT_OUT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_is_tried_again_after_ten_minutes() {
        let mut edns = Suspended::default();
        assert!(edns.is_over(Nanos(0)));
        edns.begin(Nanos::SECOND);
        assert!(!edns.is_over(Nanos::SECOND) && !edns.is_over(LEFT_OUT));
        assert!(edns.is_over(Nanos::SECOND + LEFT_OUT));
    }
}
