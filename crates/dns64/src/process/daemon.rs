//! The program `dns64d`: arguments, startup, signals and shutdown. The program is a library
//! function, so that dns64bench can include it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use anyhow::Context;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use cli::below_help;
use dns64_import::{Note, Source};
use net::address::ServiceAddr;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use super::certificate_check::CertificateCheck;
use super::commands::{self, ControlOptions, RejectedRequest};
use super::follow::{self, Follower};
use super::harden::{self, NeededFiles};
use super::host_check;
use super::limits::SystemLimits;
use super::log::Log;
use super::output::{bounded, comment, print};
use super::probe::{self, Probed};
use super::reload::{ConfigSource, Reloader};
use super::sections::sections;
use super::systemd;
use crate::config::{
    Config, ConfigError, ListenKeys, LogFormat, LogKeys, LogLevel, PrefixKeys, RESOLV_CONF,
    Running, Settings, UPSTREAM_LINES,
};
use crate::control::protocol::Subject;
use crate::guard;
use crate::import::{ImportError, import};
use crate::server::{ServerError, bind};

/// Exit status of an import if settings that affect answers are not carried over
/// (docs/src/contract.md).
const ANSWERS_MAY_DIFFER: u8 = 1;
/// Exit status for an invalid configuration or command.
const BAD_CONFIGURATION: u8 = 2;
/// Exit status if the system refuses a required resource, or no server answers.
const BAD_ENVIRONMENT: u8 = 4;
/// Exit status after a panic, as in other Rust programs.
const PANICKED: i32 = 101;

/// A forwarding and caching DNS64 server that synthesizes AAAA records from A records.
#[derive(Debug, Parser)]
#[command(name = "dns64d", version, long_version = crate::BUILD, propagate_version = true, max_term_width = 110, after_help = below_help(&sections("")))]
struct Arguments {
    /// Configuration file [default: none; dns64d then listens on [::1]:5380, with prefix 64:ff9b::/96 and the upstreams
    /// in /etc/resolv.conf]
    #[arg(long, short, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Address and port on which to listen for DNS queries, such as [::1]:53; may be given several times. Replaces the
    /// listen addresses of the configuration
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Vec<ServiceAddr>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check that the configuration is valid and works on this machine; print the configuration with all defaults
    #[command(after_help = below_help(&sections("check")))]
    Check {
        /// Send one query to each upstream, and print its response time or the error
        #[arg(long)]
        probe: bool,
    },
    /// Show prefixes, upstreams, settings and counters of a running server
    #[command(after_help = below_help(&sections("status")))]
    Status {
        #[command(flatten)]
        asked: ControlOptions,
    },
    /// Make a running server reload its configuration file; print the changed keys, and the keys whose change needs a
    /// restart
    #[command(after_help = below_help(&sections("reload")))]
    Reload {
        #[command(flatten)]
        asked: ControlOptions,
    },
    /// Remove the answers for a name, and for all names below it, from the cache of a running server
    #[command(after_help = below_help(&sections("flush")))]
    Flush {
        /// Name to remove, such as example.org; answers of all types for this name and for names below it are removed
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        name: Option<String>,
        /// Remove all answers from the cache
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        asked: ControlOptions,
    },
    /// Explain how a running server answers a query: the rules that apply, the data from cache or upstreams, and the
    /// decision to synthesize or not
    #[command(after_help = below_help(&sections("explain")))]
    Explain {
        /// Name in the query
        name: String,
        /// Type in the query
        #[arg(long = "type", value_name = "TYPE", default_value = "AAAA")]
        rtype: String,
        /// Source address of the query; the server applies the group and the access rules of this client
        #[arg(long, value_name = "ADDR", default_value = "::1")]
        client: IpAddr,
        /// Set the DO bit in the query, which requests DNSSEC signatures
        #[arg(long)]
        dnssec: bool,
        /// Set the CD bit in the query, which states that the client validates answers
        #[arg(long)]
        checking_disabled: bool,
        #[command(flatten)]
        asked: ControlOptions,
    },
    /// Convert the configuration of a different DNS64 server into a valid dns64d.toml on standard output; list the
    /// settings that are not carried over, with file and line, on standard error
    #[command(after_help = below_help(&sections("import")))]
    Import {
        /// Configuration file of the other server; files that it includes are read too
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Software of the other server. Supported configuration files: named.conf of BIND 9; unbound.conf;
        /// recursor.conf or recursor.yml of PowerDNS Recursor; kresd.conf (version 5) or config.yaml (version 6) of
        /// Knot Resolver; Corefile of CoreDNS; mtd64-ng.conf [default: detected from the name or content of the file]
        #[arg(long, value_name = "SERVER", value_parser = source())]
        from: Option<Source>,
    },
    /// Print the completion script for a shell
    #[command(after_help = below_help(&sections("completions")))]
    Completions {
        /// Shell for which to print the script
        shell: Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = below_help(&sections("manual")))]
    Manual {
        /// Folder for the manual pages; created if missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// Date in the footer of each manual page
        #[arg(long, default_value = "", hide_default_value = true)]
        date: String,
    },
}

/// Returns the parser for the option `--from`, which names the software of the other server.
fn source() -> impl TypedValueParser<Value = Source> {
    let of = |name: String| {
        Source::ALL.iter().find(|(known, _)| *known == name).map(|(_, source)| *source)
    };
    PossibleValuesParser::new(Source::ALL.map(|(name, _)| name))
        .map(move |name| of(name).expect("one of the possible values"))
}

/// Returns the command line definition.
pub fn command() -> clap::Command {
    Arguments::command()
}

/// Runs the program with the given command line, and returns its exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            if !error.use_stderr() {
                return print_help(&error);
            }
            print_error_line!("dns64d: {}", cli::wrong_arguments(&error));
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    let (file, listen) = (arguments.config.as_deref(), &arguments.listen[..]);
    let done = |()| ExitCode::SUCCESS;
    let ended = match arguments.command {
        None => serve(file, listen).map(done),
        Some(Command::Check { probe }) => check(file, listen, probe),
        Some(_) if !listen.is_empty() => {
            print_error_line!("dns64d: --listen is an option only of the server and of `check`");
            return ExitCode::from(BAD_CONFIGURATION);
        }
        Some(Command::Status { asked }) => commands::status(file, &asked).map(done),
        Some(Command::Reload { asked }) => commands::reload(file, &asked).map(ExitCode::from),
        Some(Command::Flush { name, all: _, asked }) => {
            commands::flush(file, &asked, name).map(done)
        }
        Some(Command::Explain { name, rtype, client, dnssec, checking_disabled, asked }) => {
            let subject = Subject { name, rtype, client, dnssec_ok: dnssec, checking_disabled };
            commands::explain(file, &asked, subject).map(done)
        }
        Some(Command::Import { file, from }) => import_from(&file, from),
        Some(Command::Completions { shell }) => {
            print(&cli::completions(&command(), shell)).map(done).map_err(anyhow::Error::from)
        }
        Some(Command::Manual { folder, date }) => {
            let written = cli::write_manual(command(), &folder, &date, sections);
            written
                .map(done)
                .with_context(|| format!("cannot write manual pages into {}", folder.display()))
        }
    };
    ended.unwrap_or_else(|error| {
        let is_wrong = |error: &anyhow::Error| {
            error.is::<ConfigError>() || error.is::<ImportError>() || error.is::<RejectedRequest>()
        };
        if is_wrong(&error) {
            print_error_line!("dns64d: {}", bounded(&error.to_string()));
            return ExitCode::from(BAD_CONFIGURATION);
        }
        print_error_line!("dns64d: {}", format_error(&error));
        ExitCode::from(BAD_ENVIRONMENT)
    })
}

/// Prints the help or the version, which clap returns as an error.
fn print_help(help: &clap::Error) -> ExitCode {
    match help.print().and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            print_error_line!("dns64d: cannot write to standard output: {error}");
            ExitCode::from(BAD_ENVIRONMENT)
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Prints the effective configuration as a configuration file. Prints warnings about settings that this machine does
/// not support, or whose values exceed its limits and are reduced. With `probe`, each upstream is queried.
fn check(file: Option<&Path>, listen: &[ServiceAddr], probe: bool) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::load(file, &[], listen)?;
    let probed = if probe { probe::probe(&settings) } else { Vec::new() };
    let text = in_effect(&settings, &probed);
    let mut errors = host_check::missing(&settings);
    let mut warnings = settings.warnings();
    let certificates = CertificateCheck::of(&settings);
    errors.extend(certificates.errors);
    warnings.extend(certificates.warnings);
    warnings.extend(host_check::obstacles(&settings, listen));
    let addresses = settings.config.listen.len();
    match SystemLimits::of_process().fit(&mut settings, addresses) {
        Ok((_, reduced)) => warnings.extend(reduced),
        Err(error) => errors.push(error.to_string()),
    }
    warnings.iter().for_each(|warning| print_error_line!("dns64d: warning: {warning}"));
    errors.iter().for_each(|error| print_error_line!("dns64d: {error}"));
    if settings.no_upstream().is_some() {
        print_error_line!("Configuration of an upstream, for example:\n\n{UPSTREAM_LINES}");
    }
    print(text.as_bytes())?;
    let bad: Vec<_> = probed.iter().filter(|one| !one.is_good(settings.validate)).collect();
    bad.iter().for_each(|one| print_error_line!("dns64d: {one}"));
    Ok(match (errors.is_empty(), bad.is_empty()) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(BAD_ENVIRONMENT),
        (false, _) => ExitCode::from(BAD_CONFIGURATION),
    })
}

/// Returns the effective configuration in the form of a file, preceded by comments about upstreams and local zones.
fn in_effect(settings: &Settings, probed: &[Probed]) -> String {
    let mut text = format!("# {}\n", settings.upstreams_in_words());
    if !settings.config.forwards.is_empty() {
        text += &comment("default upstreams", &settings.default_upstreams());
    }
    probed.iter().for_each(|one| text += &format!("# {one}\n"));
    text + &comment("local zones", &settings.local_zones()) + "\n" + &settings.to_toml()
}

/// Converts the configuration of another server. Prints the result, and notes on settings that are
/// not carried over.
fn import_from(file: &Path, from: Option<Source>) -> anyhow::Result<ExitCode> {
    let imported = import(file, from)?;
    for note in &imported.notes {
        print_error_line!("{note}");
    }
    print(imported.toml.as_bytes())?;
    let is_whole = !imported.notes.iter().any(Note::changes_answers);
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(ANSWERS_MAY_DIFFER) })
}

/// Formats an error with its causes, without repetition, and with a hint if there is one.
fn format_error(error: &anyhow::Error) -> String {
    let mut text = cli::error_with_causes(error.as_ref());
    if let Some(ServerError::Listen { address, source }) = error.downcast_ref()
        && source.cause().kind() == std::io::ErrorKind::PermissionDenied
        && address.port() < 1_024
    {
        text += "; ports below 1024 need CAP_NET_BIND_SERVICE, a start as root with `user` set, or a socket from systemd";
    }
    text
}

/// Makes the process end after an uncaught panic, or after too many caught panics, so that a
/// supervisor restarts it. If only the thread of a worker ended, clients of this worker's sockets
/// would get no more answers.
fn end_on_panic(log: Arc<Log>) {
    std::panic::set_hook(Box::new(move |panic| {
        if !guard::is_caught(panic) {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("without a name");
            // The backtrace is empty if RUST_BACKTRACE does not request one.
            let trace = Backtrace::capture();
            let trace = matches!(trace.status(), BacktraceStatus::Captured)
                .then(|| format!("{trace}\n"))
                .unwrap_or_default();
            // This line bypasses the logging framework, because the panic may have occurred there.
            let _ = (&*log).write_all(format!("thread {name} {panic}\n{trace}").as_bytes());
            log.flush();
            std::process::exit(PANICKED);
        }
    }));
}

fn serve(file: Option<&Path>, listen: &[ServiceAddr]) -> anyhow::Result<()> {
    let activated = systemd::activated_sockets()?;
    let passed = activated.addresses();
    let source = ConfigSource { file, passed: &passed, listen };
    let mut settings = source.load(&passed)?;
    let running = Running::started(source.written(&settings));
    let log = Log::new();
    end_on_panic(Arc::clone(&log));
    start_log(settings.config.log, Arc::clone(&log));
    // Flushes the log even if the start fails.
    let _written = LogFlushGuard(Arc::clone(&log));
    // The signal handlers are set up before other threads start, so that this thread receives all
    // of these signals.
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let allowed = SystemLimits::of_process();
    if allowed.limits_address_space() {
        net::allocator::share_one_arena();
    }
    let mut warnings = settings.warnings();
    let addresses = if passed.is_empty() { settings.config.listen.len() } else { passed.len() };
    let (fixed, reduced) = allowed.fit(&mut settings, addresses)?;
    warnings.extend(reduced);
    let config = settings.config.clone();
    let resolv_conf = settings.follows_system.then_some(Path::new(RESOLV_CONF));
    let mut follower = Follower::new(&settings);
    warnings.extend(host_check::missing(&settings));
    log_startup(&settings, file);
    let mut bound = bind(settings.clone(), activated)?;
    // SIGHUP wakes this thread, which then reloads the configuration and answers the request.
    let (sender, requests) = channel();
    bound.on_reload(move |request| {
        let _ = sender.send(request);
        // musl's raise(3) would use tkill(2), which the system call filter allows only for the main
        // thread.
        let _ = kill(Pid::this(), Signal::SIGHUP);
    });
    drop_privileges(&config, file, resolv_conf)?;
    // The certificates were read before privileges were dropped. Renewed files must be readable now, too.
    let certificates = CertificateCheck::of(&settings);
    let later = |error| format!("{error}; a renewed certificate will not be used");
    warnings.extend(certificates.errors.into_iter().map(later));
    warnings.extend(certificates.warnings);
    log.begin().context("cannot start the log thread")?;
    warnings.extend_from_slice(bound.warnings());
    let xdp = bound.xdp();
    let server = bound.start()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    for address in server.addresses() {
        tracing::info!("serving {address}");
    }
    for (transport, address) in server.encrypted_addresses() {
        tracing::info!("serving {address} over {transport}");
    }
    for interface in xdp {
        tracing::info!("{interface}");
    }
    if let Some(address) = server.metrics_address() {
        tracing::info!("metrics at http://{address}/metrics");
    }
    if let Some(socket) = &config.control.socket {
        tracing::info!("control socket {}", socket.display());
    }
    systemd::notify(&[NotifyState::Ready]);
    let signals = signal_channel(signals).context("cannot start the signal thread")?;
    let mut reloader = Reloader { server: &server, source, allowed, fixed, running };
    loop {
        match signals.recv_timeout(follow::POLL_INTERVAL) {
            // A request that arrives during the reload sends another signal.
            Ok(SIGHUP) => {
                reloader.answer(requests.try_iter().collect());
                follower.record(&server.settings());
            }
            Err(RecvTimeoutError::Timeout) => {
                follower.poll(&server, |settings| reloader.refit(settings));
            }
            Ok(_) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    tracing::info!("stopping; queries in flight are answered");
    systemd::notify(&[NotifyState::Stopping]);
    server.stop();
    Ok(())
}

/// Forwards signals to a channel, so that they can be received with a timeout.
fn signal_channel(mut signals: Signals) -> std::io::Result<Receiver<i32>> {
    let (sender, receiver) = channel();
    let pass_on = move || {
        for signal in signals.forever() {
            if sender.send(signal).is_err() {
                break;
            }
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(pass_on)?;
    Ok(receiver)
}

/// Switches to the configured user, and confines the process.
fn drop_privileges(
    config: &Config,
    file: Option<&Path>,
    resolv_conf: Option<&Path>,
) -> anyhow::Result<()> {
    let (socket, log) = (config.control.socket.as_deref(), config.query_log.file());
    let made: Vec<&Path> = socket.into_iter().chain(log).collect();
    if harden::drop_root(config.user.as_deref(), &made)? {
        tracing::warn!("running as root without capabilities; set `user`, or use the systemd unit");
    }
    let trust_anchors = config.dnssec.trust_anchors.as_ref().map(|file| file.get_ref().as_path());
    let files = config.listen.iter().filter_map(ListenKeys::certificate);
    let certificates: Vec<PathBuf> =
        files.flat_map(|files| [files.certificate, files.key]).collect();
    let needed = NeededFiles {
        config: file,
        trust_anchors,
        certificates: &certificates,
        resolv_conf,
        socket,
        log,
    };
    let confined = harden::confine(needed)?;
    let word = |is_on: bool| if is_on { "on" } else { "not available" };
    let (files, calls) = (word(confined.files), word(confined.calls));
    tracing::info!("confined: landlock {files}, system call filter {calls}");
    Ok(())
}

/// Logs version, configuration, prefixes and upstreams at start-up.
fn log_startup(settings: &Settings, file: Option<&Path>) {
    let file = file.map_or("no configuration file".to_owned(), |file| {
        format!("configuration {}", file.display())
    });
    tracing::info!("dns64d {}, {file}", crate::BUILD);
    let mut prefixes: Vec<String> = settings.prefixes().map(|prefix| prefix.to_string()).collect();
    if settings.config.written_prefixes().any(PrefixKeys::is_discovered) {
        prefixes.push("discovery in progress".into());
    }
    tracing::info!(
        "prefixes: {}",
        if prefixes.is_empty() { "none, translation is off".into() } else { prefixes.join(", ") }
    );
    tracing::info!("{}", settings.upstreams_in_words());
}

/// Guard that flushes the log when it is dropped.
struct LogFlushGuard(Arc<Log>);

impl Drop for LogFlushGuard {
    fn drop(&mut self) {
        self.0.flush();
    }
}

/// Directs log lines to `log`, with the configured level and format.
fn start_log(keys: LogKeys, log: Arc<Log>) {
    let level = match keys.level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
    };
    // Colours are off for files and journals, and if NO_COLOR is set (https://no-color.org).
    let objects = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = std::io::stderr().is_terminal() && !objects;
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(log)
        // Without this setting, tracing would report an error on standard error, and panic if the
        // report fails.
        .log_internal_errors(false)
        .with_target(false);
    let subscriber = subscriber.with_ansi(colours);
    // Libraries log only errors, because clients could otherwise fill the log.
    let filter = Targets::new().with_default(tracing::Level::ERROR).with_target("dns64", level);
    // A program that includes dns64d as a library may already have a logger.
    let _ = match keys.format {
        LogFormat::Text => subscriber.finish().with(filter).try_init(),
        LogFormat::Json => subscriber.json().finish().with(filter).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_and_they_can_be_typed() {
        let mut command = command();
        command.clone().debug_assert();
        command.build();
        let subcommands =
            command.get_subcommands().map(clap::Command::get_name).filter(|name| *name != "help");
        for words in subcommands.chain([""]) {
            let sections = sections(words);
            let examples =
                sections.iter().find(|section| section.title == "Examples").expect(words);
            for (line, _) in examples.items {
                assert!(
                    line.split_whitespace().any(|word| words.is_empty() || word == words),
                    "{words}: {line}"
                );
                let typed = line.split(" > ").next().unwrap().split_whitespace();
                assert!(Arguments::try_parse_from(typed).is_ok(), "{line}");
            }
        }
    }

    #[test]
    fn the_unit_starts_and_reloads_with_one_configuration() {
        let unit = include_str!("../../../../dist/systemd/dns64d.service");
        let value = |key: &str| {
            let line = unit.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|rest| rest.strip_prefix('=')).unwrap_or_else(|| panic!("{key}"))
        };
        let parsed = |key| Arguments::try_parse_from(value(key).split(' ')).unwrap();
        let (start, reload) = (parsed("ExecStart"), parsed("ExecReload"));
        assert!(start.command.is_none() && start.config.is_some());
        assert!(matches!(reload.command, Some(Command::Reload { .. })));
        assert_eq!(reload.config, start.config);
        let socket = format!("/run/{}/control.sock", value("RuntimeDirectory"));
        assert_eq!(socket, crate::config::CONTROL_SOCKET);
        // Name servers in resolv.conf and routes to link-local upstreams are available only after
        // the network is up.
        let after: Vec<&str> = value("After").split(' ').collect();
        assert!(after.contains(&"network-online.target") && after.contains(&"nss-lookup.target"));
    }

    /// Not a test. The test below starts this function as a separate process.
    #[test]
    fn a_process_whose_thread_panics() {
        let Ok(how) = std::env::var("DNS64D_TEST_PANIC") else { return };
        end_on_panic(Log::new());
        let thread = std::thread::spawn(move || {
            guard::guard_thread(|| {
                assert!(guard::catch(|| panic!("one query's work")).is_err());
                assert!(how == "caught", "an uncaught panic");
            });
        });
        let _ = thread.join();
        std::process::exit(7);
    }

    #[test]
    fn an_error_is_printed_once_with_a_hint() {
        let refused = || std::io::Error::from_raw_os_error(13);
        let of = |port| ServerError::Listen {
            address: std::net::SocketAddr::from(([127, 0, 0, 1], port)).into(),
            source: net::socket::ListenError::Udp(refused()),
        };
        let low = format_error(&of(53).into());
        assert!(
            low.starts_with(
                "cannot serve 127.0.0.1:53 over UDP: Permission denied (os error 13); "
            ),
            "{low}"
        );
        assert!(
            low.contains("CAP_NET_BIND_SERVICE") && low.matches("Permission").count() == 1,
            "{low}"
        );
        assert!(!format_error(&of(5353).into()).contains("CAP_NET_BIND_SERVICE"));
    }

    #[test]
    fn only_an_uncaught_panic_ends_the_process() {
        for (how, status, said) in [("caught", 7, false), ("not caught", PANICKED, true)] {
            let child = std::process::Command::new(std::env::current_exe().unwrap())
                .args([
                    "--exact",
                    "process::daemon::tests::a_process_whose_thread_panics",
                    "--nocapture",
                ])
                .env("DNS64D_TEST_PANIC", how)
                .output()
                .unwrap();
            assert_eq!(child.status.code(), Some(status), "{how}: {child:?}");
            let stderr = String::from_utf8_lossy(&child.stderr);
            assert_eq!(stderr.contains("an uncaught panic"), said, "{stderr}");
            assert!(
                !stderr.contains("one query's work"),
                "a caught panic is reported by its handler"
            );
        }
    }
}
