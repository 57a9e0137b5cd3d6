//! Above single trials: a search with its journal, the three namespaces of the lab, and facts about the machine.
//!
//! ```text
//! SearchPlan ─► search::run ─► trial ─► journal (a line before and after each) ─► SearchResult
//!                  ▲                        │
//!                  └──────── resume ◄───────┘
//! ```
#![forbid(unsafe_code)]

pub mod environment;
pub mod journal;
pub mod lab;
pub mod search;
