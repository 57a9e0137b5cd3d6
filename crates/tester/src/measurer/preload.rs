//! Resolution of names before a trial that includes queries for cached names. These names are thus cached when the
//! trial starts.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::client::closed_loop::{self, ClosedLoopError, ClosedLoopPlan};
use crate::client::progress::Progress;
use crate::client::{Additional, Check, ClientSettings, Names, SocketError, Source, Transport};

use units::{Nanos, Qps};

use super::error::TrialError;
use super::plan::TrialPlan;

/// Number of queries in flight. Any DUT can handle this number.
const AT_ONCE: usize = 64;
/// Maximum number of passes over the names. Each pass has half the rate of the previous pass. Queries for names that
/// are already cached cost little.
const PASSES: u32 = 5;
/// Minimum query rate. At this rate, resolving the smallest set of names (1,000 names) takes two seconds.
const SLOWEST: Qps = Qps(500);
/// Timeout per name. It is longer than a trial's timeout, because a DUT may retry a lost query to AuthDNS only after
/// almost a second. It is also longer than the time for which a DUT caches failures (one second in BIND), so that the
/// cached failures have expired by the next pass.
const PATIENCE: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Returns the query rate of one tester in pass number `pass` over the names. The first pass has number 0. The trial is
/// distributed among `testers` testers.
///
/// The first pass has the rate at which the tester sends its part of the trial, because a DUT may drop queries at a
/// higher rate. Each later pass has half the rate of the previous pass. No rate is below [`SLOWEST`].
fn rate_of(pass: u32, trial: Qps, testers: u64) -> Qps {
    Qps((trial.0 / testers) >> pass).max(SLOWEST)
}

impl TrialPlan {
    /// Returns the time needed to resolve the names that must be cached when the trial starts. The time is enough for
    /// two passes over the names. If no query of the trial is for a cached name, the time is zero.
    ///
    /// The common start of several testers must be at least this far in the future. Each tester resolves all names at
    /// its own query rate, so `self` must be the plan of a single tester.
    pub fn preload_time(&self) -> Nanos {
        let count = self.name_sequence().preloaded_count();
        if count == 0 {
            return Nanos(0);
        }
        let pass = |number| {
            let rate = rate_of(number, self.rate, self.testers());
            Nanos(Nanos::SECOND.0 * count / rate.0) + self.timeout.max(PATIENCE)
        };
        pass(0) + PATIENCE + pass(1)
    }
}

/// Resolves the names that must be cached when the trial starts, and returns the number of unresolved names. Ends early
/// when `stop` is set.
pub(super) fn preload(plan: &TrialPlan, stop: &AtomicBool) -> Result<u64, TrialError> {
    if plan.cached_share.per_hundred() == 0 {
        return Ok(0);
    }
    let count = plan.name_sequence().preloaded_count();
    let names = Names::new(&plan.domain, plan.names, plan.first_name, count)
        .expect("TrialPlan::check has counted them");
    let settings = ClientSettings {
        server: plan.canonical_server(),
        // The trial's source address is used, because a cache may be separate for each client (views, client subnets).
        local: plan.source_addresses.map(|sources| SocketAddr::new(sources.first(), 0)),
        transport: Transport::Udp,
        source: Source::Names(names),
        additional: Additional::default(),
        check: Check::Address(plan.expectation()),
        timeout: plan.timeout.max(PATIENCE),
        offload: plan.offload,
        buffer: None,
        interval: None,
    };
    let mut all = ClosedLoopPlan {
        settings,
        outstanding: AT_ONCE,
        threads: 1,
        source_ports: 4,
        cpus: Vec::new(),
        duration: None,
        most: None,
    };
    let mut missing = count;
    for number in 0..PASSES {
        all.most = Some(rate_of(number, plan.rate, plan.testers()));
        let pass =
            closed_loop::run_until(&all, stop, &Progress::default()).map_err(
                |error| match error {
                    ClosedLoopError::Socket(SocketError { server, source }) => {
                        TrialError::Socket { server, source }
                    }
                    other => unreachable!("TrialPlan::check has ensured this: {other}"),
                },
            )?;
        missing = count - pass.counts.valid;
        // A server that resolves nothing at all is not retried.
        if missing == 0 || pass.counts.valid == 0 || stop.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(PATIENCE.into());
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use units::Share;

    use super::super::plan::shard::{Moment, ShardPlan};
    use super::*;

    #[test]
    fn preloading_takes_longer_with_more_testers() {
        let mut plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(100_000));
        assert_eq!(plan.preload_time(), Nanos(0), "nothing is to be cached");
        plan.cached_share = Share::percent(50);
        let of = |of: u16| {
            let shard = Some(ShardPlan { index: 0, of, seed: 0, start: Moment(Nanos(0)) });
            TrialPlan { shard, ..plan.clone() }.preload_time()
        };
        assert_eq!(of(1), plan.preload_time());
        assert!(of(1) < of(2) && of(2) < of(10), "{:?}", [of(1), of(2), of(10)]);
        // This is the minimum rate.
        assert_eq!(of(1_000), of(2_000));
    }
}
