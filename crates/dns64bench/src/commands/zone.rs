//! `zone`: prints AuthDNS's data as a zone file.

use tester::authdns::zonefile;

use crate::args::Zone;
use crate::output::Outcome;
use crate::streams;

pub(crate) fn run(args: &Zone) -> Outcome {
    streams::write_to(args.output.as_deref(), |mut out| {
        zonefile::write(&args.zone.resolve(), args.names, &mut out)
    })
}
