//! Figures of the report that show how closely the tester keeps the query schedule.

use campaign::results::PacedTrial;
use method::pacing::Windows;

use crate::chart::{Dot, Figure, Panel, Series, Shape};
use crate::format::number;
use crate::run::{Run, each_dut, legend};

/// Returns two figures of the tester's pacing in one trial of each DUT: for windows of 100 ms and
/// of 10 ms. The figures show the deviation of the number of queries from the schedule, in per
/// cent. The figures are modelled on G. Lencse and A. Pivoda, "Checking and Increasing the Accuracy
/// of the Dns64perf++ Measurement Tool for Benchmarking DNS64 Servers" (2018, DOI
/// 10.11601/ijates.v7i1.255).
pub(crate) fn pacing(runs: &[Run]) -> Vec<Figure> {
    let paced: Vec<(String, &PacedTrial)> = each_dut(runs)
        .filter_map(|(run, dut)| {
            Some((legend(run, &dut.name, runs.len() > 1), dut.paced.as_ref()?))
        })
        .collect();
    if paced.is_empty() {
        return Vec::new();
    }
    let windows: [(f64, &str, Band); 2] = [
        (0.1, "100", |w| (&w.least_100ms, &w.most_100ms)),
        (0.01, "10", |w| (&w.least_10ms, &w.most_10ms)),
    ];
    let figure = |(seconds, ms, band): (f64, &str, Band)| Figure {
        file: format!("pacing-{ms}ms"),
        title: format!(
            "Pacing of the tester: queries sent in windows of {ms} ms, relative to the schedule"
        ),
        x_label: "time in the trial, s; the trial at the highest rate that passed".into(),
        y_label: "% off".into(),
        shape: Shape::Panels {
            panels: paced
                .iter()
                .map(|(name, trial)| paced_panel(name, trial, seconds, band(&trial.windows)))
                .collect(),
            shared: true,
        },
    };
    windows.into_iter().map(figure).collect()
}

/// Function that returns two lists of deviations, either for the 100 ms windows or for the 10 ms windows. For each
/// period of a trial, the first list contains the minimum and the second list the maximum deviation.
type Band = fn(&Windows) -> (&Vec<i32>, &Vec<i32>);

fn paced_panel(
    name: &str,
    trial: &PacedTrial,
    window_s: f64,
    (least, most): (&Vec<i32>, &Vec<i32>),
) -> Panel {
    let due = (trial.rate.0 as f64 * window_s).max(1.0);
    let percent = |off: i32| f64::from(off) / due * 100.0;
    let stretch_s = trial.windows.stretch_ms as f64 / 1000.0;
    let dots = least.iter().zip(most).enumerate().map(|(i, (&least, &most))| {
        let (least, most) = (percent(least), percent(most));
        // The larger of the two deviations is drawn.
        let y = if least.abs() > most.abs() { least } else { most };
        Dot { range: (least, most), ..Dot::at((i as f64 + 0.5) * stretch_s, y) }
    });
    let name = format!("{name} at {} queries/s", number(trial.rate.0 as f64));
    Panel { series: Series { name, dots: dots.collect() }, wanted: 0.0 }
}

#[cfg(test)]
mod tests {
    use units::Qps;

    use super::*;

    #[test]
    fn a_stall_of_the_tester_stands_out_in_its_window() {
        let windows = Windows {
            stretch_ms: 200,
            least_100ms: vec![0, -20, 0],
            most_100ms: vec![0, 20, 0],
            least_10ms: vec![-1, -50, 0],
            most_10ms: vec![0, 49, 1],
        };
        let trial = PacedTrial { rate: Qps(10_000), windows };
        let panel = paced_panel(
            "dns64d",
            &trial,
            0.01,
            (&trial.windows.least_10ms, &trial.windows.most_10ms),
        );
        assert_eq!(panel.series.name, "dns64d at 10\u{202f}000 queries/s");
        let dots = &panel.series.dots;
        assert_eq!((dots[1].range, dots[1].y), ((-50.0, 49.0), -50.0));
        assert!((dots[1].x - 0.3).abs() < 1e-9 && dots.len() == 3);
        let coarse = paced_panel(
            "dns64d",
            &trial,
            0.1,
            (&trial.windows.least_100ms, &trial.windows.most_100ms),
        );
        assert_eq!(coarse.series.dots[1].range, (-2.0, 2.0));
    }
}
