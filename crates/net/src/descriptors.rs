//! How many files and sockets a process may have open (RLIMIT_NOFILE, getrlimit(2)).

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// What a shell gives, and what is assumed where the limit cannot be read.
const USUAL: u64 = 1_024;

/// Raises the limit of this process as far as its user may; returns what it is then. A socket each
/// for many clients, or for each upstream and worker, is more than the 1 024 that a shell gives.
pub fn raise_limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(now, most)| {
        if setrlimit(Resource::RLIMIT_NOFILE, most, most).is_ok() { most } else { now }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_had_is_had() {
        let limit = raise_limit();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
        assert_eq!(raise_limit(), limit);
    }
}
