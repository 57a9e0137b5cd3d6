//! `zone`: AuthDNS's data as a zone file.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use campaign::new_file::NewFile;
use tester::authdns::zonefile::write;

use crate::args::Zone;
use crate::output::{Failure, Outcome};
use crate::streams;

pub(crate) fn run(args: &Zone) -> Outcome {
    let written = match &args.output {
        Some(path) => to_file(args, path).with_context(|| format!("cannot write {}", path.display())),
        None => return to_stdout(args),
    };
    written.map(|()| ExitCode::SUCCESS).map_err(Failure::environment)
}

fn to_stdout(args: &Zone) -> Outcome {
    let mut out = BufWriter::with_capacity(1 << 20, io::stdout());
    let written = write(&args.zone.resolve(), args.names, &mut out).and_then(|()| out.flush());
    // What is left over is written nowhere.
    drop(out.into_parts());
    written.map_or_else(streams::give_up, |()| {});
    Ok(ExitCode::SUCCESS)
}

/// Writes the file whole or not at all.
fn to_file(args: &Zone, path: &Path) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, NewFile::open(path)?);
    write(&args.zone.resolve(), args.names, &mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
}
