//! Command line definitions; parsing does no I/O.

mod clients;
mod common;
mod conform;
pub(crate) mod help;
mod try_server;
mod values;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use campaign::plan::READY;
use campaign::plan::TypedGoal;
use campaign::record::Redo;
use clap::{Args, Parser, Subcommand, ValueEnum};
use method::pacing::PacingLimits;
use tester::measurer::burst::Burst;
use tester::measurer::expect::Prefix;
use tester::measurer::plan::shard::Moment;
use tester::measurer::plan::sources::SourceAddresses;
use units::{Qps, Share};
use wire::name::{Domain, NameRange};

pub(crate) use clients::{
    ClosedLoop, Dns64perf, Experiments, Family, IntervalFiles, Questions, Resperf, Timing,
    Transport,
};
pub(crate) use common::{Display, LivenessOptions};
pub(crate) use conform::{Conform, StatusSocketLocation};
use help::{
    AUTH, CHECKS, COMPARISON, FAULTS, FILES, LOAD, NAMES, PACING, QUESTIONS, REPLIES, SEARCH,
    SELF_TEST, SERVER, SHARDS, THREADS,
};
pub(crate) use try_server::Try;
pub(crate) use values::{CpuList, DNS_PORT, DelayRange, Server, ShardNumber};
use values::{
    like, parse_address, parse_cpus, parse_decrease, parse_delay, parse_fraction,
    parse_metrics_address, parse_offset, parse_percentage, parse_reserve, parse_share,
    parse_some_time, parse_time,
};

/// Measures how many queries per second a DNS64 server can answer, as specified by RFC 8219.
#[derive(Debug, Parser)]
#[command(version, long_version = hosts::BUILD, propagate_version = true, max_term_width = 110, after_help = help::below(""))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure dns64d, the DNS64 server included in this program, on this host in about a minute
    #[command(after_help = help::below("quickstart"))]
    Quickstart(Quickstart),
    /// Measure your own DNS64 server in a few minutes: print the configuration lines that the server needs for the
    /// test, check its answers, and search for its highest query rate
    #[command(after_help = help::below("try"))]
    Try(Try),
    /// Run one trial: send queries at a constant rate, and count the valid replies
    #[command(after_help = help::below("measure"))]
    Measure(Measure),
    /// Combine the results of a trial that was distributed over several testers (measure --shard)
    #[command(after_help = help::below("merge"))]
    Merge(Merge),
    /// Search for the highest query rate at which the server passes a trial
    #[command(after_help = help::below("search"))]
    Search(Box<Search>),
    /// Measure the query rate up to which the tester itself is reliable (RFC 8219 §9.2.1)
    #[command(after_help = help::below("self-test"))]
    SelfTest(SelfTest),
    /// Keep a fixed number of queries in flight, and measure the number of answers per second
    #[command(after_help = help::below("closed-loop"))]
    ClosedLoop(Box<ClosedLoop>),
    /// Increase the query rate linearly until the server cannot keep up, with the options and output of resperf
    Resperf(Box<Resperf>),
    /// Run one trial with the arguments and output of dns64perf++
    #[command(name = "dns64perf++")]
    Dns64perf(Dns64perf),
    /// Run a benchmark plan with many searches and servers; an interrupted run can be resumed
    #[command(after_help = help::below("campaign"))]
    Campaign(Campaign),
    /// Write the report of a campaign, or compare several campaigns
    #[command(after_help = help::below("report"))]
    Report(Report),
    /// Check a DNS64 server against the RFCs, section by section
    #[command(after_help = help::below("conform"))]
    Conform(Box<Conform>),
    /// Run AuthDNS, the authoritative server for the names that the tester queries
    #[command(after_help = help::below("auth"))]
    Auth(Auth),
    /// Run a mock DNS64 server with a known capacity, to check the tester
    #[command(after_help = help::below("reference-dut"))]
    ReferenceDut(ReferenceDut),
    /// Print a zone file with the records that AuthDNS serves, for use by other authoritative servers
    #[command(after_help = help::below("zone"))]
    Zone(Zone),
    /// Print the tester's queries in the format that dnsperf and resperf read
    #[command(after_help = help::below("queryfile"))]
    Queryfile(QueryFile),
    /// Manage a lab on this machine: three connected network namespaces named tester, dut and auth
    #[command(after_help = help::below("lab"))]
    Lab(Lab),
    /// Check this machine for settings that distort measurements
    #[command(after_help = help::below("check"))]
    Check(Check),
    /// Print the completion script for a shell
    #[command(after_help = help::below("completions"))]
    Completions {
        /// Shell for which to print the script
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = help::below("manual"))]
    Manual(Manual),
    /// Print the JSON Schema of a result, a journal, a plan, or dns64d's configuration
    #[command(after_help = help::below("schema"))]
    Schema(Schema),
    /// Measure the CPU time that sending needs on this host, and print it as JSON
    #[command(hide = true)]
    SendCost(SendCostArguments),
    /// Read the requests of a campaign from standard input and execute them, until standard input is closed
    #[command(hide = true)]
    Agent(Agent),
    /// Run the DNS64 server dns64d; used by the command quickstart
    #[command(hide = true, disable_help_flag = true, disable_version_flag = true)]
    Dns64d {
        /// Command-line arguments of dns64d
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
}

/// Options of all commands that run trials.
#[derive(Clone, Debug, Args)]
pub(crate) struct Traffic {
    /// Duration of a trial; RFC 8219 requires at least 60 s
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time, help_heading = LOAD)]
    pub(crate) duration: Duration,
    /// Timeout of a query: a reply that takes this long or longer is not valid. RFC 8219 allows at most 1 s. A
    /// self-test uses a quarter of this timeout [default: 1s, or a twentieth of --duration if --duration is below 20s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = LOAD)]
    pub(crate) timeout: Option<Duration>,
    /// Block of IPv4 addresses from which the queried names are generated, one name per address [default: 10.0.0.0/8;
    /// the commands `search` and `self-test` use 0.0.0.0/0 if they may need more names]
    #[arg(long, value_name = "A.B.C.D/LEN", help_heading = NAMES)]
    pub(crate) names: Option<NameRange>,
    /// Index of the first queried name in the --names block; the indices begin with 0. Change the index to avoid names
    /// that the server has cached
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = NAMES)]
    pub(crate) first_name: u64,
    /// DNS zone of the generated names
    #[arg(long, default_value = "dns64perf.test", help_heading = NAMES)]
    pub(crate) domain: Domain,
    /// AAAA record rate (α): fraction of the names, from 0 to 1, that have an AAAA record. AuthDNS (`dns64bench auth`)
    /// must run with the same --aaaa-share
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = Share::ZERO, help_heading = NAMES)]
    pub(crate) aaaa_share: Share,
    /// Cache hit rate (β): fraction of the queries, from 0 to 1, whose name the DUT has already resolved and cached
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = Share::ZERO, help_heading = NAMES)]
    pub(crate) cached_share: Share,
    /// Number of thread pairs; each pair has one sending and one receiving thread
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = THREADS)]
    pub(crate) threads: u16,
    /// Total number of UDP source ports across all threads
    #[arg(long, value_name = "N", default_value_t = tester::measurer::plan::DEFAULT_SOURCE_PORTS, help_heading = THREADS)]
    pub(crate) source_ports: u16,
    /// Simulate many clients: send from N source addresses in this IPv4 or IPv6 prefix. The prefix must be local to
    /// this host (for example, run `ip -6 route add local PREFIX dev lo`), and the server needs a route to the prefix.
    /// N is at most 65536 [default of N: 256, or all addresses of the prefix if it has fewer]
    #[arg(long, value_name = "PREFIX[,N]", help_heading = THREADS)]
    pub(crate) source_addresses: Option<SourceAddresses>,
    /// Send and receive with AF_XDP (kernel bypass) on this interface. The route to the server must use the interface;
    /// the value auto selects the interface of the route. One thread pair handles all queues of the interface, so
    /// --threads must be 1
    #[arg(long, value_name = "IFACE", help_heading = THREADS)]
    pub(crate) xdp: Option<String>,
    /// AF_XDP mode: zero-copy (needs driver support), copy (XDP runs in the driver, and the kernel copies the packets),
    /// generic (works with every driver), or auto (the first of these that works)
    #[arg(long, value_name = "MODE", value_enum, default_value_t, requires = "xdp", help_heading = THREADS)]
    pub(crate) xdp_mode: XdpMode,
    /// CPUs for the threads, in the order sender, receiver, sender, receiver …, such as 2,3 or 0-7 [default: the kernel
    /// selects the CPUs]
    #[arg(long, value_name = "LIST", value_parser = parse_cpus, help_heading = THREADS)]
    pub(crate) cpus: Option<CpuList>,
    /// Busy-wait for the send time of each query instead of sleeping; this makes the send times more accurate. auto:
    /// busy-wait if this host has at least two more CPUs than the tester has threads
    #[arg(long, value_enum, default_value_t = SpinChoice::Auto, help_heading = PACING)]
    pub(crate) spin: SpinChoice,
    /// Queries are sent in batches. This is the maximum time between the scheduled send time of a query and the send
    /// time of its batch. A larger value saves CPU time. auto: 50us with busy-waiting or on dedicated CPUs; otherwise
    /// the shortest time at which sending uses at most a third of a CPU, up to 1ms
    #[arg(long, value_name = "TIME", default_value_t = Burst::Auto, help_heading = PACING)]
    pub(crate) max_burst: Burst,
    /// Run all threads without real-time priority. By default, a sending thread with a dedicated CPU has real-time
    /// priority
    #[arg(long, help_heading = PACING)]
    pub(crate) no_real_time: bool,
    /// Limit in per cent for deviations from the schedule. A trial is invalid if, in any window of 100 ms, the number
    /// of queries sent deviates from the schedule by more than this limit
    #[arg(long, value_name = "PCT", allow_negative_numbers = true, default_value_t = PacingLimits::default().window_100ms_pct, value_parser = parse_percentage, help_heading = PACING)]
    pub(crate) window_limit: f64,
    /// Limit for the delay between the scheduled and the actual send time of a query. A trial is invalid if the delay
    /// exceeds the limit for more than one query in a thousand
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_some_time, help_heading = PACING)]
    pub(crate) lateness_limit: Duration,
    /// Use only one system call (UDP_SEGMENT) for all queries of a batch that have the same source port
    #[arg(long, value_name = "YES", default_value_t = true, action = clap::ArgAction::Set, help_heading = THREADS)]
    pub(crate) offload: bool,
    /// Path of AuthDNS's status socket, as given in `auth --status`. With this option, a trial is invalid if AuthDNS
    /// drops packets or responds slowly. Without this option, such a trial may count as a failure of the server
    #[arg(long, value_name = "PATH", help_heading = AUTH)]
    pub(crate) auth_status: Option<PathBuf>,
    /// For use with --auth-status: limit for the response time of AuthDNS. A trial is invalid if more than one response
    /// in a thousand takes longer
    #[arg(long, value_name = "TIME", default_value = "10ms", value_parser = parse_some_time, help_heading = AUTH)]
    pub(crate) auth_limit: Duration,
    /// Declare that the DUT, AuthDNS and the Measurer run on separate hosts; the program cannot detect this
    #[arg(long, help_heading = SERVER)]
    pub(crate) separate_hosts: bool,
    /// Write a record of every query to this .csv (dns64perf++ format) or .parquet file
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) records: Option<PathBuf>,
}

/// Criteria for valid replies, and the fraction of queries that must get a valid reply for a trial to pass.
#[derive(Debug, Args)]
pub(crate) struct Replies {
    /// Prefix that synthesized addresses must have; may be given several times [default: any address is valid]
    #[arg(long, value_name = "P/LEN", help_heading = REPLIES)]
    pub(crate) expect_prefix: Vec<Prefix>,
    /// Accept any address for names with a native AAAA record; needed if the zone was not generated by AuthDNS or
    /// `dns64bench zone`
    #[arg(long, help_heading = REPLIES)]
    pub(crate) any_aaaa: bool,
    /// Acceptance criterion: a trial passes if at least this fraction of the queries, from 0 to 1, get a valid reply.
    /// Values below 1 do not comply with RFC 8219
    #[arg(long, value_name = "SHARE", default_value = "1", allow_negative_numbers = true, value_parser = parse_fraction, help_heading = REPLIES)]
    pub(crate) accept: f64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SpinChoice {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Args)]
pub(crate) struct Measure {
    #[command(flatten)]
    pub(crate) new: NewTrial,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
    #[command(flatten)]
    pub(crate) replies: Replies,
    #[command(flatten)]
    pub(crate) display: Display,
    #[command(flatten)]
    pub(crate) asking: LivenessOptions,
    #[command(flatten)]
    pub(crate) intervals: IntervalFiles,
    #[command(flatten)]
    pub(crate) sharding: Sharding,
    /// Run the trial defined in this file (- is standard input). The file contains all settings of the trial as a JSON
    /// object, in the format that campaigns write
    #[arg(long, value_name = "FILE", conflicts_with_all = ["NewTrial", "Traffic", "Replies", "interval"], help_heading = FILES)]
    pub(crate) plan: Option<PathBuf>,
    /// File with the output of `self-test --json`, which shows the rate up to which the tester is reliable. The trials
    /// and the self-test must have the same send settings, such as threads, source ports and CPUs. Without this file,
    /// results do not comply with RFC 8219
    #[arg(long, value_name = "FILE", conflicts_with = "shard", help_heading = SELF_TEST)]
    pub(crate) self_test: Option<PathBuf>,
    /// Include a description of this host in the JSON result; this takes 0.2 s after the trial
    #[arg(long, value_name = "YES", default_value_t = true, action = clap::ArgAction::Set, help_heading = FILES)]
    pub(crate) environment: bool,
}

/// Options for a distributed trial, in which each of several testers sends one shard of the queries.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Sharding {
    /// Send only shard I of N (I from 0 to N-1): query I of the trial and every N-th query after it. --rate is the rate
    /// of the whole trial. Run the other shards on other testers, and combine all --json results with `merge`
    #[arg(long, value_name = "I/N", requires = "start_at", conflicts_with = "auth_status", help_heading = SHARDS)]
    pub(crate) shard: Option<ShardNumber>,
    /// Wall-clock time at which the first query of the trial (query 0) is sent. It must be a few seconds in the future,
    /// and the same on all testers. Formats: RFC 3339, the output of `date --iso-8601=ns`, or seconds since 1970
    #[arg(long, value_name = "TIME", requires = "shard", help_heading = SHARDS)]
    pub(crate) start_at: Option<Moment>,
    /// Seed for the DNS message IDs; it must be the same on all testers [default: derived from the plan and --start-at]
    #[arg(long, value_name = "N", requires = "shard", help_heading = SHARDS)]
    pub(crate) seed: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Files with the output of `measure --shard … --json`, one from each tester
    #[arg(required = true, value_name = "RESULT")]
    pub(crate) results: Vec<PathBuf>,
    /// Measured clock offset of the tester that sent shard I, such as 1=250us for shard 1. The offset is positive if
    /// the tester's clock was ahead of true time, and negative if the clock was behind. Without this option, the
    /// kernel's estimate of the clock error is used. Testers on the same host use the same clock and need no offset
    #[arg(long, value_name = "I=TIME", value_parser = parse_offset, allow_hyphen_values = true, help_heading = SHARDS)]
    pub(crate) offset: Vec<(u16, i64)>,
    /// Print the combined result as one JSON object
    #[arg(long, help_heading = FILES)]
    pub(crate) json: bool,
}

/// Options of a trial that is not read from a plan file.
#[derive(Debug, Args)]
pub(crate) struct NewTrial {
    /// Server to measure, such as 2001:2::1, [2001:2::1]:5353, 198.18.0.1 or localhost; the default port is 53
    #[arg(long, value_name = "SERVER", required_unless_present = "plan", help_heading = SERVER)]
    pub(crate) server: Option<Server>,
    /// Queries to send per second, such as 20000 or 20k
    #[arg(long, value_name = "QPS", allow_negative_numbers = true, required_unless_present = "plan", help_heading = LOAD)]
    pub(crate) rate: Option<Qps>,
}

#[derive(Debug, Args)]
pub(crate) struct SendCostArguments {
    /// CPU on which the sending thread runs
    #[arg(long, value_name = "N", help_heading = THREADS)]
    pub(crate) cpu: Option<usize>,
}

#[derive(Debug, Args)]
pub(crate) struct Search {
    #[command(flatten)]
    pub(crate) new: NewSearch,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
    #[command(flatten)]
    pub(crate) replies: Replies,
    #[command(flatten)]
    pub(crate) display: Display,
    #[command(flatten)]
    pub(crate) asking: LivenessOptions,
    /// Resume the search recorded in this journal, with its original options
    #[arg(long, value_name = "FILE", conflicts_with_all = ["NewSearch", "Traffic", "Replies"], help_heading = FILES)]
    pub(crate) resume: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct NewSearch {
    /// Server to measure, such as 2001:2::1, [2001:2::1]:5353, 198.18.0.1 or localhost; the default port is 53
    #[arg(long, value_name = "SERVER", required_unless_present = "resume", help_heading = SERVER)]
    pub(crate) server: Option<Server>,
    /// Lowest rate to test, in queries per second, such as 1000 or 1k
    #[arg(long, value_name = "QPS", allow_negative_numbers = true, required_unless_present = "resume", help_heading = LOAD)]
    pub(crate) min: Option<Qps>,
    /// Highest rate to test, in queries per second
    #[arg(long, value_name = "QPS", allow_negative_numbers = true, required_unless_present = "resume", help_heading = LOAD)]
    pub(crate) max: Option<Qps>,
    /// Resolution in queries per second: a bisection ends when the lowest rate that failed is at most this much above
    /// the highest rate that passed
    #[arg(long, value_name = "QPS", allow_negative_numbers = true, default_value_t = Qps(1), help_heading = SEARCH)]
    pub(crate) resolution: Qps,
    /// Search method. bisection (alias rfc8219): binary search with full-length trials (RFC 8219 §9.2). mlrsearch:
    /// MLRsearch (RFC 9971), which begins with short trials and can search for several goals at once
    #[arg(long, value_enum, default_value_t = SearchMethod::Bisection, help_heading = SEARCH)]
    pub(crate) method: SearchMethod,
    /// Additional goal for --method mlrsearch; the goal of RFC 8219 always applies. LOSS: maximum loss ratio of a
    /// trial. exceed: at each rate, trials with a loss ratio above LOSS may make up at most this fraction of the total
    /// trial time. final: duration of a full-length trial. sum: total duration of the full-length trials at each rate
    #[arg(long, value_name = "LOSS[,exceed=SHARE][,final=TIME][,sum=TIME]", help_heading = SEARCH)]
    pub(crate) goal: Vec<TypedGoal>,
    /// For --method mlrsearch: maximum distance between the lower and upper bounds of the result, as a fraction of the
    /// upper bound
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value = "0.5%", value_parser = parse_share, help_heading = SEARCH)]
    pub(crate) width: f64,
    /// Number of searches; RFC 8219 requires at least 20
    #[arg(long, value_name = "N", default_value_t = 20, help_heading = SEARCH)]
    pub(crate) repeat: u32,
    /// Pause between trials
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_time, help_heading = SEARCH)]
    pub(crate) pause: Duration,
    /// Maximum number of retries of an invalid trial
    #[arg(long, value_name = "N", default_value_t = 3, help_heading = SEARCH)]
    pub(crate) invalid_retries: u32,
    /// Start again with the first name when all names of the --names block have been used; this does not comply with
    /// RFC 8219
    #[arg(long, help_heading = NAMES)]
    pub(crate) reuse_names: bool,
    /// File with the output of `self-test --json`, which shows the rate up to which the tester is reliable. The trials
    /// and the self-test must have the same send settings, such as threads, source ports and CPUs. Without this file,
    /// results do not comply with RFC 8219
    #[arg(long, value_name = "FILE", conflicts_with = "self_test_passed", help_heading = SELF_TEST)]
    pub(crate) self_test: Option<PathBuf>,
    /// Rate, in queries per second, at which a self-test passed; for use if the output file of the self-test is not
    /// available. Results above the rate that the self-test validates are reported as lower bounds
    #[arg(long, value_name = "QPS", allow_negative_numbers = true, help_heading = SELF_TEST)]
    pub(crate) self_test_passed: Option<Qps>,
    /// Reserve δ of the self-test, as a share of the rate. With --self-test-passed, use the same --delta as in that self-test
    #[arg(long, value_name = "SHARE", default_value_t = method::selftest::MIN_DELTA, allow_negative_numbers = true, value_parser = parse_reserve, help_heading = SELF_TEST)]
    pub(crate) delta: f64,
    /// Journal: file in which the trials are recorded, so that the search can be resumed [default:
    /// ~/.local/state/dns64bench/dns64bench-search-TIME-PID.jsonl]
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) journal: Option<PathBuf>,
}

/// Method by which a search selects its rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchMethod {
    #[value(alias = "rfc8219")]
    Bisection,
    Mlrsearch,
}

#[derive(Debug, Args)]
pub(crate) struct SelfTest {
    /// Address of AuthDNS, such as 198.18.1.2, on a direct link from this host. AuthDNS must run with --aaaa-share 1
    #[arg(long, value_name = "SERVER", help_heading = SERVER)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) traffic: Traffic,
    #[command(flatten)]
    pub(crate) display: Display,
    #[command(flatten)]
    pub(crate) asking: LivenessOptions,
    /// Highest rate, in queries per second, at which DUTs will be tested; set --aaaa-share (α) and --cached-share (β)
    /// to the values that those tests will use
    #[arg(long, value_name = "QPS", allow_negative_numbers = true, help_heading = LOAD)]
    pub(crate) for_rate: Qps,
    /// The reserve δ: fraction by which the rate of the self-test exceeds the highest load on the tester in tests of
    /// DUTs. RFC 8219 requires at least 0.1
    #[arg(long, value_name = "SHARE", default_value_t = method::selftest::MIN_DELTA, allow_negative_numbers = true, value_parser = parse_reserve, help_heading = SELF_TEST)]
    pub(crate) delta: f64,
    /// Number of trials, all of which must pass; with --search-to, the number of searches
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = SELF_TEST)]
    pub(crate) repeat: u32,
    /// Instead of testing a single rate, search for the highest rate that passes, up to this rate in queries per
    /// second. The result of the self-test is the lowest result of the --repeat searches
    #[arg(long, value_name = "QPS", allow_negative_numbers = true, help_heading = SELF_TEST)]
    pub(crate) search_to: Option<Qps>,
}

#[derive(Debug, Args)]
pub(crate) struct Campaign {
    #[command(subcommand)]
    pub(crate) action: CampaignAction,
}

/// Results for which `campaign resume` repeats the measurement.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RedoChoice {
    SelfTest,
}

impl From<RedoChoice> for Redo {
    fn from(choice: RedoChoice) -> Redo {
        match choice {
            RedoChoice::SelfTest => Redo::SelfTest,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CampaignAction {
    /// Run a benchmark plan
    #[command(after_help = help::below("campaign run"))]
    Run {
        /// Plan: a TOML file, or the name of a built-in plan (smoke, compulsory, paper or paper-small)
        plan: PathBuf,
        /// Folder for the results of the run; it must not exist yet [default: the plan's file name with -run in place
        /// of .toml]
        #[arg(long, value_name = "DIR", help_heading = FILES)]
        dir: Option<PathBuf>,
        /// Only print what would be done, like `campaign plan`
        #[arg(long, help_heading = FILES)]
        dry_run: bool,
        /// Continue after a failed self-test; every result is then a lower bound
        #[arg(long, help_heading = SELF_TEST)]
        keep_going: bool,
        /// Print problems only, without progress
        #[arg(long, short, help_heading = FILES)]
        quiet: bool,
        /// Serve Prometheus metrics of the running campaign at http://ADDR:PORT/metrics
        #[arg(long, value_name = "ADDR:PORT", value_parser = parse_metrics_address, help_heading = FILES)]
        metrics: Option<SocketAddr>,
    },
    /// Resume a campaign that was killed or interrupted
    #[command(after_help = help::below("campaign resume"))]
    Resume {
        /// Run folder of the campaign, or its plan if the campaign was started without --dir
        run: PathBuf,
        /// Repeat the plan's self-tests even if they already have results
        #[arg(long, value_name = "POINTS", help_heading = SELF_TEST)]
        redo: Option<RedoChoice>,
        /// Continue after a failed self-test; every result is then a lower bound
        #[arg(long, help_heading = SELF_TEST)]
        keep_going: bool,
        /// Print problems only, without progress
        #[arg(long, short, help_heading = FILES)]
        quiet: bool,
        /// Serve Prometheus metrics of the running campaign at http://ADDR:PORT/metrics
        #[arg(long, value_name = "ADDR:PORT", value_parser = parse_metrics_address, help_heading = FILES)]
        metrics: Option<SocketAddr>,
    },
    /// Show which points (measurements of the plan) are finished, and the remaining time
    #[command(after_help = help::below("campaign status"))]
    Status {
        /// Run folder of the campaign, or its plan if the campaign was started without --dir
        run: PathBuf,
    },
    /// Print every point (measurement) of a plan, with its number of trials and its duration
    #[command(after_help = help::below("campaign plan"))]
    Plan {
        /// Plan: a TOML file, or the name of a built-in plan
        plan: PathBuf,
    },
    /// Print a built-in plan, to use as a template
    #[command(after_help = help::below("campaign show"))]
    Show {
        /// Name of the built-in plan
        #[arg(value_parser = READY.map(|(name, _)| name))]
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Agent {
    /// Working folder of the agent
    #[arg(long, value_name = "DIR", help_heading = FILES)]
    pub(crate) folder: PathBuf,
    /// Remove the working folder when the agent ends
    #[arg(long, help_heading = FILES)]
    pub(crate) remove: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Run folders of campaigns; if several are given, the report compares the runs
    #[arg(required = true, value_name = "DIR")]
    pub(crate) runs: Vec<PathBuf>,
    /// Folder for the report; required if several runs are given without --baseline [default: the run folder; with
    /// --baseline, no report is written]
    #[arg(long, value_name = "DIR", help_heading = FILES)]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) gate: Gate,
}

/// Options for the comparison of runs with a baseline.
#[derive(Debug, Args)]
pub(crate) struct Gate {
    /// Run folder of the baseline. The other runs are compared with the baseline. If the option is given several times,
    /// the searches of all baseline runs are combined
    #[arg(long, value_name = "DIR", help_heading = COMPARISON)]
    pub(crate) baseline: Vec<PathBuf>,
    /// Largest decrease of the median rate that does not count as a regression, such as 5% or 0.05
    #[arg(long, value_name = "PCT", allow_negative_numbers = true, default_value = "5%", value_parser = parse_decrease, help_heading = COMPARISON)]
    pub(crate) max_regression: f64,
    /// Combine the searches of all runs other than the baselines. This is valid only if the baseline runs and the other
    /// runs were measured alternately
    #[arg(long, requires = "baseline", help_heading = COMPARISON)]
    pub(crate) in_turn: bool,
    /// Write the result of the comparison for each measurement point to this file, as JUnit XML
    #[arg(long, value_name = "FILE", requires = "baseline", help_heading = COMPARISON)]
    pub(crate) junit: Option<PathBuf>,
    /// Append a summary of the comparison, in Markdown, to this file, such as $GITHUB_STEP_SUMMARY
    #[arg(long, value_name = "FILE", requires = "baseline", help_heading = COMPARISON)]
    pub(crate) summary: Option<PathBuf>,
    /// Print the comparison as one JSON object
    #[arg(long, requires = "baseline", help_heading = COMPARISON)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Auth {
    /// Address and port on which to listen for UDP and TCP; may be given several times
    #[arg(long, value_name = "ADDR:PORT", required = true, num_args = 1.., value_parser = parse_address, help_heading = THREADS)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Serve the test names of `dns64bench conform` below ZONE, instead of the generated names; each test name encodes
    /// its own answer [default of ZONE: conform.example]
    #[arg(long, value_name = "ZONE", num_args = 0..=1, require_equals = true, default_missing_value = "conform.example",
          conflicts_with_all = ["domain", "aaaa_share", "ttl", "threads", "cpus", "delay", "loss", "seed", "json"],
          help_heading = CHECKS)]
    pub(crate) conform: Option<::conform::message::Name>,
    /// Write the trust anchors (DNSKEY and DS records) of the DNSSEC-signed zones below the --conform ZONE to this file
    #[arg(long, value_name = "FILE", requires = "conform", help_heading = CHECKS)]
    pub(crate) anchors: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) zone: ZoneContent,
    /// Number of worker threads per address [default: one per CPU]
    #[arg(long, value_name = "N", help_heading = THREADS)]
    pub(crate) threads: Option<usize>,
    /// CPUs on which the worker threads run, such as 2,3 or 0-7
    #[arg(long, value_name = "LIST", value_parser = parse_cpus, help_heading = THREADS)]
    pub(crate) cpus: Option<CpuList>,
    /// Also answer queries with AF_XDP (kernel bypass) on this interface, with one worker thread for each of its
    /// queues. All --listen addresses must be assigned to the interface; auto selects the interface that has these
    /// addresses
    #[arg(long, value_name = "IFACE", conflicts_with_all = ["conform", "delay"], help_heading = THREADS)]
    pub(crate) xdp: Option<String>,
    /// AF_XDP mode: zero-copy (needs driver support), copy (XDP runs in the driver, and the kernel copies the packets),
    /// generic (works with every driver), or auto (the first of these that works)
    #[arg(long, value_name = "MODE", value_enum, default_value_t, requires = "xdp", help_heading = THREADS)]
    pub(crate) xdp_mode: XdpMode,
    /// Delay of each UDP reply: one time, such as 20ms, or a range, such as 10ms-50ms, from which each delay is drawn
    /// at random (uniform distribution)
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_delay, help_heading = FAULTS)]
    pub(crate) delay: DelayRange,
    /// Fraction of the UDP replies, from 0 to 1, that are dropped instead of sent
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = 0.0, value_parser = parse_fraction, help_heading = FAULTS)]
    pub(crate) loss: f64,
    /// Seed for the random decisions of --loss and --delay
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = FAULTS)]
    pub(crate) seed: u64,
    /// Path of the status socket, a Unix socket that the server creates. Each client that connects receives the
    /// server's counters as one line of JSON
    #[arg(long, value_name = "PATH", help_heading = FILES)]
    pub(crate) status: Option<PathBuf>,
    /// Print the server's counters as JSON when the server ends
    #[arg(long, help_heading = FILES)]
    pub(crate) json: bool,
    /// Time after which the server stops, unless SIGINT or SIGTERM stops it earlier [default: no time limit]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = LOAD)]
    pub(crate) duration: Option<Duration>,
}

/// Requested AF_XDP mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum XdpMode {
    // The help of `--xdp-mode` describes the values; doc comments here would switch the help to clap's long style.
    #[default]
    Auto,
    ZeroCopy,
    Copy,
    Generic,
}

impl XdpMode {
    /// Returns the AF_XDP mode in the form that the crate `net` uses.
    pub(crate) fn resolve(self) -> net::xdp::Mode {
        match self {
            XdpMode::Auto => net::xdp::Mode::Auto,
            XdpMode::ZeroCopy => net::xdp::Mode::ZeroCopy,
            XdpMode::Copy => net::xdp::Mode::Copy,
            XdpMode::Generic => net::xdp::Mode::Generic,
        }
    }
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ZoneContent {
    /// DNS zone of the generated names
    #[arg(long, default_value = "dns64perf.test", help_heading = NAMES)]
    pub(crate) domain: Domain,
    /// AAAA record rate: fraction of the names, from 0 to 1, that have an AAAA record
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = Share::ZERO, help_heading = NAMES)]
    pub(crate) aaaa_share: Share,
    /// TTL of all records in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = like::<u32>("number of seconds below 2^32", "86400"), help_heading = NAMES)]
    pub(crate) ttl: u32,
    /// IPv4 address of the zone's name server
    #[arg(long, value_name = "ADDR", default_value_t = Ipv4Addr::new(198, 18, 0, 2), value_parser = like::<Ipv4Addr>("IPv4 address", "198.18.0.2"), help_heading = NAMES)]
    pub(crate) ns_address: Ipv4Addr,
}

#[derive(Debug, Args)]
pub(crate) struct ReferenceDut {
    /// Address and port on which to listen for UDP
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address, help_heading = THREADS)]
    pub(crate) listen: SocketAddr,
    /// Also answer queries with AF_XDP (kernel bypass) on this interface. The interface must have a single queue, and
    /// the --listen address must be assigned to it; auto selects the interface that has this address
    #[arg(long, value_name = "IFACE", help_heading = THREADS)]
    pub(crate) xdp: Option<String>,
    /// AF_XDP mode, with the same values as in `auth --xdp-mode`
    #[arg(long, value_name = "MODE", value_enum, default_value_t, requires = "xdp", help_heading = THREADS)]
    pub(crate) xdp_mode: XdpMode,
    /// Maximum number of queries to answer per second; queries above this rate are dropped immediately
    #[arg(long, value_name = "QPS", allow_negative_numbers = true, help_heading = LOAD)]
    pub(crate) capacity: Qps,
    /// Size of the token bucket, as a time: unused capacity accumulates for at most this time, and can be used later. A
    /// trial starts with a full bucket
    #[arg(long, value_name = "TIME", default_value = "20ms", value_parser = parse_time, help_heading = LOAD)]
    pub(crate) burst: Duration,
    /// DNS zone of the generated names
    #[arg(long, default_value = "dns64perf.test", help_heading = NAMES)]
    pub(crate) domain: Domain,
    /// AAAA record rate: fraction of the names, from 0 to 1, that have a native AAAA record
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = Share::ZERO, help_heading = NAMES)]
    pub(crate) aaaa_share: Share,
    /// Prefix of the synthesized addresses, without the prefix length, which is 96
    #[arg(long, value_name = "P", default_value = "64:ff9b::", value_parser = like::<Ipv6Addr>("IPv6 address", "64:ff9b::, without its length"), help_heading = REPLIES)]
    pub(crate) prefix: Ipv6Addr,
    /// Fraction of the queries, from 0 to 1, that get no reply
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = Share::ZERO, help_heading = FAULTS)]
    pub(crate) loss: Share,
    /// Delay of each reply: one time, such as 20ms, or a range, such as 10ms-50ms, from which each delay is drawn at
    /// random (uniform distribution)
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = parse_delay, help_heading = FAULTS)]
    pub(crate) delay: DelayRange,
    /// Fraction of the queries, from 0 to 1, that get a late reply: its delay is --late-by instead of --delay
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = Share::ZERO, help_heading = FAULTS)]
    pub(crate) late_share: Share,
    /// Delay of the late replies (see --late-share)
    #[arg(long, value_name = "TIME", default_value = "1200ms", value_parser = parse_time, help_heading = FAULTS)]
    pub(crate) late_by: Duration,
    /// Fraction of the queries, from 0 to 1, that get a reply with a wrong address
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = Share::ZERO, help_heading = FAULTS)]
    pub(crate) wrong_share: Share,
    /// Probability, from 0 to 1, that the server leaves one query of a trial unanswered. This query is the first that
    /// arrives at least half a second after the trial's start. The probability does not depend on the query rate. The
    /// first query after a pause of 100 ms counts as the start of a new trial
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = 0.0, value_parser = parse_fraction, help_heading = FAULTS)]
    pub(crate) failing_trials: f64,
    /// Seed for the random decisions of --failing-trials and --delay
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = FAULTS)]
    pub(crate) seed: u64,
    /// CPU on which the server runs
    #[arg(long, value_name = "N", help_heading = THREADS)]
    pub(crate) cpu: Option<usize>,
    /// Address of an AuthDNS. As a DNS64 server would, the reference DUT queries this AuthDNS for every name that it
    /// answers.
    /// Replies are sent without waiting for answers from AuthDNS
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address, help_heading = AUTH)]
    pub(crate) ask: Option<SocketAddr>,
    /// Number of times that each upstream query is sent
    #[arg(long, value_name = "N", default_value_t = 1, requires = "ask", help_heading = AUTH)]
    pub(crate) ask_times: u8,
    /// Fraction of the names, from 0 to 1, for which upstream queries are sent. A value below 1 simulates a server that
    /// answers queries for some names without an upstream query
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, default_value_t = Share::ONE, requires = "ask", help_heading = AUTH)]
    pub(crate) ask_share: Share,
    /// Send upstream queries only once for each name, like a server with a cache
    #[arg(long, requires = "ask", help_heading = AUTH)]
    pub(crate) remember: bool,
    /// Print the server's counters as JSON when the server ends
    #[arg(long, help_heading = FILES)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Zone {
    #[command(flatten)]
    pub(crate) zone: ZoneContent,
    /// Block of IPv4 addresses; the zone file contains one name for each address
    #[arg(long, value_name = "A.B.C.D/LEN", default_value = "10.0.0.0/16", help_heading = NAMES)]
    pub(crate) names: NameRange,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct QueryFile {
    /// Block of IPv4 addresses from which the names are generated, one name per address
    #[arg(long, value_name = "A.B.C.D/LEN", default_value = "10.0.0.0/16", help_heading = NAMES)]
    pub(crate) names: NameRange,
    /// Index of the first queried name in the --names block; the indices begin with 0. Change the index to avoid names
    /// that the server has cached
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = NAMES)]
    pub(crate) first_name: u64,
    /// Number of names to query [default: all names of the block from --first-name on]
    #[arg(long, value_name = "N", help_heading = NAMES)]
    pub(crate) count: Option<u64>,
    /// DNS zone of the generated names
    #[arg(long, default_value = "dns64perf.test", help_heading = NAMES)]
    pub(crate) domain: Domain,
    /// Record type to query (QTYPE)
    #[arg(long, value_name = "TYPE", default_value = "AAAA", value_parser = ["A", "AAAA"], help_heading = QUESTIONS)]
    pub(crate) qtype: String,
    /// Output file [default: standard output]
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) action: LabAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabAction {
    /// Create the lab's network namespaces and links, if they do not exist yet
    #[command(after_help = help::below("lab up"))]
    Up,
    /// Remove the lab's network namespaces and links
    #[command(after_help = help::below("lab down"))]
    Down,
    /// Run a command in one of the lab's network namespaces
    #[command(after_help = help::below("lab exec"))]
    Exec {
        /// Namespace in which to run the command: tester, dut or auth
        name: hosts::lab::Host,
        /// Command to run, and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Keep the namespaces of this process alive until a signal ends the process; used by a lab without root privileges
    #[command(hide = true)]
    Hold,
    /// Wait until the kernel has resolved the link-layer addresses of the given neighbours
    #[command(hide = true)]
    Reach {
        /// IP addresses of the neighbours
        #[arg(required = true)]
        addresses: Vec<std::net::IpAddr>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Manual {
    /// Folder for the manual pages; created if missing
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// Date in the footer of each manual page
    #[arg(long, default_value = "", hide_default_value = true, help_heading = FILES)]
    pub(crate) date: String,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// Also test AF_XDP on this interface; traffic on the interface may pause for a moment
    #[arg(long, value_name = "IFACE", help_heading = AUTH)]
    pub(crate) xdp: Option<String>,
    /// Send datagrams from the --xdp interface over a cable to this interface, and count the datagrams received
    #[arg(long, value_name = "IFACE", requires = "xdp", help_heading = AUTH)]
    pub(crate) loop_to: Option<String>,
    /// Duration of the --loop-to test
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_some_time, requires = "loop_to", help_heading = AUTH)]
    pub(crate) loop_time: Duration,
    /// Print the settings as one JSON object
    #[arg(long, help_heading = FILES)]
    pub(crate) json: bool,
    /// For use in scripts: end with status 4 if any setting may distort measurements
    #[arg(long, help_heading = FILES)]
    pub(crate) strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Name of the schema [default: print the names of all schemas]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Quickstart {
    #[command(flatten)]
    pub(crate) display: Display,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn shards_need_a_start_and_no_single_tester_options() {
        let plan = ["dns64bench", "measure", "--plan", "-"];
        let parse = |more: &[&str]| Arguments::try_parse_from([&plan, more].concat());
        let shard = ["--shard", "1/3", "--start-at", "2026-11-25T12:00:00Z"];
        assert!(parse(&shard).is_ok() && parse(&[&shard[..], &["--seed", "7"]].concat()).is_ok());
        for wrong in [&shard[..2], &shard[2..], &["--seed", "7"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&[&shard[..], &["--self-test", "s.json"]].concat()).is_err());
        for wrong in ["3/3", "1", "a/b", "0/0", ""] {
            let told = parse(&["--shard", wrong, "--start-at", "1795608000"]).unwrap_err();
            assert!(told.to_string().contains("0/3"), "{told}");
        }
    }

    #[test]
    fn the_method_of_rfc_8219_has_two_names() {
        let method = |name| <SearchMethod as ValueEnum>::from_str(name, false);
        for name in ["bisection", "rfc8219"] {
            assert_eq!(method(name), Ok(SearchMethod::Bisection), "{name}");
        }
        assert_eq!(method("mlrsearch"), Ok(SearchMethod::Mlrsearch));
    }

    #[test]
    fn a_resumed_search_takes_nothing_but_its_journal() {
        let parse = |more: &[&str]| {
            Arguments::try_parse_from([&["dns64bench", "search", "--resume", "j"], more].concat())
        };
        assert!(parse(&["--json", "--quiet"]).is_ok());
        for more in
            [["--repeat", "3"], ["--threads", "2"], ["--server", "[::1]:53"], ["--min", "1"]]
        {
            assert!(parse(&more).is_err(), "{more:?} was accepted and would be ignored");
        }
    }

    #[test]
    fn a_given_plan_takes_nothing_that_it_holds_itself() {
        let parse = |more: &[&str]| {
            Arguments::try_parse_from([&["dns64bench", "measure", "--plan", "-"], more].concat())
        };
        assert!(parse(&["--json", "--quiet", "--liveness", "false", "--hdr-log", "h"]).is_ok());
        let others = [
            "--server=[::1]:53",
            "--rate=1",
            "--threads=2",
            "--duration=1s",
            "--interval=1s",
            "--records=r.csv",
        ];
        for other in others {
            assert!(parse(&[other]).is_err(), "{other} was accepted and would be ignored");
        }
    }
}
