//! The process around the server: arguments, signals, systemd (`daemon`), what it gives up (`harden`), and what the system
//! allows it (`limits`).

pub mod daemon;
pub mod harden;
pub mod limits;
