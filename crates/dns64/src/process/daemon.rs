//! The program `dns64d`: arguments, start, signals, end. A library function, so that dns64bench can
//! carry it inside.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use listenfd::ListenFd;
use method::units::CpuId;
use net::affinity::allowed_cpus;
use nix::unistd::User;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::harden;
use super::limits::Allowed;
use super::pages::{self, Section, below_help};
use crate::config::{Config, ConfigError, LogFormat, LogKeys, LogLevel, Settings};
use crate::guard;
use crate::server::{Activated, RunningServer, ServerError, bind};

/// Exit statuses (docs/src/contract.md): the configuration is wrong, or the machine does not let
/// us.
const BAD_CONFIGURATION: u8 = 2;
const BAD_ENVIRONMENT: u8 = 4;
/// Exit status after a panic, as Rust programs have it.
const PANICKED: i32 = 101;

/// A DNS64 server: forwards, caches, and answers AAAA queries with addresses made from A records.
#[derive(Debug, Parser)]
#[command(name = "dns64d", version, propagate_version = true, max_term_width = 110, after_help = below_help(&sections("")))]
struct Arguments {
    /// Configuration file; without one: [::1]:5353, 64:ff9b::/96, the upstreams of /etc/resolv.conf
    #[arg(long, short, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check the configuration and print what is in effect, defaults filled in
    #[command(after_help = below_help(&sections("check")))]
    Check,
    /// Print the completions of a shell
    #[command(after_help = below_help(&sections("completions")))]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual pages into a folder
    #[command(after_help = below_help(&sections("manual")))]
    Manual {
        /// The folder, which is made if it is missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        /// The date at the foot of each page
        #[arg(long, default_value = "", hide_default_value = true)]
        date: String,
    },
}

/// What `--help` and the manual pages have beside the options; the program's own page has no words.
fn sections(subcommand: &str) -> Vec<Section> {
    const EXAMPLES: &str = "Examples";
    let examples = |items| vec![Section { title: EXAMPLES, items }];
    match subcommand {
        "" => vec![
            Section {
                title: EXAMPLES,
                items: &[
                    (
                        "dns64d",
                        "Serve [::1]:5353 with the upstreams of /etc/resolv.conf, to try it.",
                    ),
                    ("dns64d --config /etc/dns64d/dns64d.toml", "Serve what a file says."),
                    (
                        "dns64d --config /etc/dns64d/dns64d.toml check",
                        "See whether it can be used, and what it means.",
                    ),
                ],
            },
            Section {
                title: "Signals",
                items: &[
                    ("HUP", "reads the configuration again; a bad one changes nothing"),
                    ("TERM", "ends it; queries in flight are still answered"),
                ],
            },
            Section {
                title: "Exit status",
                items: &[
                    ("0", "ended by SIGTERM or SIGINT"),
                    ("2", "the configuration cannot be used, or there is no upstream"),
                    (
                        "4",
                        "the machine does not let it serve, for instance because a port is in use",
                    ),
                    ("101", "too many defects of its own"),
                ],
            },
        ],
        "check" => examples(&[(
            "dns64d --config dns64d.toml check",
            "What is in effect, or file, line and reason.",
        )]),
        "completions" => examples(&[(
            "dns64d completions bash > ~/.local/share/bash-completion/completions/dns64d",
            "For bash; packages bring it along.",
        )]),
        "manual" => examples(&[(
            "dns64d manual ~/.local/share/man/man1",
            "For `man dns64d`; packages bring it along.",
        )]),
        _ => Vec::new(),
    }
}

/// Runs the program with the given command line; returns its exit status.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = match Arguments::try_parse_from(args) {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help goes to stdout with status 0, errors to stderr with 2.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { BAD_CONFIGURATION } else { 0 });
        }
    };
    let file = arguments.config.as_deref();
    let done = |()| ExitCode::SUCCESS;
    let ended = match arguments.command {
        None => serve(file).map(done),
        Some(Command::Check) => check(file),
        Some(Command::Completions { shell }) => {
            print(&pages::completions(&Arguments::command(), shell))
                .map(done)
                .map_err(anyhow::Error::from)
        }
        Some(Command::Manual { folder, date }) => {
            let written = pages::write_manual(Arguments::command(), &folder, &date, sections);
            written
                .map(done)
                .with_context(|| format!("cannot write manual pages into {}", folder.display()))
        }
    };
    ended.unwrap_or_else(|error| {
        if error.is::<ConfigError>() {
            eprintln!("dns64d: {}", bounded(&error.to_string()));
            return ExitCode::from(BAD_CONFIGURATION);
        }
        eprintln!("dns64d: {}", told_once(&error));
        ExitCode::from(BAD_ENVIRONMENT)
    })
}

/// Prints what is in effect, in the form of a configuration file, and what this machine does not
/// have of it.
fn check(file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let settings = Settings::load(file, &[])?;
    for warning in settings.warnings() {
        eprintln!("dns64d: warning: {warning}");
    }
    let missing = missing_here(&settings.config);
    for what in &missing {
        eprintln!("dns64d: {what}");
    }
    print(format!("# {}\n\n{}", settings.upstreams_in_words(), settings.to_toml()).as_bytes())?;
    Ok(if missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(BAD_CONFIGURATION) })
}

/// Writes to standard output. Who has read enough and is gone is no error.
fn print(text: &[u8]) -> io::Result<()> {
    match io::stdout().write_all(text).and_then(|()| io::stdout().flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// What a configuration names and this machine does not have: a sentence each.
fn missing_here(config: &Config) -> Vec<String> {
    let allowed = allowed_cpus();
    let here = || allowed.iter().map(|cpu| cpu.0.to_string()).collect::<Vec<_>>().join(", ");
    let no_cpu = |cpu: &&usize| !allowed.contains(&CpuId(**cpu));
    let cpus = config
        .cpus
        .iter()
        .filter(no_cpu)
        .map(|cpu| format!("cpus: there is no CPU {cpu}; there are {}", here()));
    let user = config.user.iter().filter(|name| matches!(User::from_name(name), Ok(None)));
    cpus.chain(user.map(|name| format!("user: there is no user {name}"))).collect()
}

/// An error with its causes, each told once, and what helps against it.
fn told_once(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    if let Some(ServerError::Listen { address, source, .. }) = error.downcast_ref()
        && source.kind() == std::io::ErrorKind::PermissionDenied
        && address.port() < 1_024
    {
        text += "; ports below 1024 take CAP_NET_BIND_SERVICE, a start as root with `user` set, or a socket from systemd";
    }
    text
}

/// A panic that nobody has caught, or one too many of those that a worker has caught, ends the
/// process, so that whoever watches over it starts it anew: a server of which a worker is missing
/// would leave the clients of that worker's sockets without an answer.
fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !guard::is_caught(panic) {
            report(panic);
            std::process::exit(PANICKED);
        }
    }));
}

fn serve(file: Option<&Path>) -> anyhow::Result<()> {
    let activated = activated_sockets()?;
    let passed = activated.addresses();
    let mut settings = Settings::load(file, &passed)?;
    end_on_panic();
    start_log(settings.config.log);
    // Before the first thread, so that every thread leaves them to this one.
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let allowed = Allowed::of_process();
    let mut warnings = settings.warnings();
    let addresses = if passed.is_empty() { settings.config.listen.len() } else { passed.len() };
    let (fixed, said) = allowed.fit(&mut settings, addresses);
    warnings.extend(said);
    let (user, follows_system) = (settings.config.user.clone(), settings.follows_system);
    warnings.extend(missing_here(&settings.config));
    tell_beginning(&settings, file);
    let bound = bind(settings, activated)?;
    if harden::drop_root(user.as_deref())? {
        tracing::warn!(
            "running as root, without its capabilities; set `user`, or use the systemd unit"
        );
    }
    let confined = harden::confine(file, follows_system)?;
    tracing::info!("confined: files {}, system calls {}", confined.files, confined.calls);
    let server = bound.start()?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    for address in server.addresses() {
        tracing::info!("serving {address}");
    }
    if let Some(address) = server.metrics_address() {
        tracing::info!("metrics at http://{address}/metrics");
    }
    tell_systemd(&[NotifyState::Ready]);
    for signal in signals.forever() {
        if signal == SIGHUP {
            reload(&server, file, &passed, |settings| allowed.refit(settings, fixed));
        } else {
            break;
        }
    }
    tracing::info!("stopping: queries in flight are still answered");
    tell_systemd(&[NotifyState::Stopping]);
    server.stop();
    Ok(())
}

/// What somebody who reads the log later wants to know first.
fn tell_beginning(settings: &Settings, file: Option<&Path>) {
    let file = file.map_or("no configuration file".to_owned(), |file| {
        format!("configuration {}", file.display())
    });
    tracing::info!("dns64d {}, {file}", env!("CARGO_PKG_VERSION"));
    let prefixes: Vec<String> = settings.prefixes().map(|prefix| prefix.to_string()).collect();
    tracing::info!(
        "prefixes: {}",
        if prefixes.is_empty() {
            "none, nothing is translated".into()
        } else {
            prefixes.join(", ")
        }
    );
    tracing::info!("{}", settings.upstreams_in_words());
}

/// Reads the configuration again, and makes it fit the system. A bad one changes nothing.
fn reload(
    server: &RunningServer,
    file: Option<&Path>,
    passed: &[SocketAddr],
    fit: impl FnOnce(&mut Settings) -> Option<String>,
) {
    match Settings::load(file, passed) {
        Ok(mut settings) => {
            for warning in settings.warnings().into_iter().chain(fit(&mut settings)) {
                tracing::warn!("{warning}");
            }
            if let Ok(since_boot) = NotifyState::monotonic_usec_now() {
                tell_systemd(&[NotifyState::Reloading, since_boot]);
            }
            let upstreams = settings.upstreams_in_words();
            server.reload(settings);
            tracing::info!("the configuration has been replaced; {upstreams}");
            tell_systemd(&[NotifyState::Ready]);
        }
        Err(error) => {
            tracing::error!("the old configuration stays: {}", bounded(&error.to_string()));
        }
    }
}

/// The longest error that is shown, octets: those of a configuration repeat the line that is wrong,
/// as long as that is.
const LONGEST_ERROR: usize = 2_000;

/// The beginning of an error, where it is too long.
fn bounded(error: &str) -> String {
    if error.len() <= LONGEST_ERROR {
        return error.to_owned();
    }
    format!("{} …", &error[..error.floor_char_boundary(LONGEST_ERROR)])
}

/// Not started by systemd, nobody listens, and that is no error.
fn tell_systemd(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// The sockets that systemd passes (socket activation); none otherwise.
///
/// # Errors
/// If one of them is neither a datagram nor a listening stream socket of IP.
fn activated_sockets() -> std::io::Result<Activated> {
    let mut passed = ListenFd::from_env();
    let mut activated = Activated::default();
    for i in 0..passed.len() {
        // A socket that is not of the kind that is tried stays where it is.
        if let Ok(Some(socket)) = passed.take_udp_socket(i) {
            activated.udp.push(socket);
        } else {
            activated.tcp.extend(passed.take_tcp_listener(i)?);
        }
    }
    Ok(activated)
}

fn start_log(log: LogKeys) {
    let level = match log.level {
        LogLevel::Error => tracing::Level::ERROR,
        LogLevel::Warn => tracing::Level::WARN,
        LogLevel::Info => tracing::Level::INFO,
        LogLevel::Debug => tracing::Level::DEBUG,
    };
    // Files and journals have no colours, nor do the terminals of who does not want them
    // (https://no-color.org).
    let objects = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let colours = std::io::stderr().is_terminal() && !objects;
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false);
    let subscriber = subscriber.with_ansi(colours);
    // An embedding program may have its own log already.
    let _ = match log.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples_and_they_can_be_typed() {
        let mut command = Arguments::command();
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

    /// Not a test, but what the test below starts as a process of its own.
    #[test]
    fn a_process_whose_thread_panics() {
        let Ok(how) = std::env::var("DNS64D_TEST_PANIC") else { return };
        end_on_panic();
        let thread = std::thread::spawn(move || {
            guard::guard_thread(|| {
                assert!(guard::catch(|| panic!("one query's work")).is_err());
                assert!(how == "caught", "nobody catches this");
            });
        });
        let _ = thread.join();
        std::process::exit(7);
    }

    #[test]
    fn an_error_is_told_once_and_with_what_helps() {
        let refused = || std::io::Error::from_raw_os_error(13);
        let of = |port| ServerError::Listen {
            address: ([127, 0, 0, 1], port).into(),
            transport: crate::transport::Transport::Udp,
            source: refused(),
        };
        let low = told_once(&of(53).into());
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
        assert!(!told_once(&of(5353).into()).contains("CAP_NET_BIND_SERVICE"));
    }

    #[test]
    fn a_panic_that_is_caught_is_survived_and_another_ends_the_process() {
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
            assert_eq!(stderr.contains("nobody catches this"), said, "{stderr}");
            assert!(!stderr.contains("one query's work"), "who catches it says it");
        }
    }
}
