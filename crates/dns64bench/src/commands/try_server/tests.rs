//! Tests of the configuration lines, the search duration, the names, and the bounds of the result.

use std::path::Path;

use campaign::sequence::SearchSequence;
use method::narrow::Length;
use method::records::Counts;

use super::lines::Form;
use super::*;

fn forward(auth: &str, prefix: &str) -> Forward {
    Forward {
        domain: Domain::dns64perf(),
        auth: auth.parse().unwrap(),
        prefix: prefix.parse().unwrap(),
    }
}

#[test]
fn printed_lines_match_the_golden_file() {
    let mut text = String::new();
    for (auth, prefix) in
        [("127.0.0.1:5300", "64:ff9b::/96"), ("[2001:2::2]:5300", "2001:db8:64::/96")]
    {
        for form in Form::ALL {
            text += &format!("{}\n", form.lines(&forward(auth, prefix)));
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/try-lines.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(text == golden, "{} differs: BLESS=1 cargo test -p dns64bench\n{text}", file.display());
}

/// Returns the configuration lines of a form that has a single part, without the surrounding text.
fn bare(form: Form) -> String {
    let lines = form.lines(&forward("127.0.0.1:5300", "64:ff9b::/96")).to_string();
    let (_, lines) = lines.split_once(":\n\n").unwrap();
    lines.split_once("\nThen run: ").unwrap().0.to_owned()
}

#[test]
fn the_lines_of_dns64d_are_a_configuration() {
    toml::from_str::<dns64::config::Config>(&bare(Form::Dns64d)).unwrap();
}

#[test]
fn the_documents_have_the_lines_of_unbound() {
    let lines = bare(Form::Unbound);
    for page in [
        include_str!("../../../../../README.md"),
        include_str!("../../../../../docs/src/first-measurement.md"),
    ] {
        assert!(page.contains(&format!("<<'EOF'\n{lines}EOF\n")), "{lines}");
    }
}

/// Searches a server that answers up to its capacity and returns the total duration of the trials, and the
/// result.
fn searched(capacity: u64, closed_loop: f64) -> (f64, Vec<method::search::Found>) {
    let plan = search_plan(TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1)), closed_loop);
    let mut course = SearchSequence::new(plan.set(), &plan.method, TRIAL).unwrap();
    let mut seconds = 0.0;
    while let Some(due) = course.next() {
        let duration = match due.length {
            Length::Of(duration) => duration,
            Length::Full | Length::Probe => TRIAL,
        };
        let each = duration.as_secs_f64();
        seconds += each + default_timeout(TRIAL).as_secs_f64() + PAUSE.as_secs_f64();
        let sent = (due.rate.0 as f64 * each) as u64;
        let valid = sent.min((capacity as f64 * each) as u64);
        let verdict = if valid == sent { Verdict::Passed } else { Verdict::Failed };
        course.report(verdict, &Counts { sent, valid, lost: sent - valid, ..Counts::default() });
    }
    (seconds, course.found())
}

#[test]
fn a_search_takes_about_two_minutes() {
    for (capacity, closed_loop) in
        [(10_000, 11_000.0), (10_000, 10_100.0), (10_000, 6_000.0), (300, 400.0), (90_000, 2e5)]
    {
        let (seconds, found) = searched(capacity, closed_loop);
        assert!((45.0..150.0).contains(&seconds), "{capacity}, {closed_loop}: {seconds} s");
        assert_eq!(found.len(), SEARCHES as usize);
        for found in found {
            let (Some(Qps(passed)), Some(Qps(failed))) = (found.highest, found.failed) else {
                panic!("{capacity}, {closed_loop}: {found:?}");
            };
            assert!(passed <= capacity && failed > capacity, "{found:?}");
            assert!((failed - passed) as f64 <= WIDTH * failed as f64 + 1.0, "{found:?}");
        }
    }
}

#[test]
fn two_runs_have_different_global_names() {
    let [first, second] = [1_000, 1_120].map(|s| first_name(Duration::from_secs(s)));
    assert_eq!(second - first, 120 * NAMES_PER_SECOND);
    for seconds in 0..10_000 {
        let first = first_name(Duration::from_secs(seconds));
        let last = first + 120 * NAMES_PER_SECOND;
        // 10.0.0.0/8 and 100.64.0.0/10 are not global (RFC 6890).
        assert!(first >= 11 << 24 && last < 100 << 24, "{first}");
    }
}

#[test]
fn bounds_are_those_of_full_trials() {
    let plan = TrialPlan { duration: TRIAL, ..TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1)) };
    let trial = |rate, duration, valid| {
        let plan = TrialPlan { rate: Qps(rate), duration, ..plan.clone() };
        let (sent, lost) = (10, 10 - valid);
        TrialResult::simulated(&plan, Counts { sent, valid, lost, ..Counts::default() })
    };
    let trials = [
        trial(50, TRIAL, 9),
        trial(100, TRIAL, 10),
        trial(130, TRIAL, 9),
        trial(110, Nanos::SECOND, 10),
        trial(120, Nanos::SECOND, 9),
        trial(140, TRIAL, 9),
    ];
    assert_eq!(bounds(&trials), (Some(Qps(100)), Some(Qps(130))));
    assert_eq!(bounds(&[]), (None, None));
    assert_eq!(bounds_words((None, None)), "so far passed: no rate; failed: no rate");
}

/// Simulated server that answers up to its capacity, in queries per second.
struct Simulated(u64);

impl Runner for Simulated {
    fn trial(&mut self, plan: &TrialPlan, _: SearchProgress) -> Result<TrialResult, TrialError> {
        let sent = (plan.rate.0 as f64 * plan.duration.as_secs_f64()) as u64;
        let valid = sent.min((self.0 as f64 * plan.duration.as_secs_f64()) as u64);
        let counts = Counts { sent, valid, lost: sent - valid, ..Counts::default() };
        Ok(TrialResult::simulated(plan, counts))
    }

    fn finished(&mut self, _: &TrialResult) {}

    fn pause(&mut self, _: Duration, _: SearchProgress) {}
}

/// Returns a plan with searches around 10 000 queries/s.
fn plan() -> SearchPlan {
    let trial = TrialPlan {
        duration: TRIAL,
        timeout: default_timeout(TRIAL),
        names: NameRange::ALL,
        ..TrialPlan::new("[::1]:53".parse().unwrap(), Qps(1))
    };
    search_plan(trial, 10_000.0)
}

/// Runner that is interrupted in the search with this index, counted from 0.
struct Ending(Simulated, u32);

impl Runner for Ending {
    fn trial(
        &mut self,
        plan: &TrialPlan,
        standing: SearchProgress,
    ) -> Result<TrialResult, TrialError> {
        if standing.repeat == self.1 {
            return Err(TrialError::Interrupted);
        }
        self.0.trial(plan, standing)
    }

    fn finished(&mut self, _: &TrialResult) {}

    fn pause(&mut self, _: Duration, _: SearchProgress) {}
}

#[test]
fn completed_searches_survive_an_interruption() {
    for completed in 0..SEARCHES {
        let folder = tempfile::tempdir().unwrap();
        let mut runner = Ending(Simulated(9_000), completed);
        let ended = short_run::search(&plan(), folder.path(), &mut runner);
        assert!(matches!(ended, Err(SearchError::Trial(TrialError::Interrupted))));
        let found = short_run::completed(&plan(), folder.path(), completed, &mut runner).unwrap();
        assert_eq!(found.map_or(0, |found| found.figures.n), completed as usize);
    }
}

/// Returns the result of a server with this capacity.
fn result_of(capacity: u64) -> TryResult {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan();
    let search = short_run::search(&plan, folder.path(), &mut Simulated(capacity)).unwrap();
    let trials = &search.as_ref().unwrap().trials;
    let (passed, failed) = bounds(trials);
    TryResult {
        server: "[::1]:53".into(),
        version: Some("unbound 1".into()),
        auth: "[::1]:5300".into(),
        domain: Domain::dns64perf(),
        prefixes: Vec::new(),
        closed_loop: short_run::simulated(10_000.0),
        search,
        passed,
        failed,
        interrupted: false,
    }
}

#[test]
fn a_summary_has_interval_searches_and_deviations() {
    let result = result_of(9_000);
    let trials = &result.search.as_ref().unwrap().trials;
    let text = summary(&result, trials).replace('\u{202f}', " ");
    let rate = text.lines().find(|line| line.starts_with("Rate ")).expect(&text);
    assert!(rate.contains(" queries/s median, [") && rate.ends_with(") in 3 searches"), "{rate}");
    for words in [
        "Server      [::1]:53, unbound 1\n",
        "Closed loop 10 000 valid answers per second with 100 queries in flight\n",
        "Not RFC 8219 compliant: trials last 5 s, not at least 60 s\n",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    let interrupted = TryResult { interrupted: true, ..result_of(9_000) };
    let text = summary(&interrupted, trials).replace('\u{202f}', " ");
    assert!(text.contains("Interrupted so far passed: ") && !text.contains("no rate"), "{text}");
}

#[test]
fn exit_statuses_follow_the_search() {
    let status = |result: &TryResult| format!("{:?}", exit_status(result));
    let code = |code: u8| format!("{:?}", ExitCode::from(code));
    let passed = result_of(9_000);
    assert_eq!(status(&passed), code(0));
    assert_eq!(status(&result_of(10)), code(DUT_FAILED));
    assert_eq!(status(&TryResult { search: None, ..result_of(9_000) }), code(DUT_FAILED));
    assert_eq!(status(&TryResult { interrupted: true, ..passed }), code(INTERRUPTED));
}
