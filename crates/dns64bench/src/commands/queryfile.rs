//! `queryfile`: writes the tester's queries in the format that dnsperf, resperf and `closed-loop --queries` read.

use std::io::{self, Write};

use crate::args::QueryFile;
use crate::output::{Failure, Outcome};
use crate::streams;

pub(crate) fn run(args: &QueryFile) -> Outcome {
    let QueryFile { names, first_name, .. } = *args;
    let left = names.count().saturating_sub(first_name);
    let count = args.count.unwrap_or(left);
    if count == 0 || count > left {
        let why = anyhow::anyhow!(
            "--names {names} has {left} names from --first-name {first_name} on, not {count}"
        );
        return Err(Failure::usage(why));
    }
    streams::write_to(args.output.as_deref(), |out| write(args, count, out))
}

fn write(args: &QueryFile, count: u64, out: &mut dyn Write) -> io::Result<()> {
    for n in args.first_name..args.first_name + count {
        writeln!(out, "{} {}", args.domain.name_of(args.names.address(n)), args.qtype)?;
    }
    Ok(())
}
