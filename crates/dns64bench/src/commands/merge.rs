//! `merge`: combines the results of all testers in a distributed trial.

use std::path::Path;

use net::clock::ClockError;
use serde::Deserialize;
use tester::measurer::merge::{Merged, Offsets, ShardSummary, TesterResult, merge};
use tester::measurer::result::TrialResult;

use crate::args::Merge;
use crate::colour::word;
use crate::output::{
    Failure, Outcome, SCHEMA_VERSION, grouped, print_trial, print_versioned, status_of,
};

/// Fields of the output of `measure --json` that `merge` needs.
#[derive(Deserialize)]
struct Printed {
    schema_version: u32,
    #[serde(flatten)]
    trial: TrialResult,
}

pub(crate) fn run(args: &Merge) -> Outcome {
    let mut offsets = Offsets::new();
    for (index, offset) in &args.offset {
        if offsets.insert(*index, *offset..=*offset).is_some() {
            return Err(Failure::usage(anyhow::anyhow!("--offset {index}=… is given twice")));
        }
    }
    let given = args.results.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let merged = merge(given, &offsets).map_err(Failure::usage)?;
    if args.json {
        print_versioned(&merged)?;
    } else {
        print(&merged);
    }
    Ok(status_of(merged.trial.verdict))
}

/// Reads a file with the result of one tester.
fn read(path: &Path) -> Result<TesterResult, Failure> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|e| Failure::usage(anyhow::anyhow!("cannot read {file}: {e}")))?;
    if text.trim().is_empty() {
        let why = "is empty: its tester ended before it had a result, which invalidates the trial";
        return Err(Failure::usage(anyhow::anyhow!("{file} {why}")));
    }
    let unusable = |why: String| {
        let advice = "expected the output of `dns64bench measure --shard … --json`";
        Failure::usage(anyhow::anyhow!("{file}: {why}; {advice}"))
    };
    let wrong = |error: serde_json::Error| {
        let is_object = text.trim_start().starts_with('{');
        unusable(match error.is_data() && is_object {
            true => error.to_string(),
            false => {
                format!("not a JSON object (line {}, column {})", error.line(), error.column())
            }
        })
    };
    let Printed { schema_version, trial } = serde_json::from_str(&text).map_err(wrong)?;
    if schema_version != SCHEMA_VERSION {
        return Err(unusable(format!(
            "its schema_version is {schema_version}, but only {SCHEMA_VERSION} can be read"
        )));
    }
    Ok(TesterResult { file, trial })
}

fn print(merged: &Merged) {
    print_trial(&merged.trial);
    for shard in &merged.shards {
        print_shard(shard);
    }
}

fn print_shard(shard: &ShardSummary) {
    let c = &shard.counts;
    let [sent, valid] = [c.sent, c.valid].map(grouped);
    println!(
        "Shard {:<5} {}: {sent} sent, {valid} valid; lateness {} µs p99.9, worst 100 ms window off by {:.2} %{}{}; {}",
        shard.index,
        word(shard.verdict),
        grouped(shard.pacing.p999_us.round() as u64),
        shard.pacing.window_100ms_worst_pct,
        clock(shard),
        xdp(shard),
        shard.file,
    );
}

/// Describes the AF_XDP mode in which a tester sent its shard (its part of the trial's queries); empty if the tester
/// did not use AF_XDP.
fn xdp(shard: &ShardSummary) -> String {
    let xdp = shard.xdp.as_ref();
    xdp.map_or_else(String::new, |past| {
        format!("; AF_XDP on {} ({})", past.interface, past.attach_mode)
    })
}

/// Describes the clock offset of the tester that sent a shard (a part of the trial's queries); empty if the offset is
/// unknown.
fn clock(shard: &ShardSummary) -> String {
    match (shard.offset_us, shard.clock) {
        (Some(offset), _) => format!("; clock {offset} µs ahead"),
        (None, Some(ClockError { synchronized: true, estimated_us: Some(us), .. })) => {
            format!("; clock offset about {} µs", grouped(us))
        }
        (None, _) => String::new(),
    }
}
