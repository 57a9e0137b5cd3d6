//! `report`: writes the report of a campaign, and compares runs with a baseline.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hosts::text::{MESSAGE, plain, visible};
use report::comparison::Comparison;
use report::{Run, write_compared};

use crate::args::{Gate, Report};
use crate::output::{DUT_FAILED, Failure, INVALID, Outcome, fill_text, open};

pub(crate) fn run(args: &Report) -> Outcome {
    let folders = folders(args);
    each_once(&folders)?;
    let runs = folders
        .iter()
        .map(|dir| Run::read(dir))
        .collect::<Result<Vec<_>, _>>()
        .map_err(Failure::usage)?;
    let comparison = compared(&args.gate, &folders, &runs)?;
    let folder = match (&args.output, &folders[..]) {
        (Some(output), _) => Some(output),
        (None, _) if comparison.is_some() => None,
        (None, [only]) => Some(only),
        (None, _) => {
            return Err(Failure::usage(anyhow::anyhow!(
                "a comparison of several runs needs --output DIR"
            )));
        }
    };
    for run in &runs {
        for note in &run.notes {
            eprintln!("dns64bench: {}", plain(note, MESSAGE));
        }
    }
    // The comparison is written first, because a CI job needs it even if the report cannot be written.
    if let Some(comparison) = &comparison {
        hand_over(&args.gate, comparison)?;
    }
    if let Some(folder) = folder {
        let page =
            write_compared(&runs, comparison.as_ref(), folder).map_err(Failure::environment)?;
        if !args.gate.json {
            println!("{}", page.display());
        }
    }
    Ok(comparison.as_ref().map_or(ExitCode::SUCCESS, status))
}

/// Returns an error if a folder is given twice, because the run would be compared with itself.
fn each_once(folders: &[PathBuf]) -> Result<(), Failure> {
    for (at, folder) in folders.iter().enumerate() {
        if folders[..at].iter().any(|other| is_same(other, folder)) {
            let why = anyhow::anyhow!("{} is named twice", folder.display());
            return Err(Failure::usage(why));
        }
    }
    Ok(())
}

/// Returns all run folders. Baseline folders that are not among the positional arguments come first.
fn folders(args: &Report) -> Vec<PathBuf> {
    let new =
        args.gate.baseline.iter().filter(|dir| !args.runs.iter().any(|run| is_same(run, dir)));
    new.chain(&args.runs).cloned().collect()
}

fn is_same(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => a == b,
    }
}

/// Returns the comparison with the baseline, or `None` if there is no baseline.
fn compared(gate: &Gate, folders: &[PathBuf], runs: &[Run]) -> Result<Option<Comparison>, Failure> {
    if gate.baseline.is_empty() {
        return Ok(None);
    }
    let is_baseline =
        |folder: &PathBuf| gate.baseline.iter().any(|baseline| is_same(baseline, folder));
    let of = |wanted: bool| -> Vec<&Run> {
        folders
            .iter()
            .zip(runs)
            .filter(|(folder, _)| is_baseline(folder) == wanted)
            .map(|(_, run)| run)
            .collect()
    };
    let (baselines, others) = (of(true), of(false));
    if others.is_empty() {
        return Err(Failure::usage(anyhow::anyhow!(
            "only the baseline is given; write for example: dns64bench report OLD NEW --baseline OLD"
        )));
    }
    let compare = if gate.in_turn { Comparison::in_turn } else { Comparison::new };
    Ok(Some(compare(&baselines, &others, gate.max_regression)))
}

fn hand_over(gate: &Gate, comparison: &Comparison) -> Result<(), Failure> {
    if gate.json {
        println!("{}", serde_json::to_string_pretty(comparison).map_err(Failure::environment)?);
    } else {
        print(comparison);
    }
    fill_text(open(gate.junit.as_deref())?, || comparison.junit())?;
    if let Some(file) = &gate.summary {
        let text = comparison.markdown();
        let write =
            || OpenOptions::new().append(true).create(true).open(file)?.write_all(text.as_bytes());
        write().map_err(|error| {
            Failure::environment(anyhow::anyhow!("cannot write {}: {error}", file.display()))
        })?;
    }
    Ok(())
}

/// Prints the comparison as sentences.
fn print(comparison: &Comparison) {
    println!("{}", visible(&comparison.headline()));
    for row in &comparison.rows {
        let line = format!("{}, {}: {}", row.run, row.point(), row.in_words());
        println!("{}", visible(&line));
        if row.change.is_some() {
            println!("    {}", row.numbers());
        }
    }
}

/// Returns the exit status: 1 for a regression, which counts as a failure of the DUT, and 3 if there are too few
/// searches for a decision.
fn status(comparison: &Comparison) -> ExitCode {
    if comparison.has_regressed() {
        DUT_FAILED.into()
    } else if comparison.is_decided() {
        ExitCode::SUCCESS
    } else {
        INVALID.into()
    }
}
