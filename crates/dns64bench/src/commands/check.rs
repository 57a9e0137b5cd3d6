//! `check`: what on this machine spoils measurements.

use std::process::ExitCode;

use campaign::environment::Environment;

use crate::args::Check;
use crate::output::{Outcome, print_versioned};

pub(crate) fn run(args: &Check) -> Outcome {
    let environment = Environment::observe();
    if args.json {
        print_versioned(&environment)?;
        return Ok(ExitCode::SUCCESS);
    }
    println!(
        "{} · {} · {} CPUs · {} MiB",
        environment.host,
        environment.cpu,
        environment.cpus,
        environment.memory >> 20
    );
    println!("{}", environment.kernel);
    for finding in &environment.findings {
        let mark = if finding.concern.is_some() { "!" } else { " " };
        println!("{mark} {:<32} {}", finding.subject, finding.value);
        if let Some(concern) = &finding.concern {
            println!("    {}", concern.why);
            if let Some(mend) = &concern.mend {
                println!("    mend it with: {mend}");
            }
        }
    }
    let concerns = environment.concerns().count();
    println!("{concerns} of {} findings may spoil measurements", environment.findings.len());
    Ok(ExitCode::SUCCESS)
}
