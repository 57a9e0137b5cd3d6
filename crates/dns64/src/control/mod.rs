//! The control socket: status, explanations, reload and cache flush of a running server, for
//! programs on the same machine.
//!
//! ```text
//! dns64d status, explain, reload, flush ─► client ── a line of JSON ──► socket ─► server::control ─► answer
//!        ▲                                                                                            │
//!        └── text, or the JSON ◄─────────────────── a line of JSON ◄──────────────────────────────────┘
//! ```

pub(crate) mod client;
mod explanation;
mod outcomes;
pub(crate) mod protocol;
pub(crate) mod socket;
mod status;
pub(crate) mod text;

pub use self::explanation::{
    AnswerRecord, EXPLANATION_VERSION, Explanation, PrefixRule, QuestionAsked, RulesApplied,
    Source, TtlBounds, ZoneInChain,
};
pub use self::outcomes::{FLUSH_VERSION, FlushReport, RELOAD_VERSION, ReloadOutcome, ReloadReport};
pub use self::status::{
    CacheStatus, ConfigurationStatus, EncryptedAddress, PrefixStatus, STATUS_VERSION, Status,
    UpstreamState, UpstreamStatus,
};
