//! `queryfile`: the names of the tester as lines that dnsperf, resperf and `closed-loop --queries` read.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context;
use campaign::new_file::NewFile;

use crate::args::QueryFile;
use crate::output::{Failure, Outcome};
use crate::streams;

/// Octets that are collected before they are written.
const BUFFER: usize = 1 << 20;

pub(crate) fn run(args: &QueryFile) -> Outcome {
    let QueryFile { names, first_name, .. } = *args;
    let left = names.count().saturating_sub(first_name);
    let count = args.count.unwrap_or(left);
    if count == 0 || count > left {
        let why = anyhow::anyhow!("--names {names} has {left} names from --first-name {first_name} on, not {count}");
        return Err(Failure::usage(why));
    }
    match &args.output {
        Some(path) => {
            let to_file = || -> io::Result<()> {
                let mut out = BufWriter::with_capacity(BUFFER, NewFile::open(path)?);
                write(args, count, &mut out)?;
                out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
            };
            let written = to_file().with_context(|| format!("cannot write {}", path.display()));
            written.map_err(Failure::environment)?;
        }
        None => {
            let mut out = BufWriter::with_capacity(BUFFER, io::stdout());
            let written = write(args, count, &mut out).and_then(|()| out.flush());
            // What is left over is written nowhere.
            drop(out.into_parts());
            written.map_or_else(streams::give_up, |()| {});
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn write(args: &QueryFile, count: u64, out: &mut impl Write) -> io::Result<()> {
    for n in args.first_name..args.first_name + count {
        writeln!(out, "{} {}", args.domain.name_of(args.names.address(n)), args.qtype)?;
    }
    Ok(())
}
