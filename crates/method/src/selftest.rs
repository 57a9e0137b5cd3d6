//! Rate that the tester itself must reach (RFC 8219 §9.2.1; equations 1 to 11 in section III of G. Lencse and Y.
//! Kadobayashi, "Benchmarking DNS64 Implementations: Theory and Practice", 2018, DOI 10.1016/j.comcom.2018.05.005).

use units::{Nanos, Qps, Share};

/// Minimum reserve δ required by RFC 8219 §9.2.1.
pub const MIN_DELTA: f64 = 0.1;

/// Returns the timeout for a self-test. It is a quarter of `test`, the timeout in the test of a DUT, because a DUT may
/// need two round trips to AuthDNS to resolve a name.
pub fn timeout(test: Nanos) -> Nanos {
    Nanos(test.0 / 4)
}

/// Returns the required ratio of the self-test's rate to the rate of the test: max(1, (2 − α)(1 − β))·(1 + δ). The
/// maximum is the number of queries that the busier role of the tester (Measurer or AuthDNS) handles per query of the
/// test.
///
/// AuthDNS answers one query for a name with an AAAA record, two for other names, and none for cached names. The
/// Measurer always handles one query. The formula is equation 10 of the paper by Lencse and Kadobayashi. The maximum is
/// taken over factors, as in equations 7 and 11, and not over rates. With β = 0 the factor is (2 − α)(1 + δ), and with
/// α = β = 0 it is 2(1 + δ).
pub fn factor(aaaa: Share, cached: Share, delta: f64) -> f64 {
    // In hundredths, so that whole per cents give exact products.
    let parts = u32::from(200 - aaaa.per_hundred()) * u32::from(100 - cached.per_hundred());
    f64::from(parts.max(10_000)) / 10_000.0 * (1.0 + delta)
}

/// Returns the rate at which the tester must pass a self-test before it may test DUTs up to `rate`. The result is
/// rounded up.
pub fn required_rate(rate: Qps, aaaa: Share, cached: Share, delta: f64) -> Qps {
    // The small term corrects the error of binary fractions in round products (1.1 · 100 000 = 110 000.000…01).
    Qps((rate.0 as f64 * factor(aaaa, cached, delta) - 1e-6).ceil() as u64)
}

/// Returns the maximum rate at which the tester may test DUTs after it passed a self-test at `passed`. The result is
/// rounded down.
pub fn allowed_rate(passed: Qps, aaaa: Share, cached: Share, delta: f64) -> Qps {
    Qps((passed.0 as f64 / factor(aaaa, cached, delta) + 1e-6).floor() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DELTA: f64 = MIN_DELTA;

    #[test]
    fn the_example_of_the_paper() {
        assert_eq!(required_rate(Qps(50_000), Share::ZERO, Share::ZERO, DELTA), Qps(110_000));
        assert_eq!(allowed_rate(Qps(110_000), Share::ONE, Share::ZERO, DELTA), Qps(100_000));
        // "at least 162,000qps performance enables us to perform DNS64 tests up to 73,000qps"
        assert_eq!(allowed_rate(Qps(162_000), Share::ZERO, Share::ZERO, DELTA), Qps(73_636));
        assert_eq!(timeout(Nanos::SECOND), Nanos::from_millis(250));
    }

    #[test]
    fn cached_share_never_spares_the_measurer() {
        for cached in [50, 60, 80, 100] {
            assert_eq!(
                required_rate(Qps(10_000), Share::ZERO, Share::percent(cached), DELTA),
                Qps(11_000)
            );
        }
        assert_eq!(required_rate(Qps(10_000), Share::ZERO, Share::percent(20), DELTA), Qps(17_600));
        assert_eq!(
            required_rate(Qps(10_000), Share::percent(60), Share::percent(20), DELTA),
            Qps(12_320)
        );
        assert_eq!(
            required_rate(Qps(10_000), Share::percent(80), Share::percent(40), DELTA),
            Qps(11_000)
        );
    }

    proptest! {
        #[test]
        fn passing_at_the_required_rate_allows_the_rate(rate in 1u64..10_000_000, a in 0u8..=100, b in 0u8..=100) {
            let (a, b) = (Share::percent(a), Share::percent(b));
            let required = required_rate(Qps(rate), a, b, DELTA);
            prop_assert!(allowed_rate(required, a, b, DELTA) >= Qps(rate));
            if required.0 > 1 {
                prop_assert!(allowed_rate(Qps(required.0 - 1), a, b, DELTA) <= Qps(rate));
            }
        }
    }
}
