//! The measurement of dns64perf2 (G. Lencse: Performance Analysis of MTD64, our Tiny Multi-Threaded DNS64 Server
//! Implementation: Proof of Concept).
//!
//! Each experiment measures the time in which n threads resolve 256 names. A thread has one query in flight.

use method::records::Counts;
use method::stats::MeanAndDeviation;
use serde::{Deserialize, Serialize};

use super::closed_loop::ClosedLoopResult;

/// Number of names per experiment.
pub const NAMES: u64 = 256;

/// A series of experiments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Experiments {
    /// The queried server.
    pub server: String,
    /// Number of threads, each with one query in flight.
    pub threads: usize,
    /// Start time of the first experiment, in seconds since 1970-01-01 UTC.
    pub started_unix_s: f64,
    /// Duration of each experiment of 256 names, in milliseconds.
    pub experiments_ms: Vec<f64>,
    /// Mean duration of the experiments in milliseconds.
    pub average_ms: f64,
    /// Standard deviation of the experiments' durations in milliseconds.
    pub standard_deviation_ms: f64,
    /// Answered queries per second: 256 divided by the mean duration in seconds.
    pub qps: f64,
    /// Number of names without a valid response, summed over all experiments.
    pub failed: u64,
    /// CPU use of the watched process in each second, in per cent of a core; absent if no process is watched.
    pub cpu_pct: Option<MeanAndDeviation>,
    /// Number of responses dropped on this host because its socket buffers were full. The server did not lose these
    /// responses.
    pub client_drops: u64,
    /// Number of queries with each outcome.
    #[serde(flatten)]
    pub counts: Counts,
}

impl Experiments {
    /// Creates an empty series of experiments with the server `server`. The series began at `started_unix_s`.
    pub fn begin(server: String, threads: usize, started_unix_s: f64) -> Experiments {
        Experiments {
            server,
            threads,
            started_unix_s,
            experiments_ms: Vec::new(),
            average_ms: 0.0,
            standard_deviation_ms: 0.0,
            qps: 0.0,
            failed: 0,
            cpu_pct: None,
            client_drops: 0,
            counts: Counts::default(),
        }
    }

    /// Adds an experiment. Its duration is the time until all threads have finished, as in dns64perf2.
    pub fn add(&mut self, experiment: &ClosedLoopResult) {
        self.experiments_ms.push(experiment.elapsed * 1e3);
        self.failed += NAMES - experiment.counts.valid.min(NAMES);
        self.client_drops += experiment.client_drops;
        self.counts.merge(&experiment.counts);
    }

    /// Computes the summary after all experiments are added.
    pub fn conclude(&mut self) {
        let Some(times) = MeanAndDeviation::of(&self.experiments_ms) else { return };
        (self.average_ms, self.standard_deviation_ms) = (times.mean, times.stdev);
        self.qps = if times.mean > 0.0 { NAMES as f64 * 1e3 / times.mean } else { 0.0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_per_second_are_those_of_the_mean_experiment() {
        let mut run = Experiments::begin("[::1]:53".into(), 1, 0.0);
        run.conclude();
        assert_eq!((run.average_ms, run.qps), (0.0, 0.0), "without an experiment");
        run.experiments_ms = vec![60.0, 68.0];
        run.conclude();
        assert_eq!((run.average_ms, run.qps), (64.0, 4_000.0));
        assert!((run.standard_deviation_ms - 32.0f64.sqrt()).abs() < 1e-12);
    }
}
