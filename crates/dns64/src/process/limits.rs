//! System limits on file descriptors and memory, and reduction of settings to fit them.
//!
//! Source ports are opened on first use, and could use up all file descriptors. No descriptor would then be left for
//! TCP and the metrics. Descriptors are therefore divided among source ports, TCP connections of clients, and TCP
//! connections to upstreams. This is done at startup and again at each reload. The log names each setting that was
//! reduced.

use net::descriptors::raise_limit;

use super::memory::{self, InsufficientMemory, MemoryKind, MemoryLimit};
use crate::config::{ListenKeys, ListenTransport, Settings};

/// Number of file descriptors for purposes other than DNS sockets: standard streams, signals, timers, query log,
/// dnstap, and 16 connections each for metrics and control socket.
const OTHERS: u64 = 56;
/// Number of file descriptors that a worker needs in addition to its sockets: one for epoll(7), and one that other
/// threads use to wake the worker.
const PER_WORKER: u64 = 2;

/// Limits of the system on file descriptors and memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SystemLimits {
    /// Maximum number of open file descriptors (RLIMIT_NOFILE).
    pub descriptors: u64,
    /// Memory limits, of which the smallest applies.
    pub memory: Vec<MemoryLimit>,
}

impl SystemLimits {
    /// Raises the limit on file descriptors to its maximum, and reads all limits.
    pub(super) fn of_process() -> SystemLimits {
        SystemLimits { descriptors: raise_limit(), memory: memory::limits() }
    }

    /// True if the virtual memory of the process is limited (RLIMIT_AS). Memory that is reserved but not used also
    /// counts towards this limit.
    pub(super) fn limits_address_space(&self) -> bool {
        self.memory.iter().any(|limit| limit.counts == MemoryKind::AddressSpace)
    }

    /// Reduces settings at startup, so that they fit the limits of the system. `addresses` is the number of listen
    /// addresses. Returns the values that are fixed until the next start, and a message for each reduced setting.
    ///
    /// # Errors
    /// Returns an error if there is too little memory.
    pub(super) fn fit(
        &self,
        settings: &mut Settings,
        addresses: usize,
    ) -> Result<(FixedUntilRestart, Vec<String>), InsufficientMemory> {
        let mut fixed = FixedUntilRestart {
            workers: settings.config.threads as u64,
            addresses: addresses as u64,
            upstream_tcp: None,
        };
        let descriptors = fit_descriptors(settings, self.descriptors, fixed);
        fixed.upstream_tcp = Some(settings.upstream_connections as u64);
        let memory = memory::fit(settings, &self.memory)?;
        Ok((fixed, descriptors.into_iter().chain(memory).collect()))
    }

    /// Reduces settings at a reload, so that they fit the limits of the system. Threads, addresses and cache size do
    /// not change until the next start. Returns a message if a setting was reduced.
    pub(super) fn refit(
        &self,
        settings: &mut Settings,
        fixed: FixedUntilRestart,
    ) -> Option<String> {
        fit_descriptors(settings, self.descriptors, fixed)
    }
}

/// Values that determine how many file descriptors are needed: the number of workers, of listen addresses, and of
/// upstream TCP connections. They stay the same until the next start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FixedUntilRestart {
    workers: u64,
    /// Number of listen addresses.
    addresses: u64,
    /// Maximum number of upstream TCP connections; `None` before it has been computed.
    upstream_tcp: Option<u64>,
}

/// Divides the file descriptors: a quarter for TCP connections of clients, a sixteenth for TCP connections to
/// upstreams, and the rest for source ports. None of these purposes gets more descriptors than it needs. Returns a
/// message if a setting was reduced.
fn fit_descriptors(
    settings: &mut Settings,
    allowed: u64,
    running: FixedUntilRestart,
) -> Option<String> {
    let config = &settings.config;
    let FixedUntilRestart { workers, addresses: listen, .. } = running;
    // Descriptors for one upstream are reserved even if resolv.conf lists none at present.
    let ways = workers * (settings.upstreams.len() as u64).max(1);
    let fixed = OTHERS + workers * (PER_WORKER + listen) + 2 * listen;
    let (ports, clients) =
        (u64::from(config.forwarding.source_ports), config.limits.tcp_connections as u64);
    // The limit on connections of clients applies to TCP, and again to TLS and HTTPS.
    let over_tcp =
        |keys: &ListenKeys| matches!(keys.transport, ListenTransport::Tls | ListenTransport::Https);
    let threads = if config.listen.iter().any(over_tcp) { 2 } else { 1 };
    let upstream_tcp = running.upstream_tcp.unwrap_or(settings.upstream_connections as u64);
    let wanted = fixed + ways * ports + threads * clients + upstream_tcp;
    if wanted <= allowed {
        return None;
    }
    let left = allowed.saturating_sub(fixed);
    let upstream_tcp = running.upstream_tcp.unwrap_or(upstream_tcp.min((left / 16).max(1)));
    let for_clients = clients.min((left / 4 / threads).max(1));
    let ports = left.saturating_sub(upstream_tcp + threads * for_clients) / ways;
    let ports = ports.clamp(1, u64::from(config.forwarding.source_ports));
    // Descriptors that the source ports do not need become available for connections of clients.
    let rest = left.saturating_sub(upstream_tcp + ways * ports) / threads;
    let clients = clients.min(rest.max(for_clients));
    settings.config.forwarding.source_ports = ports as u16;
    settings.config.limits.tcp_connections = clients as usize;
    settings.upstream_connections = upstream_tcp as usize;
    let least = fixed + ways + 2;
    let enough = if least > allowed { format!(" (the minimum is {least})") } else { String::new() };
    Some(format!(
        "{allowed} file descriptors are allowed, {wanted} are needed{enough}: reduced to {ports} source ports per upstream and worker, \
         {clients} TCP connections of clients, {upstream_tcp} of upstreams; raise the limit (ulimit -n, LimitNOFILE=)"
    ))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::ResolvConf;

    fn settings(threads: usize, upstreams: usize) -> Settings {
        let upstream = |n| format!("[[upstream]]\naddress = '192.0.2.{n}'\n");
        let text = (1..=upstreams)
            .map(upstream)
            .fold(format!("threads = {threads}\n"), |text, one| text + &one);
        Settings::from_text(&text, Path::new("test.toml")).unwrap()
    }

    /// Number of descriptors that these settings need.
    fn needs(settings: &Settings) -> u64 {
        let (config, upstreams) = (&settings.config, settings.upstreams.len() as u64);
        let workers = config.threads as u64;
        OTHERS
            + workers * (PER_WORKER + 1)
            + 2
            + workers * upstreams * u64::from(config.forwarding.source_ports)
            + config.limits.tcp_connections as u64
            + settings.upstream_connections as u64
    }

    #[test]
    fn tcp_keeps_descriptors_however_few_there_are() {
        for (threads, upstreams, allowed) in
            [(1, 1, 64), (1, 2, 100), (2, 4, 256), (16, 4, 1_024), (16, 4, 4_096)]
        {
            let mut settings = settings(threads, upstreams);
            let allowed_here = SystemLimits { descriptors: allowed, memory: Vec::new() };
            let said = allowed_here.fit(&mut settings, 1).unwrap().1;
            assert_eq!(said.len(), 1, "{threads} {upstreams} {allowed}");
            assert!(needs(&settings) <= allowed, "{said:?}");
            let clients = settings.config.limits.tcp_connections;
            assert!(clients >= 1 && settings.upstream_connections >= 1, "{said:?}");
            assert!(allowed < 200 || clients as u64 >= allowed / 8, "{said:?}");
            assert!(settings.config.forwarding.source_ports >= 1);
            // Settings that fit are not changed.
            assert_eq!(allowed_here.fit(&mut settings, 1).unwrap().1, [""; 0]);
        }
        let mut settings = settings(1, 1);
        let mut said = |descriptors| {
            SystemLimits { descriptors, memory: Vec::new() }.fit(&mut settings, 1).unwrap().1
        };
        assert_eq!(said(4_096), [""; 0]);
        let said = said(20);
        assert!(said[0].contains("the minimum is"), "{said:?}");
    }

    #[test]
    fn without_an_upstream_there_is_room_for_one() {
        let one = ResolvConf::Text("nameserver 192.0.2.1\n".into());
        let mut one = settings(2, 0).with_resolv_conf(one).unwrap();
        let mut none = one.with_resolv_conf(ResolvConf::Text(String::new())).unwrap();
        let allowed = SystemLimits { descriptors: 128, memory: Vec::new() };
        assert_eq!(allowed.fit(&mut none, 1).unwrap(), allowed.fit(&mut one, 1).unwrap());
    }

    #[test]
    fn a_reload_fits_the_parts_that_run_already() {
        let name = "memory.max".to_owned();
        let limit = MemoryLimit { octets: 150 << 20, counts: MemoryKind::Resident, name };
        let allowed = SystemLimits { descriptors: 1_024, memory: vec![limit] };
        let mut running = settings(8, 2);
        let (fixed, said) = allowed.fit(&mut running, 1).unwrap();
        assert_eq!(said.len(), 2, "descriptors and memory: {said:?}");
        let ports = running.config.forwarding.source_ports;
        // A different number of threads in the file does not change the descriptors of the running
        // workers.
        for threads in [1, 64] {
            let mut reloaded = settings(threads, 2);
            assert!(allowed.refit(&mut reloaded, fixed).is_some());
            assert_eq!(reloaded.config.forwarding.source_ports, ports, "{threads} threads");
            assert_eq!(
                reloaded.config.limits.tcp_connections,
                running.config.limits.tcp_connections
            );
            assert_eq!(reloaded.config.cache.mebibytes, settings(1, 1).config.cache.mebibytes);
        }
        // With more upstreams, fewer ports remain for each upstream. The maximum number of TCP
        // connections to upstreams does not change.
        let mut more = settings(8, 4);
        assert!(allowed.refit(&mut more, fixed).is_some());
        assert!(more.config.forwarding.source_ports < ports);
        assert_eq!(more.upstream_connections, running.upstream_connections);
    }
}
