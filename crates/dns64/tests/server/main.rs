//! The items of docs/src/dns64-items.md, through real sockets against a scripted upstream. Each
//! test's name or comment has the number of its item.

#![allow(missing_docs)]

mod control;
mod dnssec;
mod encrypted;
mod forwards;
mod harness;
mod limits;
mod networks;
mod observe;
mod operations;
mod policies;
mod prefixes;
mod rare_cases;
mod records;
mod robustness;
mod safety;
mod shares;
mod synthesis;
mod transport;
mod xdp;
