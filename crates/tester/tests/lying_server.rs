//! A server with every possible kind of fault, and the exact counts that must result.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use method::pacing::PacingLimits;
use method::reason::Reason;
use method::records::Counts;
use method::verdict::Verdict;
use net::xdp::Mode;
use nix::sched::{CloneFlags, unshare};
use testbed::{ip, is_root, valid_trial, with_veth_pair};
use tester::measurer::burst::Burst;
use tester::measurer::plan::{Spin, TrialPlan};
use tester::measurer::result::TrialResult;
use tester::measurer::{Progress, run};
use tester::measurer::{plan::sources::SourceAddresses, sources::SourcesUsed};
use tester::xdp::XdpConfig;
use units::{Nanos, Qps, Share};
use wire::edns::put_opt;
use wire::name::parse_label;
use wire::rcode::Rcode;

/// Handling of a query, selected by the last octet of the name's address.
type Lie = fn(&Server, u8, &[u8], SocketAddr);

struct Server {
    socket: UdpSocket,
    other: UdpSocket,
}

/// Returns a correct answer: 64:ff9b::/96 with the name's address.
fn right(query: &[u8]) -> Vec<u8> {
    let address = parse_label(&query[13..28]).expect("the tester asks for its names");
    let mut reply = query.to_vec();
    reply[2] = 0x81;
    reply[3] = 0x80;
    reply[7] = 1;
    reply.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
    reply.extend([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]);
    reply.extend(address.octets());
    reply
}

impl Server {
    fn at(address: &str) -> Server {
        let bound = || UdpSocket::bind(address).unwrap();
        Server { socket: bound(), other: bound() }
    }

    fn send(&self, bytes: &[u8], to: SocketAddr) {
        self.socket.send_to(bytes, to).unwrap();
    }
}

/// Runs a trial of 200 queries against the faulty server. The result must be the same with sockets and with AF_XDP.
fn trial(lie: Lie, threads: u16) -> Option<TrialResult> {
    let result = sound(|| one_trial(lie, "[::1]:0", |plan| plan.threads = threads).0)?;
    if threads == 1 && is_root(PAST_STACK) {
        let xdp = sound(|| trial_with_xdp(lie))?;
        assert!(xdp.sending.xdp.is_some() && result.sending.xdp.is_none());
        assert_eq!(xdp.counts, result.counts);
        assert_eq!(xdp.verdict, result.verdict);
    }
    Some(result)
}

const PAST_STACK: &str = "a trial with AF_XDP";

/// Runs a trial with AF_XDP over a virtual Ethernet between two temporary namespaces.
fn trial_with_xdp(lie: Lie) -> TrialResult {
    let result = with_veth_pair(PAST_STACK, 1, &["2001:2::1/64"], &["2001:2::2/64"], |far| {
        let server = far.run(|| Server::at("[2001:2::2]:0"));
        let xdp = Some(XdpConfig { interface: Some("near".into()), mode: Mode::Auto });
        trial_with(lie, server, |plan| plan.xdp.clone_from(&xdp)).0
    });
    result.expect("whether this can run has been asked before")
}

/// Runs a trial of 200 queries from addresses of 127.0.0.0/8 against the faulty server; also returns the source of each
/// query.
fn trial_from(
    lie: Lie,
    from: &str,
    change: impl Fn(&mut TrialPlan) + Sync,
) -> Option<(TrialResult, BTreeMap<u32, SocketAddr>)> {
    let mut came = BTreeMap::new();
    let result = sound(|| {
        let change = |plan: &mut TrialPlan| {
            plan.source_addresses = Some(from.parse().unwrap());
            change(plan);
        };
        let (result, seen) = one_trial(lie, "127.0.0.1:0", change);
        came = seen;
        result
    })?;
    Some((result, came))
}

/// Timeout of all trials.
const TIMEOUT: Nanos = Nanos(2 * Nanos::SECOND.0);

/// Pacing is not tested here.
fn unhurried() -> PacingLimits {
    PacingLimits {
        window_100ms_pct: 100.0,
        lateness_p999: Nanos(30 * Nanos::SECOND.0),
        ..PacingLimits::default()
    }
}

/// Runs up to two trials and returns the first valid result. If there is none, the test is skipped.
fn sound(mut trial: impl FnMut() -> TrialResult) -> Option<TrialResult> {
    valid_trial(|| {
        let result = trial();
        match result.verdict {
            Verdict::Invalid => Err(format!("{:?}", result.reasons)),
            _ => Ok(result),
        }
    })
}

/// Runs a trial with a server at `at`; also returns the source of each query by its index. If permitted, the trial runs
/// in a separate network namespace, so that late datagrams of other tests are not among its unmatched responses.
fn one_trial(
    lie: Lie,
    at: &str,
    change: impl Fn(&mut TrialPlan) + Sync,
) -> (TrialResult, BTreeMap<u32, SocketAddr>) {
    let alone = || {
        if unshare(CloneFlags::CLONE_NEWNET).is_ok() {
            ip("link set lo up");
        }
        trial_with(lie, Server::at(at), &change)
    };
    thread::scope(|scope| scope.spawn(alone).join()).expect("a trial")
}

/// Runs a trial with this server; also returns the source of each query by its index.
fn trial_with(
    lie: Lie,
    server: Server,
    change: impl Fn(&mut TrialPlan),
) -> (TrialResult, BTreeMap<u32, SocketAddr>) {
    server.socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let address = server.socket.local_addr().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let serving: JoinHandle<BTreeMap<u32, SocketAddr>> = thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let (mut query, mut came) = ([0; 512], BTreeMap::new());
            while !stop.load(Ordering::Relaxed) {
                if let Ok((n, from)) = server.socket.recv_from(&mut query) {
                    let name = parse_label(&query[13..28]).unwrap();
                    came.insert(u32::from(name) - (10 << 24), from);
                    lie(&server, name.octets()[3], &query[..n], from);
                }
            }
            came
        }
    });
    let mut plan = TrialPlan::new(address, Qps(400));
    plan.duration = Nanos::from_millis(500);
    // A stall of this host must not make replies late.
    plan.timeout = TIMEOUT;
    plan.limits = unhurried();
    plan.prefixes = vec!["64:ff9b::/96".parse().unwrap()];
    change(&mut plan);
    let result = run(&plan, &Progress::new(&plan)).unwrap();
    stop.store(true, Ordering::Relaxed);
    let came = serving.join().unwrap();
    assert!(result.counts.is_balanced());
    (result, came)
}

/// Runs 200 queries, of which the 20 whose index ends in 0 get faulty replies.
fn spoiled(lie: Lie) -> Option<Counts> {
    let result = trial(lie, 1)?;
    assert_eq!((result.counts.sent, result.counts.valid), (200, 180), "{:?}", result.counts);
    assert_eq!(result.verdict, Verdict::Failed);
    Some(result.counts)
}

macro_rules! lie {
    (|$server:ident, $query:ident, $to:ident| $body:expr) => {
        |$server, number, $query, $to| {
            if number % 10 != 0 {
                return $server.send(&right($query), $to);
            }
            $body
        }
    };
}

#[test]
fn an_honest_server_passes() {
    for threads in [1, 3] {
        let honest: Lie = |server, _, query, to| server.send(&right(query), to);
        let Some(result) = trial(honest, threads) else { return };
        assert_eq!(
            (result.counts.valid, result.verdict),
            (200, Verdict::Passed),
            "{:?}",
            result.reasons
        );
        assert_eq!((result.counts.stray, result.counts.duplicates), (0, 0));
    }
}

#[test]
fn dropped_replies_are_lost() {
    let Some(c) = spoiled(lie!(|_server, _query, _to| ())) else { return };
    assert_eq!((c.lost, c.stray), (20, 0));
}

/// Between the timeout and twice the timeout; later replies count as lost instead of late.
const LATE: Duration = Duration::from_millis(2_500);

#[test]
fn delayed_replies_are_late() {
    let Some(c) = spoiled(lie!(|server, query, to| {
        let (socket, reply) = (server.socket.try_clone().unwrap(), right(query));
        thread::spawn(move || {
            thread::sleep(LATE);
            socket.send_to(&reply, to).unwrap();
        });
    })) else {
        return;
    };
    assert_eq!((c.late, c.lost, c.stray), (20, 0, 0));
}

#[test]
fn duplicates_change_nothing() {
    let Some(result) = trial(
        |server, _, query, to| {
            server.send(&right(query), to);
            let mut second = right(query);
            second[3] |= 2;
            server.send(&second, to);
        },
        1,
    ) else {
        return;
    };
    assert_eq!(
        (result.counts.valid, result.counts.duplicates, result.verdict),
        (200, 200, Verdict::Passed)
    );
}

#[test]
fn the_first_reply_decides() {
    let Some(c) = spoiled(lie!(|server, query, to| {
        let mut first = right(query);
        first[3] |= 2;
        server.send(&first, to);
        server.send(&right(query), to);
    })) else {
        return;
    };
    assert_eq!((c.wrong.rcode.get(&2), c.duplicates), (Some(&20), 20));
}

#[test]
fn replies_with_other_ids_are_unmatched() {
    let Some(c) = spoiled(lie!(|server, query, to| {
        let mut reply = right(query);
        reply[0] ^= 0xff;
        server.send(&reply, to);
    })) else {
        return;
    };
    assert_eq!((c.lost, c.stray), (20, 20));
}

#[test]
fn replies_with_other_questions_are_unmatched() {
    let Some(c) = spoiled(lie!(|server, query, to| {
        let mut reply = right(query);
        reply[27] ^= 1;
        server.send(&reply, to);
    })) else {
        return;
    };
    assert_eq!((c.lost, c.stray), (20, 20));
}

#[test]
fn replies_from_other_ports_are_unmatched() {
    let Some(c) = spoiled(lie!(|server, query, to| {
        server.other.send_to(&right(query), to).unwrap();
    })) else {
        return;
    };
    assert_eq!((c.lost, c.stray), (20, 20));
}

#[test]
fn other_types_are_no_answer() {
    let Some(c) = spoiled(lie!(|server, query, to| {
        let mut reply = right(query);
        reply[query.len() + 3] = 16;
        server.send(&reply, to);
    })) else {
        return;
    };
    assert_eq!(c.wrong.no_aaaa, 20);
}

#[test]
fn other_addresses_are_wrong() {
    let Some(c) = spoiled(lie!(|server, query, to| {
        let mut reply = right(query);
        *reply.last_mut().unwrap() ^= 1;
        server.send(&reply, to);
    })) else {
        return;
    };
    assert_eq!(c.wrong.address, 20);
}

#[test]
fn rcodes_and_truncation_are_distinguished() {
    let Some(c) = spoiled(|server, number, query, to| {
        let mut reply = right(query);
        match number % 20 {
            0 => reply[3] |= 3,
            10 => reply[2] |= 2,
            _ => {}
        }
        server.send(&reply, to);
    }) else {
        return;
    };
    assert_eq!((c.wrong.rcode.get(&3), c.wrong.truncated), (Some(&10), 10));
}

#[test]
fn bits_in_opt_and_octets_behind_are_wrong() {
    let Some(c) = spoiled(|server, number, query, to| {
        let mut reply = right(query);
        match number % 20 {
            // BADVERS has NOERROR in the header.
            0 => {
                put_opt(&mut reply, 1232, Rcode::BADVERS, false, &[]);
                reply[11] += 1;
            }
            10 => reply.extend([0; 3]),
            _ => {}
        }
        server.send(&reply, to);
    }) else {
        return;
    };
    assert_eq!((c.wrong.rcode.get(&16), c.wrong.malformed), (Some(&10), 10));
}

#[test]
fn garbage_is_malformed_or_unmatched() {
    let Some(c) = spoiled(|server, number, query, to| {
        let reply = right(query);
        match number % 20 {
            // The question matches, the answer is truncated.
            0 => server.send(&reply[..reply.len() - 3], to),
            10 => server.send(&[0xff; 40], to),
            _ => server.send(&reply, to),
        }
    }) else {
        return;
    };
    assert_eq!((c.wrong.malformed, c.lost, c.stray), (10, 10, 10));
}

#[test]
fn an_echoed_query_is_unmatched() {
    let Some(c) = spoiled(lie!(|server, query, to| server.send(query, to))) else { return };
    assert_eq!((c.lost, c.stray), (20, 20));
}

#[test]
fn a_flood_of_unmatched_packets_stops_nothing() {
    let Some(result) = trial(
        |server, _, query, to| {
            for _ in 0..50 {
                server.send(&[0; 12], to);
            }
            server.send(&right(query), to);
        },
        1,
    ) else {
        return;
    };
    assert_eq!(
        (result.counts.valid, result.counts.stray, result.verdict),
        (200, 10_000, Verdict::Passed)
    );
}

#[test]
fn a_dead_server_is_a_failed_trial() {
    let free = net::ports::free(std::net::Ipv6Addr::LOCALHOST.into()).unwrap();
    let mut plan = TrialPlan::new(free, Qps(400));
    plan.duration = Nanos::from_millis(300);
    plan.timeout = Nanos::from_millis(100);
    plan.limits = unhurried();
    let Some(result) = sound(|| run(&plan, &Progress::new(&plan)).unwrap()) else { return };
    assert_eq!((result.counts.sent, result.counts.lost, result.counts.refused), (120, 120, 0));
}

/// The error states the reason, and advice.
#[test]
fn without_loopback_the_cost_of_sending_is_unknown() {
    if !is_root("without_loopback_the_cost_of_sending_is_unknown") {
        return;
    }
    let tried = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        ip("link add near type veth peer name far");
        ip("link set far up");
        ip("addr add 198.18.0.1/24 dev near");
        ip("link set near arp off up");
        let mut plan = TrialPlan::new("198.18.0.2:53".parse().unwrap(), Qps(400));
        (plan.spin, plan.duration) = (Spin::Never, Nanos::from_millis(100));
        run(&plan, &Progress::new(&plan))
    });
    let error = tried.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("ip link set lo up") && error.contains("--max-burst"), "{error}");
}

/// Returns the source addresses of a trial in their order.
fn promised(from: &str) -> Vec<IpAddr> {
    from.parse::<SourceAddresses>().unwrap().addresses().collect()
}

#[test]
fn queries_use_the_source_addresses_in_order() {
    let honest: Lie = |server, _, query, to| server.send(&right(query), to);
    // Cases: fewer addresses than ports, as many addresses as ports, and more addresses than queries.
    for from in ["127.1.0.0/24,16", "127.1.0.0/26", "127.0.0.0/8"] {
        let Some((result, came)) = trial_from(honest, from, |_| ()) else { return };
        let counts = &result.counts;
        assert_eq!((counts.valid, result.verdict), (200, Verdict::Passed), "{:?}", result.reasons);
        assert_eq!((counts.stray, counts.duplicates), (0, 0));
        let (all, ports) = (promised(from), 64);
        // Ports and addresses repeat their combinations after this number of blocks.
        let cycle = ports.max(all.len());
        for (&query, came) in &came {
            let block = query as usize / usize::from(result.sending.block);
            assert_eq!(came.ip(), all[(block + block / cycle) % all.len()], "query {query}");
        }
        let used: HashSet<IpAddr> = came.values().map(SocketAddr::ip).collect();
        let blocks = 200usize.div_ceil(result.sending.block.into());
        assert_eq!(used, all[..all.len().min(blocks)].iter().copied().collect(), "{from}");
        let prefix = from.split(',').next().unwrap().to_owned();
        let expected = SourcesUsed { prefix, count: used.len() as u32 };
        assert_eq!(result.sending.source_addresses, Some(expected));
        assert_eq!(result.settings.source_addresses, Some(all.len() as u32));
    }
}

#[test]
fn blocks_of_queries_alternate_source_addresses() {
    let honest: Lie = |server, _, query, to| server.send(&right(query), to);
    for (offload, block) in [(true, 8), (false, 1)] {
        let Some((result, came)) = trial_from(honest, "127.1.0.0/24,10", |plan| {
            (plan.spin, plan.max_burst) = (Spin::Never, Burst::Fixed(Nanos::from_millis(20)));
            plan.offload = offload;
        }) else {
            return;
        };
        assert_eq!((result.counts.valid, result.verdict), (200, Verdict::Passed));
        assert_eq!(result.sending.block, block);
        let mut blocks: BTreeMap<u32, HashSet<SocketAddr>> = BTreeMap::new();
        for (query, came) in came {
            blocks.entry(query / u32::from(block)).or_default().insert(came);
        }
        assert!(blocks.values().all(|sources| sources.len() == 1), "{blocks:?}");
        let used: HashSet<IpAddr> = blocks.values().flatten().map(SocketAddr::ip).collect();
        assert_eq!(used, promised("127.1.0.0/24,10").into_iter().collect());
    }
}

#[test]
fn preloading_uses_the_source_addresses() {
    let honest: Lie = |server, _, query, to| server.send(&right(query), to);
    let Some((result, came)) = trial_from(honest, "127.1.0.0/24", |plan| {
        (plan.threads, plan.cached_share) = (3, Share::percent(50));
    }) else {
        return;
    };
    assert_eq!((result.counts.valid, result.verdict), (200, Verdict::Passed));
    assert!(came.len() > 200, "{} names", came.len());
    let ours: HashSet<IpAddr> = promised("127.1.0.0/24").into_iter().collect();
    assert!(came.values().all(|came| ours.contains(&came.ip())), "{came:?}");
}

#[test]
fn a_trial_does_not_begin_without_its_cached_names() {
    // The names of the first window get SERVFAIL.
    let broken: Lie = |server, _, query, to| {
        let mut reply = right(query);
        reply[3] |= 2;
        server.send(&reply, to);
    };
    let half = |plan: &mut TrialPlan| plan.cached_share = Share::percent(50);
    let (result, came) = one_trial(broken, "[::1]:0", half);
    assert_eq!((result.verdict, result.counts.sent), (Verdict::Invalid, 0));
    let names = result.names.count - 100;
    assert_eq!(result.reasons, [Reason::NotPreloaded { names }]);
    assert_eq!(came.len() as u64, names, "no query of the trial");
}

#[test]
fn replies_to_other_own_addresses_are_wrong() {
    let lie: Lie = lie!(|server, query, to| {
        // One address is the source of a different query; the other address is never a source.
        let elsewhere = if to.port() % 2 == 0 { "127.1.0.159" } else { "127.9.9.9" };
        let mut elsewhere = SocketAddr::new(elsewhere.parse().unwrap(), to.port());
        if elsewhere == to {
            elsewhere.set_ip("127.9.9.9".parse().unwrap());
        }
        server.send(&right(query), elsewhere);
        // The first reply decides.
        server.send(&right(query), to);
    });
    let Some((result, _)) = trial_from(lie, "127.1.0.0/24", |_| ()) else { return };
    let c = &result.counts;
    assert_eq!((c.valid, c.wrong.destination, c.duplicates, c.stray), (180, 20, 20, 0));
    assert_eq!(result.verdict, Verdict::Failed);
}

#[test]
fn unmatched_replies_with_many_addresses() {
    let lie: Lie = lie!(|server, query, to| {
        server.other.send_to(&right(query), to).unwrap();
    });
    let Some((result, _)) = trial_from(lie, "127.1.0.0/24", |_| ()) else { return };
    let c = &result.counts;
    assert_eq!((c.valid, c.lost, c.stray, c.wrong.total()), (180, 20, 20, 0));
}
