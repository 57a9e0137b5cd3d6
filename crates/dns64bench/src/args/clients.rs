//! Arguments of the clients that correspond to older tools: closed loop (dnsperf, dns64perf2), ramp (resperf), constant
//! rate (dns64perf++).

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, ValueEnum};
use ipnet::IpNet;
use tester::client::EdnsOption;
use tester::measurer::expect::Prefix;
use units::{Qps, Share};
use wire::name::{Domain, NameRange};
use wire::tsig::Key;

use super::common::{Display, LivenessOptions};
use super::help::{self, FILES, LOAD, NAMES, PERF2, QUESTIONS, REPLIES, SERVER, THREADS};
use super::values::{CpuList, Server, like, parse_cpus, parse_time, parse_tsig_key};

/// Transport of queries: UDP, persistent TCP connections, or UDP with a retry of truncated answers over TCP. The
/// variants have no doc comments, because these would switch the help of all options to clap's long style.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    Udp,
    Tcp,
    UdpThenTcp,
}

/// Options that select the queries and their transport.
#[derive(Debug, Args)]
pub(crate) struct Questions {
    /// File with queries to send instead of the generated queries (- is standard input). Each line contains a name, a
    /// type and optionally a class
    #[arg(long, value_name = "FILE", conflicts_with_all = ["domain", "names", "first_name", "aaaa_share", "any_aaaa"], help_heading = QUESTIONS)]
    pub(crate) queries: Option<PathBuf>,
    /// Transport of the queries; udp-then-tcp retries truncated answers over TCP
    #[arg(long, value_enum, default_value_t = Transport::Udp, help_heading = QUESTIONS)]
    pub(crate) transport: Transport,
    /// Send EDNS with this maximum UDP payload size in octets
    #[arg(long, value_name = "OCTETS", help_heading = QUESTIONS)]
    pub(crate) edns_size: Option<u16>,
    /// Set the DO bit to request DNSSEC records (implies EDNS)
    #[arg(long, help_heading = QUESTIONS)]
    pub(crate) dnssec_ok: bool,
    /// Request the name server identifier, NSID (implies EDNS)
    #[arg(long, help_heading = QUESTIONS)]
    pub(crate) nsid: bool,
    /// Send this network in the EDNS Client Subnet option (implies EDNS)
    #[arg(long, value_name = "NETWORK", value_parser = like::<IpNet>("network", "192.0.2.0/24 or 2001:db8::/48"), help_heading = QUESTIONS)]
    pub(crate) client_subnet: Option<IpNet>,
    /// Additional EDNS option, with its value in hexadecimal; may be given several times (implies EDNS)
    #[arg(long, value_name = "CODE:VALUE", help_heading = QUESTIONS)]
    pub(crate) edns_option: Vec<EdnsOption>,
    /// Sign the queries with this TSIG key, and count answers without a correct signature as wrong; the default
    /// algorithm is hmac-md5. @FILE reads the key from a file, so that the secret is not visible in process lists
    #[arg(long, value_name = "[ALGORITHM:]NAME:SECRET|@FILE", value_parser = parse_tsig_key, help_heading = QUESTIONS)]
    pub(crate) tsig: Option<Key>,
    /// Seconds to add to the signing time of TSIG, to test the server's reaction to a wrong time
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        allow_hyphen_values = true,
        hide = true
    )]
    pub(crate) tsig_skew: i64,
    #[command(flatten)]
    pub(crate) intervals: IntervalFiles,
}

/// Options for files that contain statistics for each time interval of a measurement.
#[derive(Debug, Args)]
pub(crate) struct IntervalFiles {
    /// Length of the intervals in the files written by --hdr-log and --json-lines; at least 10ms [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = interval, help_heading = FILES)]
    pub(crate) interval: Option<Duration>,
    /// Write a round-trip time histogram (in µs) for each interval to this file, as an HDR interval log
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) hdr_log: Option<PathBuf>,
    /// Write the statistics of each interval and of the run to this file, as JSON lines in DNS-OARC's dns-metrics
    /// format
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) json_lines: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ClosedLoop {
    /// Server to measure, such as 2001:2::1, [2001:2::1]:5353, 198.18.0.1 or localhost; the default port is 53
    #[arg(long, value_name = "SERVER", required_unless_present = "dns64perf2", help_heading = SERVER)]
    pub(crate) server: Option<Server>,
    #[command(flatten)]
    pub(crate) asking: LivenessOptions,
    /// Total number of queries in flight across all threads
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = LOAD)]
    pub(crate) outstanding: usize,
    /// Number of threads
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = THREADS)]
    pub(crate) threads: usize,
    /// Total number of source ports (UDP) or connections (TCP) across all threads [default: one per thread]
    #[arg(long, value_name = "N", help_heading = THREADS)]
    pub(crate) source_ports: Option<usize>,
    /// CPUs on which the threads run, such as 2,3 or 0-7
    #[arg(long, value_name = "LIST", value_parser = parse_cpus, help_heading = THREADS)]
    pub(crate) cpus: Option<CpuList>,
    #[command(flatten)]
    pub(crate) questions: Questions,
    /// DNS zone of the generated names
    #[arg(long, default_value = "dns64perf.test", help_heading = NAMES)]
    pub(crate) domain: Domain,
    /// Block of IPv4 addresses from which the queried names are generated, one name per address
    #[arg(long, value_name = "A.B.C.D/LEN", default_value = "10.0.0.0/8", help_heading = NAMES)]
    pub(crate) names: NameRange,
    /// Index of the first queried name in the --names block; the indices begin with 0. Change the index to avoid names
    /// that the server has cached
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = NAMES)]
    pub(crate) first_name: u64,
    /// Number of names to query
    #[arg(long, value_name = "N", default_value_t = 1_000_000, conflicts_with = "queries", help_heading = LOAD)]
    pub(crate) count: u64,
    /// Time for which to send queries; the names or the --queries file are repeated if necessary [default: query each
    /// name once]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = LOAD)]
    pub(crate) duration: Option<Duration>,
    /// Time to wait for the answer to a query
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_time, help_heading = LOAD)]
    pub(crate) timeout: Duration,
    /// AAAA record rate (α): fraction of the names, from 0 to 1, that have an AAAA record. AuthDNS (`dns64bench auth`)
    /// must run with the same --aaaa-share
    #[arg(long, value_name = "SHARE", default_value_t = Share::ZERO, help_heading = NAMES)]
    pub(crate) aaaa_share: Share,
    /// Prefix that synthesized addresses must have; may be given several times [default: any address is valid]
    #[arg(long, value_name = "P/LEN", conflicts_with = "queries", help_heading = REPLIES)]
    pub(crate) expect_prefix: Vec<Prefix>,
    /// Accept any address for names with a native AAAA record; needed if the zone was not generated by AuthDNS or
    /// `dns64bench zone`
    #[arg(long, help_heading = REPLIES)]
    pub(crate) any_aaaa: bool,
    /// Send and receive several datagrams per system call (UDP_SEGMENT, UDP_GRO)
    #[arg(long, value_name = "YES", action = clap::ArgAction::Set, default_value_t = true, help_heading = THREADS)]
    pub(crate) offload: bool,
    #[command(flatten)]
    pub(crate) display: Display,
    /// Run the experiments of dns64perf2, with its arguments. A (0 to 255): first octet of the IPv4 addresses from
    /// which names are generated. B (1 to 255): there are 256·B experiments of 256 names each. N (power of two up to
    /// 256): number of threads, each with one query in flight. TIMEOUT: timeout in seconds. PORT: 53 if omitted
    #[arg(long, num_args = 5..=6, value_names = ["A", "B", "N", "TIMEOUT", "SERVER", "PORT"],
          conflicts_with_all = ["server", "queries", "outstanding", "threads", "source_ports", "duration", "count", "names",
                                "first_name", "timeout", "IntervalFiles"], help_heading = PERF2)]
    pub(crate) dns64perf2: Option<Vec<String>>,
    /// With --dns64perf2: also show the CPU use of the process with this ID on this machine, such as the server process
    #[arg(long, value_name = "PID", requires = "dns64perf2", help_heading = PERF2)]
    pub(crate) cpu_of: Option<u32>,
}

/// Options of resperf 2.14 for UDP and TCP. The unit KiB replaces resperf's kilobytes.
#[derive(Debug, Parser)]
#[command(
    name = "resperf",
    version,
    max_term_width = 110,
    about = "Increases the query rate linearly until the server cannot keep up, with the options and output of DNS-OARC's resperf",
    after_help = help::below("resperf")
)]
pub(crate) struct Resperf {
    /// Address family of the server
    #[arg(short = 'f', value_enum, default_value_t = Family::Any, help_heading = SERVER)]
    pub(crate) family: Family,
    /// Transport of the queries
    #[arg(short = 'M', value_enum, default_value_t = Transport::Udp, help_heading = QUESTIONS)]
    pub(crate) mode: Transport,
    /// Name or address of the server to query
    #[arg(short = 's', value_name = "SERVER", default_value = "127.0.0.1", help_heading = SERVER)]
    pub(crate) server: String,
    /// Port of the server
    #[arg(short = 'p', value_name = "PORT", default_value_t = 53, help_heading = SERVER)]
    pub(crate) port: u16,
    /// Local address from which to send queries
    #[arg(short = 'a', value_name = "ADDR", value_parser = like::<IpAddr>("IP address", "2001:2::2 or 198.18.0.1"), help_heading = THREADS)]
    pub(crate) local_address: Option<IpAddr>,
    /// First local port; if -C sets several clients, they use this port and the following ones. 0: the system selects
    /// the ports
    #[arg(short = 'x', value_name = "PORT", default_value_t = 0, help_heading = THREADS)]
    pub(crate) local_port: u16,
    /// File with queries [default: standard input]
    #[arg(short = 'd', value_name = "FILE", conflicts_with = "names", help_heading = QUESTIONS)]
    pub(crate) data: Option<PathBuf>,
    /// Send queries for names generated from this block of IPv4 addresses, instead of the queries in a file
    #[arg(long, value_name = "A.B.C.D/LEN", help_heading = QUESTIONS)]
    pub(crate) names: Option<NameRange>,
    /// With --names: prefix that synthesized addresses must have; other addresses are counted as wrong
    #[arg(long, value_name = "P/LEN", requires = "names", help_heading = QUESTIONS)]
    pub(crate) expect_prefix: Vec<Prefix>,
    /// Time to wait for the answer to a query, in seconds
    #[arg(short = 't', value_name = "SECONDS", default_value = "45", value_parser = seconds, help_heading = LOAD)]
    pub(crate) timeout: Duration,
    /// Size of the socket buffers in KiB [default: as large as the system allows]
    #[arg(short = 'b', value_name = "KIB", help_heading = THREADS)]
    pub(crate) buffer: Option<usize>,
    /// Send queries with EDNS
    #[arg(short = 'e', help_heading = QUESTIONS)]
    pub(crate) edns: bool,
    /// EDNS option, with its value in hexadecimal; may be given several times (implies -e)
    #[arg(short = 'E', value_name = "CODE:VALUE", help_heading = QUESTIONS)]
    pub(crate) edns_option: Vec<EdnsOption>,
    /// Set the DNSSEC OK bit (implies -e)
    #[arg(short = 'D', help_heading = QUESTIONS)]
    pub(crate) dnssec_ok: bool,
    /// Sign the queries with this TSIG key; the default algorithm is hmac-md5. @FILE reads the key from a file
    #[arg(short = 'y', value_name = "[ALG:]NAME:SECRET|@FILE", value_parser = parse_tsig_key, help_heading = QUESTIONS)]
    pub(crate) tsig: Option<Key>,
    /// Length in seconds of the intervals in the plots and in the files of --hdr-log and --json-lines; at least 0.01
    #[arg(short = 'i', value_name = "SECONDS", default_value = "0.5", value_parser = plot_interval, help_heading = FILES)]
    pub(crate) interval: Duration,
    /// Rate at the end of the ramp, in queries per second
    #[arg(short = 'm', value_name = "QPS", default_value = "100000", help_heading = LOAD)]
    pub(crate) max: Qps,
    /// File to which the plot data is written
    #[arg(short = 'P', value_name = "FILE", default_value = "resperf.gnuplot", help_heading = FILES)]
    pub(crate) plot: PathBuf,
    /// Length of the ramp in seconds; during the ramp the rate rises linearly from 0 to -m
    #[arg(short = 'r', value_name = "SECONDS", default_value = "60", value_parser = seconds, help_heading = LOAD)]
    pub(crate) ramp: Duration,
    /// Time after the ramp, in seconds, during which the rate stays at -m
    #[arg(short = 'c', value_name = "SECONDS", default_value = "0", value_parser = seconds, help_heading = LOAD)]
    pub(crate) constant: Duration,
    /// Maximum loss in per cent. The maximum throughput is determined only from the intervals before the first interval
    /// with a higher loss
    #[arg(short = 'L', value_name = "PERCENT", default_value_t = 100.0, help_heading = LOAD)]
    pub(crate) max_loss: f64,
    /// Number of simulated clients, each with a separate source port (UDP) or connection (TCP)
    #[arg(short = 'C', value_name = "N", default_value_t = 1, help_heading = THREADS)]
    pub(crate) clients: usize,
    /// Maximum number of queries in flight; sending ends when this number is reached [default: 65536 for each client]
    #[arg(short = 'q', value_name = "N", help_heading = LOAD)]
    pub(crate) outstanding: Option<usize>,
    /// Maximum backlog (queries that are due but not yet sent). Sending ends when the backlog exceeds this limit. 0: no
    /// limit
    #[arg(short = 'F', value_name = "N", default_value_t = 1_000, help_heading = LOAD)]
    pub(crate) behind: u64,
    /// Start again with the first query when all queries have been sent
    #[arg(short = 'R', help_heading = QUESTIONS)]
    pub(crate) repeat: bool,
    /// Also show the pacing, the latency percentiles, and the numbers of wrong replies and unmatched replies
    #[arg(short = 'v', help_heading = FILES)]
    pub(crate) verbose: bool,
    /// Print warnings on standard output instead of standard error
    #[arg(short = 'W', help_heading = FILES)]
    pub(crate) warnings_to_stdout: bool,
    /// Number of threads; the clients set by -C are divided among the threads
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = THREADS)]
    pub(crate) threads: usize,
    /// Also write a report, as resperf-report does: an HTML page with the output and both plots, and separate files for
    /// the plots (SVG), the output and the plot data. File names begin with the date and time
    #[arg(long, help_heading = FILES)]
    pub(crate) report: bool,
    /// Write a latency histogram (in µs) for each interval to this file, as an HDR interval log
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) hdr_log: Option<PathBuf>,
    /// Write the statistics of each interval and of the run to this file, as JSON lines in DNS-OARC's dns-metrics
    /// format
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    pub(crate) json_lines: Option<PathBuf>,
}

/// Address family in which the server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Family {
    Any,
    Inet,
    Inet6,
}

/// The arguments of dns64perf++.
#[derive(Debug, Parser)]
#[command(
    name = "dns64perf++",
    version,
    max_term_width = 110,
    about = "Runs one trial at a constant rate, with the arguments, the output and the file \
        dns64perf.csv of dns64perf++. dns64bench sends the queries, and checks the send times",
    override_usage = "dns64perf++ <SERVER> <PORT> <A.B.C.D/LEN> <REQUESTS> <BURST> <THREADS> [PORTS] <DELAY> <TIMEOUT>",
    after_help = help::below("dns64perf++")
)]
pub(crate) struct Dns64perf {
    /// Address of the DNS64 server
    pub(crate) server: IpAddr,
    /// Port of the server
    pub(crate) port: u16,
    /// Block of IPv4 addresses from which the queried names are generated, one name per address
    #[arg(value_name = "A.B.C.D/LEN")]
    pub(crate) subnet: NameRange,
    /// Number of queries
    pub(crate) requests: u64,
    /// Number of queries that each thread sends in a burst
    pub(crate) burst: u64,
    /// Number of threads
    pub(crate) threads: u64,
    /// DELAY: time between two bursts of a thread, in ns. TIMEOUT: time to wait for a reply, in seconds. PORTS
    /// (optional, before DELAY): number of source ports of each thread
    #[arg(value_names = ["DELAY", "TIMEOUT"], num_args = 2..=3, required = true)]
    pub(crate) timing: Vec<String>,
}

/// The last two or three arguments of dns64perf++: `[PORTS] DELAY TIMEOUT`.
#[derive(Debug, PartialEq)]
pub(crate) struct Timing {
    /// Number of source ports of each thread; `None` if the argument was omitted. Versions of dns64perf++ since October
    /// 2018 have this argument.
    pub(crate) ports: Option<NonZeroU16>,
    /// Time between the bursts of a thread, in ns.
    pub(crate) delay: u64,
    pub(crate) timeout: Duration,
}

impl Dns64perf {
    /// Parses the last two or three arguments of dns64perf++. An error names the faulty argument.
    pub(crate) fn timing(&self) -> Result<Timing, String> {
        let (ports, delay, timeout) = match &self.timing[..] {
            [delay, timeout] => (None, delay, timeout),
            [ports, delay, timeout] => (Some(ports), delay, timeout),
            _ => return Err("the time between bursts and the timeout come last".into()),
        };
        let bad = |word: &str, what: &str| format!("'{word}' is not a {what}");
        let ports = ports.map(|word| {
            word.parse().map_err(|_| bad(word, "number of ports per thread from 1 to 65535"))
        });
        Ok(Timing {
            ports: ports.transpose()?,
            delay: delay.parse().map_err(|_| bad(delay, "time between bursts in ns"))?,
            timeout: positive_seconds(timeout).map_err(|_| bad(timeout, "timeout in seconds"))?,
        })
    }
}

/// The arguments of dns64perf2 (G. Lencse, "Performance Analysis of MTD64, our Tiny Multi-Threaded
/// DNS64 Server Implementation: Proof of Concept").
#[derive(Debug, PartialEq)]
pub(crate) struct Experiments {
    pub(crate) space: u8,
    pub(crate) count: u64,
    pub(crate) threads: usize,
    pub(crate) timeout: Duration,
    pub(crate) server: SocketAddr,
}

impl Experiments {
    /// Parses the five or six arguments of dns64perf2. An error names the faulty argument.
    pub(crate) fn parse(words: &[String]) -> Result<Experiments, String> {
        let word = |i: usize| words.get(i).map_or("", String::as_str);
        let bad =
            |i: usize, what: &str| format!("--dns64perf2: '{}' is not a valid {what}", word(i));
        let space = word(0).parse().map_err(|_| bad(0, "name space a from 0 to 255"))?;
        let b: u8 = word(1)
            .parse()
            .ok()
            .filter(|&b| b > 0)
            .ok_or_else(|| bad(1, "number b from 1 to 255"))?;
        let threads = word(2).parse().ok().filter(|n: &usize| n.is_power_of_two() && *n <= 256);
        let address = word(4).parse::<IpAddr>().map_err(|_| bad(4, "address"))?;
        let port = if words.len() > 5 { word(5).parse().map_err(|_| bad(5, "port"))? } else { 53 };
        Ok(Experiments {
            space,
            count: 256 * u64::from(b),
            threads: threads.ok_or_else(|| bad(2, "number of threads: 1, 2, 4 … 256"))?,
            timeout: positive_seconds(word(3)).map_err(|_| bad(3, "timeout in seconds"))?,
            server: SocketAddr::new(address, port),
        })
    }
}

impl Resperf {
    /// Returns the local address and port from which to send queries; `None` if neither -a nor -x was given. Without
    /// -a, the address is the unspecified address of the same family as `server`.
    pub(crate) fn local(&self, server: SocketAddr) -> Option<SocketAddr> {
        let any = if server.is_ipv6() {
            IpAddr::V6(Ipv6Addr::UNSPECIFIED)
        } else {
            IpAddr::from([0, 0, 0, 0])
        };
        let wanted = self.local_address.is_some() || self.local_port != 0;
        wanted.then(|| SocketAddr::new(self.local_address.unwrap_or(any), self.local_port))
    }
}

/// Parses a number of seconds, which may have a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is not a number of seconds"))?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

/// Shortest allowed interval. In shorter intervals, each histogram would contain only a few queries.
const FINEST: Duration = Duration::from_millis(10);

fn interval(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    if time < FINEST { Err("an interval must be at least 10ms".into()) } else { Ok(time) }
}

fn plot_interval(text: &str) -> Result<Duration, String> {
    let time = seconds(text)?;
    if time < FINEST { Err("an interval must be at least 0.01 s".into()) } else { Ok(time) }
}

fn positive_seconds(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|time| {
        if time.is_zero() { Err("it must be more than 0".into()) } else { Ok(time) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn older_tools_have_the_original_defaults() {
        Resperf::command().debug_assert();
        Dns64perf::command().debug_assert();
        let r = Resperf::parse_from(["resperf"]);
        assert_eq!(
            (r.server.as_str(), r.port, r.timeout.as_secs(), r.max),
            ("127.0.0.1", 53, 45, Qps(100_000))
        );
        assert_eq!(
            (r.ramp.as_secs(), r.constant.as_secs(), r.interval.as_millis(), r.behind),
            (60, 0, 500, 1_000)
        );
        assert_eq!((r.max_loss, r.clients, r.plot.to_str()), (100.0, 1, Some("resperf.gnuplot")));
        let all = "resperf -a ::1 -b 100 -c 5 -C 2 -d f -D -e -f inet6 -F 10 -i 1 -L 5 -m 10 -M tcp -p 54 -P p -q 7 -r 3 -R \
                   -s ::1 -t 2.5 -v -W -x 1000 -y k:c2VjcmV0";
        let r = Resperf::parse_from(all.split_whitespace());
        assert_eq!((r.timeout.as_millis(), r.local_port, r.mode), (2_500, 1_000, Transport::Tcp));
        assert!(Resperf::try_parse_from(["resperf", "-i", "0"]).is_err());
    }

    #[test]
    fn arguments_of_dns64perf2() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let good = Experiments::parse(&words("4 10 16 1 2001:2::1")).unwrap();
        assert_eq!((good.space, good.count, good.threads, good.server.port()), (4, 2_560, 16, 53));
        assert_eq!(
            Experiments::parse(&words("0 1 1 5 127.0.0.1 5353")).unwrap().server.port(),
            5353
        );
        for (bad, hint) in [
            ("256 1 1 1 ::1", "'256'"),
            ("0 0 1 1 ::1", "b from 1"),
            ("0 1 3 1 ::1", "1, 2, 4"),
            ("0 1 1 0 ::1", "timeout"),
        ] {
            assert!(Experiments::parse(&words(bad)).unwrap_err().contains(hint), "{bad}");
        }
    }
}
