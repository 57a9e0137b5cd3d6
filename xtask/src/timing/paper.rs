//! Generation of tables and figures from send times and searches, as in G. Lencse and A. Pivoda, "Checking and
//! Increasing the Accuracy of the Dns64perf++ Measurement Tool for Benchmarking DNS64 Servers" (2018, DOI
//! 10.11601/ijates.v7i1.255).

use std::fmt::Write;

use method::stats::Summary;
use report::chart::{Dot, Figure, Panel, Series, Shape};
use report::format::number;

/// A sender in the comparison of timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// dns64perf++ in its original form.
    Original,
    /// dns64perf++ as corrected by the paper.
    Corrected,
    /// The sender of this project.
    Measurer,
}

impl Sender {
    pub(crate) const ALL: [Sender; 3] = [Sender::Original, Sender::Corrected, Sender::Measurer];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Sender::Original => "original timing",
            Sender::Corrected => "corrected timing",
            Sender::Measurer => "Measurer",
        }
    }
}

/// Numbers of queries that one sender sent in each 10 ms window, at one rate.
#[derive(Clone, Debug)]
pub(crate) struct Sending {
    pub(crate) sender: Sender,
    pub(crate) rate: u64,
    pub(crate) windows: Vec<u64>,
}

impl Sending {
    /// Counts the queries in each window. `times` are send times in nanoseconds after the start. Queries sent after
    /// `seconds` are counted in additional windows.
    pub(crate) fn of_times(
        sender: Sender,
        rate: u64,
        seconds: u64,
        times: impl Iterator<Item = u64>,
    ) -> Sending {
        let mut windows = vec![0; seconds as usize * 100];
        for time in times {
            let window = (time / 10_000_000) as usize;
            if window >= windows.len() {
                windows.resize(window + 1, 0);
            }
            windows[window] += 1;
        }
        Sending { sender, rate, windows }
    }

    /// Returns the number of queries sent in each 100 ms window.
    pub(crate) fn coarse(&self) -> Vec<u64> {
        self.windows.chunks(10).map(|ten| ten.iter().sum()).collect()
    }

    /// Returns the number of queries in 100 ms near the start of the trial, before the original timing compensates for
    /// delays. The result is the median of the first thirtieth of the windows, or of the first three if that is more.
    /// The very first window is excluded, because caches are still cold.
    pub(crate) fn counted(&self) -> f64 {
        let coarse = self.coarse();
        let first = &coarse
            [1.min(coarse.len())..(coarse.len() / 30).clamp(4.min(coarse.len()), coarse.len())];
        Summary::of(&first.iter().map(|&n| n as f64).collect::<Vec<_>>())
            .map_or(0.0, |summary| summary.median)
    }

    /// Returns the largest deviation from the rate of any 100 ms window in the first `seconds`, in per cent.
    pub(crate) fn worst_pct(&self, seconds: u64) -> f64 {
        let due = self.rate as f64 / 10.0;
        let off = |&sent: &u64| (sent as f64 - due).abs() / due * 100.0;
        self.coarse().iter().take(seconds as usize * 10).map(off).fold(0.0, f64::max)
    }
}

/// Returns the figures. They show the numbers of queries in windows of 100 ms for all senders, and in windows of 10 ms
/// for the senders with correct timing.
pub(crate) fn figures(all: &[Sending]) -> Vec<Figure> {
    let wanted = [
        ("figure-2", Sender::Original, 100),
        ("figure-4", Sender::Corrected, 100),
        ("figure-5", Sender::Corrected, 10),
        ("measurer-100ms", Sender::Measurer, 100),
        ("measurer-10ms", Sender::Measurer, 10),
    ];
    let figure = |(file, sender, ms): (&str, Sender, u64)| {
        let panels: Vec<Panel> =
            all.iter().filter(|s| s.sender == sender).map(|s| panel(s, ms)).collect();
        (!panels.is_empty()).then(|| Figure {
            file: file.into(),
            title: format!("Queries sent in windows of {ms} ms: {}", sender.name()),
            x_label: "time in the trial, s".into(),
            y_label: format!("queries in {ms} ms"),
            shape: Shape::Panels { panels, shared: false },
        })
    };
    wanted.into_iter().filter_map(figure).collect()
}

fn panel(sending: &Sending, ms: u64) -> Panel {
    let windows = if ms == 100 { sending.coarse() } else { sending.windows.clone() };
    let width = ms as f64 / 1000.0;
    let dots = windows
        .iter()
        .enumerate()
        .map(|(i, &n)| Dot::at((i as f64 + 0.5) * width, n as f64))
        .collect();
    let name = format!("{} queries/s", number(sending.rate as f64));
    Panel { series: Series { name, dots }, wanted: sending.rate as f64 * width }
}

/// Returns all windows of 10 ms as CSV, one line for each window.
pub(crate) fn csv(all: &[Sending]) -> String {
    let mut out = "sender,rate,from_ms,queries\n".to_owned();
    for sending in all {
        for (i, n) in sending.windows.iter().enumerate() {
            let _ = writeln!(out, "{},{},{},{n}", sending.sender.name(), sending.rate, i * 10);
        }
    }
    out
}

/// Returns table I, which compares the model of the paper with the counts. In the model, each query takes too long by
/// the same time if the original timing is used.
pub(crate) fn table_1(all: &[Sending], seconds: u64) -> String {
    let mut rates: Vec<u64> = all.iter().map(|s| s.rate).collect();
    rates.sort_unstable();
    rates.dedup();
    let of = |sender, rate| all.iter().find(|s| s.sender == sender && s.rate == rate);
    let highest = rates
        .iter()
        .rev()
        .find_map(|&rate| of(Sender::Original, rate))
        .filter(|s| s.counted() > 0.0);
    // Excess time of a query in nanoseconds, derived from the highest rate as in the paper.
    let too_much = highest.map(|s| (1e8 / s.counted() - 1e9 / s.rate as f64).max(0.0));
    let mut out =
        "### Table I: validation of the error model\n\n| Required query rate |".to_owned();
    let mut line = |name: &str, cell: &dyn Fn(u64) -> String| {
        let cells: Vec<String> = rates.iter().map(|&rate| cell(rate)).collect();
        let _ = write!(out, "\n| {name} | {} |", cells.join(" | "));
    };
    let missing = || "not measured".to_owned();
    let cycle = |rate: u64| 1e9 / rate as f64;
    line("Required cycle time, ns", &|rate| number(cycle(rate).round()));
    line("Cycle time in the model, ns", &|rate| {
        too_much.map_or_else(missing, |ns| number((cycle(rate) + ns).round()))
    });
    line("Computed queries in 100 ms", &|rate| {
        too_much.map_or_else(missing, |ns| number((1e8 / (cycle(rate) + ns)).round()))
    });
    for sender in Sender::ALL {
        line(&format!("Counted queries in 100 ms, {}", sender.name()), &|rate| {
            of(sender, rate).map_or_else(missing, |s| number(s.counted()))
        });
    }
    for sender in Sender::ALL {
        line(&format!("Worst 100 ms window off by, {}", sender.name()), &|rate| {
            of(sender, rate).map_or_else(missing, |s| format!("{:.2} %", s.worst_pct(seconds)))
        });
    }
    let head: Vec<String> = rates.iter().map(|&rate| number(rate as f64)).collect();
    let rule = "---|".repeat(rates.len() + 1);
    out.replacen(
        "| Required query rate |",
        &format!("| Required query rate | {} |\n|{rule}", head.join(" | ")),
        1,
    ) + "\n"
}

/// Result of one search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    /// Highest rate at which every query was answered; 0 if there was none.
    pub(crate) rate: u64,
    /// Number of rates at which this machine invalidated every trial. Such rates count as not passed.
    pub(crate) spoiled: u32,
}

/// Results of the searches of one sender, or the reason why there are none.
pub(crate) struct Searched {
    pub(crate) sender: Sender,
    pub(crate) found: Vec<Found>,
    /// Measurement that is missing, with the reason.
    pub(crate) missing: Option<String>,
}

/// Returns tables II and III: the rates found with each sender.
pub(crate) fn table_of_searches(title: &str, all: &[Searched]) -> String {
    let mut out = format!(
        "### {title}\n\n| Sender | Median | Minimum | Maximum | Dispersion | Searches |\n|---|---|---|---|---|---|\n"
    );
    for searched in all {
        let name = searched.sender.name();
        let values: Vec<f64> = searched.found.iter().map(|found| found.rate as f64).collect();
        let Some(s) = Summary::of(&values) else {
            let why = searched.missing.as_deref().unwrap_or("no search was run");
            let _ = writeln!(out, "| {name} | not measured: {why} | – | – | – | 0 |");
            continue;
        };
        let dispersion = s.dispersion_pct.map_or("–".into(), |pct| format!("{pct:.2} %"));
        let [median, min, max] = [s.median, s.min, s.max].map(number);
        let mut notes: Vec<String> = searched.missing.iter().cloned().collect();
        let spoiled: u32 = searched.found.iter().map(|found| found.spoiled).sum();
        if spoiled > 0 {
            notes.push(format!(
                "{spoiled} rates at which this machine invalidated every trial \
                count as not passed"
            ));
        }
        let notes =
            if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
        let _ =
            writeln!(out, "| {name} | {median} | {min} | {max} | {dispersion} | {}{notes} |", s.n);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a sender that does not compensate for delays, and for which each query takes `too_much` ns too long.
    fn slow(sender: Sender, rate: u64, too_much: f64) -> Sending {
        let cycle = 1e9 / rate as f64 + too_much;
        Sending::of_times(sender, rate, 2, (0..rate * 2).map(|i| (i as f64 * cycle) as u64))
    }

    #[test]
    fn paper_model_reproduces_its_own_numbers() {
        let all: Vec<Sending> =
            [50_000, 200_000, 250_000].map(|rate| slow(Sender::Original, rate, 90.0)).into();
        let table = table_1(&all, 2);
        let row = |name: &str| -> Vec<String> {
            let line = table.lines().find(|line| line.starts_with(&format!("| {name}"))).unwrap();
            line.trim_matches('|')
                .split('|')
                .skip(1)
                .map(|cell| cell.trim().replace('\u{202f}', ""))
                .collect()
        };
        assert_eq!(row("Required query rate"), ["50000", "200000", "250000"]);
        assert_eq!(row("Required cycle time"), ["20000", "5000", "4000"]);
        assert_eq!(row("Cycle time in the model"), ["20090", "5090", "4090"]);
        assert_eq!(row("Computed queries in 100 ms"), ["4978", "19646", "24450"], "as in Table I");
        let counted = row("Counted queries in 100 ms, original timing");
        for (counted, expected) in counted.iter().zip([4_978, 19_646, 24_450_u64]) {
            assert!(counted.parse::<u64>().unwrap().abs_diff(expected) <= 1, "{counted}");
        }
        assert_eq!(row("Counted queries in 100 ms, Measurer"), ["not measured"; 3]);
    }

    #[test]
    fn windows_count_from_start_late_ones_after_end() {
        let times = [0, 9_999_999, 10_000_000, 1_000_000_000];
        let sending = Sending::of_times(Sender::Measurer, 4, 1, times.into_iter());
        assert_eq!(
            (sending.windows.len(), sending.windows[0], sending.windows[1], sending.windows[100]),
            (101, 2, 1, 1)
        );
        assert_eq!(sending.coarse().iter().sum::<u64>(), 4);
        assert!(csv(&[sending]).ends_with("Measurer,4,1000,1\n"));
        let exact = slow(Sender::Corrected, 10_000, 0.0);
        assert_eq!((exact.counted(), exact.worst_pct(2)), (1_000.0, 0.0));
    }

    #[test]
    fn every_sender_has_its_figures() {
        let all: Vec<Sending> = Sender::ALL.map(|sender| slow(sender, 1_000, 0.0)).into();
        let files: Vec<String> = figures(&all).into_iter().map(|f| f.file).collect();
        assert_eq!(files, ["figure-2", "figure-4", "figure-5", "measurer-100ms", "measurer-10ms"]);
        assert_eq!(figures(&all[..1]).len(), 1, "a sender without measurements is not drawn");
    }

    #[test]
    fn searches_are_summed_up_as_in_the_papers_tables() {
        let of = |sender, found: &[u64], missing: Option<&str>| Searched {
            sender,
            found: found
                .iter()
                .map(|&rate| Found { rate, spoiled: u32::from(rate == 54_853) })
                .collect(),
            missing: missing.map(str::to_owned),
        };
        let all = [
            of(Sender::Original, &[51_199, 54_057, 54_785], None),
            of(Sender::Corrected, &[54_853], Some("time was up")),
            of(Sender::Measurer, &[], Some("no dns64d")),
        ];
        let table = table_of_searches("Table II", &all).replace('\u{202f}', "");
        assert!(
            table.contains("| original timing | 54057 | 51199 | 54785 | 6.63 % | 3 |"),
            "{table}"
        );
        assert!(
            table.contains(
                "| corrected timing | 54853 | 54853 | 54853 | 0.00 % | 1 (time was \
            up; 1 rates at which this machine invalidated every trial count as not passed) |"
            ),
            "{table}"
        );
        assert!(table.contains("| Measurer | not measured: no dns64d |"), "{table}");
    }
}
