//! `conform`: checks a DNS64 server against the RFCs.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use conform::authority::status::Remote;
use conform::authority::view::View;
use conform::outcome::{Checked, Outcome as CheckOutcome, Report};
use conform::runner::{self, RunError, Settings};
use conform::show;
use tempfile::TempDir;

use crate::args::{Conform, StatusSocketLocation};
use crate::output::{DUT_FAILED, Failure, INTERRUPTED, Outcome, Versioned, fill_text, open};
use crate::{interruption, progress};

/// Maximum time for ssh to forward the status socket.
const SSH: Duration = Duration::from_secs(15);

pub(crate) fn run(args: &Conform) -> Outcome {
    if args.list {
        print!("{}", show::list(&args.only).map_err(Failure::usage)?);
        return Ok(ExitCode::SUCCESS);
    }
    interruption::install_handlers()?;
    let mut others = Vec::new();
    for path in &args.beside {
        others.push(read(path)?);
    }
    let (junit, html) = (open(args.junit.as_deref())?, open(args.html.as_deref())?);
    let own = check(args)?;
    if let Some(report) = &own {
        if args.json {
            print_json(Checked::Report(report.clone()))?;
        } else {
            print!("{}", show::terminal::text(report));
        }
        fill_text(junit, || show::junit::junit(std::slice::from_ref(report)))?;
    }
    let fails = own.as_ref().is_some_and(Report::fails_a_must);
    let all: Vec<Report> = own.into_iter().chain(others).collect();
    fill_text(html, || show::html::page(&all))?;
    if interruption::is_asked() {
        eprintln!("dns64bench: interrupted; checks that had not started are not tried");
        return Ok(INTERRUPTED.into());
    }
    Ok(if fails { DUT_FAILED.into() } else { ExitCode::SUCCESS })
}

fn print_json(checked: Checked) -> Result<(), Failure> {
    let object = Versioned::new(checked);
    println!("{}", serde_json::to_string_pretty(&object).map_err(Failure::environment)?);
    Ok(())
}

/// Reads the JSON report of an earlier run.
fn read(path: &Path) -> Result<Report, Failure> {
    let shown = path.display();
    let text = fs::read(path).with_context(|| format!("cannot read {shown}"));
    let text = text.map_err(Failure::usage)?;
    serde_json::from_slice(&text)
        .with_context(|| format!("{shown} is not the output of `dns64bench conform --json`"))
        .map_err(Failure::usage)
}

/// Checks the server. Returns `None` if no server is given.
fn check(args: &Conform) -> Result<Option<Report>, Failure> {
    let Some(server) = &args.server else { return Ok(None) };
    let defaults = Settings::new(server.resolve()?);
    let settings = Settings {
        name: args.name.clone().unwrap_or_else(|| defaults.name.clone()),
        zone: args.zone.clone(),
        expect: args.expect_prefix.clone(),
        excluded: args.excludes,
        only: args.only.clone(),
        parallel: args.parallel,
        validation: args.validates,
        everything: args.forwards_all,
        until: interruption::flag(),
        ..defaults
    };
    let open = |place| AuthorityView::open(place, args.ssh_config.as_deref());
    let view = args.auth_status.as_ref().map(open).transpose()?;
    let view = view.as_ref().map(|far| &far.remote as &dyn View);
    let words = format!("Checking {}", settings.name);
    let (done, total) = (AtomicUsize::new(0), runner::selected(&settings.only));
    let ran = progress::during(args.quiet, &words, |shown| {
        let progress = |outcome: &CheckOutcome| {
            // The check of the expected prefix is not one of the selected checks, so it is not counted.
            let is_selected = outcome.id != runner::EXPECTED_PREFIX;
            let n = done.fetch_add(usize::from(is_selected), Ordering::Relaxed)
                + usize::from(is_selected);
            shown.say(&so_far(&words, n, total, &outcome.id));
        };
        runner::run(&settings, view, &progress)
    });
    if args.json
        && let Err(error) = &ran
        && error.is_of_the_server()
    {
        print_json(Checked::Unchecked { unchecked: error.to_string() })?;
    }
    ran.map(Some).map_err(|error| match error {
        RunError::NoCheck { .. } => Failure::usage(error),
        _ => Failure::environment(error),
    })
}

/// Formats the progress: `Checking [::1]:53: 12 of 290 checks done, last rfc6147-5.1.7-ttl-of-a`.
fn so_far(words: &str, done: usize, total: usize, last: &str) -> String {
    format!("{words}: {done} of {total} checks done, last {last}")
}

/// Connection to the status socket of the test authoritative server. If that server runs on a different host, ssh
/// forwards the socket.
struct AuthorityView {
    remote: Remote,
    /// The ssh process that forwards the socket, and the folder that contains the local end of the socket.
    _forwarded: Option<(Forwarding, TempDir)>,
}

impl AuthorityView {
    fn open(
        place: &StatusSocketLocation,
        ssh_config: Option<&Path>,
    ) -> Result<AuthorityView, Failure> {
        let (path, forwarded) = match place {
            StatusSocketLocation::Local(path) => (path.clone(), None),
            StatusSocketLocation::OverSsh { host, path } => {
                let folder = TempDir::new().map_err(Failure::environment)?;
                let local = folder.path().join("far.socket");
                let forwarding = Forwarding::start(host, ssh_config, path, &local)
                    .with_context(|| format!("cannot reach {path} on {host}"))
                    .map_err(Failure::environment)?;
                (local, Some((forwarding, folder)))
            }
        };
        let remote = Remote::new(&path);
        remote
            .anchors()
            .with_context(|| format!("no `auth --conform --status` answers at {}", path.display()))
            .map_err(Failure::environment)?;
        Ok(AuthorityView { remote, _forwarded: forwarded })
    }
}

/// An ssh process that forwards a Unix socket on a different host to a Unix socket on this host. The process ends when
/// this value is dropped.
struct Forwarding(Child);

impl Forwarding {
    fn start(
        host: &str,
        config: Option<&Path>,
        there: &str,
        here: &Path,
    ) -> anyhow::Result<Forwarding> {
        let forward = format!("{}:{there}", here.display());
        let mut command = Command::new("ssh");
        if let Some(file) = config {
            command.arg("-F").arg(file);
        }
        let child = command
            .args(["-N", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-L", &forward])
            .arg("--")
            .arg(host)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .context("cannot start ssh")?;
        let mut forwarding = Forwarding(child);
        let give_up = Instant::now() + SSH;
        while !here.exists() {
            if let Some(status) = forwarding.0.try_wait()? {
                return Err(anyhow!("ssh ended: {status}"));
            }
            if Instant::now() > give_up {
                return Err(io::Error::from(io::ErrorKind::TimedOut).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(forwarding)
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use conform::checks;

    use super::*;

    /// Returns the identifiers that `--list` prints for `--only`, or `None` if no check matches.
    fn ids(only: &[&str]) -> Option<Vec<String>> {
        let only: Vec<String> = only.iter().map(|id| (*id).to_owned()).collect();
        let text = show::list(&only).ok()?;
        Some(text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
    }

    #[test]
    fn progress_shows_the_checks_done_of_the_selected_ones() {
        let all = checks::all().count();
        let one = "rfc6147-5.1.7-ttl-of-a";
        let totals = [&[][..], &[one.to_owned()], &["nothing".to_owned()]].map(runner::selected);
        assert_eq!(totals, [all, 1, 0]);
        let shown = so_far("Checking [::1]:53", 1, totals[1], one);
        assert_eq!(shown, format!("Checking [::1]:53: 1 of 1 checks done, last {one}"));
    }

    #[test]
    fn the_list_is_of_the_checks_that_are_named() {
        let all: Vec<&str> = checks::all().map(|check| check.id).collect();
        assert_eq!(ids(&[]).unwrap(), all);
        let one = "rfc6147-5.1.7-ttl-of-a";
        // The identifier of a different check begins with this identifier.
        assert!(all.iter().any(|id| id.starts_with(one) && *id != one));
        assert_eq!(ids(&[one]).unwrap(), [one]);
        let some = ids(&["rfc6052-3", "rfc6147-5.1.7"]).unwrap();
        assert!(some.len() > 5 && some.len() < all.len() / 2, "{some:?}");
        let is_wanted =
            |id: &String| ["rfc6052-3", "rfc6147-5.1.7"].iter().any(|w| id.starts_with(w));
        assert!(some.iter().all(is_wanted), "{some:?}");
        assert_eq!(ids(&["rfc6052-3", "rfc6147-5.9"]), None);
    }
}
