//! `closed-loop`: keeps a fixed number of queries in flight, like dnsperf and dns64perf2.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use method::stats::{MeanAndDeviation, Summary};
use net::clock;
use tester::client::Transport;
use tester::client::closed_loop::{ClosedLoopError, ClosedLoopPlan, ClosedLoopResult, run_until};
use tester::client::experiments::Experiments as Found;
use tester::client::progress::Progress;
use tester::measurer::liveness;
use units::Nanos;
use wire::name::Domain;

use crate::args::{ClosedLoop, Experiments};
use crate::intervals::Load;
use crate::output::{
    DUT_FAILED, Failure, INTERRUPTED, Outcome, counted, grouped, print_json, print_rtt,
    print_wrong, rcode_name, rounded,
};
use crate::{interruption, metrics, progress};

pub(crate) fn run(args: &ClosedLoop) -> Outcome {
    interruption::install_handlers()?;
    if let Some(words) = &args.dns64perf2 {
        let experiments =
            Experiments::parse(words).map_err(|why| Failure::usage(anyhow::anyhow!(why)))?;
        return run_experiments(args, &experiments);
    }
    let plan = args.resolve()?;
    let files = args.questions.intervals.open()?;
    metrics::serve(args.display.metrics, "closed-loop", &plan.cpus, args.display.quiet)?;
    require_response(args, &plan)?;
    let length = args.duration.map_or(String::new(), |time| format!(" for {}", rounded(time)));
    let words = format!("{} queries in flight{length}", grouped(plan.outstanding as u64));
    let sums = Arc::new(Progress::new(plan.threads));
    let (began, in_flight) = (Instant::now(), plan.outstanding as u64);
    let so_far = || Some(progress::loop_so_far(sums.valid(), in_flight, began.elapsed()));
    let result =
        progress::during_with(args.display.quiet, &words, &so_far, |_| carry_out(&plan, &sums))?;
    // The result is printed before the files are written, because a write error must not discard it.
    if args.display.json {
        print_json(&result)?;
    } else {
        print(&result);
    }
    if result.interrupted {
        return Ok(INTERRUPTED.into());
    }
    if let Some(tally) = &result.tally
        && let Some(intervals) = &tally.intervals
    {
        files.write(&Load {
            generator: "dns64bench closed-loop",
            timeout: plan.settings.timeout,
            began: result.began,
            ended: result.began + Nanos((result.elapsed * 1e9) as u64),
            counts: &tally.counts,
            intervals,
            connections: tally.tcp(plan.settings.transport),
        })?;
    }
    if result.counts.valid == 0 {
        require_response(args, &plan)?;
    }
    Ok(if result.counts.valid > 0 { ExitCode::SUCCESS } else { DUT_FAILED.into() })
}

/// Checks the plan. For UDP, also checks that the server responds.
fn require_response(args: &ClosedLoop, plan: &ClosedLoopPlan) -> Result<(), Failure> {
    plan.check().map_err(Failure::usage)?;
    if args.asking.liveness && plan.settings.transport != Transport::Tcp {
        liveness::require(plan.settings.server, &Domain::dns64perf())?;
    }
    Ok(())
}

fn carry_out(plan: &ClosedLoopPlan, sums: &Arc<Progress>) -> Result<ClosedLoopResult, Failure> {
    metrics::loop_begins(sums);
    let result = run_until(plan, &interruption::flag(), sums);
    let counts = result.as_ref().map(|result| result.counts.clone()).unwrap_or_default();
    metrics::ended(None, [counts.valid, counts.late, counts.lost, counts.wrong.total()]);
    result.map_err(|error| match error {
        ClosedLoopError::Socket(_) => Failure::environment(error),
        _ => Failure::usage(error),
    })
}

fn print(result: &ClosedLoopResult) {
    let c = &result.counts;
    if result.interrupted {
        println!(
            "Interrupted after {:.3} s with {} in flight, which are not counted below",
            result.seconds,
            counted(result.interrupted_queries, "query", "queries")
        );
    }
    let (qps, flight) = (
        grouped(result.qps.round() as u64),
        counted(result.outstanding as u64, "query", "queries"),
    );
    println!("Answers     {qps} valid per second, with {flight} in flight");
    let [sent, valid, late, lost, wrong] =
        [c.sent, c.valid, c.late, c.lost, c.wrong.total()].map(grouped);
    println!(
        "Queries     {sent} sent in {:.3} s, {valid} valid, {late} late, {lost} lost, {wrong} wrong",
        result.seconds
    );
    let codes: Vec<String> = result
        .rcodes
        .iter()
        .map(|(&rcode, n)| format!("{} {}", grouped(*n), rcode_name(rcode)))
        .collect();
    if !codes.is_empty() {
        println!("Rcodes      {}", codes.join(", "));
    }
    print_wrong(&c.wrong);
    println!(
        "Other       {} unmatched or too late, {} send errors",
        grouped(c.stray),
        grouped(c.refused)
    );
    if result.client_drops > 0 {
        let dropped = counted(result.client_drops, "answer", "answers");
        println!(
            "Warning     this host dropped {dropped}, because its socket buffers were full; dropped replies count as lost"
        );
    }
    if result.truncated > 0 {
        let [truncated, retried] = [result.truncated, result.retried].map(grouped);
        println!("Truncated   {truncated}, of which {retried} were retried over TCP");
    }
    let k = &result.connections;
    if k.made + k.failed > 0 {
        let [made, failed, closed, lost] = [k.made, k.failed, k.closed, k.lost_with].map(grouped);
        println!(
            "Connections {made} made, {failed} failed, {closed} closed by the server with {lost} queries in flight"
        );
    }
    if let Some(took) = &result.connecting_us {
        let [min, median, p99, max] =
            [took.min, took.p50, took.p99, took.max].map(|us| grouped(us.round() as u64));
        println!("Connecting  {min} µs min, {median} median, {p99} p99, {max} max");
    }
    print_rtt(result.rtt_us.as_ref());
}

fn run_experiments(args: &ClosedLoop, experiments: &Experiments) -> Outcome {
    let over = Arc::new(AtomicBool::new(false));
    let meter = args.cpu_of.map(|pid| {
        let over = Arc::clone(&over);
        thread::spawn(move || cpu_by_second(pid, &over))
    });
    let began = clock::wall().as_secs_f64();
    let mut result = Found::begin(experiments.server.to_string(), experiments.threads, began);
    let names = "256 queries each";
    progress::during(args.display.quiet, names, |shown| -> Result<(), Failure> {
        for number in 0..experiments.count {
            shown.say(&format!(
                "experiment {} of {}, {names}",
                grouped(number + 1),
                grouped(experiments.count)
            ));
            let plan = args.experiment(experiments, number)?;
            if number == 0 {
                metrics::serve(
                    args.display.metrics,
                    "closed-loop",
                    &plan.cpus,
                    args.display.quiet,
                )?;
                require_response(args, &plan)?;
            }
            let experiment = carry_out(&plan, &Arc::new(Progress::new(plan.threads)))?;
            if experiment.interrupted {
                break;
            }
            if experiment.counts.valid == 0 {
                require_response(args, &plan)?;
            }
            result.add(&experiment);
            if !args.display.json {
                shown.aside(|| println!("{:.6}", experiment.elapsed * 1e3));
            }
        }
        Ok(())
    })?;
    over.store(true, Ordering::Relaxed);
    let seconds =
        meter.map(|meter| meter.join().expect("a meter does not panic")).unwrap_or_default();
    result.cpu_pct = MeanAndDeviation::of(&seconds);
    result.conclude();
    if args.display.json {
        print_json(&result)?;
    } else if !args.display.quiet {
        print_experiments(&result);
    }
    if (result.experiments_ms.len() as u64) < experiments.count {
        let done = grouped(result.experiments_ms.len() as u64);
        eprintln!(
            "dns64bench: interrupted after {done} of {} experiments",
            grouped(experiments.count)
        );
        return Ok(INTERRUPTED.into());
    }
    Ok(if result.failed == 0 { ExitCode::SUCCESS } else { DUT_FAILED.into() })
}

/// Prints the statistics on standard error, because scripts read the times from standard output.
fn print_experiments(result: &Found) {
    let n = result.experiments_ms.len();
    eprintln!("Threads                          {}", result.threads);
    eprintln!(
        "Exec. time of 256 queries (ms)   average {:.2}, std. dev. {:.2}, over {n} experiments",
        result.average_ms, result.standard_deviation_ms
    );
    eprintln!("Number of queries per second     {:.0}", result.qps);
    if let Some(MeanAndDeviation { mean, stdev, .. }) = result.cpu_pct {
        eprintln!(
            "DNS64 server CPU utilization (%) average {mean:.2}, std. dev. {stdev:.2}, of one core"
        );
    }
    if result.failed > 0 {
        eprintln!("Without a valid answer           {}", result.failed);
    }
    if let Some(summary) = Summary::of(&result.experiments_ms) {
        eprintln!(
            "Range (ms)                       {:.2} min, {:.2} median, {:.2} max",
            summary.min, summary.median, summary.max
        );
    }
}

/// Measures the CPU use of a process in each second until `over` is set. Returns the values in per cent of one core.
fn cpu_by_second(pid: u32, over: &AtomicBool) -> Vec<f64> {
    let mut seconds = Vec::new();
    let mut last = (clock::now(), hosts::process::cpu_seconds(&[pid]));
    while !over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50));
        let passed = clock::now().since(last.0);
        if passed >= Nanos::SECOND {
            let used = hosts::process::cpu_seconds(&[pid]);
            seconds.push((used - last.1) / passed.as_secs_f64() * 100.0);
            last = (clock::now(), used);
        }
    }
    seconds
}
