//! Of the results of several testers that shared a trial, the result of that trial.
//!
//! ```text
//! result of each tester ─┬─ plans, seed: the same? each of them there, once?     MergeError
//!                        ├─ invalid, or a clock that was off?                    invalid, with the shard
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
use method::units::Nanos;
use method::verdict::{Evidence, Verdict, decide};
use method::warning::Warning;
use net::clock::ClockError;
use net::cpu_time::Stolen;
use serde::Serialize;
use serde_json::Value;

use super::plan::{PlanError, SenderSettings, TrialPlan};
use super::result::{Findings, Rtt, Sending, TesterDrops, TrialResult, rtt_histogram};
use super::shards::ShardPart;
use crate::past_stack::PastStack;

/// The result of one tester, and where it is from.
#[derive(Clone, Debug)]
pub struct Given {
    /// The file's name.
    pub file: String,
    /// What is in it.
    pub trial: TrialResult,
}

/// Why results do not make a trial.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// A trial of one tester alone.
    #[error("{file}: it is no shard's; `dns64bench measure --shard … --json` prints one's")]
    NoShard {
        /// The file with it.
        file: String,
    },
    /// Shards of different trials.
    #[error("{file}: its {field} is {has}, and {other} has {wants}: they are not of one trial")]
    Differs {
        /// The file of the second one.
        file: String,
        /// What differs, by its name in the plan.
        field: String,
        /// As it is there.
        has: String,
        /// The file of the first one.
        other: String,
        /// As it is there.
        wants: String,
    },
    /// A plan that no tester can have carried out.
    #[error("{file}: {source}")]
    Plan {
        /// The file with it.
        file: String,
        /// What is wrong about it.
        source: PlanError,
    },
    /// A shard twice.
    #[error("{file} and {other} are both shard {index}")]
    Twice {
        /// The second one's file.
        file: String,
        /// The first one's.
        other: String,
        /// Which shard they are.
        index: u16,
    },
    /// A shard that is not there.
    #[error(
        "shard {index} of {of} is missing; a tester that has left no result has spoiled the trial"
    )]
    Missing {
        /// Which one.
        index: u16,
        /// Of how many.
        of: u16,
    },
    /// An offset for a shard that there is not.
    #[error("--offset {index}=…: there are shards 0 to {last}")]
    NoSuchShard {
        /// The one that was named.
        index: u16,
        /// The last one that there is.
        last: u16,
    },
}

/// The result of a trial that several testers shared.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Merged {
    /// The trial.
    #[serde(flatten)]
    pub trial: TrialResult,
    /// What ids were made from.
    pub seed: u64,
    /// Each tester's part, in their order.
    pub shards: Vec<ShardSummary>,
}

/// One tester's part in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct ShardSummary {
    /// Which one it is, from 0 on.
    pub index: u16,
    /// The file of its result.
    pub file: String,
    /// The kernel's name of this run of it, which testers on one host have in common.
    pub boot_id: String,
    /// How far its host's clock may have been off, where the kernel told.
    pub clock: Option<ClockError>,
    /// By how much its clock was set forward after the start had been taken from it, in microseconds.
    pub clock_step_us: f64,
    /// By how much its clock was ahead of the others' at the most, in microseconds, where somebody
    /// measured it.
    pub offset_us: Option<f64>,
    /// Whether its tester spoiled its part; passed and failed say what came of its own queries.
    pub verdict: Verdict,
    /// What decided that, in words.
    pub reasons: Vec<String>,
    /// What became of its queries.
    pub counts: Counts,
    /// The audit of its sending.
    pub pacing: method::pacing::Pacing,
    /// How its queries left and replies came past the kernel's network stack (AF_XDP); absent where
    /// they went through it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub past_stack: Option<PastStack>,
}

/// By how many nanoseconds each shard's clock was ahead of the true time, or of one that all were
/// held against, at the least and at the most, where that was measured.
pub type Offsets = BTreeMap<u16, RangeInclusive<i64>>;

/// The end of a range that is farther from 0.
fn farthest(range: &RangeInclusive<i64>) -> i64 {
    let (least, most) = (*range.start(), *range.end());
    if least.unsigned_abs() > most.unsigned_abs() { least } else { most }
}

/// Adds the results of all testers of a trial up, and decides over it.
///
/// # Errors
/// [`MergeError`] if the results are not those of all testers of one trial.
pub fn merge(given: Vec<Given>, offsets: &Offsets) -> Result<Merged, MergeError> {
    let shards = in_order(given)?;
    let Some(first) = shards.first() else { unreachable!("in_order misses shard 0") };
    let (plan, of) = (first.part.plan.common(), shards.len() as u16);
    if let Some((&index, _)) = offsets.iter().find(|(index, _)| **index >= of) {
        return Err(MergeError::NoSuchShard { index, last: of - 1 });
    }
    let all = Sums::of(&shards);
    let faults: Vec<Reason> =
        shards.iter().flat_map(|shard| shard.faults(&shards, &all.counts, offsets)).collect();
    let whole = Schedule::new(plan.rate, plan.duration).whole();
    let pacing = all.pacing.audit(&whole);
    let evidence = Evidence {
        planned: whole.count(),
        counts: &all.counts,
        pacing: &pacing,
        // Where a host lost anything, that tester's part is invalid.
        host_losses: &[],
        // What one tester missed is no other's reply.
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

/// One of the results, with what makes it a shard's.
struct Shard {
    file: String,
    index: u16,
    trial: TrialResult,
    part: ShardPart,
}

/// The shards of a trial by their numbers, each once.
fn in_order(given: Vec<Given>) -> Result<Vec<Shard>, MergeError> {
    let mut by_index: BTreeMap<u16, Shard> = BTreeMap::new();
    let mut one: Option<(String, TrialPlan)> = None;
    for Given { file, mut trial } in given {
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

/// Whether what two shards have in common is the same; if not, what is not.
fn same(file: &str, has: &TrialPlan, other: &str, wanted: &TrialPlan) -> Result<(), MergeError> {
    if has == wanted {
        return Ok(());
    }
    let [has, wanted] = [has, wanted].map(|plan| {
        let mut fields = serde_json::to_value(plan).unwrap_or_default();
        // Seed, number of testers and start are fields like the others.
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

/// Where so many replies are expected by chance alone there is one (the probability of none is
/// 1 in 10⁸).
const SURELY: u64 = 20;

/// By how much a clock was ahead, in ns: at the least and at the most.
type Ahead = RangeInclusive<i64>;

/// How far from each other two clocks may be, in ns.
fn apart(one: &Ahead, other: &Ahead) -> Nanos {
    Nanos(one.end().abs_diff(*other.start()).max(other.end().abs_diff(*one.start())))
}

impl Shard {
    /// By how much its clock was ahead of the true time, or of the one that offsets were taken
    /// against, when the start was taken from it; `None` if nobody knows.
    fn ahead(&self, all: &[Shard], offsets: &Offsets) -> Option<Ahead> {
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

    /// What was found of its clock when it was asked, or as much before that as it was set forward
    /// since the start was taken from it: nobody knows which of the two it was when it was asked.
    fn or_before_the_step(&self, found: &Ahead) -> Ahead {
        let step = self.part.clock_step_ns;
        let (least, most) = (found.start(), found.end());
        least.saturating_sub(step.max(0))..=most.saturating_sub(step.min(0))
    }

    /// How far its clock may be from the true time or, where that is no more than `limit`, from the
    /// clock of another tester of which the same is true; `None` if nobody knows.
    fn clock_error(&self, all: &[Shard], offsets: &Offsets, limit: Nanos) -> Option<Nanos> {
        let own = self.ahead(all, offsets)?;
        let off = |ahead: &Ahead| apart(ahead, &(0..=0));
        if off(&own) > limit {
            return Some(off(&own));
        }
        let told = |shard: &Shard| offsets.contains_key(&shard.index);
        let has_this_clock = |other: &Shard| {
            let boot_id = &self.part.boot_id;
            !boot_id.is_empty() && other.part.boot_id == *boot_id && !told(self) && !told(other)
        };
        let others = all.iter().filter(|other| other.index != self.index);
        let others = others.filter_map(|other| Some((other, other.ahead(all, offsets)?)));
        let stepped = |shard: &Shard| shard.or_before_the_step(&(0..=0));
        let distances = others.filter(|(_, ahead)| off(ahead) <= limit).map(|(other, ahead)| {
            // One clock is apart from itself by its steps only.
            if has_this_clock(other) {
                apart(&stepped(self), &stepped(other))
            } else {
                apart(&own, &ahead)
            }
        });
        Some(distances.fold(off(&own), Nanos::max))
    }

    /// How its tester spoiled the trial.
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

    /// That it got no valid reply where many would have come if it had fared as all testers did,
    /// `counts`: a server that answers the others answers it, and what keeps the replies is on the
    /// way.
    fn nothing_came_back(&self, counts: &Counts) -> Option<Reason> {
        let own = &self.trial.counts;
        let others = (counts.sent - own.sent).max(1);
        let expected = (own.sent as f64 * counts.valid as f64 / others as f64) as u64;
        let is_cut_off = own.valid == 0 && expected >= SURELY;
        is_cut_off.then_some(Reason::NothingCameBack { sent: own.sent, expected })
    }

    /// Datagrams for it that its sockets did not get and that may have been replies.
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
            past_stack: self.trial.sending.past_stack,
        }
    }
}

/// What all testers sent and received together.
struct Sums {
    counts: Counts,
    drops: TesterDrops,
    pacing: PacingRecorder,
    rtt: Histogram<u64>,
}

impl Sums {
    fn of(shards: &[Shard]) -> Sums {
        let mut all = Sums {
            counts: Counts::default(),
            drops: TesterDrops::default(),
            pacing: PacingRecorder::new(Nanos(0)),
            rtt: rtt_histogram(),
        };
        for shard in shards {
            all.counts.merge(&shard.trial.counts);
            // What one tester missed excuses no other's loss, whoever judges the sum.
            let found = &shard.trial.tester_drops_at;
            let missed = found.missed.map(|_| shard.missed());
            all.drops = all.drops.plus(&TesterDrops { missed, ..*found });
            all.pacing.merge(&shard.part.pacing());
            add_clamped(&mut all.rtt, &shard.part.rtt_ns.0);
        }
        all
    }
}

/// The worst of what is known of hosts: that it is so, that nobody knows, that it is not.
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

/// What any of the testers warned of, each once.
fn warnings(shards: &[Shard]) -> Vec<Warning> {
    let mut all: Vec<Warning> = Vec::new();
    for warning in shards.iter().flat_map(|shard| &shard.trial.warnings) {
        if !all.contains(warning) {
            all.push(warning.clone());
        }
    }
    all
}

/// What a hypervisor took of the host that lost most.
fn stolen(shards: &[Shard]) -> Option<Stolen> {
    let all = shards.iter().filter_map(|shard| shard.trial.stolen);
    all.max_by(|a, b| a.worst_cpu_pct.total_cmp(&b.worst_cpu_pct))
}

/// How the queries were to be sent: threads and ports of all together, and what the first does in
/// its own way.
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

/// How the queries left: threads and ports of all together, and the weakest of what all had. Which way
/// past the stack is said only if interface, way and queues are the same of all; that of each is in its
/// [`ShardSummary`].
fn sending(shards: &[Shard]) -> Sending {
    let mut all = shards[0].trial.sending.clone();
    for other in shards[1..].iter().map(|shard| &shard.trial.sending) {
        all.threads = all.threads.saturating_add(other.threads);
        all.source_ports = all.source_ports.saturating_add(other.source_ports);
        all.source_addresses = match (all.source_addresses, &other.source_addresses) {
            (Some(ours), Some(others)) if ours == *others => Some(ours),
            _ => None,
        };
        if all.past_stack != other.past_stack {
            all.past_stack = None;
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
