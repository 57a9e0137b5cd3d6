//! Task of the TCP thread that queries the upstreams to learn which of them return DNSSEC signatures.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use net::address::ServiceAddr;
use net::clock;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use units::Nanos;

use super::shared::Shared;
use super::upstream_query;
use crate::config::{Settings, Validate};
use crate::guard::Tasks;
use crate::signatures::{self, SignatureSupport, Signatures};

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

    /// Queries all upstreams. Returns the signatures from each of them, or `None` for an upstream that does not answer the
    /// question.
    async fn ask(&self) -> Vec<(ServiceAddr, Option<Signatures>)> {
        let mut asking = JoinSet::new();
        for (&upstream, zone) in self.upstreams.iter().zip(self.zone.iter().cycle()) {
            let query = signatures::query(zone);
            asking.spawn_local(async move {
                let answer = upstream_query::ask(upstream, &query).await.ok();
                (upstream, answer.and_then(|answer| Signatures::of(&answer)))
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
    let (mut has_warned, mut is_clock_wrong) = (false, false);
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
            has_warned |= log(&settings, &before, &now, &round.upstreams, has_warned);
            is_clock_wrong = check_clock(&answers, clock::wall(), is_clock_wrong);
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
fn updated(
    before: &SignatureSupport,
    answers: &[(ServiceAddr, Option<Signatures>)],
) -> SignatureSupport {
    let is_without = |(upstream, answer): &&(ServiceAddr, Option<Signatures>)| match answer {
        Some(signatures) => !signatures.are_found(),
        None => before.without.contains(upstream),
    };
    let mut without: Vec<_> =
        answers.iter().filter(is_without).map(|(upstream, _)| *upstream).collect();
    without.sort_unstable();
    without.dedup();
    let mut found = answers.iter().filter_map(|(_, answer)| answer.as_ref());
    let is_proven = before.is_proven || found.any(Signatures::are_found);
    SignatureSupport { is_proven, without }
}

/// True if the clock is outside of the periods of all signatures. A change of this result is logged.
fn check_clock(
    answers: &[(ServiceAddr, Option<Signatures>)],
    wall: Nanos,
    was_wrong: bool,
) -> bool {
    let found = answers.iter().filter_map(|(_, answer)| answer.as_ref());
    let mut found = found.filter(|signatures| signatures.are_found()).peekable();
    if found.peek().is_none() {
        return was_wrong;
    }
    let seconds = wall.0 / Nanos::SECOND.0;
    let periods: Option<Vec<_>> =
        found.map(|signatures| signatures.period_without(seconds as u32)).collect();
    let Some((from, until)) = periods.as_ref().and_then(|periods| periods.first()) else {
        if was_wrong {
            tracing::info!("the clock is within the period of the signatures again");
        }
        return false;
    };
    if !was_wrong {
        let text = |seconds: u64| {
            humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds))
        };
        tracing::error!(
            "the clock of this machine is wrong, or the data of the upstreams are old: it is {}, and the signature of the \
             trust anchor's zone is valid from {} to {}",
            text(seconds),
            text(u64::from(*from)),
            text(u64::from(*until))
        );
    }
    true
}

/// Returns the upstreams that are queried only if all others are down. There is none while answers are not validated.
fn avoided<'a>(settings: &Settings, state: &'a SignatureSupport) -> &'a [ServiceAddr] {
    let validates = settings.validate == Validate::Yes || state.is_proven;
    if validates { &state.without } else { &[] }
}

/// Returns the upstreams that are no longer avoided, because they return signatures. Those that a reload has removed are
/// left out. `upstreams` are the configured ones.
fn readmitted<'a>(
    avoided_before: &'a [ServiceAddr],
    avoided_now: &[ServiceAddr],
    upstreams: &[ServiceAddr],
) -> impl Iterator<Item = &'a ServiceAddr> {
    avoided_before
        .iter()
        .filter(|upstream| !avoided_now.contains(upstream) && upstreams.contains(upstream))
}

/// Logs the changes. Returns true if it has warned that answers are not validated.
fn log(
    settings: &Settings,
    before: &SignatureSupport,
    now: &SignatureSupport,
    upstreams: &[ServiceAddr],
    has_warned: bool,
) -> bool {
    let (avoided_before, avoided_now) = (avoided(settings, before), avoided(settings, now));
    for upstream in avoided_now.iter().filter(|upstream| !avoided_before.contains(upstream)) {
        tracing::warn!(
            "upstream {upstream} returns no DNSSEC signatures; it is queried only if all others are down"
        );
    }
    for upstream in readmitted(avoided_before, avoided_now, upstreams) {
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
            let signatures = |found| match found {
                true => Signatures::Found(vec![(1, 2)]),
                false => Signatures::Missing,
            };
            let answers: Vec<_> = answers
                .into_iter()
                .map(|(port, found): (u16, Option<bool>)| (at(port), found.map(signatures)))
                .collect();
            assert_eq!(updated(&before, &answers), after, "{what}");
        }
    }

    #[test]
    fn no_upstream_is_avoided_while_answers_are_not_validated() {
        for (validate, is_proven, count) in
            [("true", false, 1), ("'if-possible'", false, 0), ("'if-possible'", true, 1)]
        {
            let text = format!("[dnssec]\nvalidate = {validate}\n[[upstream]]\naddress = '::1'\n");
            let settings = Settings::from_text(&text, std::path::Path::new("test.toml")).unwrap();
            let found = avoided(&settings, &support(is_proven, &[1])).len();
            assert_eq!(found, count, "{validate} {is_proven}");
        }
    }

    #[test]
    fn removed_upstreams_are_not_logged_as_readmitted() {
        let [one, two, three] = [1, 2, 3].map(at);
        for (what, avoided_now, upstreams, expected) in [
            ("no change", vec![one, two], vec![one, two, three], vec![]),
            ("signatures again", vec![one], vec![one, two, three], vec![two]),
            ("removed", vec![one], vec![one, three], vec![]),
        ] {
            let before = [one, two];
            let found: Vec<_> = readmitted(&before, &avoided_now, &upstreams).copied().collect();
            assert_eq!(found, expected, "{what}");
        }
    }

    #[test]
    fn the_clock_is_wrong_if_no_signature_is_valid() {
        let answer = |port, from, until| (at(port), Some(Signatures::Found(vec![(from, until)])));
        let at_second = |second: u64| Nanos(second * Nanos::SECOND.0);
        let old = [answer(1, 100, 200), answer(2, 100, 150)];
        for (second, is_wrong) in [(99, true), (120, false), (180, false), (201, true)] {
            assert_eq!(check_clock(&old, at_second(second), false), is_wrong, "{second}");
        }
        // Without signatures, nothing is known.
        for was_wrong in [false, true] {
            let none = [(at(1), None), (at(2), Some(Signatures::Missing))];
            assert_eq!(check_clock(&none, at_second(1), was_wrong), was_wrong);
        }
    }
}
