//! What dns64perf2 finds (G. Lencse: Performance Analysis of MTD64, our Tiny Multi-Threaded DNS64
//! Server Implementation: Proof of Concept): the time of experiments of 256 names each, which n
//! threads resolve one after the other.

use method::records::Counts;
use method::stats::MeanAndDeviation;
use serde::{Deserialize, Serialize};

use super::closed_loop::ClosedLoopResult;

/// Names of an experiment.
pub const NAMES: u64 = 256;

/// A run of experiments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Experiments {
    /// The server that was asked.
    pub server: String,
    /// Threads, each with one query in flight.
    pub threads: usize,
    /// When the first began: seconds since 1970-01-01 UTC.
    pub started_unix_s: f64,
    /// Milliseconds for each experiment of 256 names.
    pub experiments_ms: Vec<f64>,
    /// The mean of the experiments, in milliseconds.
    pub average_ms: f64,
    /// The standard deviation of the experiments, in milliseconds.
    pub standard_deviation_ms: f64,
    /// 256 ÷ the mean: answered queries per second.
    pub qps: f64,
    /// Names without a valid answer, over all experiments.
    pub failed: u64,
    /// CPU use of the watched process in per cent of a core, over the seconds; absent where none is
    /// watched.
    pub cpu_pct: Option<MeanAndDeviation>,
    /// Answers that this host dropped because its own socket buffers were full: they are not the
    /// server's loss.
    pub client_drops: u64,
    /// What became of the queries.
    #[serde(flatten)]
    pub counts: Counts,
}

impl Experiments {
    /// A run against `server` that began at `started_unix_s` and has no experiment yet.
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

    /// Adds an experiment. Its time is that until all threads are through, as dns64perf2 takes it.
    pub fn add(&mut self, experiment: &ClosedLoopResult) {
        self.experiments_ms.push(experiment.elapsed * 1e3);
        self.failed += NAMES - experiment.counts.valid.min(NAMES);
        self.client_drops += experiment.client_drops;
        self.counts.merge(&experiment.counts);
    }

    /// Computes what the experiments amount to, when all are added.
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
