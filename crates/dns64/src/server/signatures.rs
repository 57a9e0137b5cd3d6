//! Task of the TCP thread that queries the upstreams to learn which of them return DNSSEC signatures.

use std::sync::Arc;
use std::time::Duration;

use net::address::ServiceAddr;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::shared::Shared;
use super::upstream_query;
use crate::config::{Settings, Validate};
use crate::guard::Tasks;
use crate::signatures::{self, SignatureSupport};

/// Interval between checks for due queries and for changes of the configuration.
const TICK: Duration = Duration::from_millis(200);
/// Pause before the second round of queries if no upstream has returned signatures. It doubles with each round.
const MIN_PAUSE: Duration = Duration::from_secs(1);
/// Maximum pause between two rounds of queries.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The zone and the upstreams of a round of queries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Round {
    zone: Option<dnssec::Name>,
    upstreams: Vec<ServiceAddr>,
}

impl Round {
    /// Returns the round for these settings. It has no upstreams if validation is off.
    fn of(settings: &Settings) -> Round {
        let zone = settings.validator.as_ref().and_then(|validator| validator.top_zone().cloned());
        let Some(zone) = zone else { return Round::default() };
        let numbers = &settings.routes[settings.route(zone.as_slice()).0].upstreams;
        let upstreams = numbers.iter().map(|&number| settings.upstreams[number].address).collect();
        Round { zone: Some(zone), upstreams }
    }

    /// Queries all upstreams. Returns whether each of them returns signatures, or `None` for an upstream that does not
    /// answer the question.
    async fn ask(&self) -> Vec<(ServiceAddr, Option<bool>)> {
        let mut asking = JoinSet::new();
        for (&upstream, zone) in self.upstreams.iter().zip(self.zone.iter().cycle()) {
            let query = signatures::query(zone);
            asking.spawn_local(async move {
                let answer = upstream_query::ask(upstream, &query).await.ok();
                (upstream, answer.and_then(|answer| signatures::are_in(&answer)))
            });
        }
        asking.join_all().await
    }
}

/// Starts the task.
pub(super) fn watch(tasks: &Tasks, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    tasks.keep("a query for DNSSEC signatures", move || query_periodically(Arc::clone(&shared)));
}

async fn query_periodically(shared: Arc<Shared>) {
    let (mut round, mut pause, mut due) = (Round::default(), MIN_PAUSE, Instant::now());
    let mut has_warned = false;
    loop {
        let settings = shared.settings.load_full();
        let wanted = Round::of(&settings);
        if wanted != round {
            (round, pause, due) = (wanted, MIN_PAUSE, Instant::now());
        }
        if !round.upstreams.is_empty() && due <= Instant::now() {
            let answers = round.ask().await;
            let before = shared.settings.load().signatures.clone();
            let now = updated(&before, &answers);
            has_warned |= log(&settings, &before, &now, has_warned);
            due = Instant::now() + if now.is_proven { MAX_PAUSE } else { pause };
            pause = (pause * 2).min(MAX_PAUSE);
            let begins = now.is_proven && !before.is_proven;
            if now != before {
                shared.publish_signatures(now);
            }
            if begins && settings.validate == Validate::IfPossible {
                // The workers use the new settings by then. The answers in the cache were not validated.
                sleep(TICK).await;
                shared.common.cache.flush_all();
            }
        }
        sleep(TICK).await;
    }
}

/// Returns the new state after a round of queries. An upstream that did not answer keeps its state. An upstream that is
/// no longer configured is removed.
fn updated(before: &SignatureSupport, answers: &[(ServiceAddr, Option<bool>)]) -> SignatureSupport {
    let is_without = |&&(upstream, answer): &&(ServiceAddr, Option<bool>)| {
        !answer.unwrap_or(!before.without.contains(&upstream))
    };
    let mut without: Vec<_> =
        answers.iter().filter(is_without).map(|(upstream, _)| *upstream).collect();
    without.sort_unstable();
    without.dedup();
    let is_proven = before.is_proven || answers.iter().any(|(_, answer)| *answer == Some(true));
    SignatureSupport { is_proven, without }
}

/// Logs the changes. Returns true if it has warned that answers are not validated.
fn log(
    settings: &Settings,
    before: &SignatureSupport,
    now: &SignatureSupport,
    has_warned: bool,
) -> bool {
    for upstream in now.without.iter().filter(|upstream| !before.without.contains(upstream)) {
        tracing::warn!(
            "upstream {upstream} returns no DNSSEC signatures; it is queried only if all others are down"
        );
    }
    for upstream in before.without.iter().filter(|upstream| !now.without.contains(upstream)) {
        tracing::info!("upstream {upstream} returns DNSSEC signatures again");
    }
    if settings.validate != Validate::IfPossible {
        return false;
    }
    if now.is_proven && !before.is_proven {
        tracing::info!("answers are validated: an upstream returns DNSSEC signatures");
    }
    let warns = !now.is_proven && !now.without.is_empty() && !has_warned;
    if warns {
        tracing::warn!(
            "answers are not validated: no upstream returns DNSSEC signatures (dnssec.validate is \"if-possible\")"
        );
    }
    warns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support(is_proven: bool, without: &[u16]) -> SignatureSupport {
        SignatureSupport { is_proven, without: without.iter().map(|&port| at(port)).collect() }
    }

    fn at(port: u16) -> ServiceAddr {
        std::net::SocketAddr::from(([127, 0, 0, 1], port)).into()
    }

    #[test]
    fn upstreams_without_an_answer_keep_their_state() {
        for (what, before, answers, after) in [
            ("no answer at all", support(false, &[]), vec![(1, None)], support(false, &[])),
            ("one without", support(false, &[]), vec![(1, Some(false))], support(false, &[1])),
            (
                "one with, one without",
                support(false, &[]),
                vec![(2, Some(false)), (1, Some(true))],
                support(true, &[2]),
            ),
            ("silence", support(true, &[1]), vec![(1, None), (2, None)], support(true, &[1])),
            ("again with", support(true, &[1]), vec![(1, Some(true))], support(true, &[])),
            ("removed", support(true, &[1]), vec![(2, Some(true))], support(true, &[])),
            ("all without", support(true, &[]), vec![(1, Some(false))], support(true, &[1])),
        ] {
            let answers: Vec<_> =
                answers.into_iter().map(|(port, found)| (at(port), found)).collect();
            assert_eq!(updated(&before, &answers), after, "{what}");
        }
    }
}
