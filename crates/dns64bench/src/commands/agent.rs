//! `agent`: the process that a campaign runs on each of its hosts.

use std::fs;
use std::io;
use std::process::ExitCode;

use hosts::host::agent;

use crate::args::Agent;
use crate::output::{Failure, Outcome};

pub(crate) fn run(args: &Agent) -> Outcome {
    let me = std::process::id().to_string();
    let owner = args.folder.join("owner");
    let begun = fs::create_dir_all(&args.folder).and_then(|()| fs::write(&owner, &me));
    let served =
        begun.and_then(|()| agent::serve(&args.folder, io::stdin().lock(), io::stdout().lock()));
    // If a later agent has taken over the folder, the folder is still in use. If removal fails, the remaining files are
    // harmless.
    if args.remove && fs::read_to_string(&owner).is_ok_and(|owner| owner == me) {
        let _ = fs::remove_dir_all(&args.folder);
    }
    served.map_err(|e| {
        Failure::environment(anyhow::anyhow!("agent in {}: {e}", args.folder.display()))
    })?;
    Ok(ExitCode::SUCCESS)
}
