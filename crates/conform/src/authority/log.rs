//! Query log of the test authoritative server, indexed by queried name.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::view::{Asked, View};
use crate::message::{Message, Name};

/// Maximum number of queries in each half of the log (see [`Generations`]).
const GENERATION: usize = 500_000;

/// Queries that the test authoritative server has received, in bounded memory. The log contains at least the last 500
/// 000 queries, and at most the last 1 000 000.
#[derive(Debug)]
pub struct Log {
    began: Instant,
    generations: Mutex<Generations>,
}

/// The log in two halves: recent queries, and the queries before them. If the half with the recent queries is full, it
/// replaces the older half, and a new, empty half begins. Names are compared without regard to letter case.
#[derive(Debug, Default)]
struct Generations {
    old: HashMap<Name, Vec<Asked>>,
    new: HashMap<Name, Vec<Asked>>,
    /// Number of queries in the half with the recent queries.
    count: usize,
}

impl Log {
    /// Creates an empty log. Times in the log are relative to this moment.
    pub(super) fn new() -> Log {
        Log { began: Instant::now(), generations: Mutex::default() }
    }

    /// Returns the queried names, in no particular order.
    pub fn names(&self) -> Vec<Name> {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.old.keys().chain(generations.new.keys()).cloned().collect()
    }

    /// Logs a query. A query without exactly one question has no name and is not logged.
    pub(super) fn note(&self, query: &Message, tcp: bool, source: SocketAddr) {
        let Some(question) = query.question() else { return };
        let edns = query.edns.as_ref();
        let asked = Asked {
            qtype: question.qtype.to_int(),
            class: question.class.to_int(),
            tcp,
            source,
            id: query.id,
            name: question.name.to_string(),
            rd: query.flags.rd,
            cd: query.flags.cd,
            ad: query.flags.ad,
            payload: edns.map(|edns| edns.payload),
            dnssec_ok: edns.is_some_and(|edns| edns.dnssec_ok),
            options: edns.iter().flat_map(|edns| &edns.options).map(|(code, _)| *code).collect(),
            at: self.began.elapsed(),
        };
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.push(question.name.clone(), asked, GENERATION);
    }
}

impl Generations {
    fn push(&mut self, name: Name, asked: Asked, limit: usize) {
        if self.count == limit {
            self.old = std::mem::take(&mut self.new);
            self.count = 0;
        }
        self.new.entry(name).or_default().push(asked);
        self.count += 1;
    }

    fn of(&self, name: &Name) -> Vec<Asked> {
        [&self.old, &self.new]
            .into_iter()
            .filter_map(|all| all.get(name))
            .flatten()
            .cloned()
            .collect()
    }
}

impl View for Log {
    fn asked(&self, name: &Name) -> io::Result<Vec<Asked>> {
        Ok(self.generations.lock().unwrap_or_else(PoisonError::into_inner).of(name))
    }
}

#[cfg(test)]
mod tests {
    use domain::base::iana::Rtype;

    use super::*;
    use crate::message::name;

    fn note(log: &Log, asked: &str) {
        let mut query = Message::query(&name(asked), Rtype::AAAA);
        query.edns.as_mut().unwrap().options.push((10, vec![0; 8]));
        log.note(&query, true, "192.0.2.1:4242".parse().unwrap());
    }

    #[test]
    fn lookup_ignores_letter_case_and_preserves_it() {
        let log = Log::new();
        note(&log, "x1.Conform.Example");
        note(&log, "x2.conform.example");
        note(&log, "X1.conform.example");
        let asked = log.asked(&name("x1.conform.example")).unwrap();
        let names: Vec<_> = asked.iter().map(|asked| asked.name.as_str()).collect();
        assert_eq!(names, ["x1.Conform.Example", "X1.conform.example"]);
        assert!(asked[0].at <= asked[1].at);
        let first = &asked[0];
        assert_eq!((first.qtype, first.class, first.payload), (28, 1, Some(1232)));
        assert_eq!(first.options, [10]);
        assert!(first.rd && first.tcp && !first.dnssec_ok);
        assert_eq!(log.asked(&name("x3.conform.example")).unwrap(), []);
    }

    #[test]
    fn the_oldest_questions_are_forgotten() {
        let log = Log::new();
        note(&log, "x.example");
        let asked = log.asked(&name("x.example")).unwrap().remove(0);
        let mut generations = Generations::default();
        for id in 0..7 {
            generations.push(name("x.example"), Asked { id, ..asked.clone() }, 3);
        }
        let ids: Vec<_> = generations.of(&name("x.example")).iter().map(|asked| asked.id).collect();
        assert_eq!(ids, [3, 4, 5, 6]);
    }
}
