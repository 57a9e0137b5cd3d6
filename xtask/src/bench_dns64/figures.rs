//! Results of the servers, and their tables in Markdown, as in the book.

use method::stats::Summary;
use serde_json::{Value, json};
use units::grouped;

use super::dut::Dut;
use super::footprint::Footprint;
use super::instructions::{Counts, LOADS};
use super::latency::{self, Latency};
use super::load::Load;

/// Clients, in order of decreasing CPU time per query. The less CPU time the client leaves to AuthDNS, the longer a
/// fast server waits.
pub(super) const CLIENTS: [&str; 3] = ["dnsperf", "closed-loop", "+ UDP_SEGMENT"];
pub(super) const NAME_SETS: [&str; 2] = ["different names", "cached names"];
/// Rates at which latencies are measured.
pub(super) const RATES: [&str; 2] = ["at half of its own rate", "at half of Unbound's"];

/// Results of one round for a server: one result for each client and each set of names.
pub(super) type Round = [[Load; CLIENTS.len()]; NAME_SETS.len()];

/// Results of one server.
pub(super) struct Figures {
    pub(super) dut: Dut,
    /// Version number of the server's program.
    pub(super) version: String,
    pub(super) rounds: Vec<Round>,
    /// Latencies in each round, at each of [`RATES`].
    pub(super) p99_us: Vec<[Latency; RATES.len()]>,
    /// Start-up time and memory, or the reason why they are not known.
    pub(super) footprint: Result<Footprint, String>,
    /// Instructions per answer, or the reason why they are not known.
    pub(super) instructions: Result<Counts, String>,
}

impl Figures {
    pub(super) fn new(dut: Dut, version: String) -> Figures {
        let (footprint, instructions) = (Err("not measured".into()), Err("not measured".into()));
        Figures { dut, version, rounds: Vec::new(), p99_us: Vec::new(), footprint, instructions }
    }

    pub(super) fn name(&self) -> &'static str {
        self.dut.name()
    }

    /// Returns the reasons for missing results.
    pub(super) fn missing(&self) -> Vec<&str> {
        let footprint = match &self.footprint {
            Ok(print) => print.bytes_per_name.as_ref().err(),
            Err(reason) => Some(reason),
        };
        footprint.into_iter().chain(self.instructions.as_ref().err()).map(String::as_str).collect()
    }

    /// Returns all results as raw data for the results file.
    pub(super) fn raw(&self) -> Value {
        let loads = |set: &[Load; CLIENTS.len()]| {
            let load = |(client, load): (&&str, &Load)| json!({ "client": client, "answers_per_s": load.rate, "cpu": load.cpu });
            CLIENTS.iter().zip(set).map(load).collect::<Vec<_>>()
        };
        let rounds = self
            .rounds
            .iter()
            .map(|round| json!({ "different": loads(&round[0]), "cached": loads(&round[1]) }));
        let p99 = self.p99_us.iter().map(|round| round.map(|latency| format!("{latency:?}")));
        json!({
            "name": self.name(),
            "version": self.version,
            "rounds": rounds.collect::<Vec<_>>(),
            "p99_us_at_half_of_its_own_rate_and_of_unbounds": p99.collect::<Vec<_>>(),
            "footprint": self.footprint.as_ref().map(Footprint::raw).ok(),
            "instructions_per_answer": self.instructions.as_ref().ok(),
            "not_measured": self.missing(),
        })
    }

    /// Returns the medians over the rounds.
    pub(super) fn load(&self, set: usize, client: usize) -> Load {
        median_load(self.rounds.iter().map(|round| round[set][client]))
    }

    /// Returns the highest rate of any client, as the median over the rounds.
    pub(super) fn highest(&self, set: usize) -> f64 {
        (0..CLIENTS.len()).map(|client| self.load(set, client).rate).fold(0.0, f64::max)
    }

    /// Returns half of dnsperf's rate with different names.
    pub(super) fn half_rate(&self) -> u64 {
        (self.load(0, 0).rate / 2.0) as u64
    }

    /// Returns the latencies in all rounds at one of [`RATES`].
    pub(super) fn latencies(&self, rate: usize) -> Vec<Latency> {
        self.p99_us.iter().map(|round| round[rate]).collect()
    }
}

/// Returns the median of the rates and of the shares of a core.
pub(super) fn median_load(loads: impl Iterator<Item = Load> + Clone) -> Load {
    Load {
        rate: median(loads.clone().map(|load| load.rate)),
        cpu: median(loads.map(|load| load.cpu)),
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    Summary::of(&values.collect::<Vec<f64>>()).map_or(0.0, |summary| summary.median)
}

/// Returns the tables of all servers. `ceiling` contains the rates of a server that answers without any lookup.
pub(super) fn tables(all: &[Figures], ceiling: &[[Load; CLIENTS.len()]]) -> String {
    let servers = || all.iter().map(|f| format!("{} {}", f.name(), f.version));
    let mut rates = Vec::new();
    for (set, names) in NAME_SETS.iter().enumerate() {
        for (client, label) in CLIENTS.iter().enumerate() {
            let cells = all.iter().map(|f| rate_cell(f.load(set, client)));
            let limit = median_load(ceiling.iter().map(|loads| loads[client]));
            let limit = if set == 1 { grouped(limit.rate.round() as u64) } else { String::new() };
            let labels = [(*names).to_owned(), (*label).to_owned()];
            rates.push(labels.into_iter().chain(cells).chain([limit]).collect());
        }
    }
    let heads = ["Answers per second, CPU time per answer".to_owned(), "Client".into()];
    let rates = table(heads.into_iter().chain(servers()).chain(["No lookup".into()]), &rates);
    let costs = table(["On one core".to_owned()].into_iter().chain(servers()), &costs(all));
    format!("{rates}\n{costs}")
}

/// Returns the rows of the second table: instructions, latencies, start-up time and memory.
fn costs(all: &[Figures]) -> Vec<Vec<String>> {
    let row = |label: String, cell: &dyn Fn(&Figures) -> String| -> Vec<String> {
        [label].into_iter().chain(all.iter().map(cell)).collect()
    };
    let mut rows = Vec::new();
    for (load, counted) in LOADS.iter().enumerate() {
        let label = format!("instructions per answer, {}", counted.name);
        rows.push(row(label, &|f| whole(f.instructions.as_ref().ok().map(|counts| counts[load]))));
    }
    for (rate, at) in RATES.iter().enumerate() {
        let label = format!("p99 of the round-trip time {at}, µs");
        rows.push(row(label, &|f| match latency::summary(&f.latencies(rate)) {
            Ok(summary) => whole(Some(summary.median)),
            Err(reason) => reason.into(),
        }));
    }
    let footprint = |f: &Figures, cell: &dyn Fn(&Footprint) -> String| {
        f.footprint.as_ref().map_or_else(|_| whole(None), cell)
    };
    let start = |print: &Footprint| format!("{:.1}", median(print.start_ms.iter().copied()));
    let idle = |print: &Footprint| format!("{:.1}", print.idle_mib);
    let name = |print: &Footprint| whole(print.bytes_per_name.as_ref().ok().copied());
    rows.push(row("start to first answer, ms".into(), &|f| footprint(f, &start)));
    rows.push(row("memory before the first query, MiB".into(), &|f| footprint(f, &idle)));
    rows.push(row("memory per cached name, bytes".into(), &|f| footprint(f, &name)));
    rows
}

/// Returns a rate and the CPU time per answer.
fn rate_cell(load: Load) -> String {
    format!("{}, {:.1} µs", grouped(load.rate.round() as u64), load.us_per_answer())
}

/// Returns a number without decimals, or `-` if there is none.
fn whole(number: Option<f64>) -> String {
    number.map_or_else(|| "-".into(), |number| grouped(number.round() as u64))
}

/// Returns a table in Markdown.
fn table(heads: impl Iterator<Item = String>, rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let heads: Vec<String> = heads.collect();
    let rule = "|---".repeat(heads.len()) + "|\n";
    line(&heads) + &rule + &rows.iter().map(|row| line(row)).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let rows = [vec!["cached".to_owned(), whole(Some(1234.4)), whole(None)]];
        let heads = ["", "dns64d", "BIND 9.20.30"].map(str::to_owned);
        assert_eq!(
            table(heads.into_iter(), &rows),
            "|  | dns64d | BIND 9.20.30 |\n|---|---|---|\n| cached | 1\u{202f}234 | - |\n"
        );
    }

    #[test]
    fn cpu_time_per_answer_is_share_by_rate() {
        let loads = [(50_000.0, 1.0), (40_000.0, 0.8), (30_000.0, 0.9)];
        let load = median_load(loads.into_iter().map(|(rate, cpu)| Load { rate, cpu }));
        assert_eq!(rate_cell(load), "40\u{202f}000, 22.5 µs");
    }
}
