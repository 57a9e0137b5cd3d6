//! The process around the server: arguments, signals and the main loop (`daemon`), reload (`reload`),
//! systemd (`systemd`), confinement (`harden`, `calls`), upstreams of resolv.conf (`follow`), limits of
//! the system (`limits`, `memory`), checks of this machine (`machine`) and of upstreams (`probe`), the
//! log (`log`), completions and manual pages (`pages`), and commands for a running server (`asking`).

/// Writes a line to standard error, with control characters escaped. Unlike `eprintln!` it does not
/// panic if standard error is closed.
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let words = format!($($words)*);
        let _ = writeln!(std::io::stderr(), "{}", $crate::process::output::visible(&words));
    }};
}

mod asking;
mod calls;
pub mod daemon;
mod follow;
mod harden;
mod limits;
mod log;
mod machine;
mod memory;
mod output;
pub mod pages;
mod probe;
mod reload;
mod sections;
mod systemd;
