//! Upstreams that are removed by a reload.

use super::*;
use crate::metrics::to_text;

/// Returns settings with three upstreams that are unique to `number`.
fn set(number: u16) -> Arc<Settings> {
    let upstream =
        |n| format!("[[upstream]]\naddress = '127.0.0.1'\nport = {}\n", 1_000 + 3 * number + n);
    let text: String = (0..3).map(upstream).collect();
    Arc::new(Settings::from_text(&text, Path::new("test.toml")).unwrap())
}

/// Returns the identifiers of the upstreams in the resolver, after comparing them with the
/// identifiers used by its sockets.
fn numbers(test: &Test) -> Vec<u32> {
    let known: Vec<u32> = test.resolver.upstreams.servers().map(|(id, _)| id.0).collect();
    let outside: Vec<u32> = test.resolver.outside.servers.iter().map(|(id, _)| id.0).collect();
    assert_eq!(known, outside);
    known
}

/// Returns the number of upstreams in the metrics output.
fn in_metrics(test: &Test) -> usize {
    let text = to_text(&test.resolver.common.metrics, &Arc::new(Cache::new(1)), &[]);
    text.lines().filter(|line| line.starts_with("dns64d_upstream_server_down{")).count()
}

#[test]
fn after_70_reloads_one_set_of_upstreams_is_left() {
    let mut test = Test::new(3);
    for number in 0..70 {
        for n in 0..8 {
            test.begin_kept(&format!("n{n}.r{number}.test"));
        }
        // One fetch is in flight during each reload.
        let sent = test.begin(&format!("late.r{number}.test")).remove(0);
        test.resolver.take_settings(set(number));
        test.answer(&sent, &sent.answer(0, &[[192, 0, 2, 1]]));
        assert_eq!(test.outcome(), Some(Ok((0, 1))));
    }
    let numbers = numbers(&test);
    assert_eq!((numbers.len(), in_metrics(&test)), (3, 3));
    assert!(numbers.iter().all(|number| *number < 8), "numbers are reused: {numbers:?}");
}

#[test]
fn removed_upstream_is_kept_during_a_fetch() {
    for over_tcp in [false, true] {
        let mut test = Test::new(1);
        let sent = test.begin("a.test").remove(0);
        let question = over_tcp.then(|| {
            test.answer(&sent, &sent.truncated());
            test.tcp()
        });
        test.resolver.take_settings(set(1));
        assert_eq!((numbers(&test).len(), in_metrics(&test)), (4, 4));
        // A fetch that uses the new upstreams does not delay the removal.
        let younger = test.begin("b.test").remove(0);
        let answer = sent.answer(0, &[[192, 0, 2, 1]]);
        match question {
            Some(question) => test.resolver.on_tcp(question.fetch, Ok(answer)),
            None => test.answer(&sent, &answer),
        }
        assert!(test.resolver.next_completed().is_some());
        assert_eq!((numbers(&test).len(), in_metrics(&test)), (3, 3), "TCP: {over_tcp}");
        test.answer(&younger, &younger.answer(0, &[[192, 0, 2, 1]]));
        assert_eq!(test.outcome(), Some(Ok((0, 1))));
    }
}

#[test]
fn a_removed_upstream_that_is_silent_is_forgotten() {
    let mut test = Test::new(2);
    test.begin("a.test");
    test.resolver.take_settings(set(1));
    assert_eq!(numbers(&test).len(), 4, "one of the two was queried");
    test.pass(1_700);
    assert!(test.resolver.next_completed().is_some());
    assert_eq!((numbers(&test).len(), in_metrics(&test)), (3, 3));
}
