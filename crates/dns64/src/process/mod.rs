//! Modules for the process in which the server runs:
//! - `daemon`: arguments, signals and the main loop
//! - `reload`: reload of the configuration
//! - `systemd`: notifications to systemd, and sockets passed by systemd
//! - `harden`, `syscall_filter`: confinement
//! - `follow`: changes to the upstreams in resolv.conf
//! - `limits`, `memory`: limits of the system on file descriptors and memory
//! - `host_check`, `probe`: checks of this machine and of upstreams
//! - `log`: the log on standard error
//! - `commands`: commands for a running server
//! - `sections`: sections of the manual pages

/// Writes a line to standard error, with control characters escaped. Unlike `eprintln!`, this macro does not panic if
/// standard error is closed.
macro_rules! print_error_line {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let words = format!($($words)*);
        let _ = writeln!(std::io::stderr(), "{}", $crate::process::output::visible(&words));
    }};
}

mod certificate_check;
mod commands;
pub mod daemon;
mod follow;
mod harden;
mod host_check;
mod limits;
mod log;
mod memory;
mod output;
mod probe;
mod reload;
mod sections;
mod syscall_filter;
mod systemd;
