//! Limit of open files and sockets per process (RLIMIT_NOFILE, getrlimit(2)).

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Limit on open files and sockets that is assumed if the actual limit cannot be read. Most shells set this limit.
const USUAL: u64 = 1_024;

/// Raises this process's limit on open files and sockets as far as permitted, and returns the resulting limit. A tester
/// needs one socket per client, and a server needs one per upstream and worker. Both can need more than the usual limit
/// of 1 024.
pub fn raise_limit() -> u64 {
    getrlimit(Resource::RLIMIT_NOFILE).map_or(USUAL, |(now, most)| {
        if setrlimit(Resource::RLIMIT_NOFILE, most, most).is_ok() { most } else { now }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_maximum() {
        let limit = raise_limit();
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (limit, limit));
        assert_eq!(raise_limit(), limit);
    }
}
