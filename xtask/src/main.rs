//! Developer commands such as `cargo xtask test`, `cargo xtask certify` and `cargo xtask bench`. CI runs `cargo xtask
//! ci`.

#![forbid(unsafe_code)]

mod bench;
mod bench_dns64;
mod builds;
mod certify;
mod chroot;
mod ci;
mod claims;
mod comparison_programs;
mod cpu_stalls;
mod dist;
mod dnssec_fuzz;
mod docs;
mod fuzz;
mod interop;
mod packages;
mod process;
mod qemu;
mod results;
mod servers;
mod soak;
mod timing;
mod tools;
mod validators;
mod versions;
mod weight;
mod workspace_tests;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::claims::ResultOptions;
use crate::interop::Tier;
use crate::packages::Consent;

#[derive(Debug, Parser)]
struct Arguments {
    /// Install the servers and clients that tests and measurements need: Debian's packages, as root, and CoreDNS with
    /// go. Without this option, CI=true counts as consent, or a prompt on a terminal asks for consent. If there is
    /// neither, missing programs are listed
    #[arg(long, global = true)]
    install: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the checks for every change, or with --nightly the long checks, and print a table of results and durations
    Ci(ci::Ci),
    /// Run the tests of the workspace, then the first tier of the tests with real servers
    Test {
        /// Run both tiers of the tests with real servers
        #[arg(long)]
        all: bool,
    },
    /// Run only the tests with real servers and clients
    Interop {
        /// Run only tests with this text in their names, of either tier
        #[arg(default_value = "")]
        part: String,
        /// Run both tiers, instead of only the first
        #[arg(long)]
        all: bool,
        /// List the tests that would run here, and the reasons why the others would not
        #[arg(long)]
        list: bool,
        /// Run the test PART in this process, with this dns64bench
        #[arg(long, hide = true, value_name = "PROGRAM")]
        inside: Option<std::path::PathBuf>,
    },
    /// Install the servers and clients that tests need, and do nothing else
    Packages,
    /// Install fixed versions of the tools that checks and packages need, outside the folder target
    Tools(tools::Tools),
    /// Build the fuzz targets with address sanitizer and run them
    Fuzz(fuzz::Fuzz),
    /// Compare dns64d's verdicts on mutated signed responses with those of Unbound and delv. The status is 1 if dns64d
    /// differs where both agree, and 3 if one of them is missing
    DnssecFuzz(dnssec_fuzz::DnssecFuzz),
    /// Check the tester with reference DUTs of known capacity
    Certify(certify::Certify),
    /// Check every link between the documents, and build the book (docs/) if mdBook is available; --install installs it
    Docs,
    /// Build archives, Debian packages and container images of the release build, in target/dist
    Dist(dist::Dist),
    /// Compare the sizes of the programs and of the checkout with bench/weight.txt
    Weight(weight::Weight),
    /// Run a short campaign and conform against the servers of Debian 12, 13 and sid, in chroots. The status is 1 if a
    /// server could not be measured, and 3 if chroots cannot be created here
    Versions(versions::Versions),
    /// Measure dns64d and the servers of Debian 13 and sid, and write docs/src/results.md. The status is 3 if chroots
    /// cannot be created here
    Results(results::Results),
    /// Run Measurer, dns64d and AuthDNS with zero-copy AF_XDP in a virtual machine with emulated network cards. The status
    /// is 1 if a check fails, and 3 if the virtual machine cannot be started here
    Qemu(qemu::Qemu),
    /// Run dns64d under mixed load for a long time, and check for lost replies, memory growth and panics
    Soak(soak::Soak),
    /// Compare with other programs in the same run. The status is 1 if a claim of the documentation is missed, and 3 if
    /// a claim could not be measured
    #[command(args_conflicts_with_subcommands = true)]
    Bench {
        #[command(flatten)]
        against: Against,
        /// Programs or features to compare [default: tester]
        #[command(subcommand)]
        what: Option<Comparison>,
    },
    /// Run a null reflector, for `bench`
    #[command(hide = true)]
    Reflect { address: std::net::SocketAddr, cpu: usize },
    /// Send queries until a server answers, for `bench dns64`
    #[command(hide = true)]
    FirstAnswer { server: std::net::SocketAddr, source_port: u16 },
    /// Run a dns64perf++-style sender, for `bench`, and print the share of answered queries
    #[command(hide = true)]
    Classic(comparison_programs::Classic),
}

/// Another build for comparison with ours.
#[derive(Debug, Args)]
struct Against {
    /// Another build of the same program (dns64bench for `tester`, dns64d for `dns64`), to measure alternately with
    /// ours
    #[arg(long, value_name = "PROGRAM", conflicts_with = "ResultOptions")]
    against: Option<std::path::PathBuf>,
    /// With --against: minimum ratio ours / theirs; the status is 1 if the ratio is lower
    #[arg(long, value_name = "RATIO", default_value_t = 0.97, requires = "against")]
    at_least: f64,
    /// With --against: maximum number of rounds; the comparison ends earlier if the ratios are precise enough
    #[arg(long, default_value_t = 60, requires = "against", value_parser = builds::rounds())]
    rounds: u16,
    #[command(flatten)]
    keeping: ResultOptions,
}

#[derive(Debug, Subcommand)]
enum Comparison {
    /// Pacing, AuthDNS and self-test of dns64bench
    Tester(Against),
    /// dns64d compared with the servers of Debian 13 and sid: rate, CPU time, instructions, latency, start-up time, memory
    Dns64 {
        #[command(flatten)]
        against: Against,
        /// With --against: configure policies for a thousand domains and twenty groups in our dns64d only
        #[arg(long, requires = "against")]
        policies: bool,
    },
    /// Instructions per query, counted with callgrind, compared with the counts in bench/instructions.toml
    Instructions(bench::Instructions),
    /// Measurer, AuthDNS and dns64d over AF_XDP compared with sockets
    Xdp(ResultOptions),
    /// MLRsearch compared with binary search, on reference DUTs with trials that may fail by chance
    Mlrsearch(bench::Mlrsearch),
    /// The original timing of dns64perf++ compared with the corrected timing and with the Measurer, as in the tables
    /// and figures of the paper about it
    Timing(timing::Timing),
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let consent = Consent::of(arguments.install);
    match arguments.command {
        Command::Test { all } => {
            // Packages come first, because unit tests use the servers' configuration checkers.
            packages::install(consent);
            workspace_tests::run(consent)?;
            interop::run("", consent, Tier::of(all))
        }
        Command::Ci(ci) => Ok(ci.run(arguments.install)),
        Command::Packages => {
            packages::install(consent);
            Ok(ExitCode::SUCCESS)
        }
        Command::Tools(tools) => tools.run(),
        Command::Fuzz(fuzz) => fuzz.run(),
        Command::DnssecFuzz(fuzz) => fuzz.run(),
        Command::Interop { part, list: true, .. } => Ok(interop::list(&part)),
        Command::Interop { part, inside: Some(program), .. } => {
            interop::run_inside(&part, &program)
        }
        Command::Interop { part, all, .. } => interop::run(&part, consent, Tier::of(all)),
        Command::Certify(certify) => certify.run(),
        Command::Docs => docs::run(arguments.install),
        Command::Dist(dist) => dist.run(),
        Command::Weight(weight) => weight.run(),
        Command::Versions(versions) => {
            packages::install(consent);
            versions.run()
        }
        Command::Results(results) => {
            packages::install(consent);
            results.run()
        }
        Command::Qemu(qemu) => {
            packages::install(consent);
            qemu.run()
        }
        Command::Soak(soak) => soak.run(),
        Command::Bench { against, what } => {
            packages::install(consent);
            claims::status_of(match what.unwrap_or(Comparison::Tester(against)) {
                Comparison::Tester(Against { against: Some(other), at_least, rounds, .. }) => {
                    bench::against::run(&other, builds::Wanted { at_least, rounds })
                }
                Comparison::Tester(Against { keeping, .. }) => bench::run(&keeping),
                Comparison::Dns64 {
                    against: Against { against: Some(other), at_least, rounds, .. },
                    policies,
                } => {
                    let wanted = builds::Wanted { at_least, rounds };
                    bench_dns64::against::run(&other, wanted, policies)
                }
                Comparison::Dns64 { against: Against { keeping, .. }, .. } => {
                    bench_dns64::run(&keeping)
                }
                Comparison::Instructions(instructions) => instructions.run(),
                Comparison::Xdp(keeping) => bench::xdp(&keeping),
                Comparison::Mlrsearch(comparison) => comparison.run(),
                Comparison::Timing(timing) => timing.run(),
            })
        }
        Command::Reflect { address, cpu } => {
            comparison_programs::reflect(address, cpu).map(|()| ExitCode::SUCCESS)
        }
        Command::FirstAnswer { server, source_port } => {
            comparison_programs::first_answer(server, source_port).map(|()| ExitCode::SUCCESS)
        }
        Command::Classic(classic) => classic.run().map(|()| ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn arguments_name_existing_options() {
        super::Arguments::command().debug_assert();
    }
}
