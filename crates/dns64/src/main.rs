//! dns64d: the DNS64 server.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    dns64::process::daemon::main(std::env::args_os())
}
