//! Compares the data attributes of every mark in the SVG figures with values recomputed from the
//! journal's valid trials.

use campaign::plan::{AtShare, WithThreads};

use crate::chart::read::{Mark, marks};
use crate::chart::tests::readable;
use crate::sections::figures;

use super::*;

/// The figures of a report. Each entry contains the subject, the file name, and the label of the horizontal axis. The
/// subject is a table or figure of a paper if the figure reproduces one. For bars, the label is the meaning of the
/// groups.
const FIGURES: [(&str, &str, &str); 21] = [
    ("the first screen", "valid-replies", "offered rate, queries/s"),
    ("the worst case", "worst-case", ""),
    ("V-VII", "scale-up", "cores"),
    ("VIII-X", "acceptance", "accepted"),
    ("XI", "placements", ""),
    ("XIII-XV", "aaaa", "AAAA share α"),
    ("XVI-XVIII", "cached", "cached share β"),
    ("α and β together", "shares", "cached share β"),
    ("I, II, IV", "self-test", ""),
    ("XIX-XXI", "cprdp", "load (share of the worst-case median)"),
    ("XIX-XXI", "cpu", "load (share of the worst-case median)"),
    (
        "XIX-XXI",
        "cpu-transient",
        "seconds; left of the dashed line: the transient, excluded from CPU figures",
    ),
    ("latency", "latency-p50", "load (share of the worst-case median)"),
    ("latency", "latency-p99", "load (share of the worst-case median)"),
    (
        "Fig. 3",
        "transient",
        "seconds; left of the dashed line: the transient, excluded from CPU figures",
    ),
    ("Fig. 4", "cprdp-by-rate", "queries/s"),
    ("XXII-XXIII", "numa-hit", ""),
    ("XXII-XXIII", "numa-miss", ""),
    ("Performance Analysis of MTD64, Fig. 2", "closed-loop", "threads, one query in flight each"),
    ("pacing", "pacing-100ms", "time in the trial, s; the trial at the highest rate that passed"),
    ("pacing", "pacing-10ms", "time in the trial, s; the trial at the highest rate that passed"),
];

/// Returns the horizontal axis label and the SVG source of each figure of a report. The key is the
/// file name.
pub(super) fn shown(runs: &[Run]) -> BTreeMap<String, (String, String)> {
    figures(runs)
        .into_iter()
        .map(|figure| (figure.file.clone(), (figure.x_label.clone(), figure.svg(true))))
        .collect()
}

/// Compares every figure with the journal.
pub(super) fn check(
    plan: &Plan,
    entries: &[Entry],
    shown: &BTreeMap<String, (String, String)>,
) -> Result<(), String> {
    let mut wanted = Expected { plan, entries, all: BTreeMap::new() };
    for dut in &plan.duts {
        wanted.of_searches(dut.name())?;
        wanted.of_loads(dut.name())?;
        wanted.at_rates(dut.name())?;
        wanted.of_memory(dut.name())?;
        wanted.in_closed_loop(dut.name())?;
        wanted.of_pacing(dut.name())?;
        wanted.of_replies(dut.name())?;
    }
    wanted.of_self_tests()?;
    for (what, file, axis) in FIGURES {
        let (x_label, svg) = shown.get(file).ok_or(format!("{what}: no figure {file}"))?;
        if x_label != axis {
            return Err(format!("{file}: axis {x_label:?}"));
        }
        readable(svg).map_err(|why| format!("{file}: {why}"))?;
        let expected = wanted.all.remove(file).ok_or(format!("{file} is not checked"))?;
        compare(&expected, &marks(svg)).map_err(|why| format!("{what}, {file}: {why}"))?;
    }
    wanted.all.pop_first().map_or(Ok(()), |(file, _)| Err(format!("{file} is not in the list")))
}

fn compare(expected: &[Mark], found: &[Mark]) -> Result<(), String> {
    let sorted = |all: &[Mark]| {
        let mut all = all.to_vec();
        all.sort_by(|a, b| (&a.panel, &a.of, &a.at).cmp(&(&b.panel, &b.of, &b.at)));
        all
    };
    let (expected, found) = (sorted(expected), sorted(found));
    let near = |a: &[f64], b: &[f64]| {
        a.len() == b.len()
            && a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()))
    };
    for (e, f) in expected.iter().zip(&found) {
        let is_same = (&e.panel, &e.of, &e.at, &e.state) == (&f.panel, &f.of, &f.at, &f.state)
            && near(&e.y, &f.y)
            && near(&e.range.0, &f.range.0)
            && near(&e.range.1, &f.range.1);
        if !is_same {
            return Err(format!("{f:?} is not {e:?}"));
        }
    }
    if expected.len() == found.len() {
        Ok(())
    } else {
        Err(format!("{} marks, not {}", found.len(), expected.len()))
    }
}

/// Creates a mark of the series `of` at the position `at`, with a value and its range.
fn mark(panel: &str, of: &str, at: &str, y: f64, (low, high): (f64, f64)) -> Mark {
    let text = |s: &str| s.to_owned();
    Mark {
        panel: text(panel),
        of: text(of),
        at: text(at),
        y: vec![y],
        range: (vec![low], vec![high]),
        state: text(""),
    }
}

/// Expected contents of the figures.
struct Expected<'a> {
    plan: &'a Plan,
    entries: &'a [Entry],
    all: BTreeMap<&'static str, Vec<Mark>>,
}

/// Returns the name of a CPU placement. All its trials must have run on the requested number of cores.
fn on(place: &Cores) -> String {
    let cores =
        if place.cores == 1 { "1 core".to_owned() } else { format!("{} cores", place.cores) };
    let with = place.authdns.as_ref().map_or(String::new(), |authdns| format!(" with {authdns}"));
    place
        .placement
        .as_ref()
        .map_or(format!("{cores}{with}"), |name| format!("{name}: {cores}{with}"))
}

impl Expected<'_> {
    fn add(&mut self, file: &'static str, mark: Mark) {
        self.all.entry(file).or_default().push(mark);
    }

    fn points(&self, dut: &str, is_meant: impl Fn(&Point) -> bool) -> Vec<Point> {
        self.plan.points().into_iter().filter(|p| p.dut() == Some(dut) && is_meant(p)).collect()
    }

    /// Returns the expected mark in a figure for the searches at a measurement point.
    fn searched(&self, point: &Point, of: &str, at: &str) -> Result<Mark, String> {
        let test = self.plan.self_test.as_ref().filter(|_| matches!(point, Point::SelfTest(_)));
        let search = &self.plan.search;
        let (repeat, resolution) =
            test.map_or((search.repeat, search.resolution), |t| (t.repeat, t.resolution));
        let found = searches(self.plan, self.entries, point, (repeat, resolution))?;
        let high = match found.failed {
            _ if test.is_some() => found.max,
            failed => failed.map_or(found.median.max(found.min), |failed| failed as f64),
        };
        let is_at_least = found.failed.is_none() && found.median == found.min;
        let state = if is_at_least { "at-least" } else { "" };
        Ok(Mark { state: state.into(), ..mark("", of, at, found.median, (found.min, high)) })
    }

    fn of_searches(&mut self, dut: &str) -> Result<(), String> {
        for point in self.points(dut, |p| matches!(p, Point::Search(_))) {
            let Some(c) = conditions(&point).cloned() else { continue };
            // The DUT `calibration` has only the worst case.
            let is_swept = self.plan.dut(dut).is_some_and(|dut| dut.measure.is_none());
            let (aaaa, cached) = (percent(c.aaaa), percent(c.cached));
            let (cores, is_first) = (on(&c.place), c.place == Cores::first(1));
            // The DUT `calibration` has one point for each AuthDNS and therefore no curve. The
            // first point of this DUT is shown as a bar.
            let is_bar =
                is_first || c.place == Cores { authdns: Some("AuthDNS".into()), ..Cores::first(1) };
            let with_place = format!("{dut}, {cores}");
            let is_plain = (c.aaaa, c.cached) == (Share::ZERO, Share::ZERO);
            let is_strict = c.accept >= 1.0;
            let mut add = |file, of: &str, at: &str| -> Result<(), String> {
                let mark = self.searched(&point, of, at)?;
                self.add(file, mark);
                Ok(())
            };
            if is_plain && is_strict && is_bar {
                // The placement of the DUT `calibration` differs from that of the other DUTs, so
                // each bar is labelled with its placement.
                add("worst-case", "here", &with_place)?;
            }
            if !is_swept {
                continue;
            }
            if is_plain && is_strict && c.place.placement.is_none() {
                add("scale-up", dut, &c.place.cores.to_string())?;
            }
            if is_plain && is_strict && c.place.cores == 2 {
                add("placements", &cores, dut)?;
            }
            if is_plain && is_first {
                add("acceptance", &with_place, &format!("{} %", number(c.accept * 100.0)))?;
            }
            if is_strict && is_first && c.cached == Share::ZERO {
                add("aaaa", &with_place, &aaaa)?;
            }
            if is_strict && is_first && c.aaaa == Share::ZERO {
                add("cached", &with_place, &cached)?;
            }
            if is_strict && is_first {
                let cell = self.searched(&point, &aaaa, &cached)?;
                self.add("shares", Mark { panel: with_place, range: (vec![], vec![]), ..cell });
            }
        }
        Ok(())
    }

    fn of_self_tests(&mut self) -> Result<(), String> {
        for (_, family, named) in SELF_TESTS {
            let ip = if family == Some(Family::Ipv6) { "IPv6" } else { "IPv4" };
            let at = format!("{} {ip}, 1 core", named.unwrap_or("AuthDNS"));
            let named = named.map(str::to_owned);
            let point = Point::SelfTest(SelfTestTarget {
                server: Auth::Dns64bench,
                family,
                cores: None,
                named,
            });
            let mark = self.searched(&point, "here", &at)?;
            self.add("self-test", mark);
        }
        Ok(())
    }

    fn of_loads(&mut self, dut: &str) -> Result<(), String> {
        for point in self.points(dut, |p| matches!(p, Point::Load(_))) {
            let Point::Load(AtShare { place, share, .. }) = &point else { continue };
            let (of, at) = (format!("{dut}, {}", on(place)), percent(*share));
            let m = only(self.entries, &point)?;
            let (cpu, efficiency) = use_of(m, 2)?;
            let rtt = m.at_rate().and_then(|trial| trial.rtt_us).ok_or("no times")?;
            let seconds: Vec<f64> = m.cpu.dut.clone();
            for (file, y) in [
                ("cpu", cpu),
                ("cprdp", four_digits(efficiency)),
                ("latency-p50", rtt.p50 / 1000.0),
                ("latency-p99", rtt.p99 / 1000.0),
            ] {
                self.add(file, mark("", &of, &at, y, (y, y)));
            }
            if *share == Share::percent(25) {
                self.seconds("cpu-transient", &format!("{of}, 25 %"), &seconds);
            }
        }
        Ok(())
    }

    fn seconds(&mut self, file: &'static str, panel: &str, seconds: &[f64]) {
        for (i, &y) in seconds.iter().enumerate() {
            self.add(file, mark(panel, "", &(i + 1).to_string(), y, (y, y)));
        }
    }

    fn at_rates(&mut self, dut: &str) -> Result<(), String> {
        for point in self.points(dut, |p| matches!(p, Point::ConstantRate(_))) {
            let Point::ConstantRate(at) = &point else { continue };
            let (of, rate) = (format!("{dut}, {}", on(&at.place)), number(at.rate.0 as f64));
            // The trials at 1 500 queries/s have no transient, are repeated, and take 2 s.
            let (skip, repeat) = if at.rate == Qps(1500) { (0, 3) } else { (2, 1) };
            let all = trials(self.entries, &point);
            if all.len() != repeat {
                return Err(format!("{point}: {} of {repeat} trials", all.len()));
            }
            let each: Result<Vec<f64>, String> =
                all.iter().map(|m| Ok(use_of(m, skip)?.1)).collect();
            let (median, (low, high)) = middle(each?);
            let (median, range) = (four_digits(median), (four_digits(low), four_digits(high)));
            let seconds = all[0].cpu.dut.clone();
            self.add("cprdp-by-rate", mark("", &of, &rate, median, range));
            if skip > 0 {
                self.seconds("transient", &format!("{of}, {rate}/s"), &seconds);
            }
        }
        Ok(())
    }

    fn of_memory(&mut self, dut: &str) -> Result<(), String> {
        for point in
            self.points(dut, |p| matches!(p, Point::ConstantRate(at) if at.rate == Qps(1500)))
        {
            let group =
                format!("{dut}, {}, 1\u{202f}500 queries/s", on(point.place().ok_or("no place")?));
            let each: Option<Vec<_>> =
                trials(self.entries, &point).iter().map(|m| m.numa.clone()).collect();
            let each = each.ok_or("pages were not counted")?;
            for node in 0..2 {
                for (file, get) in [
                    ("numa-hit", (|n| n.hit) as fn(&hosts::numa::NodePages) -> u64),
                    ("numa-miss", |n| n.miss),
                ] {
                    let (median, range) =
                        middle(each.iter().map(|numa| get(&numa.nodes[node]) as f64).collect());
                    self.add(file, mark("", &format!("node {node}"), &group, median, range));
                }
            }
        }
        Ok(())
    }

    fn in_closed_loop(&mut self, dut: &str) -> Result<(), String> {
        for point in self.points(dut, |p| matches!(p, Point::ClosedLoop(_))) {
            let Point::ClosedLoop(WithThreads { place, threads, governor, .. }) = &point else {
                continue;
            };
            let governor = governor.as_deref().unwrap_or_default();
            if governor != "performance" {
                // The simulated host has no such governor.
                continue;
            }
            let times = &only(self.entries, &point)?
                .in_loop()
                .ok_or("no closed loop")?
                .experiments
                .experiments_ms;
            let y = 256e3 / (times.iter().sum::<f64>() / times.len() as f64);
            self.add(
                "closed-loop",
                mark(
                    "",
                    &format!("{dut}, {}, {governor}", on(place)),
                    &threads.to_string(),
                    y,
                    (y, y),
                ),
            );
        }
        Ok(())
    }

    /// Adds the expected marks of a DUT for the figure that shows the share of valid replies at each rate. They are
    /// computed from all valid worst-case trials at the first CPU placement.
    fn of_replies(&mut self, dut: &str) -> Result<(), String> {
        let first = self.points(dut, |p| matches!(p, Point::Search(_))).into_iter().next();
        let place = first.as_ref().and_then(Point::place).ok_or("no search")?;
        let mut shares: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for entry in self.entries {
            let Entry::Finished(m) = entry else { continue };
            let (point, Some(trial)) = (&m.step.point, m.at_rate()) else { continue };
            let is_swept =
                conditions(point).is_some_and(|c| (c.aaaa, c.cached) != (Share::ZERO, Share::ZERO));
            let is_here = point.dut() == Some(dut) && point.place() == Some(place);
            if is_here && !is_swept && m.verdict() != Verdict::Invalid {
                let counts = (trial.counts.valid, trial.counts.sent);
                shares.entry(trial.rate.0).or_default().push(counts);
            }
        }
        for (rate, trials) in shares {
            let share = |(valid, sent): (u64, u64)| valid as f64 / sent as f64 * 100.0;
            let sum = trials.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
            let (_, range) = middle(trials.iter().map(|&one| share(one)).collect());
            self.add("valid-replies", mark("", dut, &rate.to_string(), share(sum), range));
        }
        Ok(())
    }

    /// Adds the expected pacing curves. They show the time windows of the first full-length trial at the highest rate
    /// that passed.
    fn of_pacing(&mut self, dut: &str) -> Result<(), String> {
        let of_dut = self.points(dut, |_| true);
        let mut best: Option<(&Qps, &Windows)> = None;
        for entry in self.entries {
            let Entry::Finished(m) = entry else { continue };
            let Some(windows) = m.at_rate().and_then(|trial| trial.windows.as_ref()) else {
                continue;
            };
            let counts = of_dut.contains(&m.step.point) && m.step.length == Length::Full;
            if counts
                && m.verdict() == Verdict::Passed
                && best.is_none_or(|(rate, _)| *rate < m.step.rate)
            {
                best = Some((&m.step.rate, windows));
            }
        }
        let (rate, windows) = best.ok_or(format!("{dut} passed nowhere"))?;
        let name = format!("{dut} at {} queries/s", number(rate.0 as f64));
        for (file, due, least, most) in [
            ("pacing-100ms", rate.0 as f64 / 10.0, &windows.least_100ms, &windows.most_100ms),
            ("pacing-10ms", rate.0 as f64 / 100.0, &windows.least_10ms, &windows.most_10ms),
        ] {
            let off =
                |all: &[i32]| all.iter().map(|n| f64::from(*n) / due * 100.0).collect::<Vec<f64>>();
            let (least, most) = (off(least), off(most));
            let furthest = least
                .iter()
                .zip(&most)
                .map(|(a, b)| if a.abs() > b.abs() { *a } else { *b })
                .collect();
            let at = (0..least.len())
                .map(|i| ((i as f64 + 0.5) * 0.1).to_string())
                .collect::<Vec<_>>()
                .join(" ");
            let (panel, of) = (name.clone(), name.clone());
            self.add(
                file,
                Mark { panel, of, at, y: furthest, range: (least, most), state: String::new() },
            );
        }
        Ok(())
    }
}

/// Returns the only trial of a measurement point.
fn only<'a>(entries: &'a [Entry], point: &'a Point) -> Result<&'a Measured, String> {
    match trials(entries, point)[..] {
        [only] => Ok(only),
        ref all => Err(format!("{point}: {} trials, not one", all.len())),
    }
}

/// Returns the CPU use of a trial, and the number of valid replies per second and per CPU core in use. The first `skip`
/// seconds of the trial are ignored for the CPU use.
fn use_of(m: &Measured, skip: usize) -> Result<(f64, f64), String> {
    let trial = m.at_rate().ok_or("a closed loop")?;
    let steady = &m.cpu.dut[skip..trial.duration_s as usize];
    let cpu = steady.iter().sum::<f64>() / steady.len() as f64;
    Ok((cpu, trial.counts.valid as f64 / trial.duration_s / cpu))
}

/// Returns the median, and the smallest and largest values.
fn middle(mut values: Vec<f64>) -> (f64, (f64, f64)) {
    values.sort_by(f64::total_cmp);
    let median = (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
    (median, (values[0], values[values.len() - 1]))
}

#[test]
fn a_mark_that_is_not_where_it_should_be_is_found() {
    let all = [mark("", "a", "1", 2.0, (1.0, 3.0)), mark("", "b", "1", 4.0, (4.0, 4.0))];
    compare(&all, &all).unwrap();
    for change in [
        |m: &mut Mark| m.y[0] = 2.1,
        |m: &mut Mark| m.range.1[0] = 2.9,
        |m: &mut Mark| m.at = "2".into(),
        |m: &mut Mark| m.of = "c".into(),
        |m: &mut Mark| m.state = "failed".into(),
    ] {
        let mut other = all.clone();
        change(&mut other[0]);
        assert!(compare(&all, &other).is_err(), "{:?}", other[0]);
    }
    assert!(compare(&all, &all[..1]).is_err());
}
