//! The configuration file: what is written in it ([`Config`], in `keys`), and what it means
//! ([`Settings`], in `settings`).
//!
//! ```text
//! text ─► keys: Config, types ─► settings: do they make sense together? ─► Settings: policies, routes, upstreams
//!         networks                                                policies
//! ```

mod error;
mod keys;
mod networks;
mod policies;
mod settings;
mod system;
mod times;

pub use self::error::ConfigError;
pub(crate) use self::error::RESOLV_CONF;
pub use self::keys::{
    AccessKeys, CacheKeys, Config, DomainKeys, ForwardKeys, ForwardingKeys, GroupKeys, LimitKeys,
    LocalKeys, LogFormat, LogKeys, LogLevel, MetricsKeys, Overload, PrefixKeys, TranslationKeys,
    UpstreamKeys,
};
pub use self::networks::NetworkList;
pub use self::settings::Settings;
