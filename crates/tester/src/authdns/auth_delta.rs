//! Changes in AuthDNS's counters during a trial. AuthDNS is part of the tester, so AuthDNS's drops and delays must not
//! count against the DUT.

use method::evidence::{PATTERN, TOLERANCE, UpstreamQueries};
use method::reason::{Reason, ZoneFacts};
use serde::{Deserialize, Serialize};
use units::Nanos;

use super::counters::AuthCounters;
use super::host_drops::HostDrops;
use super::times::Times;
use crate::xdp::XdpInterface;

/// AuthDNS's queries, losses and processing time in one trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AuthDelta {
    /// Queries that AuthDNS received, including those sent before the trial to fill the DUT's cache.
    pub asked: UpstreamQueries,
    /// Queries that the kernel dropped because AuthDNS was too slow.
    pub socket_drops: u64,
    /// Replies that could not be sent because of an error.
    pub send_refused: u64,
    /// Packets lost in the network stack or an interface of AuthDNS's host, including packets of other programs; absent
    /// if lost packets were not counted.
    #[serde(default, skip_serializing_if = "HostDrops::is_unwatched")]
    pub host_drops: HostDrops,
    /// Queries that AuthDNS processed for longer than the limit.
    #[serde(default)]
    pub slow: u64,
    /// Replies with REFUSED or NXDOMAIN.
    #[serde(default)]
    pub refused: u64,
    /// Number of different names in the AAAA queries; absent with several AuthDNS instances, which may have received
    /// queries for the same names.
    #[serde(default)]
    pub names: Option<u64>,
    /// Zones that AuthDNS served; empty if the version of AuthDNS does not report its zones.
    #[serde(default)]
    pub zones: Vec<ZoneFacts>,
    /// Number of trials that other testers ran at the same time.
    #[serde(default)]
    pub other_trials: u64,
    /// True if AuthDNS was restarted during the trial. In this case, all counts begin at the restart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restarted: bool,
    /// AuthDNS's processing time, from the kernel's receive timestamp of a query to its reply, in microseconds; absent
    /// if AuthDNS sent no reply over UDP.
    pub own_time_us: Option<OwnTime>,
    /// Interface on which AuthDNS answers queries by AF_XDP, with its attach mode; absent if AF_XDP is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "past_stack")]
    pub xdp: Option<XdpInterface>,
}

/// Percentiles of AuthDNS's processing time in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OwnTime {
    /// Median of the processing times.
    pub p50: f64,
    /// 99th percentile of the processing times.
    pub p99: f64,
    /// 99.9th percentile of the processing times, which is compared with the limit for the processing time.
    pub p999: f64,
    /// Maximum processing time.
    pub max: f64,
}

impl OwnTime {
    fn of(times: &Times) -> Option<OwnTime> {
        let us = |quantile| Some(times.quantile(quantile)?.0 as f64 / 1e3);
        Some(OwnTime {
            p50: us(0.5)?,
            p99: us(0.99)?,
            p999: us(0.999)?,
            max: times.max()?.0 as f64 / 1e3,
        })
    }
}

impl AuthDelta {
    /// Computes the difference between two reads of AuthDNS's counters.
    ///
    /// A query counts as a retry if the same query was received less than `timeout` before. A query counts as slow if
    /// AuthDNS took longer than `limit`.
    pub fn between(
        before: &AuthCounters,
        after: &AuthCounters,
        timeout: Nanos,
        limit: Nanos,
    ) -> AuthDelta {
        let less = |get: fn(&AuthCounters) -> u64| get(after).saturating_sub(get(before));
        let retries =
            |get: fn(&AuthCounters) -> &Times| get(after).since(get(before)).count_below(timeout);
        let own = after.own_time.since(&before.own_time);
        let asked = UpstreamQueries {
            aaaa: less(|c| c.queries.aaaa),
            a: less(|c| c.queries.a),
            other: less(|c| c.queries.other),
            aaaa_present: less(|c| c.aaaa_present),
            aaaa_retries: retries(|c| &c.repeats.aaaa),
            a_retries: retries(|c| &c.repeats.a),
            aaaa_repeats: after.repeats.aaaa.since(&before.repeats.aaaa).count(),
        };
        AuthDelta {
            restarted: before.start != after.start,
            slow: own.count() - own.count_below(limit),
            refused: less(|c| c.replies.refused + c.replies.nxdomain),
            names: (after.servers == 1).then(|| asked.names()),
            zones: after.zones.clone(),
            other_trials: before.other_trials.running + less(|c| c.other_trials.begun),
            asked,
            socket_drops: less(|c| c.socket_drops),
            send_refused: less(|c| c.send_refused),
            host_drops: after.host_drops.since(&before.host_drops),
            own_time_us: OwnTime::of(&own),
            xdp: after.xdp.clone(),
        }
    }

    /// Returns the faults of AuthDNS and its host that invalidate the trial:
    ///
    /// - a restart of AuthDNS
    /// - packets that AuthDNS or its host dropped
    /// - a packet that waited longer than `waiting` in a queueing discipline of the host
    /// - more than one missed datagram per [`MISSED_IN`] received datagrams
    /// - a 99.9th percentile of AuthDNS's processing time above `limit`
    pub fn faults(&self, limit: Nanos, waiting: Nanos) -> Vec<Reason> {
        let mut faults = Vec::new();
        if self.restarted {
            faults.push(Reason::AuthRestarted);
        }
        if self.socket_drops > 0 {
            faults.push(Reason::AuthDropped { queries: self.socket_drops });
        }
        if self.send_refused > 0 {
            faults.push(Reason::AuthSendRefused { replies: self.send_refused });
        }
        let losses = self.host_drops.losses().into_iter();
        let losses = losses.chain(self.host_drops.waits_beyond(waiting));
        faults.extend(losses.map(Reason::AuthHostLoss));
        faults.extend(self.missed_reason().filter(|_| self.missed() * MISSED_IN > self.came()));
        if let Some(own) = self.own_time_us.filter(|own| own.p999 > limit.0 as f64 / 1e3) {
            faults.push(Reason::AuthSlow { p999_us: own.p999, limit });
        }
        faults
    }

    /// Checks that AuthDNS answered only queries of the planned trial. Returns a reason if AuthDNS served a zone other
    /// than `wanted`, or if other clients sent queries at the same time. `names` is the planned number of names.
    pub(crate) fn disagreements(&self, wanted: Option<&ZoneFacts>, names: u64) -> Vec<Reason> {
        let mut found = Vec::new();
        if let Some(wanted) = wanted {
            let others = self.zones.iter().filter(|served| *served != wanted).cloned();
            found
                .extend(others.map(|served| Reason::AuthServes { served, wanted: wanted.clone() }));
        }
        if self.other_trials > 0 {
            found.push(Reason::OtherTrials { trials: self.other_trials });
        }
        if let Some(asked) = self.names.filter(|asked| asked.saturating_sub(names) > spare(names)) {
            found.push(Reason::OtherNames { asked, names });
        }
        found
    }

    /// Returns the reason for an invalid trial if AuthDNS refused so many queries that a failed trial gives no
    /// information about the DUT. A few refusals are normal. For example, a DUT also sends queries for trust anchors,
    /// which are outside the zone.
    pub fn refusal(&self) -> Option<Reason> {
        let UpstreamQueries { aaaa, a, other, .. } = self.asked;
        let (refused, questions) = (self.refused, aaaa + a + other);
        (refused > spare(questions)).then_some(Reason::AuthRefused { refused, questions })
    }

    /// Returns the number of queries that AuthDNS answered too late, or that reached its host but not AuthDNS.
    pub fn doubtful(&self) -> u64 {
        self.slow + self.missed()
    }

    /// Returns the number of datagrams that reached AuthDNS's host but not AuthDNS; 0 if datagrams were not counted.
    pub fn missed(&self) -> u64 {
        self.host_drops.missed().unwrap_or(0)
    }

    /// Returns the number of datagrams that AuthDNS's host received; 0 if not counted.
    fn came(&self) -> u64 {
        self.host_drops.arrived.map_or(0, |arrived| arrived.interfaces)
    }

    fn missed_reason(&self) -> Option<Reason> {
        let (datagrams, came) = (self.missed(), self.came());
        (datagrams > 0).then_some(Reason::AuthMissed { datagrams, came })
    }

    /// Returns the reasons why a failed trial with `unanswered` queries is invalid. The caller must have checked that
    /// the trial fails only because of the queries that AuthDNS missed or answered too late ([`AuthDelta::doubtful`]).
    pub fn doubts(&self, limit: Nanos, unanswered: u64) -> Vec<Reason> {
        let slow = Reason::AuthDecides { questions: self.slow, limit, unanswered };
        let slow = (self.slow > 0).then_some(slow);
        slow.into_iter().chain(self.missed_reason()).collect()
    }
}

/// Number of received datagrams among which one missed datagram is tolerated. A higher loss is not tolerated, because a
/// DUT may stop querying a server that does not answer. Many queries may then fail because of one missed query.
const MISSED_IN: u64 = 1_000;

/// Returns the tolerance for a number of names or queries: the largest accepted excess over the expected number
/// `count`.
fn spare(count: u64) -> u64 {
    (TOLERANCE * count as f64 + PATTERN) as u64
}

#[cfg(test)]
mod tests {
    use method::reason::HostLoss;
    use method::records::Counts;
    use method::verdict::Verdict;
    use units::Qps;

    use super::super::host_drops::InterfaceDrops;
    use super::*;
    use crate::measurer::plan::TrialPlan;
    use crate::measurer::result::TrialResult;

    fn counters(aaaa: u64, own: &[u64], repeats: &[u64]) -> AuthCounters {
        let mut all = AuthCounters::default();
        all.queries.aaaa = aaaa;
        own.iter().for_each(|&ms| all.own_time.add(Nanos::from_millis(ms)));
        repeats.iter().for_each(|&ms| all.repeats.aaaa.add(Nanos::from_millis(ms)));
        all
    }

    #[test]
    fn retries_are_repeats_within_the_timeout() {
        let before = counters(5, &[], &[10]);
        let after = counters(105, &[], &[10, 20, 90, 1_500]);
        let part =
            AuthDelta::between(&before, &after, Nanos::from_millis(100), Nanos::from_millis(10));
        assert_eq!((part.asked.aaaa, part.asked.aaaa_retries), (100, 2));
    }

    #[test]
    fn a_restart_is_always_a_fault() {
        let limit = Nanos::from_millis(10);
        let before = AuthCounters { start: 7, ..counters(5, &[], &[]) };
        let faults = |after: &AuthCounters| {
            AuthDelta::between(&before, after, Nanos::SECOND, limit).faults(limit, limit)
        };
        assert_eq!(faults(&AuthCounters { start: 7, ..counters(9, &[], &[]) }), []);
        let after = AuthCounters { start: 8, ..counters(9, &[], &[]) };
        assert_eq!(faults(&after), [Reason::AuthRestarted]);
    }

    #[test]
    fn drops_and_slowness_are_faults() {
        let limit = Nanos::from_millis(10);
        assert_eq!(AuthDelta::default().faults(limit, limit), []);
        let slow = AuthDelta::between(
            &counters(0, &[50], &[]),
            &counters(9, &[50, 1, 1, 40], &[]),
            limit,
            limit,
        );
        assert_eq!(slow.slow, 1);
        assert!(
            matches!(slow.faults(limit, limit)[..], [Reason::AuthSlow { p999_us, .. }] if (39_000.0..42_000.0).contains(&p999_us)),
            "{:?}",
            slow.faults(limit, limit)
        );
        assert_eq!(slow.faults(Nanos::SECOND, limit), []);
        let dropped = AuthDelta { socket_drops: 3, send_refused: 1, ..AuthDelta::default() };
        assert_eq!(
            dropped.faults(limit, limit),
            [Reason::AuthDropped { queries: 3 }, Reason::AuthSendRefused { replies: 1 }]
        );
    }

    #[test]
    fn host_losses_are_not_the_duts_failure() {
        let dropped = |receive| {
            let drops = InterfaceDrops { receive, ..InterfaceDrops::default() };
            let interfaces = [("to-dut".into(), drops)].into();
            let host_drops = HostDrops { interfaces, ..HostDrops::default() };
            AuthCounters { start: 7, host_drops, ..AuthCounters::default() }
        };
        let verdict = |before, after| {
            let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1000));
            let counts = Counts { sent: 10, valid: 9, late: 1, ..Counts::default() };
            let mut trial = TrialResult::simulated(&plan, counts);
            let part = AuthDelta::between(&before, &after, plan.timeout, plan.auth_limit);
            trial.apply_auth(part, plan.auth_limit, plan.subject);
            (trial.verdict, trial.reasons)
        };
        assert_eq!(verdict(dropped(5), dropped(5)).0, Verdict::Failed, "before the trial");
        let loss = HostLoss::InterfaceReceive { packets: 4, interface: "to-dut".into() };
        assert_eq!(
            verdict(dropped(5), dropped(9)),
            (Verdict::Invalid, vec![Reason::AuthHostLoss(loss)])
        );
    }
}
