//! `auth`: runs AuthDNS until a signal arrives or the time `--duration` has passed.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use conform::authority::{self, AuthorityConfig};
use conform::message::Name;
use hosts::new_file::write_whole;
use net::affinity::allowed_cpus;
use net::status::StatusSocket;
use tester::authdns::counters::AuthCounters;
use tester::authdns::{AuthConfig, start, status};
use tester::xdp::XdpInterface;
use units::counted;

use super::{end_with_any_thread, wait_for_end};
use crate::args::Auth;
use crate::output::{Failure, Outcome, Versioned, grouped, print_versioned};
use crate::resolve::xdp_config;

pub(crate) fn run(args: &Auth) -> Outcome {
    end_with_any_thread();
    match &args.conform {
        Some(zone) => serve_checks(args, zone),
        None => serve(args),
    }
}

fn serve(args: &Auth) -> Outcome {
    let config = AuthConfig {
        listen: args.listen.clone(),
        zone: args.zone.resolve(),
        threads: args.threads.unwrap_or_else(|| allowed_cpus().len()).max(1),
        cpus: args.cpus.clone().map(|list| list.0).unwrap_or_default(),
        delay: args.delay.resolve(),
        loss: args.loss,
        seed: args.seed,
        xdp: xdp_config(args.xdp.as_ref(), args.xdp_mode),
    };
    let socket = status_socket(args.status.as_deref())?;
    let running = start(&config).map_err(Failure::environment)?;
    if let Some(socket) = &socket {
        let counters = running.counter_reader().map_err(Failure::environment)?;
        let serving = status::serve(socket, move |other_trials| {
            Versioned::new(AuthCounters { other_trials, ..counters() })
        });
        serving.map_err(Failure::environment)?;
    }
    for address in running.addresses() {
        eprintln!("AuthDNS serves {} on {address}", config.zone.domain());
    }
    if let Some(XdpInterface { interface, attach_mode, queues }) = running.xdp() {
        let queues = counted(*queues as u64, "queue", "queues");
        eprintln!("Queries on {interface} are received by AF_XDP ({attach_mode}, {queues})");
    }
    let ended = wait_for_end(args.duration);
    let counters = running.counters();
    drop((running, socket));
    ended?;
    print(&counters, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Serves the test names of `dns64bench conform` until a signal arrives or the time `--duration` has passed.
fn serve_checks(args: &Auth, zone: &Name) -> Outcome {
    let config = AuthorityConfig {
        listen: args.listen.clone(),
        zone: zone.clone(),
        ns: args.zone.ns_address,
    };
    let socket = status_socket(args.status.as_deref())?;
    let far = authority::start(&config).map_err(Failure::environment)?;
    if let Some(path) = &args.anchors {
        let text = far.anchors().join("\n") + "\n";
        write_whole(path, text.as_bytes()).map_err(Failure::environment)?;
    }
    if let Some(socket) = &socket {
        authority::status::serve(socket, far.log(), far.anchors()).map_err(Failure::environment)?;
    }
    for address in far.addresses() {
        eprintln!("AuthDNS serves the test names of conform below {zone} on {address}");
    }
    let ended = wait_for_end(args.duration);
    drop((far, socket));
    ended.map(|()| ExitCode::SUCCESS)
}

/// Creates the status socket. The status socket is created before the DNS sockets, so that it exists as soon as clients
/// can reach the DNS server.
fn status_socket(path: Option<&Path>) -> Result<Option<StatusSocket>, Failure> {
    let bind = |path: &Path| {
        StatusSocket::bind(path)
            .with_context(|| format!("cannot create the status socket {}", path.display()))
    };
    path.map(bind).transpose().map_err(Failure::environment)
}

fn print(counters: &AuthCounters, json: bool) -> Result<(), Failure> {
    if json {
        return print_versioned(counters);
    }
    let (q, r) = (&counters.queries, &counters.replies);
    let [all, aaaa, a, other] = [q.total(), q.aaaa, q.a, q.other].map(grouped);
    println!("Queries     {all}: {aaaa} AAAA, {a} A, {other} other");
    let each = [
        (r.noerror, "with a record"),
        (r.nodata, "NODATA"),
        (r.nxdomain, "NXDOMAIN"),
        (r.refused, "REFUSED"),
        (r.formerr, "FORMERR"),
        (r.notimp, "NOTIMP"),
        (r.badvers, "BADVERS"),
    ];
    println!("Replies     {}", each.map(|(n, what)| format!("{} {what}", grouped(n))).join(", "));
    let c = counters;
    let [ignored, lost, refused, dropped] =
        [c.ignored, c.lost_on_purpose, c.send_refused, c.socket_drops].map(grouped);
    println!(
        "Other       {ignored} ignored, {lost} lost as configured, {refused} send errors, \
         {dropped} dropped before they were read"
    );
    for loss in counters.host_drops.losses() {
        println!("Host        {loss}");
    }
    let own = &counters.own_time;
    if let (Some(p50), Some(p999), Some(max)) = (own.quantile(0.5), own.quantile(0.999), own.max())
    {
        let us = |time: units::Nanos| time.0 as f64 / 1e3;
        println!("Response    {:.0} µs median, {:.0} p99.9, {:.0} max", us(p50), us(p999), us(max));
    }
    Ok(())
}
