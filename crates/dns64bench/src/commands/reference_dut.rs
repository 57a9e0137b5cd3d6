//! `reference-dut`: runs the mock DNS64 server of known capacity until a signal stops it.

use std::process::ExitCode;

use schemars::JsonSchema;
use serde::Serialize;
use tester::reference_dut::{ReferenceConfig, ReferenceCounters, start};
use tester::upstream_queries::UpstreamQueryConfig;
use tester::xdp::XdpInterface;
use units::CpuId;

use super::{end_with_any_thread, wait_for_end};
use crate::args::ReferenceDut;
use crate::output::{Failure, Outcome, grouped, print_versioned};
use crate::resolve::xdp_config;

/// Output of `reference-dut --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Served {
    #[serde(flatten)]
    counters: ReferenceCounters,
    /// Interface on which queries were received with AF_XDP, and the AF_XDP mode; absent if AF_XDP was not used.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "past_stack")]
    xdp: Option<XdpInterface>,
}

pub(crate) fn run(args: &ReferenceDut) -> Outcome {
    let shares = [args.loss, args.late_share, args.wrong_share].map(|s| u32::from(s.per_hundred()));
    if shares.iter().sum::<u32>() > 100 {
        return Err(Failure::usage(anyhow::anyhow!(
            "--loss, --late-share and --wrong-share must not exceed 1 together"
        )));
    }
    if args.prefix.octets()[12..] != [0; 4] {
        return Err(Failure::usage(anyhow::anyhow!(
            "--prefix {} has bits beyond its 96",
            args.prefix
        )));
    }
    end_with_any_thread();
    let running = start(ReferenceConfig {
        listen: args.listen,
        capacity: Some(args.capacity),
        burst: args.burst.into(),
        domain: args.domain.clone(),
        aaaa_share: args.aaaa_share,
        prefix: args.prefix,
        loss: args.loss,
        late_share: args.late_share,
        late_by: args.late_by.into(),
        wrong_share: args.wrong_share,
        delay: args.delay.resolve(),
        failing_trials: args.failing_trials,
        seed: args.seed,
        cpu: args.cpu.map(CpuId),
        xdp: xdp_config(args.xdp.as_ref(), args.xdp_mode),
        asking: args.ask.map(|upstream| UpstreamQueryConfig {
            upstream,
            times: args.ask_times,
            new_names: args.ask_share,
            remembers: args.remember,
        }),
    })
    .map_err(Failure::environment)?;
    eprintln!("Reference DUT of {} queries/s on {}", args.capacity, running.address());
    wait_for_end(None)?;
    let c = running.counters();
    if args.json {
        print_versioned(&Served { counters: c, xdp: running.xdp().cloned() })?;
    } else {
        let [received, answered, over, lost] =
            [c.received, c.answered, c.over_capacity, c.lost].map(grouped);
        let [ignored, dropped, refused] = [c.ignored, c.socket_drops, c.refused].map(grouped);
        println!(
            "{received} received: {answered} answered, {over} over capacity, {lost} lost as \
             configured, {ignored} ignored; {dropped} dropped by the kernel, {refused} send \
             errors; the longest wait of a query before it was read was {} ms",
            c.longest_wait_us as f64 / 1_000.0
        );
    }
    Ok(ExitCode::SUCCESS)
}
