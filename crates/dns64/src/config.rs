//! The configuration file: its keys ([`Config`], in `keys`), and the checked settings derived from
//! them ([`Settings`], in `settings`).
//!
//! ```text
//! text ─► keys: Config, types ─► settings: checks of all keys together ─► Settings: policies, routes, upstreams
//!         local_zones, networks, observe                          policies
//! ```

mod addresses;
mod changes;
mod error;
mod keys;
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
pub use self::error::ConfigError;
pub(crate) use self::error::RESOLV_CONF;
pub use self::keys::{
    AccessKeys, CacheKeys, Config, DiscoveryKeys, DomainKeys, ForwardKeys, ForwardingKeys,
    GroupKeys, LimitKeys, ListenKeys, LocalKeys, LogKeys, LogLevel, MetricsKeys, Overload,
    PrefixKeys, ProbeKeys, TranslationKeys, UpstreamKeys, UpstreamOrder,
};
pub use self::local_zones::{LocalZoneKeys, ZoneName};
pub use self::networks::NetworkList;
pub(crate) use self::observe::CONTROL_SOCKET;
pub use self::observe::{ControlKeys, DnstapKeys, LogFormat, LogTarget, QueryLogKeys};
pub use self::settings::Settings;
pub(crate) use self::settings::{UPSTREAM_LINES, control_socket};
pub(crate) use self::system::{ResolvConf, is_own};
