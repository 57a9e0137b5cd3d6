//! 99th percentile of the round-trip time at a constant rate.

use anyhow::Result;
use method::stats::Summary;

use super::dut::{Dut, TESTER_CPU};
use crate::bench::lab::{Lab, valid_trial};
use crate::claims::NotDecided;
use crate::servers::DUT;

/// Number of rounds in which latencies are measured.
pub(super) const ROUNDS: usize = 6;
/// Duration of a trial in seconds.
const SECONDS: u64 = 3;

/// 99th percentile of the round-trip time in µs at a rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Latency {
    /// Latency in microseconds, from a trial in which at most one query in a thousand had no valid reply.
    Of(f64),
    /// The server does not answer all queries.
    Overloaded,
    /// The tester invalidated the trial and its repetitions.
    Invalid,
}

impl Latency {
    /// Returns the time, if it is known.
    fn us(self) -> Option<f64> {
        if let Latency::Of(us) = self { Some(us) } else { None }
    }
}

/// Measures the latency of a server at two rates. `first` is the index of the rate that is measured first.
pub(super) fn at_rates(
    lab: &Lab,
    dut: &Dut,
    rates: [u64; 2],
    first: usize,
) -> Result<[Latency; 2]> {
    let _server = dut.start(lab)?;
    let names = ["14.0.0.0/8", "15.0.0.0/8"];
    let mut p99_us = [Latency::Invalid; 2];
    for load in [first, 1 - first] {
        p99_us[load] = at_rate(lab, rates[load], names[load])?;
    }
    Ok(p99_us)
}

/// Measures the latency at a constant rate, if at most one query in a thousand has no valid reply. Queries may deviate
/// from the schedule by 200 µs, so that the sender leaves enough CPU time to AuthDNS, which shares the CPU. Each
/// repetition of an invalid trial uses different names.
fn at_rate(lab: &Lab, rate: u64, names: &str) -> Result<Latency> {
    let per_trial = rate.max(1) * SECONDS;
    let (rate, seconds) = (rate.max(1).to_string(), format!("{SECONDS}s"));
    let args = ["--server", DUT, "--rate", &rate, "--duration", &seconds, "--names", names];
    let args = [&args[..], &["--cpus", TESTER_CPU, "--max-burst", "200us"]].concat();
    let trial = valid_trial(|attempt| {
        let first = (u64::from(attempt) * per_trial).to_string();
        lab.measure_names_without_aaaa(&[&args[..], &["--first-name", &first]].concat())
    });
    let trial = match trial {
        Err(error) if error.is::<NotDecided>() => return Ok(Latency::Invalid),
        trial => trial?,
    };
    let [sent, valid] = ["sent", "valid"].map(|key| trial[key].as_u64().unwrap_or(0));
    let p99 =
        trial["rtt_us"]["p99"].as_f64().filter(|_| valid > 0 && (sent - valid) * 1000 <= sent);
    Ok(p99.map_or(Latency::Overloaded, Latency::Of))
}

/// Returns the summary of the valid rounds of a server, or the reason why there is none.
pub(super) fn summary(rounds: &[Latency]) -> Result<Summary, &'static str> {
    let valid: Vec<Latency> =
        rounds.iter().copied().filter(|round| *round != Latency::Invalid).collect();
    if valid.is_empty() {
        return Err("not decided");
    }
    let times: Option<Vec<f64>> = valid.iter().map(|round| round.us()).collect();
    times.and_then(|times| Summary::of(&times)).ok_or("overloaded")
}

/// Returns the latencies of a server in all rounds in words.
pub(super) fn words(rounds: &[Latency]) -> String {
    let note = match rounds.iter().filter(|round| **round == Latency::Invalid).count() {
        0 => String::new(),
        invalid => format!(" ({invalid} rounds were invalid)"),
    };
    match summary(rounds) {
        Ok(Summary { median, min, max, .. }) => {
            format!("{median:>8.0} µs ({min:.0} to {max:.0}){note}")
        }
        Err(reason) => format!("{reason}{note}"),
    }
}

/// Returns our latency divided by that of another server in the same round. Only rounds in which both trials are valid
/// count, and at least half of the rounds must be valid.
pub(super) fn ratio(rounds: &[(Latency, Latency)]) -> Result<Summary, String> {
    let is_valid = |round: &&(Latency, Latency)| ![round.0, round.1].contains(&Latency::Invalid);
    let valid: Vec<_> = rounds.iter().filter(is_valid).collect();
    if valid.len() * 2 < rounds.len() {
        return Err(format!(
            "not decided: the tester invalidated all but {} of {} rounds",
            valid.len(),
            rounds.len()
        ));
    }
    // There is no 99th percentile for a server that does not answer all queries. The claim is missed if there is none
    // for our server, and kept if there is none for the other server only.
    let ratios = valid.iter().map(|(ours, theirs)| match (ours.us(), theirs.us()) {
        (Some(ours), Some(theirs)) => ours / theirs,
        (None, _) => f64::INFINITY,
        (Some(_), None) => 0.0,
    });
    Summary::of(&ratios.collect::<Vec<_>>()).ok_or_else(|| "no round was valid".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_of_invalid_rounds_only_is_not_decided() {
        let (known, invalid) = (Latency::Of(200.0), Latency::Invalid);
        assert_eq!(words(&[invalid; 8]), "not decided (8 rounds were invalid)");
        let some = words(&[known, invalid]);
        assert_eq!(some.trim(), "200 µs (200 to 200) (1 rounds were invalid)");
        assert_eq!(words(&[known, Latency::Overloaded]), "overloaded");
    }

    #[test]
    fn a_ratio_needs_half_of_the_rounds() {
        let of = |ours, theirs| (Latency::Of(ours), Latency::Of(theirs));
        let invalid = (Latency::Invalid, Latency::Of(1.0));
        assert_eq!(ratio(&[of(1.0, 2.0), invalid]).unwrap().median, 0.5);
        assert!(ratio(&[of(1.0, 2.0), invalid, invalid]).unwrap_err().starts_with("not decided"));
        let overloaded = (Latency::Overloaded, Latency::Of(1.0));
        assert_eq!(ratio(&[overloaded]).unwrap().median, f64::INFINITY);
    }
}
