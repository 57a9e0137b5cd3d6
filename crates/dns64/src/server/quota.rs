//! Number of client queries that a worker reads per turn.
//!
//! The kernel joins up to 64 queries that a client sends together into one datagram, so an
//! overloaded worker would find thousands in a few batches. The answers to the first ones would
//! wait until the last one has been sent upstream. Each query would wait for two such rounds, and
//! its data would no longer be in any CPU cache. The worker would slow down, and stay overloaded at
//! a load that it could handle before. Therefore a worker reads only as many datagrams as are
//! likely to hold the rest of its quota.

use net::batch::BATCH;

/// Queries read from one client socket per turn.
const QUERIES: usize = 4 * BATCH;
/// Maximum number of datagrams that the kernel joins (`UDP_GRO_CNT_MAX` of net/ipv4/udp_offload.c).
const MOST_JOINED: usize = 64;

/// Remaining quota of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryQuota {
    /// Queries left in this turn.
    left: usize,
    /// Expected number of queries per datagram, at least 1: the recent maximum, halved after each
    /// batch in which every datagram had fewer queries.
    joined: usize,
}

impl Default for QueryQuota {
    fn default() -> QueryQuota {
        QueryQuota { left: QUERIES, joined: MOST_JOINED }
    }
}

impl QueryQuota {
    /// Starts a new turn.
    pub(super) fn begin(&mut self) {
        self.left = QUERIES;
    }

    /// Returns the number of datagrams to read now, up to [`BATCH`]; 0 if the turn is over.
    pub(super) fn datagrams(&self) -> usize {
        self.left.div_ceil(self.joined).min(BATCH)
    }

    /// Records a batch with `queries` queries, of which the largest datagram held `joined`.
    pub(super) fn record_batch(&mut self, queries: usize, joined: usize) {
        self.left = self.left.saturating_sub(queries);
        self.joined = joined.max(self.joined / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queries taken in one turn if as many datagrams wait as are read, each with `joined` queries.
    fn turn(intake: &mut QueryQuota, joined: usize) -> usize {
        let mut all = 0;
        intake.begin();
        while intake.datagrams() > 0 {
            let datagrams = intake.datagrams();
            assert!(datagrams <= BATCH);
            intake.record_batch(datagrams * joined, joined);
            all += datagrams * joined;
        }
        all
    }

    #[test]
    fn a_turn_has_a_query_quota_for_joined_datagrams_too() {
        let mut intake = QueryQuota::default();
        for joined in [64, 64, 20, 20, 7, 1, 1] {
            let taken = turn(&mut intake, joined);
            assert!((QUERIES..QUERIES + 64).contains(&taken), "{joined}: {taken}");
        }
        // Joined datagrams after single ones exceed the estimate for one batch.
        assert_eq!(turn(&mut intake, 64), 64 * BATCH);
        assert_eq!(turn(&mut intake, 64), QUERIES);
    }
}
