//! Combination of the results of several testers that shared a trial.
//!
//! A *shard* is one tester's part of the trial.
//!
//! ```text
//! result of each tester ─┬─ plan or seed differs, shard missing or twice?        MergeError
//!                        ├─ shard invalid, or its clock was off?                 trial invalid, shard named
//!                        └─ counts, histograms, windows: added up ──► audit of the sum ──► verdict
//! ```

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hdrhistogram::Histogram;
use method::compliance::Fact;
use method::pacing::{PacingRecorder, add_clamped};
use method::reason::Reason;
use method::records::Counts;
use method::schedule::Schedule;
use method::verdict::{Evidence, Verdict, decide};
use method::warning::Warning;
use net::clock::ClockError;
use net::cpu_time::Stolen;
use serde::Serialize;
use serde_json::Value;
use units::Nanos;

use super::histogram::rtt_histogram;
use super::plan::{PlanError, SenderSettings, TrialPlan};
use super::result::{Findings, Rtt, Sending, TesterDrops, TrialResult};
use super::shards::ShardPart;
use crate::xdp::XdpInterface;

/// Result of one tester, and the name of the file that contains it.
#[derive(Clone, Debug)]
pub struct TesterResult {
    /// Name of the file that contains the result.
    pub file: String,
    /// Result that the file contains.
    pub trial: TrialResult,
}

/// Reasons why results cannot be combined.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A given result comes from a trial with a single tester.
    #[error("{file}: not the result of a shard; `dns64bench measure --shard … --json` prints one")]
    NoShard {
        /// File that contains this result.
        file: String,
    },
    /// Two shards belong to different trials.
    #[error(
        "{file}: its {field} is {has}, and {other} has {wants}: they belong to different trials"
    )]
    Differs {
        /// File of the second shard.
        file: String,
        /// Name of the differing field of the plan.
        field: String,
        /// Value of the differing field in the file of the second shard.
        has: String,
        /// File of the first shard.
        other: String,
        /// Value of the differing field in the file of the first shard.
        wants: String,
    },
    /// The plan is invalid. Testers reject such a plan, so no trial can have used it.
    #[error("{file}: {source}")]
    Plan {
        /// File that contains the plan.
        file: String,
        /// Error in the plan.
        source: PlanError,
    },
    /// The same shard was given twice.
    #[error("{file} and {other} are both shard {index}")]
    Twice {
        /// File of the second shard.
        file: String,
        /// File of the first shard.
        other: String,
        /// Index of the shard.
        index: u16,
    },
    /// A shard is missing.
    #[error(
        "shard {index} of {of} is missing; without the result of every tester the trial is invalid"
    )]
    Missing {
        /// Index of the shard.
        index: u16,
        /// Number of shards.
        of: u16,
    },
    /// A clock offset was given for a shard that does not exist.
    #[error("--offset {index}=…: there are shards 0 to {last}")]
    NoSuchShard {
        /// Shard index that was given in the option `--offset`.
        index: u16,
        /// Index of the last shard.
        last: u16,
    },
}

/// The result of a trial that several testers shared.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Merged {
    /// Result of the whole trial.
    #[serde(flatten)]
    pub trial: TrialResult,
    /// Seed from which the message ids of the queries are generated.
    pub seed: u64,
    /// Summary of each tester's results, in the order of the testers' indices.
    pub shards: Vec<ShardSummary>,
}

/// Summary of one tester's results in a trial of several testers.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ShardSummary {
    /// Index of the tester.
    pub index: u16,
    /// File with the tester's result.
    pub file: String,
    /// Boot identifier of the kernel, which is the same for testers on one host.
    pub boot_id: String,
    /// Error of the clock of the tester's host; absent if the kernel did not report this error.
    pub clock: Option<ClockError>,
    /// Time, in microseconds, by which the tester's clock was stepped forward after the tester had read the start time
    /// from this clock.
    pub clock_step_us: f64,
    /// Maximum measured lead, in microseconds, of the tester's clock over the other testers' clocks; absent if this
    /// lead was not measured.
    pub offset_us: Option<f64>,
    /// Verdict on the queries of this tester alone. It is "invalid" if the tester invalidated its part of the trial.
    pub verdict: Verdict,
    /// Reasons for the verdict, as text.
    pub reasons: Vec<String>,
    /// Outcomes of the tester's queries.
    pub counts: Counts,
    /// Result of the pacing audit, which compares the actual with the scheduled send times.
    pub pacing: method::pacing::Pacing,
    /// Interface used by AF_XDP; absent if sockets were used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "past_stack")]
    pub xdp: Option<XdpInterface>,
}

/// For each tester, the measured offset of its clock: the minimum and maximum time, in nanoseconds, by which the clock
/// is ahead of a common reference. The key is the tester's index.
pub type Offsets = BTreeMap<u16, RangeInclusive<i64>>;

/// Compares the two bounds of a range, and returns the one that is farther from 0.
fn farthest(range: &RangeInclusive<i64>) -> i64 {
    let (least, most) = (*range.start(), *range.end());
    if least.unsigned_abs() > most.unsigned_abs() { least } else { most }
}

/// Combines the results of all testers of a trial and decides the trial's verdict.
///
/// # Errors
/// Returns [`MergeError`] if the results do not come from all testers of one trial.
pub fn merge(given: Vec<TesterResult>, offsets: &Offsets) -> Result<Merged, MergeError> {
    let shards = in_order(given)?;
    let Some(first) = shards.first() else { unreachable!("in_order misses shard 0") };
    let (plan, of) = (first.part.plan.common(), shards.len() as u16);
    if let Some((&index, _)) = offsets.iter().find(|(index, _)| **index >= of) {
        return Err(MergeError::NoSuchShard { index, last: of - 1 });
    }
    let all = Totals::of(&shards);
    let faults: Vec<Reason> =
        shards.iter().flat_map(|shard| shard.faults(&shards, &all.counts, offsets)).collect();
    let whole = Schedule::new(plan.rate, plan.duration).whole();
    let pacing = all.pacing.audit(&whole);
    let evidence = Evidence {
        planned: whole.count(),
        counts: &all.counts,
        pacing: &pacing,
        // A shard whose host lost packets is already invalid.
        host_losses: &[],
        // A packet missed by one tester cannot be a reply to a query of a different tester.
        missed: shards.iter().map(Shard::missed).sum(),
        faults: &faults,
    };
    let (verdict, reasons) = decide(&evidence, plan.accept, &plan.limits);
    let began = plan.shard.map_or(Nanos(0), |shard| shard.start.0);
    let found = Findings {
        began,
        counts: all.counts.clone(),
        drops: all.drops,
        rtt: Rtt::of(&all.rtt),
        pacing,
        windows: Some(all.pacing.windows(&whole)),
        sending: sending(&shards),
        verdict,
        reasons,
        warnings: warnings(&shards),
        intervals: None,
    };
    let mut trial = TrialResult::new(&plan, found);
    trial.settings = settings(&shards);
    trial.stolen = stolen(&shards);
    let facts = method::compliance::Facts {
        shares_host: worst(shards.iter().map(|shard| shard.trial.facts.shares_host)),
        shares_cpus: worst(shards.iter().map(|shard| shard.trial.facts.shares_cpus)),
        ..first.trial.facts
    };
    trial.set_facts(facts);
    let seed = plan.shard.map_or(0, |shard| shard.seed);
    let shards = shards.into_iter().map(|shard| shard.summary(offsets)).collect();
    Ok(Merged { trial, seed, shards })
}

/// Result of one tester, with the data that a tester adds to its result if several testers share the trial.
struct Shard {
    file: String,
    index: u16,
    trial: TrialResult,
    part: ShardPart,
}

/// Returns the shards of a trial in order of their indices, after checking that each is present once.
fn in_order(given: Vec<TesterResult>) -> Result<Vec<Shard>, MergeError> {
    let mut by_index: BTreeMap<u16, Shard> = BTreeMap::new();
    let mut one: Option<(String, TrialPlan)> = None;
    for TesterResult { file, mut trial } in given {
        let no_shard = || MergeError::NoShard { file: file.clone() };
        let part = *trial.shard.take().ok_or_else(no_shard)?;
        let place = part.plan.shard.ok_or_else(no_shard)?;
        let unusable = |source| MergeError::Plan { file: file.clone(), source };
        part.plan.check().map_err(unusable)?;
        let common = part.plan.common();
        match &one {
            None => one = Some((file.clone(), common)),
            Some((other, wanted)) => same(&file, &common, other, wanted)?,
        }
        if let Some(twin) = by_index.get(&place.index) {
            return Err(MergeError::Twice { file, other: twin.file.clone(), index: place.index });
        }
        by_index.insert(place.index, Shard { file, index: place.index, trial, part });
    }
    let of = one.and_then(|(_, plan)| plan.shard).map_or(1, |shard| shard.of);
    if let Some(index) = (0..of).find(|index| !by_index.contains_key(index)) {
        return Err(MergeError::Missing { index, of });
    }
    Ok(by_index.into_values().collect())
}

/// Checks that the plans of two shards have the same settings, except for those that may differ between testers. The
/// error contains the differing field.
fn same(file: &str, has: &TrialPlan, other: &str, wanted: &TrialPlan) -> Result<(), MergeError> {
    if has == wanted {
        return Ok(());
    }
    let [has, wanted] = [has, wanted].map(|plan| {
        let mut fields = serde_json::to_value(plan).unwrap_or_default();
        // Seed, number of testers and start are compared like the other fields.
        if let Some(Value::Object(shard)) =
            fields.as_object_mut().and_then(|all| all.remove("shard"))
            && let Some(all) = fields.as_object_mut()
        {
            all.extend(shard.into_iter().map(|(key, value)| (format!("shard's {key}"), value)));
        }
        fields
    });
    let fields = wanted.as_object().into_iter().chain(has.as_object()).flatten();
    let mut fields = fields.map(|(field, _)| field);
    let field = fields.find(|field| has.get(field) != wanted.get(field));
    let field = field.map_or_else(|| "plan".to_owned(), Clone::clone);
    let value = |of: &Value| of.get(&field).map_or_else(|| "nothing".to_owned(), Value::to_string);
    let (has, wants) = (value(&has), value(&wanted));
    Err(MergeError::Differs { file: file.into(), field, has, other: other.into(), wants })
}

/// If at least this number of replies is expected, at least one reply is practically certain. The probability of no
/// reply is below 1 in 10⁸.
const CERTAIN_REPLIES: u64 = 20;

/// Minimum and maximum time, in nanoseconds, by which a clock is ahead of a reference clock.
type ClockLead = RangeInclusive<i64>;

/// Returns the maximum possible difference between two clocks in ns.
fn apart(one: &ClockLead, other: &ClockLead) -> Nanos {
    Nanos(one.end().abs_diff(*other.start()).max(other.end().abs_diff(*one.start())))
}

impl Shard {
    /// Returns the time by which the tester's clock is ahead of the common reference at the start of the trial; `None`
    /// if unknown.
    fn ahead(&self, all: &[Shard], offsets: &Offsets) -> Option<ClockLead> {
        if let Some(offset) = offsets.get(&self.index) {
            return Some(self.or_before_the_step(offset));
        }
        let boot_id = &self.part.boot_id;
        if !boot_id.is_empty() && all.iter().all(|other| other.part.boot_id == *boot_id) {
            return Some(self.or_before_the_step(&(0..=0)));
        }
        let known = self.part.clock.filter(|clock| clock.synchronized)?;
        let error = Nanos::from_micros(known.estimated_us?).0;
        let error = i64::try_from(error).unwrap_or(i64::MAX);
        Some(self.or_before_the_step(&(-error..=error)))
    }

    /// Widens the range of a clock offset by the step that the clock made during the trial. The offset may have been
    /// measured before or after that step.
    fn or_before_the_step(&self, found: &ClockLead) -> ClockLead {
        let step = self.part.clock_step_ns;
        let (least, most) = (found.start(), found.end());
        least.saturating_sub(step.max(0))..=most.saturating_sub(step.min(0))
    }

    /// Returns the maximum error of the tester's clock; `None` if unknown.
    ///
    /// The clock is first compared with the common reference. If the difference is above `limit`, it is the result.
    /// Otherwise the clock is also compared with the other testers' clocks, and the result is the largest difference.
    /// Clocks that differ from the reference by more than `limit` are ignored in this comparison.
    fn clock_error(&self, all: &[Shard], offsets: &Offsets, limit: Nanos) -> Option<Nanos> {
        let own = self.ahead(all, offsets)?;
        let off = |ahead: &ClockLead| apart(ahead, &(0..=0));
        if off(&own) > limit {
            return Some(off(&own));
        }
        let has_offset = |shard: &Shard| offsets.contains_key(&shard.index);
        let has_this_clock = |other: &Shard| {
            let boot_id = &self.part.boot_id;
            !boot_id.is_empty()
                && other.part.boot_id == *boot_id
                && !has_offset(self)
                && !has_offset(other)
        };
        let others = all.iter().filter(|other| other.index != self.index);
        let others = others.filter_map(|other| Some((other, other.ahead(all, offsets)?)));
        let stepped = |shard: &Shard| shard.or_before_the_step(&(0..=0));
        let distances = others.filter(|(_, ahead)| off(ahead) <= limit).map(|(other, ahead)| {
            // Both testers use the same clock, so their times differ only by this clock's steps.
            if has_this_clock(other) {
                apart(&stepped(self), &stepped(other))
            } else {
                apart(&own, &ahead)
            }
        });
        Some(distances.fold(off(&own), Nanos::max))
    }

    /// Returns the reasons why this tester invalidates the trial.
    fn faults(&self, all: &[Shard], counts: &Counts, offsets: &Offsets) -> Vec<Reason> {
        let limit = self.part.plan.limits.lateness_p999;
        let error = self.clock_error(all, offsets, limit);
        let clock = error.is_none_or(|error| error > limit);
        let clock = clock.then_some(Reason::ClockOff { error, limit });
        let own = match self.trial.verdict {
            Verdict::Invalid => self.trial.reasons.clone(),
            Verdict::Passed | Verdict::Failed => Vec::new(),
        };
        let named = |reason| Reason::OfShard { shard: self.index, reason: Box::new(reason) };
        own.into_iter().chain(clock).chain(self.nothing_came_back(counts)).map(named).collect()
    }

    /// Returns a reason if this tester received no valid reply although many were expected.
    ///
    /// The expected number is computed from `counts`, the totals of all testers. A server that answers other testers
    /// also answers this one, so the replies were lost on the way.
    fn nothing_came_back(&self, counts: &Counts) -> Option<Reason> {
        let own = &self.trial.counts;
        let others = (counts.sent - own.sent).max(1);
        let expected = (own.sent as f64 * counts.valid as f64 / others as f64) as u64;
        let is_cut_off = own.valid == 0 && expected >= CERTAIN_REPLIES;
        is_cut_off.then_some(Reason::NothingCameBack { sent: own.sent, expected })
    }

    /// Returns the number of datagrams that the tester's sockets missed and that may have been replies.
    fn missed(&self) -> u64 {
        self.trial.tester_drops_at.missed.unwrap_or(0).min(self.trial.counts.lost)
    }

    fn summary(self, offsets: &Offsets) -> ShardSummary {
        ShardSummary {
            index: self.index,
            file: self.file,
            boot_id: self.part.boot_id,
            clock: self.part.clock,
            clock_step_us: self.part.clock_step_ns as f64 / 1e3,
            offset_us: offsets.get(&self.index).map(|offset| farthest(offset) as f64 / 1e3),
            verdict: self.trial.verdict,
            reasons: self.trial.reasons.iter().map(ToString::to_string).collect(),
            counts: self.trial.counts,
            pacing: self.trial.pacing,
            xdp: self.trial.sending.xdp,
        }
    }
}

/// Totals of all testers.
struct Totals {
    counts: Counts,
    drops: TesterDrops,
    pacing: PacingRecorder,
    rtt: Histogram<u64>,
}

impl Totals {
    fn of(shards: &[Shard]) -> Totals {
        let mut all = Totals {
            counts: Counts::default(),
            drops: TesterDrops::default(),
            pacing: PacingRecorder::new(Nanos(0)),
            rtt: rtt_histogram(),
        };
        for shard in shards {
            all.counts.merge(&shard.trial.counts);
            // A packet missed by one tester cannot explain a lost query of a different tester.
            let found = &shard.trial.tester_drops_at;
            let missed = found.missed.map(|_| shard.missed());
            all.drops = all.drops.plus(&TesterDrops { missed, ..*found });
            all.pacing.merge(&shard.part.pacing());
            add_clamped(&mut all.rtt, &shard.part.rtt_ns.0);
        }
        all
    }
}

/// Returns the worst value of a fact that has a value for each host. The fact is a disadvantage, such as a shared host.
/// The order from worst to best is therefore: true, unknown, false according to the user, false as determined by the
/// program.
fn worst(facts: impl Iterator<Item = Fact>) -> Fact {
    facts
        .max_by_key(|fact| match fact {
            Fact::Yes => 3,
            Fact::NotKnown => 2,
            Fact::StatedNo => 1,
            Fact::No => 0,
        })
        .unwrap_or(Fact::NotKnown)
}

/// Returns the warnings of all testers without duplicates.
fn warnings(shards: &[Shard]) -> Vec<Warning> {
    let mut all: Vec<Warning> = Vec::new();
    for warning in shards.iter().flat_map(|shard| &shard.trial.warnings) {
        if !all.contains(warning) {
            all.push(warning.clone());
        }
    }
    all
}

/// Compares the hosts by the share of CPU time that a hypervisor took from them. Returns the stolen CPU time of the
/// host with the highest share.
fn stolen(shards: &[Shard]) -> Option<Stolen> {
    let all = shards.iter().filter_map(|shard| shard.trial.stolen);
    all.max_by(|a, b| a.worst_cpu_pct.total_cmp(&b.worst_cpu_pct))
}

/// Returns the planned send settings. Threads, ports and source addresses are sums over all testers; the other settings
/// are those of the first tester.
fn settings(shards: &[Shard]) -> SenderSettings {
    let sum = |of: fn(&SenderSettings) -> u16| {
        shards.iter().fold(0u16, |sum, shard| sum.saturating_add(of(&shard.trial.settings)))
    };
    let addresses = shards.iter().map(|shard| shard.trial.settings.source_addresses);
    SenderSettings {
        threads: sum(|settings| settings.threads),
        source_ports: sum(|settings| settings.source_ports),
        source_addresses: addresses.sum::<Option<u32>>(),
        cpus: Vec::new(),
        ..shards[0].trial.settings.clone()
    }
}

/// Returns the actual send settings.
///
/// Threads and ports are sums over all testers; each other setting is the worst value among all testers. AF_XDP is
/// included only if all testers use the same interface name, mode and number of queues. Each [`ShardSummary`] contains
/// its tester's interface.
fn sending(shards: &[Shard]) -> Sending {
    let mut all = shards[0].trial.sending.clone();
    for other in shards[1..].iter().map(|shard| &shard.trial.sending) {
        all.threads = all.threads.saturating_add(other.threads);
        all.source_ports = all.source_ports.saturating_add(other.source_ports);
        all.source_addresses = match (all.source_addresses, &other.source_addresses) {
            (Some(ours), Some(others)) if ours == *others => Some(ours),
            _ => None,
        };
        if all.xdp != other.xdp {
            all.xdp = None;
        }
        all.spinning &= other.spinning;
        all.real_time &= other.real_time;
        all.priority = all.priority.min(other.priority);
        all.owns_cpu &= other.owns_cpu;
        all.max_burst_us = all.max_burst_us.max(other.max_burst_us);
        all.auto_burst &= other.auto_burst;
        all.run = all.run.max(other.run);
        all.block = all.block.max(other.block);
        all.receive_buffer = all.receive_buffer.min(other.receive_buffer);
    }
    all
}

#[cfg(test)]
mod tests;
