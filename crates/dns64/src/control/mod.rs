//! The control socket: what a running server says of itself to who asks on the same machine.
//!
//! ```text
//! dns64d status, explain ─► client ── a line of JSON ──► socket ─► server::control ─► Status, Explanation
//!        ▲                                                                              │
//!        └── words, or the JSON ◄──────────────── a line of JSON ◄──────────────────────┘
//! ```

pub(crate) mod client;
mod explanation;
pub(crate) mod protocol;
pub(crate) mod socket;
mod status;
pub(crate) mod words;

pub use self::explanation::{
    AnswerRecord, EXPLANATION_VERSION, Explanation, PrefixRule, QuestionAsked, RulesApplied,
    Source, TtlBounds,
};
pub use self::status::{
    CacheStatus, ConfigurationStatus, PrefixStatus, STATUS_VERSION, Status, UpstreamStatus,
};
