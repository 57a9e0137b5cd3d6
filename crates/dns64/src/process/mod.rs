//! The process around the server: arguments, signals, systemd (`daemon`), and what it gives up (`harden`).

pub mod daemon;
pub mod harden;
