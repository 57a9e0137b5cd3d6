//! The upstream servers of one worker, and their state.
//!
//! ```text
//! settings ─► Upstreams ─► choice: next server ◄── health: reachability and speed
//!                  │                           ◄── retries: retry budget
//!                  └─► Server: health, retries, network: network errors, suspended: EDNS, letter case
//! ports: the sockets towards the servers, with the ids that are in use
//! ```
//!
//! All modules except `ports` use neither sockets nor a clock; the caller passes the time.

mod choice;
mod health;
mod network;
pub(crate) mod ports;
mod retries;
mod server;
mod suspended;
pub(crate) mod xdp;

use net::address::ServiceAddr;
use std::collections::HashMap;

use rand::rngs::StdRng;
use rustc_hash::FxHashSet;
use slab::Slab;
use smallvec::SmallVec;
use units::Nanos;

use crate::config::{Settings, UpstreamOrder};
use crate::ids::{RouteId, ServerId};
use crate::metrics::Metrics;
use choice::Candidate;
pub(super) use health::LEAST_RTO;
pub(super) use server::Server;

/// An upstream for the names of one domain, with its weight.
#[derive(Clone, Copy, Debug)]
struct Member {
    server: ServerId,
    weight: u32,
}

/// All upstreams of a worker. A reload does not change their identifiers. A server that a reload removed from the
/// configuration gets no further queries. Its state is deleted once no fetch in flight uses it.
#[derive(Default)]
pub(super) struct Upstreams {
    /// Upstream servers by identifier.
    servers: Slab<Server>,
    /// Upstreams for each configured domain.
    routes: Vec<Vec<Member>>,
    order: UpstreamOrder,
}

impl Upstreams {
    /// Applies a new configuration. Servers that were configured before keep their health and
    /// counters.
    pub(super) fn configure(&mut self, settings: &Settings, metrics: &Metrics) {
        let mut known: HashMap<ServiceAddr, usize> =
            self.servers.iter().map(|(index, server)| (server.address(), index)).collect();
        for (_, server) in &mut self.servers {
            server.set_configured(false);
        }
        let mut members = Vec::with_capacity(settings.upstreams.len());
        for upstream in &settings.upstreams {
            let address = upstream.address;
            let index = *known.entry(address).or_insert_with(|| {
                self.servers.insert(Server::new(address, metrics.add_upstream(address)))
            });
            self.servers[index].set_configured(true);
            self.servers[index].set_lacks_signatures(settings.lacks_signatures(address));
            members.push(Member { server: ServerId::from_index(index), weight: upstream.weight });
        }
        let route = |numbers: &Vec<usize>| numbers.iter().map(|&number| members[number]).collect();
        self.routes = settings.routes.iter().map(|of| route(&of.upstreams)).collect();
        self.order = settings.upstream_order();
    }

    /// Removes each server that is no longer configured, unless a fetch in flight still uses it.
    pub(super) fn forget_removed(&mut self, in_flight: &FxHashSet<ServerId>, metrics: &Metrics) {
        self.servers.retain(|index, server| {
            server.is_configured() || in_flight.contains(&ServerId::from_index(index))
        });
        metrics.forget_upstreams();
    }

    /// True if a server that is not configured is still used by a fetch in flight.
    pub(super) fn has_removed(&self) -> bool {
        self.servers.iter().any(|(_, server)| !server.is_configured())
    }

    /// Returns the state of a server.
    #[inline]
    pub(super) fn server(&mut self, id: ServerId) -> &mut Server {
        &mut self.servers[id.index()]
    }

    /// Returns the servers that are configured or used by a fetch in flight.
    pub(super) fn servers(&self) -> impl Iterator<Item = (ServerId, &Server)> {
        self.servers.iter().map(|(index, server)| (ServerId::from_index(index), server))
    }

    /// Selects the upstream for the next query. The upstreams to choose from are those of the domain that `route`
    /// identifies.
    pub(super) fn choose(
        &mut self,
        route: RouteId,
        tried: &[ServerId],
        now: Nanos,
        rng: &mut StdRng,
    ) -> ServerId {
        let members = &self.routes[route.0];
        if let [only] = members[..] {
            return only.server;
        }
        let standings: SmallVec<[Candidate; 8]> = members
            .iter()
            .map(|member| {
                let server = &self.servers[member.server.index()];
                Candidate {
                    server: member.server,
                    weight: member.weight,
                    speed: server.health().speed(),
                    down_until: server.down_until(),
                    may_ask_again: server.may_be_asked_again(now),
                }
            })
            .collect();
        let chosen = choice::choose(&standings, self.order, tried, now, rng);
        if !self.server(chosen).is_marked_down(now) {
            self.server(chosen).chosen(now);
        }
        chosen
    }

    /// True if the domain of `route` has an upstream that is not in `tried` and is not marked down.
    pub(super) fn has_another(&self, route: RouteId, tried: &[ServerId], now: Nanos) -> bool {
        let is_up = |member: &Member| !self.servers[member.server.index()].is_marked_down(now);
        self.routes[route.0].iter().any(|member| !tried.contains(&member.server) && is_up(member))
    }

    /// True if none of the upstreams of the domain is reachable, so that a query to any of them would fail at once.
    pub(super) fn are_unreachable(&self, route: RouteId, now: Nanos) -> bool {
        self.all_of(route, |server| server.network().is_unreachable(now))
    }

    /// True if no upstream of the domain is reachable, and one of them was queried within the last 0.2 s. The result of
    /// that query shows whether a further query is worth sending.
    pub(super) fn are_being_probed(&self, route: RouteId, now: Nanos) -> bool {
        self.are_unreachable(route, now)
            && !self.all_of(route, |server| !server.network().is_just_asked(now))
    }

    fn all_of(&self, route: RouteId, is_so: impl Fn(&Server) -> bool) -> bool {
        self.routes[route.0].iter().all(|member| is_so(&self.servers[member.server.index()]))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::metrics::{UpstreamFailure, to_text};
    use crate::resolver::cache::Cache;
    use rand::SeedableRng;

    const MAIN: RouteId = RouteId(0);

    /// Returns settings with upstreams on 127.0.0.1, at these ports.
    fn settings(ports: &[u16]) -> Settings {
        let upstream = |port| format!("[[upstream]]\naddress = '127.0.0.1'\nport = {port}\n");
        let text: String = ports.iter().map(upstream).collect();
        Settings::from_text(&text, Path::new("test.toml")).unwrap()
    }

    fn upstreams(ports: &[u16], metrics: &Metrics) -> Upstreams {
        let mut upstreams = Upstreams::default();
        upstreams.configure(&settings(ports), metrics);
        upstreams
    }

    #[test]
    fn a_dead_server_is_probed_less_and_less_often() {
        let mut upstreams = upstreams(&[1, 2], &Metrics::new(1));
        let mut rng = StdRng::seed_from_u64(1);
        upstreams.server(ServerId(0)).answered(Nanos(0), Nanos::from_millis(1), false);
        let mut probes = 0;
        for ms in (0..60_000).step_by(10) {
            let now = Nanos::SECOND + Nanos::from_millis(ms);
            if upstreams.choose(MAIN, &[], now, &mut rng) == ServerId(1) {
                probes += 1;
                upstreams
                    .server(ServerId(1))
                    .failed(now + Nanos::from_millis(400), UpstreamFailure::Timeout);
            }
        }
        // Three queries detect the failure. Then one query is sent after each delay of 1, 2, 4, 8,
        // 16 and 30 s (plus a small random delay).
        assert!((4..=10).contains(&probes), "{probes}");
    }

    #[test]
    fn tried_server_with_retry_budget_is_chosen() {
        let mut upstreams = upstreams(&[1, 2], &Metrics::new(1));
        let mut rng = StdRng::seed_from_u64(1);
        let both = [ServerId(0), ServerId(1)];
        while upstreams.server(ServerId(0)).take_retry(Nanos::SECOND) {}
        assert_eq!(upstreams.choose(MAIN, &both, Nanos::SECOND, &mut rng), ServerId(1));
        // An upstream that is marked down is not selected.
        for _ in 0..health::FAILURES {
            upstreams.server(ServerId(1)).failed(Nanos::SECOND, UpstreamFailure::Timeout);
        }
        assert_eq!(upstreams.choose(MAIN, &both, Nanos::SECOND, &mut rng), ServerId(0));
        assert!(!upstreams.has_another(MAIN, &[ServerId(0)], Nanos::SECOND));
        assert!(upstreams.has_another(MAIN, &[], Nanos::SECOND));
    }

    #[test]
    fn numbers_stay_when_the_configuration_is_read_again() {
        let metrics = Metrics::new(1);
        let mut upstreams = upstreams(&[1, 2], &metrics);
        upstreams.server(ServerId(1)).answered(Nanos(0), Nanos::from_millis(7), false);
        upstreams.configure(&settings(&[2, 3]), &metrics);
        assert_eq!(upstreams.server(ServerId(1)).health().speed(), Nanos::from_millis(7));
        let configured: Vec<bool> =
            upstreams.servers().map(|(_, server)| server.is_configured()).collect();
        assert_eq!(configured, [false, true, true]);
        assert!(upstreams.has_removed());
        let mut rng = StdRng::seed_from_u64(1);
        assert!(
            (0..100).all(|_| upstreams.choose(MAIN, &[], Nanos::SECOND, &mut rng) != ServerId(0))
        );
    }

    #[test]
    fn a_removed_server_is_forgotten_unless_it_is_in_flight() {
        let metrics = Metrics::new(1);
        let mut upstreams = upstreams(&[1, 2, 3], &metrics);
        upstreams.configure(&settings(&[3, 4]), &metrics);
        let in_flight = FxHashSet::from_iter([ServerId(1)]);
        upstreams.forget_removed(&in_flight, &metrics);
        let ports = |upstreams: &Upstreams| -> Vec<u16> {
            upstreams.servers().map(|(_, server)| server.address().port()).collect()
        };
        assert!(upstreams.has_removed());
        assert_eq!((ports(&upstreams), metrics.upstreams().len()), (vec![2, 3, 4], 3));
        upstreams.forget_removed(&FxHashSet::default(), &metrics);
        assert!(!upstreams.has_removed());
        assert_eq!((ports(&upstreams), metrics.upstreams().len()), (vec![3, 4], 2));
        // Free identifiers are reused.
        upstreams.configure(&settings(&[3, 4, 5, 6]), &metrics);
        assert_eq!(upstreams.servers().map(|(id, _)| id.0).max(), Some(3));
    }

    #[test]
    fn metrics_show_a_dead_server_as_long_as_it_is_configured() {
        let metrics = Metrics::new(1);
        let mut upstreams = upstreams(&[1], &metrics);
        let shown = |down: u8| {
            let text = to_text(&metrics, &Arc::new(Cache::new(1)), &[]);
            let line = format!("dns64d_upstream_server_down{{upstream=\"127.0.0.1:1\"}} {down}");
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        };
        shown(0);
        (0..health::FAILURES).for_each(|_| {
            upstreams.server(ServerId(0)).failed(Nanos::SECOND, UpstreamFailure::Timeout);
        });
        shown(1);
        upstreams.configure(&settings(&[1, 2]), &metrics);
        shown(1);
        upstreams.configure(&settings(&[2]), &metrics);
        shown(0);
        upstreams.configure(&settings(&[1]), &metrics);
        shown(1);
        upstreams.server(ServerId(0)).answered(Nanos(0), Nanos::from_millis(1), false);
        shown(0);
    }
}
