//! The process around the server: arguments, signals, systemd (`daemon`), what it gives up
//! (`harden`), what the system allows it (`limits`), what it tells of itself (`log`), what shells and `man` know of it (`pages`), and
//! what it is asked while it runs (`asking`).

/// Writes a line to standard error, if anybody reads it: `eprintln!` panics where nobody does.
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

mod asking;
pub mod daemon;
mod harden;
mod limits;
mod log;
mod output;
pub mod pages;
mod sections;
