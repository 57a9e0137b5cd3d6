//! `report`: draws what a campaign found.

use std::io::Write;
use std::process::ExitCode;

use campaign::report::{Run, write};
use campaign::text::{MESSAGE, plain};

use crate::args::Report;
use crate::output::{Failure, Outcome};

pub(crate) fn run(args: &Report) -> Outcome {
    let runs = args.runs.iter().map(|dir| Run::read(dir)).collect::<Result<Vec<_>, _>>().map_err(Failure::usage)?;
    let folder = match (&args.output, &args.runs[..]) {
        (Some(output), _) => output,
        (None, [only]) => only,
        (None, _) => return Err(Failure::usage(anyhow::anyhow!("a comparison of several runs needs --output DIR"))),
    };
    for run in &runs {
        for note in &run.notes {
            let _ = writeln!(std::io::stderr(), "dns64bench: {}", plain(note, MESSAGE));
        }
    }
    let page = write(&runs, folder).map_err(Failure::environment)?;
    println!("{}", page.display());
    Ok(ExitCode::SUCCESS)
}
