//! Limit on the client queries that a worker reads per iteration of its event loop.
//!
//! If a client sends up to 64 queries at once, the kernel may join them into one datagram (UDP GRO). Under overload, a
//! few batches of datagrams can therefore contain thousands of queries. The answers to the first queries would then
//! wait until the last query has been sent upstream. Each query would wait for two such long loop iterations: one
//! before it is read, and one before its upstream response is read. In the meantime, its data would be evicted from all
//! CPU caches. The worker would become slower, and would stay overloaded at a load that it could handle before.
//! Therefore, a worker reads only as many datagrams as are likely to contain the rest of its quota.

use net::batch::BATCH;

/// Approximate maximum number of queries that are read from one client socket per loop iteration.
const QUERIES: usize = 4 * BATCH;
/// Maximum number of datagrams that the kernel joins into one (`UDP_GRO_CNT_MAX` in net/ipv4/udp_offload.c).
const MOST_JOINED: usize = 64;

/// Remaining quota of a loop iteration, for one client socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryQuota {
    /// Number of queries that may still be read in this loop iteration.
    left: usize,
    /// Expected maximum number of queries in one datagram read from the socket, at least 1. The kernel may join several
    /// datagrams into one. After each batch, the value is the maximum of this batch or half of the previous value,
    /// whichever is higher.
    joined: usize,
}

impl Default for QueryQuota {
    fn default() -> QueryQuota {
        QueryQuota { left: QUERIES, joined: MOST_JOINED }
    }
}

impl QueryQuota {
    /// Resets the quota at the start of a loop iteration.
    pub(super) fn begin(&mut self) {
        self.left = QUERIES;
    }

    /// Returns the number of datagrams to read now, up to [`BATCH`]. The number is 0 if the quota
    /// is used up.
    pub(super) fn datagrams(&self) -> usize {
        self.left.div_ceil(self.joined).min(BATCH)
    }

    /// Records a batch of datagrams with `queries` queries in total and at most `joined` queries
    /// per datagram.
    pub(super) fn record_batch(&mut self, queries: usize, joined: usize) {
        self.left = self.left.saturating_sub(queries);
        self.joined = joined.max(self.joined / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of queries read in one loop iteration if the queue always has enough datagrams, each
    /// with `joined` queries.
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
        // The first batch of joined datagrams after unjoined datagrams exceeds the quota.
        assert_eq!(turn(&mut intake, 64), 64 * BATCH);
        assert_eq!(turn(&mut intake, 64), QUERIES);
    }
}
