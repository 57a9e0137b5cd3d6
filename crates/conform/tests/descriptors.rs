//! If the tester has no free sockets, it reports this shortage, and no fault of the server. This program contains no
//! other test, because the limit applies to the whole process.

mod common;

use common::Server;
use conform::checks;
use conform::outcome::Verdict;
use conform_reference::mutant::NO_HOOKS;

#[test]
fn a_crowd_without_sockets_is_no_fault_of_the_server() {
    // The limit is sufficient for the server, the test authoritative server and some clients, but not for 250 clients.
    testbed::limit_descriptors(120);
    let wanted = ["hardening-overload-answered", "hardening-overload-asked-once"];
    let only: Vec<_> = checks::all().filter(|check| wanted.contains(&check.id)).collect();
    assert_eq!(only.len(), wanted.len());
    let server = Server { prefixes: "3fff:64::/96", validates: false };
    let report = server.run(&common::authority(), true, &only, |_| {}, NO_HOOKS);
    for outcome in report.outcomes.iter().filter(|outcome| wanted.contains(&outcome.id.as_str())) {
        assert_eq!(outcome.verdict, Verdict::NotTried, "{outcome:?}");
    }
}
