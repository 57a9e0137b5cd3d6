//! `agent`: what a campaign runs on its hosts.

use std::fs;
use std::io;
use std::process::ExitCode;

use campaign::host::agent;

use crate::args::Agent;
use crate::output::{Failure, Outcome};

pub(crate) fn run(args: &Agent) -> Outcome {
    let served = agent::serve(&args.folder, io::stdin().lock(), io::stdout().lock());
    if args.remove {
        // What is left is in nobody's way.
        let _ = fs::remove_dir_all(&args.folder);
    }
    served.map_err(|e| Failure::environment(anyhow::anyhow!("agent in {}: {e}", args.folder.display())))?;
    Ok(ExitCode::SUCCESS)
}
