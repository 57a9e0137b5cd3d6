//! The process around the server: arguments, signals, systemd (`daemon`), what it gives up
//! (`harden`), what the system allows it (`limits`), what shells and `man` know of it (`pages`), and
//! what it is asked while it runs (`asking`).

mod asking;
pub mod daemon;
mod harden;
mod limits;
mod output;
pub mod pages;
mod sections;
