//! Test of the list of troubling checks, which contains their ids. The list is written by hand, because the queries of
//! a script are not known before the script runs. This test runs each script against the reference server, and compares
//! the list with the query log.

mod common;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use conform::authority::view::View;
use conform::check::Check;
use conform::checks;
use conform::label::{self, Fate};
use conform::runner::Phase;
use conform::trial::{Subject, Trial};
use conform_reference::ReferenceConfig;
use conform_reference::mutant::NO_HOOKS;
use conform_reference::rules::Rules;

/// Number of scripts that run in parallel. Most of the time, the scripts wait for replies.
const AT_ONCE: usize = 8;

/// True if a server may stop querying its upstream for a while because of this treatment of a query.
fn troubles(fate: Fate) -> bool {
    match fate {
        Fate::Silent | Fate::TcpOnly | Fate::NoEdns => true,
        Fate::Delay(time) => time >= Duration::from_secs(1),
        Fate::NoData | Fate::Rcode(_) | Fate::Truncated | Fate::Forged(_) => false,
    }
}

/// True if the script of the check caused an upstream query after which a server may stop querying its upstream for a
/// while.
fn troubles_its_server(check: &Check) -> bool {
    let (far, zone) = (common::authority(), common::zone());
    let prefixes = common::prefixes("64:ff9b::/96");
    let server = conform_reference::start(ReferenceConfig {
        listen: common::ANY,
        upstream: far.addresses()[0],
        zone: zone.clone(),
        prefixes: prefixes.clone(),
        rules: Rules::default(),
        hooks: NO_HOOKS,
    })
    .expect("there is a free port");
    let log = far.log();
    let view: &dyn View = &*log;
    // Only the queries matter here, not whether replies arrive in time.
    let patience = Duration::from_millis(1200);
    let subject = Subject {
        server: server.address(),
        patience,
        zone: Some(&zone),
        prefixes: &prefixes,
        excluded: Some(common::EXCLUDED),
        view: Some(view),
    };
    // If a check does not apply to this server, its script may return a fault or panic.
    let _ = catch_unwind(AssertUnwindSafe(|| (check.script)(&mut Trial::new(subject))));
    let fates = log.names().into_iter().filter_map(|name| label::read(&name, &zone));
    fates.flat_map(|place| place.behaviour.fates).any(|(_, fate)| troubles(fate))
}

#[test]
fn troubling_list_matches_the_query_log() {
    let all: Vec<&Check> =
        checks::all().filter(|check| Phase::from_id(check.id) != Phase::Alone).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeSet::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(check) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if troubles_its_server(check) {
                        found.lock().expect("no thread panics with it").insert(check.id);
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("no thread panics with it");
    let listed: BTreeSet<&str> = all
        .iter()
        .map(|check| check.id)
        .filter(|id| Phase::from_id(id) == Phase::Troubling)
        .collect();
    let missing: Vec<_> = found.difference(&listed).collect();
    let needless: Vec<_> = listed.difference(&found).collect();
    assert!(
        missing.is_empty() && needless.is_empty(),
        "TROUBLING in src/runner.rs lacks {missing:#?} and should not contain {needless:#?}"
    );
}
