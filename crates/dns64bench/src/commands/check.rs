//! `check`: lists settings of this machine that distort measurements.

use std::process::ExitCode;

use hosts::environment::Environment;

use crate::args::Check;
use crate::colour::{Severity, painted};
use crate::output::{ENVIRONMENT, Outcome, counted, grouped, print_versioned};

pub(crate) fn run(args: &Check) -> Outcome {
    let environment = match &args.xdp {
        Some(interface) => {
            let looped = args.loop_to.as_deref().map(|to| (to, args.loop_time));
            Environment::observe_with_xdp(interface, looped)
        }
        None => Environment::observe(),
    };
    if args.json {
        print_versioned(&environment)?;
    } else {
        print(&environment);
    }
    let is_sound = environment.concerns().next().is_none();
    Ok(if args.strict && !is_sound { ENVIRONMENT.into() } else { ExitCode::SUCCESS })
}

fn print(environment: &Environment) {
    println!(
        "{} · {} · {} · {} MiB",
        environment.host,
        environment.cpu,
        counted(environment.cpus as u64, "CPU", "CPUs"),
        grouped(environment.memory >> 20)
    );
    println!("{}", environment.kernel);
    let out = std::io::stdout();
    for finding in &environment.findings {
        let (mark, meaning) = match (&finding.concern, finding.unavailable) {
            (Some(_), _) => ("!", Severity::Doubtful),
            (None, true) => ("–", Severity::Doubtful),
            (None, false) => ("✓", Severity::Good),
        };
        println!("{} {:<32} {}", painted(mark, meaning, &out), finding.subject, finding.value);
        if let Some(concern) = &finding.concern {
            println!("    {}", concern.why);
            if let Some(fix) = &concern.fix {
                println!("    fix: {fix}");
            }
        }
    }
    let concerns = environment.concerns().count() as u64;
    let findings = counted(environment.findings.len() as u64, "finding", "findings");
    println!("{} of {findings} may distort measurements", grouped(concerns));
}
