//! The process around the server: arguments, signals, systemd (`daemon`), what it gives up
//! (`harden`), what the system allows it (`limits`), and what shells and `man` know of it
//! (`pages`).

pub mod daemon;
mod harden;
mod limits;
pub mod pages;
