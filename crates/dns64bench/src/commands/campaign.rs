//! `campaign`: runs and resumes benchmark plans, and shows their contents and state.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::anyhow;
use campaign::archive::journal_header::{difference_of, same_plan};
use campaign::archive::{self, Archive};
use campaign::plan::Point;
use campaign::plan::{Plan, READY};
use campaign::record::{Entry, Measured, Step};
use campaign::runner::preflight;
use campaign::runner::{self, CampaignError, Watcher};
use campaign::sequence::Paper;
use campaign::sequence::Recorded;
use hosts::environment::Environment;
use hosts::interruption::Interruption;
use hosts::text::{MESSAGE, plain, visible};
use indicatif::{ProgressBar, ProgressStyle};
use report::{Run, write};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use units::{CpuId, Qps};

use crate::args::{Campaign, CampaignAction};
use crate::colour::has_control_sequences;
use crate::lines::{COLUMNS, cut, plain_spaces, wrapped_for};
use crate::output::{
    Failure, INVALID, Outcome, counted, grouped, print_points, remaining, rounded,
};
use crate::{colour, lines, metrics};

pub(crate) fn run(args: &Campaign) -> Outcome {
    match &args.action {
        CampaignAction::Run { plan, dry_run: true, .. } | CampaignAction::Plan { plan } => {
            let plan = Plan::load(plan).map_err(Failure::usage)?;
            print_plan(&plan);
            for line in preflight::missing_here(&plan) {
                println!("Missing: {line}");
            }
            let beyond = preflight::points_beyond_cpus(&plan);
            for place in with_points(beyond.iter().filter_map(Point::place)) {
                println!("Not on this machine: {place}");
            }
            for line in preflight::unchecked_hosts(&plan) {
                println!("Note: {line}");
            }
            Ok(ExitCode::SUCCESS)
        }
        CampaignAction::Run { plan: path, dir, keep_going, quiet, metrics, .. } => {
            let plan = Plan::load(path).map_err(Failure::usage)?;
            serve_metrics(*metrics, &plan, *quiet)?;
            let folder = dir.clone().unwrap_or_else(|| folder_of(path));
            if folder.exists() {
                let folder = folder.display();
                return Err(Failure::usage(anyhow!(
                    "{folder} exists; continue it: dns64bench campaign resume {folder}, or choose another folder: --dir"
                )));
            }
            let missing = preflight::missing_here(&plan);
            if !missing.is_empty() {
                return Err(Failure::usage(CampaignError::Impossible(missing)));
            }
            let archive = Archive::create(&folder, &plan, &Environment::observe())
                .map_err(Failure::environment)?;
            carry_out(&plan, archive, Vec::new(), *keep_going, *quiet)
        }
        CampaignAction::Resume { run, redo, keep_going, quiet, metrics } => {
            let folder = existing(run);
            let (mut archive, plan, mut done) = Archive::open(&folder).map_err(Failure::usage)?;
            if folder != *run
                && (run.exists() || READY.iter().any(|(name, _)| run.as_os_str() == *name))
            {
                same_plan(&plan, run, &folder).map_err(Failure::usage)?;
            }
            serve_metrics(*metrics, &plan, *quiet)?;
            if let Some(redo) = redo {
                let redone = Entry::Redone((*redo).into());
                archive.append(&redone).map_err(Failure::environment)?;
                done.push(redone);
            }
            carry_out(&plan, archive, done, *keep_going, *quiet)
        }
        CampaignAction::Status { run } => {
            let folder = existing(run);
            let (plan, _, entries) = archive::read(&folder).map_err(Failure::usage)?;
            if let Some(note) = difference_of(&plan, &folder) {
                eprintln!("dns64bench: {}", plain(&note, MESSAGE));
            }
            print_status(&plan, &entries);
            Ok(ExitCode::SUCCESS)
        }
        CampaignAction::Show { name } => {
            print!("{}", ready(name));
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns the text of a built-in plan. The first line of the text refers to a schema file. The path of this file is
/// replaced, because it is valid only in the repository.
fn ready(name: &str) -> String {
    let text = READY.iter().find(|(ready, _)| *ready == name).map_or("", |(_, text)| text);
    match text.split_once('\n') {
        Some((first, rest)) if first.starts_with("#:schema ") => {
            format!(
                "#:schema plan.schema.json\n# For editors: dns64bench schema plan > plan.schema.json\n{rest}"
            )
        }
        _ => text.into(),
    }
}

/// Returns the default run folder of a plan: a folder in the current folder that is named after the plan.
fn folder_of(plan: &Path) -> PathBuf {
    let stem = plan
        .file_stem()
        .map_or_else(|| "campaign".into(), |stem| stem.to_string_lossy().into_owned());
    PathBuf::from(format!("{stem}-run"))
}

/// Returns the run folder of a running or finished campaign. `run` is either the folder or the plan.
fn existing(run: &Path) -> PathBuf {
    if run.is_dir() { run.into() } else { folder_of(run) }
}

/// Serves the metrics of the campaign for Prometheus. The serving thread runs on CPUs that the campaign does not use,
/// if there are any.
fn serve_metrics(address: Option<SocketAddr>, plan: &Plan, quiet: bool) -> Result<(), Failure> {
    let cpus = plan.cpus.tester.iter().chain(&plan.cpus.auth).chain(&plan.cpus.dut);
    metrics::serve(address, "campaign", &cpus.map(|&cpu| CpuId(cpu)).collect::<Vec<_>>(), quiet)
}

fn carry_out(
    plan: &Plan,
    archive: Archive,
    done: Vec<Entry>,
    keep_going: bool,
    quiet: bool,
) -> Outcome {
    let interruption = heed_signals()?;
    let folder = archive.folder().to_owned();
    let mut terminal = CampaignTerminal::new(plan, &done, quiet);
    let ended = runner::run(plan, archive, done, keep_going, &interruption, &mut terminal);
    terminal.bar.finish_and_clear();
    ended.map_err(|error| failure(error, &folder))?;
    let run = Run::read(&folder).map_err(Failure::environment)?;
    let (summary, points) = (run.summary(), run.results.noncompliance.clone());
    let page = write(&[run], &folder).map_err(Failure::environment)?;
    if !quiet {
        println!("{}", wrapped_for(&visible(&summary.join("\n")), &std::io::stdout()));
        print_points("Not RFC 8219 compliant", &points);
    }
    println!("{}", page.display());
    let (plan, _, entries) = archive::read(&folder).map_err(Failure::environment)?;
    let recorded = Recorded::new(&plan, &entries);
    let (made, cannot): (Vec<Point>, Vec<Point>) =
        plan.points().into_iter().partition(|point| recorded.cannot(point).is_none());
    // A point that cannot be measured on these hosts counts as complete; the reason is printed instead of a result.
    for (point, why) in cannot.iter().filter_map(|point| Some((point, recorded.cannot(point)?))) {
        eprintln!("dns64bench: cannot be measured here: {point}: {why}");
    }
    let open: Vec<Point> = made.into_iter().filter(|point| !recorded.has_result(point)).collect();
    for point in &open {
        eprintln!("dns64bench: without a result: {point}");
    }
    Ok(if open.is_empty() { ExitCode::SUCCESS } else { INVALID.into() })
}

/// Counts the signals SIGINT and SIGTERM: the first signal ends the campaign cleanly, and the second ends it
/// immediately.
fn heed_signals() -> Result<Interruption, Failure> {
    let interruption = Interruption::new();
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::environment)?;
    let asked = interruption.clone();
    thread::spawn(move || {
        for _ in signals.forever() {
            asked.request();
        }
    });
    Ok(interruption)
}

/// Returns the error message for a campaign that did not finish, with the command that continues it.
fn failure(error: CampaignError, folder: &Path) -> Failure {
    let folder = folder.display();
    match error {
        CampaignError::Interrupted => Failure::interrupted(anyhow!(
            "interrupted; the results so far are in the journal; continue with: dns64bench campaign resume {folder}"
        )),
        CampaignError::Impossible(_) => Failure::usage(error).with_advice(&format!(
            "use another run folder for another plan; or fix it, and: dns64bench campaign resume {folder}"
        )),
        CampaignError::NotReady(_) => {
            Failure::environment(anyhow!("{error}\nAfter fixing this: dns64bench campaign resume {folder}"))
        }
        CampaignError::SelfTest(_) => Failure::invalid(error).with_advice(&format!(
            "repeat it when the tester's host is idle (dns64bench check): dns64bench campaign \
             resume {folder} --redo self-test; or continue without it: dns64bench campaign resume \
             {folder} --keep-going"
        )),
        CampaignError::Trial { is_usage: true, .. } => Failure::usage(error),
        _ => Failure::environment(error),
    }
}

/// Prints each measurement point of a plan with its number of trials and its duration. Then prints which tables and
/// figures of papers the plan reproduces. Lines have at most 80 columns.
fn print_plan(plan: &Plan) {
    println!("{:>7} {:>12}  point", "trials", "about");
    let mut sum = Duration::ZERO;
    for point in plan.points() {
        let (trials, time) = plan.effort(&point);
        sum += time;
        println!("{}", effort_line(&grouped(trials.into()), time, &lines::point(&point)));
    }
    println!("{}", effort_line("", sum, "in total, without repeated trials and start-up times"));
    for paper in Paper::ALL {
        let paper_items = paper_items(plan, paper);
        if !paper_items.is_empty() {
            println!(
                "{}",
                wrapped_for(&format!("{}: {paper_items}", paper.title()), &std::io::stdout())
            );
        }
    }
}

fn effort_line(trials: &str, time: Duration, point: &str) -> String {
    let about = rounded(time).to_string();
    let start = plain_spaces(&format!("{trials:>7} {about:>12}  "));
    let room = COLUMNS.saturating_sub(start.chars().count());
    format!("{start}{}", cut(point, room))
}

/// Lists the tables and figures of a paper that a plan reproduces, and the number of measurement points for each.
/// Example: `Tables V-VII (4 points), Table XI (2 points)`.
fn paper_items(plan: &Plan, paper: Paper) -> String {
    let points = plan.points();
    let filled = points.iter().flat_map(|point| point.measure().paper_items(plan, point));
    with_points(filled.filter(|filled| filled.paper == paper).map(|filled| filled.what)).join(", ")
}

/// Returns each distinct item with the number of its occurrences: `16 cores (2 points)`.
fn with_points<T: PartialEq + fmt::Display>(items: impl Iterator<Item = T>) -> Vec<String> {
    let mut counts: Vec<(T, u64)> = Vec::new();
    for item in items {
        match counts.iter_mut().find(|(known, _)| *known == item) {
            Some((_, n)) => *n += 1,
            None => counts.push((item, 1)),
        }
    }
    let with_count = |(item, n): &(T, u64)| format!("{item} ({})", counted(*n, "point", "points"));
    counts.iter().map(with_count).collect()
}

fn print_status(plan: &Plan, entries: &[Entry]) {
    let mut left = Duration::ZERO;
    let recorded = Recorded::new(plan, entries);
    let failed = recorded.failed_self_test().map(|failed| failed.point);
    for point in plan.points() {
        let trials = recorded.measured(&point).count();
        let complete = recorded.is_complete(&point);
        if !complete {
            let (of, time) = plan.effort(&point);
            left += time.mul_f64(1.0 - (trials as f64 / f64::from(of.max(1))).min(1.0));
        }
        let state = match (complete, trials) {
            (true, _) if failed.as_ref() == Some(&point) => "failed",
            (true, _) => "done",
            (false, 0) => "to do",
            (false, _) => "started",
        };
        let trials = counted(trials as u64, "trial", "trials");
        println!("{state:<8} {trials:>12}  {}", lines::point(&point));
    }
    for entry in entries {
        if let Entry::Incident { point, what, .. } = entry {
            println!("{:<8} {:>12}  {point}: {}", "incident", "", plain(what, MESSAGE));
        }
    }
    let left =
        if left.is_zero() { "No trials".into() } else { format!("About {}", remaining(left)) };
    println!("{left} to go");
}

/// Template of the progress display. The first line shows the current measurement point and rate, and the second line
/// contains the progress bar. Lines have at most 80 columns.
const BAR: &str = "{wide_msg}\n{bar:20} {pos} of {len} points, {elapsed}, about {prefix} to go";

/// Returns the total duration of all finished trials.
fn time_of(done: &[Entry]) -> Duration {
    let seconds = done.iter().filter_map(|entry| match entry {
        Entry::Finished(m) => m.at_rate().map(|trial| trial.duration_s + trial.timeout_s),
        _ => None,
    });
    Duration::try_from_secs_f64(seconds.sum()).unwrap_or_default()
}

/// Shows the progress of a campaign: as a progress bar on a terminal, otherwise as one line per trial.
struct CampaignTerminal<'a> {
    plan: &'a Plan,
    quiet: bool,
    plain: bool,
    bar: ProgressBar,
    /// Measurement points that are not complete yet.
    open: Vec<Point>,
}

impl CampaignTerminal<'_> {
    fn new<'a>(plan: &'a Plan, done: &[Entry], quiet: bool) -> CampaignTerminal<'a> {
        let plain = !has_control_sequences(&std::io::stderr());
        let points = plan.points();
        let open: Vec<Point> =
            points.iter().filter(|p| !Recorded::new(plan, done).is_complete(p)).cloned().collect();
        let bar = if quiet || plain {
            ProgressBar::hidden()
        } else {
            // The elapsed time includes the trials before a resume.
            ProgressBar::new(points.len() as u64).with_elapsed(time_of(done))
        };
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        bar.set_position((points.len() - open.len()) as u64);
        let terminal = CampaignTerminal { plan, quiet, plain, bar, open };
        terminal.show();
        terminal
    }

    /// Updates the remaining time on the progress bar, and the metrics for Prometheus.
    fn show(&self) {
        let left: Duration = self.open.iter().map(|point| self.plan.effort(point).1).sum();
        self.bar.set_prefix(remaining(left).to_string());
        let points = self.plan.points().len();
        metrics::campaign(|campaign| {
            campaign.points = points;
            campaign.complete = points - self.open.len();
            campaign.left_s = left.as_secs_f64();
        });
    }

    fn line(&self, text: &str) {
        // The text may quote the output of a host or a server, so control characters are removed.
        self.line_as_it_is(&plain(text, MESSAGE));
    }

    /// Prints a line in the same way as [`CampaignTerminal::line`], but keeps control characters. The text must not
    /// contain output of a host or a server.
    fn line_as_it_is(&self, text: &str) {
        match (self.quiet, self.plain) {
            (true, _) => {}
            (false, true) => {
                eprintln!("{text}");
            }
            (false, false) => self.bar.println(wrapped_for(text, &std::io::stderr())),
        }
    }
}

impl Watcher for CampaignTerminal<'_> {
    fn begins(&mut self, step: &Step, (passed, failed): (Option<Qps>, Option<Qps>)) {
        metrics::trial_begins_elsewhere(step.rate);
        metrics::search(metrics::SearchState { number: step.repeat + 1, passed, failed });
        let bracket = |rate: Option<Qps>| rate.map_or("…".into(), |rate| grouped(rate.0));
        let (low, high) = (bracket(passed), bracket(failed));
        let Step { point, rate, .. } = step;
        let point = lines::point(point);
        let text = match (passed, failed) {
            (None, None) => point,
            _ => format!("{point} at {} in [{low}, {high})", grouped(rate.0)),
        };
        self.bar.set_message(plain_spaces(&text));
    }

    fn ended(&mut self, measured: &Measured) {
        let c = measured.counts();
        metrics::ended(Some(measured.verdict()), [c.valid, c.late, c.lost, c.wrong.total()]);
        let verdict = colour::verdict(measured.verdict(), &std::io::stderr()).to_string();
        self.line_as_it_is(&plain_spaces(&lines::trial(measured, &verdict)));
    }

    fn incident(&mut self, point: &Point, what: &str) {
        metrics::campaign(|campaign| campaign.incidents += 1);
        let text = format!("{point}: {what}");
        if self.quiet {
            eprintln!("{}", plain(&text, MESSAGE));
        } else {
            self.line(&text);
        }
    }

    fn complete(&mut self, point: &Point) {
        self.open.retain(|open| open != point);
        self.show();
        self.bar.inc(1);
    }
}

#[cfg(test)]
mod tests {
    use campaign::plan::{Conditions, Cores};
    use campaign::record::{Cpu, StolenFrom, TaskResult};
    use indicatif::HumanDuration;
    use method::narrow::Length;
    use method::records::Counts;
    use tester::measurer::plan::TrialPlan;
    use tester::measurer::result::TrialResult;

    use super::*;

    #[test]
    fn the_bar_of_a_campaign_fits_80_columns() {
        let long = Duration::from_secs(20 * 86_400 + 13 * 3_600);
        let mut line = BAR.lines().nth(1).unwrap().to_owned();
        for (key, value) in [
            ("{bar:20}", "#".repeat(20)),
            ("{pos}", "12345".into()),
            ("{len}", "12345".into()),
            ("{elapsed}", format!("{:#}", HumanDuration(long))),
            ("{prefix}", remaining(long).to_string()),
        ] {
            line = line.replace(key, &value);
        }
        assert!(line.ends_with("about 20days 13h to go") && !line.contains('{'), "{line}");
        assert!(line.chars().count() <= COLUMNS, "{line}");
    }

    #[test]
    fn trials_before_a_resume_count_on_the_clock() {
        let plan = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(10));
        let counts = Counts { sent: 600, valid: 600, ..Counts::default() };
        let point = Point::Search(Conditions::worst_case("dns64d", Cores::first(1)));
        let finished = Entry::Finished(Box::new(Measured {
            step: Step { point, repeat: 0, rate: plan.rate, length: Length::Full },
            found: TaskResult::Trial(Box::new(TrialResult::simulated(&plan, counts))),
            dut_end: None,
            cpu: Cpu::default(),
            numa: None,
            stolen: StolenFrom::default(),
            warnings: Vec::new(),
            records: None,
        }));
        let each = Duration::from(plan.duration + plan.timeout);
        assert_eq!(time_of(&[finished.clone(), finished]), 2 * each);
    }
}
