//! Conversion of command-line arguments into plans.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use campaign::plan::{Method, PassedSelfTest, SearchPlan};
use method::mlr::goal::Goal;
use method::pacing::PacingLimits;
use method::precision::default_timeout;
use method::search::SearchRange;
use method::selftest::{factor, required_rate};
use method::verdict::Acceptance;
use net::affinity::allowed_cpus;
use tester::authdns::answer;
use tester::client::closed_loop::ClosedLoopPlan;
use tester::client::ramp::{self, Ramp, RampPlan};
use tester::client::{
    self, Additional, Check, ClientSettings, Edns, EdnsOption, Names, QueryFile, Source,
};
use tester::delay_line::Delay;
use tester::measurer::expect::Expectation;
use tester::measurer::plan::shard::ShardPlan;
use tester::measurer::plan::{PlanError, Spin, Subject, TrialPlan};
use tester::xdp::XdpConfig;
use units::{CpuId, Nanos, Qps, Share};
use wire::name::{Domain, NameRange};

use crate::args::{
    ClosedLoop, DelayRange, Dns64perf, Experiments, Family, IntervalFiles, Measure, NewSearch,
    Questions, Replies, Resperf, SearchMethod, SelfTest, Server, SpinChoice, Timing, Traffic,
    Transport, XdpMode, ZoneContent,
};
use crate::commands::self_test::{SelfTestPlan, SelfTestResult};
use crate::intervals;
use crate::output::{Failure, grouped};

impl Server {
    /// Returns the address of the server; for a host name, the first address that the name resolves to.
    ///
    /// # Errors
    /// Returns an error if the name cannot be resolved or has no address.
    pub(crate) fn resolve(&self) -> Result<SocketAddr, Failure> {
        let (name, port) = match self {
            Server::Address(address) => return Ok(*address),
            Server::Name(name, port) => (name, *port),
        };
        let unknown = |why: String| Failure::usage(anyhow::anyhow!("--server {name}: {why}"));
        let mut found =
            (name.as_str(), port).to_socket_addrs().map_err(|e| unknown(e.to_string()))?;
        found.next().ok_or_else(|| unknown("it has no address".into()))
    }
}

impl Traffic {
    fn plan(&self, server: SocketAddr, rate: Qps) -> TrialPlan {
        let defaults = TrialPlan::new(server, rate);
        TrialPlan {
            duration: self.duration.into(),
            timeout: self
                .timeout
                .map_or_else(|| default_timeout(self.duration.into()), Nanos::from),
            domain: self.domain.clone(),
            names: self.names.unwrap_or(defaults.names),
            first_name: self.first_name,
            aaaa_share: self.aaaa_share,
            cached_share: self.cached_share,
            threads: self.threads,
            source_ports: self.source_ports,
            source_addresses: self.source_addresses,
            xdp: xdp_config(self.xdp.as_ref(), self.xdp_mode),
            cpus: self.cpus.clone().map(|list| list.0).unwrap_or_default(),
            spin: match self.spin {
                SpinChoice::Auto => Spin::Auto,
                SpinChoice::Always => Spin::Always,
                SpinChoice::Never => Spin::Never,
            },
            max_burst: self.max_burst,
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

impl Replies {
    /// Copies the trial. In the copy, the criteria for valid replies are those given by the options.
    fn of(&self, trial: TrialPlan) -> TrialPlan {
        TrialPlan {
            prefixes: self.expect_prefix.clone(),
            check_own_aaaa: !self.any_aaaa,
            accept: Acceptance(self.accept),
            ..trial
        }
    }
}

/// Returns the AF_XDP settings, if `interface` is given. If the interface is `auto`, it is selected later.
pub(crate) fn xdp_config(interface: Option<&String>, mode: XdpMode) -> Option<XdpConfig> {
    let named = |name: &String| (name != "auto").then(|| name.clone());
    interface.map(|name| XdpConfig { interface: named(name), mode: mode.resolve() })
}

/// Checks a plan against this host: the first name must be inside the block of names, this process must be allowed to
/// use the CPUs, the source addresses must be local, and AF_XDP requires an interface that leads to the server.
///
/// # Errors
/// Returns an error if one of these conditions is not met.
fn check_host(plan: TrialPlan) -> Result<TrialPlan, Failure> {
    let (first, count) = (plan.first_name, plan.names.count());
    if first >= count {
        let why = anyhow::anyhow!(
            "--first-name {first}: --names {} has {count} names, counted from 0",
            plan.names
        );
        return Err(Failure::usage(why));
    }
    may_use(&plan.cpus)?;
    plan.check_sources()?;
    plan.check_xdp()?;
    Ok(plan)
}

/// Checks that this process may use the CPUs.
///
/// # Errors
/// Returns an error if a CPU does not exist or this process may not use it.
fn may_use(cpus: &[CpuId]) -> Result<(), Failure> {
    let allowed = allowed_cpus();
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => {
            let here: Vec<String> = allowed.iter().map(|cpu| cpu.0.to_string()).collect();
            Err(Failure::usage(anyhow::anyhow!(
                "--cpus {}: there are {} here",
                cpu.0,
                here.join(", ")
            )))
        }
        None => Ok(()),
    }
}

impl Measure {
    /// Plans the trial.
    ///
    /// # Errors
    /// Returns an error if the given plan is invalid, if an interval is given without an output file, or if the start
    /// time of a distributed trial has passed.
    pub(crate) fn resolve(&self) -> Result<TrialPlan, Failure> {
        let plan = self.plan_of_all()?;
        let Some((number, start)) = self.sharding.shard.zip(self.sharding.start_at) else {
            return Ok(plan);
        };
        let seed = self.sharding.seed.unwrap_or_else(|| plan.seed_from(start));
        let shard = ShardPlan { index: number.index, of: number.of, seed, start };
        shard.has_time()?;
        Ok(TrialPlan { shard: Some(shard), ..plan })
    }

    /// Returns the plan of the whole trial, even if this tester sends only one shard of it.
    fn plan_of_all(&self) -> Result<TrialPlan, Failure> {
        let width = self.intervals.width()?;
        if let Some(path) = &self.plan {
            let plan = given_plan(path)?;
            if plan.interval.is_some() && width.is_none() {
                let why = "its interval needs a file: --hdr-log or --json-lines";
                return Err(Failure::usage(anyhow::anyhow!("--plan {}: {why}", path.display())));
            }
            return Ok(TrialPlan { interval: plan.interval.or(width), ..plan });
        }
        let (Some(server), Some(rate)) = (&self.new.server, self.new.rate) else {
            return Err(Failure::usage(anyhow::anyhow!(
                "--server and --rate are needed, or --plan"
            )));
        };
        check_host(TrialPlan {
            interval: width,
            ..self.replies.of(self.traffic.plan(server.resolve()?, rate))
        })
    }
}

/// Reads a plan from a file, or from standard input if `path` is `-`.
fn given_plan(path: &Path) -> Result<TrialPlan, Failure> {
    let name = path.display();
    let unusable = |why: String| Failure::usage(anyhow::anyhow!("--plan {name}: {why}"));
    let read = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    parse_plan(&read.map_err(|e| unusable(e.to_string()))?).map_err(unusable)
}

/// Parses a plan in JSON. An error names the invalid field.
fn parse_plan(text: &str) -> Result<TrialPlan, String> {
    let mut json = serde_json::Deserializer::from_str(text);
    let plan = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        // For a missing or unknown field, the error itself contains the name.
        if field == "." {
            error.into_inner().to_string()
        } else {
            format!("{field}: {}", error.into_inner())
        }
    })?;
    json.end().map_err(|e| e.to_string())?;
    Ok(plan)
}

impl NewSearch {
    /// Plans the search.
    ///
    /// # Errors
    /// Returns an error if the rate range is empty, or if there are not enough names.
    pub(crate) fn resolve(
        &self,
        traffic: &Traffic,
        replies: &Replies,
    ) -> Result<SearchPlan, Failure> {
        let (Some(server), Some(min), Some(max)) = (&self.server, self.min, self.max) else {
            return Err(Failure::usage(anyhow::anyhow!(
                "--server, --min and --max are needed, or --resume"
            )));
        };
        if min > max {
            return Err(Failure::usage(anyhow::anyhow!("--min {min} is above --max {max}")));
        }
        if self.repeat == 0 {
            return Err(Failure::usage(anyhow::anyhow!(
                "--repeat 0: there must be at least one \
                search"
            )));
        }
        if traffic.records.is_some() {
            return Err(Failure::usage(anyhow::anyhow!(
                "--records is for single trials: repeat the trial of interest with measure"
            )));
        }
        let trial = check_host(replies.of(traffic.plan(server.resolve()?, min)))?;
        let plan = SearchPlan {
            method: self.method(&trial)?,
            trial,
            range: SearchRange {
                min,
                max,
                resolution: self.resolution,
                invalid_retries: self.invalid_retries,
            },
            repeat: self.repeat,
            pause: self.pause,
            reuse_names: self.reuse_names,
            self_test: self.self_test()?,
        };
        with_names(plan, traffic.names.is_some())
    }
}

/// Checks that the block of names is sufficient for the longest possible search, and returns the plan of the search. If
/// the user gave no block (`are_given` is false), the block is enlarged if necessary.
///
/// # Errors
/// Returns an error if a trial of the search is impossible. Also returns an error if there are too few names and
/// repeated names are not allowed.
pub(crate) fn with_names(mut plan: SearchPlan, are_given: bool) -> Result<SearchPlan, Failure> {
    if !are_given && plan.most_names() + plan.trial.first_name > plan.trial.names.count() {
        widen(&mut plan);
    }
    for rate in [plan.range.min, plan.range.max] {
        plan.trial_at(rate, plan.trial.first_name).check().map_err(Failure::usage)?;
    }
    let (range, has, most) = (plan.trial.names, plan.trial.names.count(), plan.most_names());
    if most > has && !plan.reuse_names {
        let larger =
            if range == NameRange::ALL { "" } else { "a larger block such as --names 0.0.0.0/0, " };
        return Err(Failure::usage(anyhow::anyhow!(
            "--names {range} has {} names, but the longest possible search needs {}; use {larger}a \
             lower --max, a smaller --repeat, a shorter --duration, or --reuse-names",
            grouped(has),
            grouped(most)
        )));
    }
    Ok(plan)
}

impl NewSearch {
    /// Returns the search method. The first goal of an MLRsearch is always that of RFC 8219, with the plan's duration
    /// and acceptance criterion.
    fn method(&self, trial: &TrialPlan) -> Result<Method, Failure> {
        let refused = |why: &str| Err(Failure::usage(anyhow::anyhow!("{why}")));
        if self.method == SearchMethod::Bisection {
            return if self.goal.is_empty() {
                Ok(Method::Bisection)
            } else {
                refused(
                    "--goal is for --method mlrsearch; a bisection has the one goal of RFC 8219",
                )
            };
        }
        if self.resolution != Qps(1) {
            return refused(
                "--resolution is for --method bisection; mlrsearch takes --width, such as --width 0.5%",
            );
        }
        let method = Method::mlrsearch(trial.duration.into(), trial.accept, self.width, &self.goal);
        if let Method::MlrSearch(goals) = &method {
            goals.iter().try_for_each(Goal::validate).map_err(Failure::usage)?;
        }
        Ok(method)
    }

    /// Returns the result of the self-test that validates the tester, if the user supplied such a result.
    fn self_test(&self) -> Result<Option<PassedSelfTest>, Failure> {
        let rate_only =
            |passed| PassedSelfTest { passed, delta: self.delta, compliant: false, sent: None };
        match &self.self_test {
            Some(path) => passed_self_test(path).map(Some),
            None => Ok(self.self_test_passed.map(rate_only)),
        }
    }
}

/// Reads the output of `self-test --json` from a file, and returns the send settings and the rate at which the
/// self-test passed.
///
/// # Errors
/// Returns an error if the file is not the output of `self-test --json`, or if the self-test did not pass.
pub(crate) fn passed_self_test(path: &Path) -> Result<PassedSelfTest, Failure> {
    let unusable =
        |why: String| Failure::usage(anyhow::anyhow!("--self-test {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| unusable(e.to_string()))?;
    let test: SelfTestResult = serde_json::from_str(&text)
        .map_err(|e| unusable(format!("not the output of `dns64bench self-test --json`: {e}")))?;
    // The rate is stored as it was measured: the maximum rate of the DUT is computed later from the α and β of the
    // DUT's trials, which may differ from those of the self-test.
    test.passed_self_test().ok_or_else(|| {
        unusable(
            "that self-test did not pass; omit the option, so that the result is a lower bound, or \
             find the rate that passes with self-test --search-to"
                .into(),
        )
    })
}

/// Extends the block of names to all 2³² names. Adjusts the index of the trial's first name, so that it still refers to
/// the same name.
fn widen(plan: &mut SearchPlan) {
    plan.trial.first_name += u64::from(u32::from(plan.trial.names.first()));
    plan.trial.names = NameRange::ALL;
}

impl SelfTest {
    /// Plans the self-test.
    ///
    /// # Errors
    /// Returns an error if the server's name has no address.
    pub(crate) fn resolve(&self) -> Result<SelfTestPlan, Failure> {
        let asked = check_host(self.traffic.plan(self.server.resolve()?, self.for_rate))?;
        let highest = self.search_to.unwrap_or_else(|| {
            required_rate(self.for_rate, asked.aaaa_share, asked.cached_share, self.delta)
        });
        let (aaaa_share, cached_share) = (asked.aaaa_share, asked.cached_share);
        let mut trial = as_self_test(asked, self.delta);
        let most = TrialPlan { rate: highest, ..trial.clone() };
        if self.traffic.names.is_none() && most.names_needed() > most.names.count() {
            trial.names = NameRange::ALL;
        }
        let SelfTest { for_rate, delta, repeat, search_to, .. } = *self;
        Ok(SelfTestPlan { trial, for_rate, aaaa_share, cached_share, delta, repeat, search_to })
    }
}

/// Returns the self-test trial that corresponds to a trial of a DUT. AuthDNS is queried directly, returns an AAAA
/// record for every name, and must answer within a quarter of the timeout. The send settings are the same.
pub(crate) fn as_self_test(asked: TrialPlan, delta: f64) -> TrialPlan {
    let factor = factor(asked.aaaa_share, asked.cached_share, delta);
    TrialPlan {
        subject: Subject::Tester { factor, delta },
        timeout: method::selftest::timeout(asked.timeout),
        aaaa_share: Share::ONE,
        cached_share: Share::ZERO,
        ..asked
    }
}

impl Questions {
    /// Returns the EDNS settings, or `None` if no option needs EDNS.
    fn edns(&self) -> Option<Edns> {
        let mut options = self.edns_option.clone();
        options.extend(self.nsid.then(EdnsOption::nsid));
        options.extend(self.client_subnet.map(EdnsOption::client_subnet));
        let wanted = self.edns_size.is_some() || self.dnssec_ok || !options.is_empty();
        // A message of 1232 octets fits into the minimum MTU of IPv6 (DNS flag day 2020).
        let size = self.edns_size.unwrap_or(1_232);
        wanted.then_some(Edns { size, dnssec_ok: self.dnssec_ok, options })
    }
}

impl IntervalFiles {
    /// Returns the length of the intervals for which statistics are written to files, or `None` if the user requested
    /// none of these files.
    ///
    /// # Errors
    /// Returns an error if the user gave the length but requested none of these files.
    pub(crate) fn width(&self) -> Result<Option<Nanos>, Failure> {
        let is_wanted = self.hdr_log.is_some() || self.json_lines.is_some();
        if self.interval.is_some() && !is_wanted {
            return Err(Failure::usage(anyhow::anyhow!(
                "--interval needs a file: --hdr-log or --json-lines"
            )));
        }
        Ok(is_wanted.then(|| self.interval.map_or(Nanos::SECOND, Nanos::from)))
    }

    /// Opens the files with the statistics of each interval, if the user requested them.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub(crate) fn open(&self) -> Result<intervals::Files, Failure> {
        intervals::Files::open(self.hdr_log.as_deref(), self.json_lines.as_deref())
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

/// Reads the queries of a file. For each malformed line, calls `warn` with a warning.
///
/// # Errors
/// Returns an error if the file cannot be read or has no valid queries.
fn query_file(path: &Path, warn: &dyn Fn(&str)) -> Result<Source, Failure> {
    let started = Instant::now();
    let file = QueryFile::read(path).map_err(Failure::usage)?;
    for warning in file.warnings(path) {
        warn(&warning);
    }
    let source = Source::File(Arc::new(file));
    if let Source::File(file) = &source {
        tracing::info!(
            "{} queries of {} use {} MiB, read in {:.1} s",
            source.count(),
            path.display(),
            file.octets() >> 20,
            started.elapsed().as_secs_f64()
        );
    }
    Ok(source)
}

impl ClosedLoop {
    /// Plans the closed loop.
    ///
    /// # Errors
    /// Returns an error if there are not enough names, or if the query file cannot be used.
    pub(crate) fn resolve(&self) -> Result<ClosedLoopPlan, Failure> {
        may_use(self.cpus.as_ref().map_or(&[], |list| &list.0))?;
        let q = &self.questions;
        let (source, check) = match &q.queries {
            Some(path) => {
                let warn = |warning: &str| eprintln!("dns64bench: {warning}");
                (query_file(path, &warn)?, Check::Rcode)
            }
            None => (self.source(self.names, self.first_name, self.count)?, self.check()),
        };
        let server = self.server.as_ref().expect("clap requires it").resolve()?;
        Ok(ClosedLoopPlan {
            settings: self.client_settings(server, source, check, self.timeout)?,
            outstanding: self.outstanding,
            threads: self.threads,
            source_ports: self.source_ports.unwrap_or(self.threads),
            cpus: self.cpus.clone().map(|list| list.0).unwrap_or_default(),
            duration: self.duration.map(Nanos::from),
            most: None,
        })
    }

    /// Plans experiment `number` of dns64perf2. Each experiment queries 256 names, and no name belongs to two
    /// experiments.
    ///
    /// # Errors
    /// Returns an error if the names of the experiment are outside the name space. With valid arguments, this error
    /// cannot occur.
    pub(crate) fn experiment(
        &self,
        e: &Experiments,
        number: u64,
    ) -> Result<ClosedLoopPlan, Failure> {
        let first = (u64::from(e.space) << 24) + number * 256;
        let source = self.source(NameRange::ALL, first, 256)?;
        Ok(ClosedLoopPlan {
            settings: self.client_settings(e.server, source, self.check(), e.timeout)?,
            outstanding: e.threads,
            threads: e.threads,
            source_ports: e.threads,
            cpus: self.cpus.clone().map(|list| list.0).unwrap_or_default(),
            duration: None,
            most: None,
        })
    }

    fn source(&self, names: NameRange, first: u64, count: u64) -> Result<Source, Failure> {
        let source = Names::new(&self.domain, names, first, count);
        let missing = || {
            anyhow::anyhow!(
                "--names {names} from --first-name {first} on has fewer than --count {count} names"
            )
        };
        source.map(Source::Names).ok_or_else(|| Failure::usage(missing()))
    }

    fn check(&self) -> Check {
        Check::Address(Expectation {
            aaaa_share: self.aaaa_share,
            check_own_aaaa: !self.any_aaaa,
            prefixes: self.expect_prefix.clone(),
        })
    }

    fn client_settings(
        &self,
        server: SocketAddr,
        source: Source,
        check: Check,
        timeout: Duration,
    ) -> Result<ClientSettings, Failure> {
        let q = &self.questions;
        Ok(ClientSettings {
            server,
            local: None,
            transport: q.transport.resolve(),
            source,
            additional: Additional::new(q.edns().as_ref(), q.tsig.clone(), q.tsig_skew),
            check,
            timeout: timeout.into(),
            offload: self.offload,
            buffer: None,
            interval: q.intervals.width()?,
        })
    }
}

impl Resperf {
    /// Plans the ramp. For each malformed line of the query file, calls `warn` with a warning.
    ///
    /// # Errors
    /// Returns an error if the server has no address of the given family, or if the queries cannot be read.
    pub(crate) fn resolve(&self, warn: &dyn Fn(&str)) -> Result<RampPlan, Failure> {
        let server = self.address()?;
        let (source, check) = match self.names {
            None => {
                let path = self.data.as_deref().unwrap_or(Path::new("-"));
                (query_file(path, warn)?, Check::Rcode)
            }
            Some(names) => {
                let all = Names::new(&Domain::dns64perf(), names, 0, names.count())
                    .expect("the block has them");
                let prefixes = self.expect_prefix.clone();
                let expectation =
                    Expectation { aaaa_share: Share::ZERO, check_own_aaaa: false, prefixes };
                (Source::Names(all), Check::Address(expectation))
            }
        };
        let wanted = self.edns || self.dnssec_ok || !self.edns_option.is_empty();
        // The UDP payload size that resperf sends.
        let edns = wanted.then(|| Edns {
            size: 4_096,
            dnssec_ok: self.dnssec_ok,
            options: self.edns_option.clone(),
        });
        let clients = self.clients.max(1);
        if self.local_port != 0 && usize::from(self.local_port) + clients > 65_536 {
            let port = self.local_port;
            return Err(Failure::usage(anyhow::anyhow!(
                "-x {port}: there are fewer than {clients} ports (-C) from there on"
            )));
        }
        Ok(RampPlan {
            settings: ClientSettings {
                server,
                local: self.local(server),
                transport: self.mode.resolve(),
                source,
                additional: Additional::new(edns.as_ref(), self.tsig.clone(), 0),
                check,
                timeout: self.timeout.into(),
                // The original resperf also uses one system call per datagram.
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
            wait: ramp::WAIT,
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
        let none =
            || Failure::usage(anyhow::anyhow!("-s {server} has no address of the family of -f"));
        all.find(fits).ok_or_else(none)
    }
}

impl Dns64perf {
    /// Plans a trial with the rate and the number of source ports that dns64perf++ would use for the same arguments.
    /// The queries are evenly spaced, whereas each of the t threads of dns64perf++ sends a burst of n queries every d
    /// ns.
    ///
    /// # Errors
    /// Returns an error if the arguments define no load.
    pub(crate) fn resolve(&self) -> Result<TrialPlan, Failure> {
        let Dns64perf { requests, burst, threads, subnet, .. } = *self;
        let wrong = |why: &str| Failure::usage(anyhow::anyhow!("{why}"));
        let Timing { ports, delay, timeout } = self.timing().map_err(|why| wrong(&why))?;
        if requests == 0 || burst == 0 || threads == 0 || delay == 0 {
            return Err(wrong("requests, burst, threads and delay must be more than 0"));
        }
        if requests > subnet.count() {
            return Err(wrong(&format!(
                "{subnet} has {} names, fewer than {requests} requests",
                subnet.count()
            )));
        }
        let rate = burst as f64 * threads as f64 * 1e9 / delay as f64;
        let exact = rate;
        let rate = Qps(rate.round().max(1.0) as u64);
        if (exact / rate.0 as f64 - 1.0).abs() > 0.001 {
            return Err(wrong(&format!(
                "that is a rate of {exact:.3} queries/s, but only whole numbers can be offered"
            )));
        }
        let mut plan = TrialPlan::new(SocketAddr::new(self.server, self.port), rate);
        // The shortest duration in which all requested queries are due.
        let duration = (u128::from(requests) * u128::from(Nanos::SECOND.0)).div_ceil(rate.0.into());
        plan.duration =
            Nanos(u64::try_from(duration).map_err(|_| wrong("that takes more than 500 years"))?);
        plan.timeout = timeout.into();
        plan.names = subnet;
        if let Some(ports) = ports {
            let all = u64::from(ports.get()).checked_mul(threads);
            plan.source_ports = all.and_then(|all| u16::try_from(all).ok()).ok_or_else(|| {
                wrong(&format!("{threads} threads with {ports} ports each exceed 65535 ports"))
            })?;
            // dns64perf++ matches replies by name, so it needs few message IDs. This tester matches by ID, and uses
            // more ports if the IDs of the given ports are not sufficient.
            if let Err(PlanError::Ids { needed, .. }) = plan.check() {
                plan.source_ports = u16::try_from(needed).unwrap_or(u16::MAX);
            }
        }
        // dns64perf++ accepts any AAAA record, whatever its address.
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::{Value, json};
    use tester::measurer::plan::DEFAULT_SOURCE_PORTS;

    use super::*;

    fn plan_with(field: &str, value: Option<Value>) -> Result<TrialPlan, String> {
        let mut plan =
            serde_json::to_value(TrialPlan::new("[::1]:53".parse().unwrap(), Qps(10))).unwrap();
        let fields = plan.as_object_mut().unwrap();
        match value {
            Some(value) => fields.insert(field.to_owned(), value),
            None => fields.remove(field),
        };
        parse_plan(&plan.to_string())
    }

    #[test]
    fn a_search_whose_names_cannot_last_is_refused() {
        let range = SearchRange {
            min: Qps(100),
            max: Qps(1_000),
            resolution: Qps(100),
            invalid_retries: 0,
        };
        let of = |names: &str, repeat, reuse_names| {
            let trial = TrialPlan::new("[::1]:53".parse().unwrap(), Qps(100));
            let plan = SearchPlan {
                trial: TrialPlan { names: names.parse().unwrap(), ..trial },
                range,
                repeat,
                pause: Duration::ZERO,
                reuse_names,
                self_test: None,
                method: Method::Bisection,
            };
            with_names(plan, true).map_err(|failure| failure.to_string())
        };
        // A trial at 1 000 queries/s uses 60 000 names, and a search has at most six trials.
        let refused = of("10.0.0.0/16", 1, false).unwrap_err();
        for word in ["--names 10.0.0.0/16", "0.0.0.0/0", "--reuse-names", "longest possible"] {
            assert!(refused.contains(word), "{word} is not in {refused}");
        }
        assert!(of("10.0.0.0/16", 1, true).is_ok() && of("10.0.0.0/12", 1, false).is_ok());
        let all = of("0.0.0.0/0", 100_000, false).unwrap_err();
        assert!(all.contains("a lower --max") && !all.contains("a larger block"), "{all}");
    }

    #[test]
    fn a_plan_is_read_whole() {
        assert_eq!(plan_with("rate", Some(json!(7))).unwrap().rate, Qps(7));
        assert!(!plan_with("check_own_aaaa", Some(json!(false))).unwrap().check_own_aaaa);
    }

    #[test]
    fn dns64perf_takes_the_arguments_of_both_versions() {
        let of = |last: &str| {
            let words = format!("dns64perf++ 2001:2::1 53 10.0.0.0/8 60000 1 2 {last}");
            let args =
                Dns64perf::try_parse_from(words.split(' ')).map_err(|why| why.to_string())?;
            args.resolve().map_err(|failure| failure.to_string())
        };
        for (last, ports, rate, timeout) in [
            ("1000000 1", DEFAULT_SOURCE_PORTS, 2_000, Nanos::SECOND),
            ("1 1000000 1", 2, 2_000, Nanos::SECOND),
            ("400 1000000 0.5", 800, 2_000, Nanos::from_millis(500)),
            // The IDs of two ports are not sufficient.
            ("1 10000 1", 4, 200_000, Nanos::SECOND),
        ] {
            let plan = of(last).unwrap_or_else(|why| panic!("{last}: {why}"));
            let found = (plan.source_ports, plan.rate.0, plan.timeout);
            assert_eq!(found, (ports, rate, timeout), "{last}");
            plan.check().unwrap();
        }
        for (last, word) in [
            ("1", "TIMEOUT"),
            ("0 1000000 1", "ports"),
            ("40000 1000000 1", "65535"),
            ("1 x 1", "time between bursts"),
            ("1000000 0", "timeout"),
            ("1 1 1 1", "unexpected"),
        ] {
            let why = of(last).unwrap_err();
            assert!(why.contains(word), "{last}: {why}");
        }
    }

    #[test]
    fn resperf_waits_for_forty_seconds() {
        let args = Resperf::parse_from(["resperf", "-s", "::1", "--names", "10.0.0.0/24"]);
        let plan = args.resolve(&|_| {}).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(plan.wait, Nanos(40 * Nanos::SECOND.0));
    }

    #[test]
    fn plan_errors_name_the_field() {
        for (field, value, words) in [
            ("rate", None, "missing field `rate`"),
            ("rates", Some(json!(1)), "unknown field `rates`"),
            ("rate", Some(json!("ten")), "rate: 'ten' is not a rate"),
            ("server", Some(json!("::1")), "server: "),
            ("max_burst", Some(json!("often")), "write auto, or a time such as 200us"),
            (
                "limits",
                Some(json!({"window_100ms_pct": 1.0})),
                "limits: missing field `lateness_p999`",
            ),
            ("cpus", Some(json!([0, "one"])), "cpus[1]: "),
            ("aaaa_share", Some(json!(0.123)), "aaaa_share: '0.123' is not a share"),
        ] {
            let why = plan_with(field, value).unwrap_err();
            assert!(why.contains(words), "{field}: {why}");
        }
        assert!(parse_plan("").unwrap_err().contains("line 1"));
        assert!(parse_plan("{} {}").is_err());
    }
}
