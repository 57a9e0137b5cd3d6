//! How many queries of clients a worker takes at a time.
//!
//! The kernel joins the queries that a client sends together into one datagram, up to 64 of them. A
//! worker that is behind would find thousands in a few batches. Until the last of them is asked, the
//! answers to the first wait, each query waits for two such rounds, and what they all need is in no
//! cache of the CPU any more: so a worker that is behind would get slower, and stay behind at a load
//! that it had borne before. So no more datagrams are read than are likely to hold as many queries
//! as are still to be taken.

use net::batch::BATCH;

/// Queries that are read from a socket of clients before the others have their turn.
const QUERIES: usize = 4 * BATCH;
/// Datagrams that the kernel joins (`UDP_GRO_CNT_MAX` of net/ipv4/udp_offload.c).
const MOST_JOINED: usize = 64;

/// What is still to be taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Intake {
    /// Queries that are still to be taken in this turn.
    left: usize,
    /// How many queries a datagram is expected to hold, 1 or more: as many as one held of late. Each
    /// batch without such a one halves it.
    joined: usize,
}

impl Default for Intake {
    fn default() -> Intake {
        Intake { left: QUERIES, joined: MOST_JOINED }
    }
}

impl Intake {
    /// A new turn begins.
    pub(super) fn begin(&mut self) {
        self.left = QUERIES;
    }

    /// How many datagrams are to be read now, up to [`BATCH`]; 0 if the turn is over.
    pub(super) fn datagrams(&self) -> usize {
        self.left.div_ceil(self.joined).min(BATCH)
    }

    /// A batch has been read: with so many queries in all, and in the datagram that held most.
    pub(super) fn took(&mut self, queries: usize, joined: usize) {
        self.left = self.left.saturating_sub(queries);
        self.joined = joined.max(self.joined / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a turn takes where as many datagrams wait as are wanted, with so many queries in each.
    fn turn(intake: &mut Intake, joined: usize) -> usize {
        let mut all = 0;
        intake.begin();
        while intake.datagrams() > 0 {
            let datagrams = intake.datagrams();
            assert!(datagrams <= BATCH);
            intake.took(datagrams * joined, joined);
            all += datagrams * joined;
        }
        all
    }

    #[test]
    fn a_turn_takes_as_many_queries_whether_they_are_joined_or_not() {
        let mut intake = Intake::default();
        for joined in [64, 64, 20, 20, 7, 1, 1] {
            let taken = turn(&mut intake, joined);
            assert!((QUERIES..QUERIES + 64).contains(&taken), "{joined}: {taken}");
        }
        // Joined ones behind such as were not are a surprise, of one batch.
        assert_eq!(turn(&mut intake, 64), 64 * BATCH);
        assert_eq!(turn(&mut intake, 64), QUERIES);
    }
}
