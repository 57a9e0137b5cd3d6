//! Scheduling of parallel tests. Tests that hold the same resource never run at the same time.

use std::sync::{Condvar, Mutex};
use std::thread;

use super::test::Test;

/// Waiting tests, and running tests.
struct Queue {
    waiting: Vec<&'static Test>,
    running: Vec<&'static Test>,
}

impl Queue {
    /// Removes and returns the first waiting test that conflicts with no running test.
    fn next(&mut self) -> Option<&'static Test> {
        let is_free =
            |test: &&'static Test| !self.running.iter().any(|other| test.conflicts_with(other));
        let place = self.waiting.iter().position(is_free)?;
        let test = self.waiting.remove(place);
        self.running.push(test);
        Some(test)
    }

    fn ended(&mut self, test: &'static Test) {
        self.running.retain(|other| !std::ptr::eq(*other, test));
    }
}

/// Calls `one` for each test, with at most `at_once` tests in parallel. Tests start in the given order, unless they
/// conflict.
pub(super) fn run_all(
    tests: Vec<&'static Test>,
    at_once: usize,
    one: impl Fn(&'static Test) + Sync,
) {
    let queue = Mutex::new(Queue { waiting: tests, running: Vec::new() });
    let changed = Condvar::new();
    let lock = || queue.lock().expect("no thread panics while it holds the queue");
    let next = || {
        let mut queue = lock();
        while !queue.waiting.is_empty() {
            if let Some(test) = queue.next() {
                return Some(test);
            }
            queue = changed.wait(queue).expect("no thread panics while it holds the queue");
        }
        None
    };
    let work = || {
        while let Some(test) = next() {
            one(test);
            lock().ended(test);
            changed.notify_all();
        }
    };
    thread::scope(|scope| {
        for _ in 0..at_once.max(1) {
            scope.spawn(work);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::super::test::Resource;
    use super::*;

    static PLAIN: Test = Test::new("plain", &[], |_| Ok(()));
    static STAGE: Test = Test::new("stage", &[], |_| Ok(())).holding(Resource::Stage);
    static OTHER_STAGE: Test = Test::new("other stage", &[], |_| Ok(())).holding(Resource::Stage);
    static CPUS: Test = Test::new("CPUs", &[], |_| Ok(())).holding(Resource::Cpus);

    #[test]
    fn a_test_waits_for_the_resource_that_it_holds() {
        let waiting = vec![&STAGE, &OTHER_STAGE, &PLAIN, &CPUS];
        let mut queue = Queue { waiting, running: Vec::new() };
        let mut next = |ended: Option<&'static Test>| {
            ended.into_iter().for_each(|test| queue.ended(test));
            queue.next().map(|test| test.name)
        };
        assert_eq!(next(None), Some("stage"));
        assert_eq!(next(None), Some("plain"), "the other stage waits");
        assert_eq!(next(None), None, "the CPUs are not free");
        assert_eq!(next(Some(&PLAIN)), None);
        assert_eq!(next(Some(&STAGE)), Some("other stage"));
        assert_eq!(next(Some(&OTHER_STAGE)), Some("CPUs"));
    }

    #[test]
    fn every_test_runs_once_and_cpus_run_alone() {
        let running = Mutex::new(Vec::<&Test>::new());
        let done = Mutex::new(Vec::new());
        run_all(vec![&PLAIN, &CPUS, &STAGE, &OTHER_STAGE], 4, |test| {
            let mut others = running.lock().unwrap();
            assert!(others.iter().all(|other| !test.conflicts_with(other)), "{}", test.name);
            others.push(test);
            drop(others);
            thread::yield_now();
            running.lock().unwrap().retain(|other| !std::ptr::eq(*other, test));
            done.lock().unwrap().push(test.name);
        });
        let mut done = done.into_inner().unwrap();
        done.sort_unstable();
        assert_eq!(done, ["CPUs", "other stage", "plain", "stage"]);
    }
}
