//! `completions` and `manual`: shell completions and manual pages, generated from the command line definitions.

use std::process::ExitCode;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::{Arguments, Manual, help};
use crate::output::{Failure, Outcome};

pub(crate) fn completions(shell: Shell) -> Outcome {
    print!("{}", String::from_utf8_lossy(&cli::completions(&Arguments::command(), shell)));
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn manual(args: &Manual) -> Outcome {
    let written = cli::write_manual(Arguments::command(), &args.folder, &args.date, help::sections);
    let written = written
        .with_context(|| format!("cannot write manual pages into {}", args.folder.display()));
    written.map(|()| ExitCode::SUCCESS).map_err(Failure::environment)
}
