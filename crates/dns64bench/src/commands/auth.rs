//! `auth`: AuthDNS until a signal ends it.

use std::process::ExitCode;

use anyhow::Context;
use net::affinity::allowed_cpus;
use tester::authdns::counters::AuthCounters;
use tester::authdns::{AuthConfig, start, status};

use super::wait_for_end;
use crate::args::Auth;
use crate::output::{Failure, Outcome};

pub(crate) fn run(args: &Auth) -> Outcome {
    let config = AuthConfig {
        listen: args.listen.clone(),
        zone: args.zone.resolve(),
        threads: args.threads.unwrap_or_else(|| allowed_cpus().len()).max(1),
        cpus: args.cpus.clone().map(|list| list.0).unwrap_or_default(),
        delay: args.delay.resolve(),
        loss: args.loss,
        seed: args.seed,
    };
    let running = start(&config).map_err(Failure::environment)?;
    if let Some(path) = &args.status {
        let left_over = || format!("cannot make the status socket {}; remove it if it is left over", path.display());
        status::serve(path, running.counter_reader()).with_context(left_over).map_err(Failure::environment)?;
    }
    for address in running.addresses() {
        eprintln!("AuthDNS serves {} on {address}", config.zone.domain());
    }
    let ended = wait_for_end(args.duration);
    let counters = running.counters();
    drop(running);
    if let Some(path) = &args.status {
        let _ = std::fs::remove_file(path);
    }
    ended?;
    print(&counters, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn print(counters: &AuthCounters, json: bool) -> Result<(), Failure> {
    if json {
        println!("{}", serde_json::to_string(counters).map_err(Failure::environment)?);
        return Ok(());
    }
    let (q, r) = (&counters.queries, &counters.replies);
    println!("Queries     {}: {} AAAA, {} A, {} other", q.total(), q.aaaa, q.a, q.other);
    println!(
        "Replies     {} with a record, {} NODATA, {} NXDOMAIN, {} REFUSED, {} FORMERR, {} NOTIMP, {} BADVERS",
        r.noerror, r.nodata, r.nxdomain, r.refused, r.formerr, r.notimp, r.badvers
    );
    println!(
        "Besides     {} ignored, {} lost on purpose, {} refused by the kernel, {} dropped before we could read them",
        counters.ignored, counters.lost_on_purpose, counters.send_refused, counters.socket_drops
    );
    let own = &counters.own_time;
    if let (Some(p50), Some(p999), Some(max)) = (own.quantile(0.5), own.quantile(0.999), own.max()) {
        let us = |time: method::units::Nanos| time.0 as f64 / 1e3;
        println!("Own time    {:.0} µs median, {:.0} p99.9, {:.0} max", us(p50), us(p999), us(max));
    }
    Ok(())
}
