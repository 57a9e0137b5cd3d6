//! `zone`: AuthDNS's data as a zone file.

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
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
    let folder = path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::Permissions::from_mode(0o644);
    let file = tempfile::Builder::new().prefix(".dns64bench-").permissions(mode).tempfile_in(folder)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    write(&args.zone.resolve(), args.names, &mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.persist(path).map(drop).map_err(|e| e.error)
}
