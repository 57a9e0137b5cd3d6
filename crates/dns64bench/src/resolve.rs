//! From what was typed to a plan.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use campaign::search_plan::{PassedSelfTest, SearchPlan};
use method::pacing::PacingLimits;
use method::precision::default_timeout;
use method::search::SearchRange;
use method::selftest::factor;
use method::units::{Nanos, Qps, Share};
use method::verdict::Acceptance;
use tester::authdns::answer;
use tester::client::closed_loop::ClosedLoopPlan;
use tester::client::ramp::{Ramp, RampPlan};
use tester::client::{self, Check, Edns, EdnsOption, Form, Names, QueryFile, Setup, Source};
use tester::delay_line::Delay;
use tester::measurer::expect::Expectation;
use tester::measurer::plan::{Spin, Subject, TrialPlan};
use wire::name::{Domain, NameRange};

use crate::args::{
    ClosedLoop, DelayRange, Dns64perf, Experiments, Family, IntervalFiles, Measure, NewSearch, Questions, Resperf,
    SelfTest, SpinChoice, Traffic, Transport, ZoneContent,
};
use crate::commands::self_test::SelfTestResult;
use crate::intervals;
use crate::output::Failure;

impl Traffic {
    fn plan(&self, server: SocketAddr, rate: Qps) -> TrialPlan {
        let defaults = TrialPlan::new(server, rate);
        TrialPlan {
            duration: self.duration.into(),
            timeout: self.timeout.map_or_else(|| default_timeout(self.duration.into()), Nanos::from),
            domain: self.domain.clone(),
            names: self.names.unwrap_or(defaults.names),
            first_name: self.first_name,
            aaaa_share: self.aaaa_share,
            cached_share: self.cached_share,
            prefixes: self.expect_prefix.clone(),
            check_own_aaaa: !self.any_aaaa,
            accept: Acceptance(self.accept),
            threads: self.threads,
            source_ports: self.source_ports,
            cpus: self.cpus.clone().map(|list| list.0).unwrap_or_default(),
            spin: match self.spin {
                SpinChoice::Auto => Spin::Auto,
                SpinChoice::Always => Spin::Always,
                SpinChoice::Never => Spin::Never,
            },
            max_burst: self.max_burst,
            send_cost: self.send_cost,
            real_time: !self.no_real_time,
            offload: self.offload,
            auth_status: self.auth_status.clone(),
            auth_limit: self.auth_limit.into(),
            separate_hosts: self.separate_hosts,
            limits: PacingLimits {
                window_100ms_pct: self.window_limit,
                lateness_p999: self.lateness_limit.into(),
                ..PacingLimits::default()
            },
            records: self.records.clone(),
            ..defaults
        }
    }
}

impl Measure {
    /// # Errors
    /// If an interval is given and no file for it.
    pub(crate) fn resolve(&self) -> Result<TrialPlan, Failure> {
        let subject = self.vouches.map_or(Subject::Dut, |(factor, delta)| Subject::Tester { factor, delta });
        Ok(TrialPlan { interval: self.intervals.width()?, subject, ..self.traffic.plan(self.server, self.rate) })
    }
}

impl NewSearch {
    /// # Errors
    /// If the range is empty, or the names do not suffice.
    pub(crate) fn resolve(&self, traffic: &Traffic) -> Result<SearchPlan, Failure> {
        let (Some(server), Some(min), Some(max)) = (self.server, self.min, self.max) else {
            return Err(Failure::usage(anyhow::anyhow!("--server, --min and --max are needed, or --resume")));
        };
        if min > max {
            return Err(Failure::usage(anyhow::anyhow!("--min {min} is above --max {max}")));
        }
        if self.repeat == 0 {
            return Err(Failure::usage(anyhow::anyhow!("--repeat 0: there must be a search")));
        }
        if traffic.records.is_some() {
            return Err(Failure::usage(anyhow::anyhow!(
                "--records is for single trials: repeat the one of interest with measure"
            )));
        }
        let mut plan = SearchPlan {
            trial: traffic.plan(server, min),
            range: SearchRange { min, max, resolution: self.resolution, invalid_retries: self.invalid_retries },
            repeat: self.repeat,
            pause: self.pause,
            reuse_names: self.reuse_names,
            self_test: self.self_test()?,
        };
        if traffic.names.is_none() && plan.most_names() + plan.trial.first_name > plan.trial.names.count() {
            widen(&mut plan);
        }
        for rate in [min, max] {
            plan.trial_at(rate, traffic.first_name).check().map_err(Failure::usage)?;
        }
        Ok(plan)
    }
}

impl NewSearch {
    /// The self-test that vouches for the tester, if there is one.
    fn self_test(&self) -> Result<Option<PassedSelfTest>, Failure> {
        let rate_only = |passed| PassedSelfTest { passed, delta: self.delta, sent: None };
        let Some(path) = &self.self_test else { return Ok(self.self_test_passed.map(rate_only)) };
        let unusable = |why: String| Failure::usage(anyhow::anyhow!("--self-test {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|e| unusable(e.to_string()))?;
        let test: SelfTestResult = serde_json::from_str(&text)
            .map_err(|e| unusable(format!("not what `dns64bench self-test --json` prints: {e}")))?;
        let passed = test.passed_rate.ok_or_else(|| unusable("that self-test did not pass".into()))?;
        // What it allows is computed by the α and β of this search, whatever those were that it was for.
        Ok(Some(PassedSelfTest { passed, delta: test.delta, sent: test.sent }))
    }
}

/// Takes all 2³² names, still beginning at 10.0.0.0.
fn widen(plan: &mut SearchPlan) {
    plan.trial.first_name += u64::from(u32::from(plan.trial.names.first()));
    plan.trial.names = NameRange::ALL;
}

impl SelfTest {
    /// The self-test's trial: AuthDNS itself answers, with an AAAA record for every name, in a quarter of the time, and is asked as
    /// the DUT will be: with the settings of the trials that the self-test vouches for.
    pub(crate) fn resolve(&self, rate: Qps) -> TrialPlan {
        let mut plan = self.traffic.plan(self.server, rate);
        let factor = factor(plan.aaaa_share, plan.cached_share, self.delta);
        plan.subject = Subject::Tester { factor, delta: self.delta };
        plan.timeout = method::selftest::timeout(plan.timeout);
        plan.aaaa_share = Share::ONE;
        plan.cached_share = Share::ZERO;
        if self.traffic.names.is_none() && plan.names_needed() > plan.names.count() {
            plan.names = NameRange::ALL;
        }
        plan
    }
}

impl Questions {
    /// EDNS, if anything asks for it.
    fn edns(&self) -> Option<Edns> {
        let mut options = self.edns_option.clone();
        options.extend(self.nsid.then(EdnsOption::nsid));
        options.extend(self.client_subnet.map(EdnsOption::client_subnet));
        let wanted = self.edns_size.is_some() || self.dnssec_ok || !options.is_empty();
        // 1232 octets fit into every path that IPv6 has (DNS flag day 2020).
        let size = self.edns_size.unwrap_or(1_232);
        wanted.then_some(Edns { size, dnssec_ok: self.dnssec_ok, options })
    }
}

impl IntervalFiles {
    /// How long the intervals are, if a file wants them.
    ///
    /// # Errors
    /// If a length is given and no file.
    pub(crate) fn width(&self) -> Result<Option<Nanos>, Failure> {
        let is_wanted = self.hdr_log.is_some() || self.json_lines.is_some();
        if self.interval.is_some() && !is_wanted {
            return Err(Failure::usage(anyhow::anyhow!("--interval needs a file: --hdr-log or --json-lines")));
        }
        Ok(is_wanted.then(|| self.interval.map_or(Nanos::SECOND, Nanos::from)))
    }

    /// # Errors
    /// If a file cannot be written.
    pub(crate) fn write(&self, run: &intervals::Run<'_>) -> Result<(), Failure> {
        run.write(self.hdr_log.as_deref(), self.json_lines.as_deref())
    }
}

impl Transport {
    pub(crate) fn resolve(self) -> client::Transport {
        match self {
            Transport::Udp => client::Transport::Udp,
            Transport::Tcp => client::Transport::Tcp,
            Transport::UdpThenTcp => client::Transport::UdpThenTcp,
        }
    }
}

/// The questions of a file.
///
/// # Errors
/// If it cannot be read, or is none.
pub(crate) fn query_file(path: &Path) -> Result<Source, Failure> {
    let started = Instant::now();
    let file = QueryFile::read(path).map_err(Failure::usage)?;
    let source = Source::File(Arc::new(file));
    if let Source::File(file) = &source {
        tracing::info!(
            "{} questions of {} take {} MiB, read in {:.1} s",
            source.count(),
            path.display(),
            file.octets() >> 20,
            started.elapsed().as_secs_f64()
        );
    }
    Ok(source)
}

impl ClosedLoop {
    /// # Errors
    /// If the names do not suffice, or the query file cannot be used.
    pub(crate) fn resolve(&self) -> Result<ClosedLoopPlan, Failure> {
        let q = &self.questions;
        let (source, check) = match &q.queries {
            Some(path) => (query_file(path)?, Check::Rcode),
            None => (self.source(self.names, self.first_name, self.count)?, self.check()),
        };
        let server = self.server.expect("clap asks for it");
        Ok(ClosedLoopPlan {
            setup: self.setup(server, source, check, self.timeout)?,
            outstanding: self.outstanding,
            threads: self.threads,
            source_ports: self.source_ports.unwrap_or(self.threads),
            cpus: self.cpus.clone().map(|list| list.0).unwrap_or_default(),
            duration: self.duration.map(Nanos::from),
        })
    }

    /// Experiment `number` of dns64perf2: 256 names that no other has.
    ///
    /// # Errors
    /// Never, as the arguments allow no number that leaves the name space.
    pub(crate) fn experiment(&self, e: &Experiments, number: u64) -> Result<ClosedLoopPlan, Failure> {
        let first = (u64::from(e.space) << 24) + number * 256;
        let source = self.source(NameRange::ALL, first, 256)?;
        Ok(ClosedLoopPlan {
            setup: self.setup(e.server, source, self.check(), e.timeout)?,
            outstanding: e.threads,
            threads: e.threads,
            source_ports: e.threads,
            cpus: self.cpus.clone().map(|list| list.0).unwrap_or_default(),
            duration: None,
        })
    }

    fn source(&self, names: NameRange, first: u64, count: u64) -> Result<Source, Failure> {
        let source = Names::new(&self.domain, names, first, count);
        let missing =
            || anyhow::anyhow!("--names {names} from --first-name {first} on has fewer than --count {count} names");
        source.map(Source::Names).ok_or_else(|| Failure::usage(missing()))
    }

    fn check(&self) -> Check {
        Check::Address(Expectation {
            aaaa_share: self.aaaa_share,
            check_own_aaaa: !self.any_aaaa,
            prefixes: self.expect_prefix.clone(),
        })
    }

    fn setup(&self, server: SocketAddr, source: Source, check: Check, timeout: Duration) -> Result<Setup, Failure> {
        let q = &self.questions;
        Ok(Setup {
            server,
            local: None,
            transport: q.transport.resolve(),
            source,
            form: Form::new(q.edns().as_ref(), q.tsig.clone(), q.tsig_skew),
            check,
            timeout: timeout.into(),
            offload: self.offload,
            buffer: None,
            interval: q.intervals.width()?,
        })
    }
}

impl Resperf {
    /// # Errors
    /// If the server has no address of the wanted family, or the queries cannot be read.
    pub(crate) fn resolve(&self) -> Result<RampPlan, Failure> {
        let server = self.address()?;
        let (source, check) = match self.names {
            None => (query_file(self.data.as_deref().unwrap_or(Path::new("-")))?, Check::Rcode),
            Some(names) => {
                let all = Names::new(&Domain::dns64perf(), names, 0, names.count()).expect("the block has them");
                let prefixes = self.expect_prefix.clone();
                let expectation = Expectation { aaaa_share: Share::ZERO, check_own_aaaa: false, prefixes };
                (Source::Names(all), Check::Address(expectation))
            }
        };
        let wanted = self.edns || self.dnssec_ok || !self.edns_option.is_empty();
        // The size that resperf offers.
        let edns = wanted.then(|| Edns { size: 4_096, dnssec_ok: self.dnssec_ok, options: self.edns_option.clone() });
        let clients = self.clients.max(1);
        if self.local_port != 0 && usize::from(self.local_port) + clients > 65_536 {
            let port = self.local_port;
            return Err(Failure::usage(anyhow::anyhow!("-x {port}: there are no {clients} ports (-C) from there on")));
        }
        Ok(RampPlan {
            setup: Setup {
                server,
                local: self.local(server),
                transport: self.mode.resolve(),
                source,
                form: Form::new(edns.as_ref(), self.tsig.clone(), 0),
                check,
                timeout: self.timeout.into(),
                // Datagrams go as the original sends them: each by itself.
                offload: false,
                buffer: self.buffer.map(|kib| kib * 1024),
                interval: Some(self.interval.into()),
            },
            ramp: Ramp { max: self.max, growing: self.ramp.into(), constant: self.constant.into() },
            clients,
            threads: self.threads,
            cpus: Vec::new(),
            outstanding: self.outstanding.unwrap_or(65_536 * clients),
            behind: self.behind,
            repeat: self.repeat,
        })
    }

    fn address(&self) -> Result<SocketAddr, Failure> {
        let Resperf { server, port, family, .. } = self;
        let unknown = |e: std::io::Error| Failure::usage(anyhow::anyhow!("-s {server}: {e}"));
        let mut all = (server.as_str(), *port).to_socket_addrs().map_err(unknown)?;
        let fits = |address: &SocketAddr| match family {
            Family::Any => true,
            Family::Inet => address.is_ipv4(),
            Family::Inet6 => address.is_ipv6(),
        };
        let none = || Failure::usage(anyhow::anyhow!("-s {server} has no address of the family that -f asks for"));
        all.find(fits).ok_or_else(none)
    }
}

impl Dns64perf {
    /// The same load, evenly spread: n queries every d ns by each of t threads.
    ///
    /// # Errors
    /// If it is no load.
    pub(crate) fn resolve(&self) -> Result<TrialPlan, Failure> {
        let Dns64perf { requests, burst, threads, delay, subnet, .. } = *self;
        let wrong = |why: &str| Failure::usage(anyhow::anyhow!("{why}"));
        if requests == 0 || burst == 0 || threads == 0 || delay == 0 {
            return Err(wrong("requests, burst, threads and delay must be more than 0"));
        }
        if requests > subnet.count() {
            return Err(wrong(&format!("{subnet} has {} names, fewer than {requests} requests", subnet.count())));
        }
        let rate = burst as f64 * threads as f64 * 1e9 / delay as f64;
        let exact = rate;
        let rate = Qps(rate.round().max(1.0) as u64);
        if (exact / rate.0 as f64 - 1.0).abs() > 0.001 {
            return Err(wrong(&format!("that is a rate of {exact:.3} queries/s; whole ones are offered only")));
        }
        let mut plan = TrialPlan::new(SocketAddr::new(self.server, self.port), rate);
        // The shortest time in which so many queries are due.
        let duration = (u128::from(requests) * u128::from(Nanos::SECOND.0)).div_ceil(rate.0.into());
        plan.duration = Nanos(u64::try_from(duration).map_err(|_| wrong("that takes more than 500 years"))?);
        plan.timeout = self.timeout.into();
        plan.names = subnet;
        // As the original checks: an answer with a AAAA record, whatever address it has.
        plan.check_own_aaaa = false;
        plan.records = Some("dns64perf.csv".into());
        Ok(plan)
    }
}

impl ZoneContent {
    pub(crate) fn resolve(&self) -> answer::Zone {
        let ttl = Duration::from_secs(self.ttl.into());
        answer::Zone::new(self.domain.clone(), self.aaaa_share, ttl, self.ns_address)
    }
}

impl DelayRange {
    pub(crate) fn resolve(self) -> Delay {
        Delay { min: Nanos::from(self.min), max: Nanos::from(self.max) }
    }
}

/// Seconds since 1970, for file names.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}
