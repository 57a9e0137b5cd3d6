//! The configuration file: its keys ([`Config`], in `keys`), and the checked settings derived from
//! them ([`Settings`], in `settings`).
//!
//! ```text
//! text ─► keys: Config, types ─► settings: checks of all keys together ─► Settings: policies, routes, upstreams
//!         local_zones, networks, observe, dnssec                          policies
//! ```

mod addresses;
mod changes;
mod ddr;
mod dnssec;
mod error;
mod keys;
mod listen;
mod local_zones;
mod networks;
mod observe;
mod policies;
mod read;
mod settings;
mod system;
mod times;
mod warnings;

pub(crate) use self::changes::{Changes, KeyValues, Running};
pub(crate) use self::dnssec::Validate;
pub use self::error::ConfigError;
pub(crate) use self::error::RESOLV_CONF;
pub use self::keys::{Config, ForwardingKeys, UpstreamKeys};
pub(crate) use self::keys::{
    LimitKeys, LogKeys, LogLevel, Overload, PrefixKeys, ProbeKeys, UpstreamOrder,
};
pub(crate) use self::listen::{ListenKeys, ListenTransport};
pub(crate) use self::observe::{
    CONTROL_SOCKET, ControlKeys, DnstapKeys, LogFormat, LogTarget, QueryLogKeys,
};
pub use self::settings::Settings;
pub(crate) use self::settings::{UPSTREAM_LINES, VALIDATOR_OCTETS, control_socket};
pub(crate) use self::system::{ResolvConf, is_own};
