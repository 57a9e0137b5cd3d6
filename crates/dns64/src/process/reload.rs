//! Reload of the configuration, triggered by SIGHUP, or by `dns64d reload` through the control socket.
//!
//! ```text
//! SIGHUP ─────────┐
//! control socket ─┴─► Reloader: file ─► Settings ─► RunningServer ─► ReloadReport ─┬─► log
//!                                                                                  └─► control socket
//! ```

use std::net::SocketAddr;
use std::path::Path;

use net::address::ServiceAddr;
use sd_notify::NotifyState;

use super::follow;
use super::limits::{FixedUntilRestart, SystemLimits};
use super::output::bounded;
use super::systemd;
use crate::config::{Changes, ConfigError, KeyValues, Running, Settings};
use crate::control::{RELOAD_VERSION, ReloadOutcome, ReloadReport};
use crate::server::{ReloadRequest, RunningServer};

/// Source of the configuration: a file, and addresses that override the listen addresses in the
/// file.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConfigSource<'a> {
    /// Path of the configuration file, or `None` for the default configuration.
    pub(super) file: Option<&'a Path>,
    /// Addresses of sockets passed by systemd. They override all other listen addresses.
    pub(super) passed: &'a [SocketAddr],
    /// Listen addresses given on the command line.
    pub(super) listen: &'a [ServiceAddr],
}

impl ConfigSource<'_> {
    /// Reads and checks the configuration. `served` contains the addresses of the server's sockets.
    /// It is empty if the server has not opened its sockets yet.
    ///
    /// # Errors
    /// Returns an error if the configuration cannot be read or used.
    pub(super) fn load(&self, served: &[SocketAddr]) -> Result<Settings, ConfigError> {
        let mut settings = Settings::load(self.file, served, self.listen)?;
        systemd::fill_in(&mut settings.config.control);
        Ok(settings)
    }

    /// Returns the values of the configuration keys in `settings`, a result of [`load`](ConfigSource::load). Unused
    /// values are left out, for example the listen addresses if systemd passes the sockets.
    pub(super) fn written(&self, settings: &Settings) -> KeyValues {
        let written = KeyValues::of(&settings.config);
        // Upstreams from resolv.conf are not keys in the file.
        let written = if settings.follows_system { written.without("upstream") } else { written };
        if self.passed.is_empty() { written } else { written.without("listen") }
    }
}

/// State needed to reload the configuration of a running server.
pub(super) struct Reloader<'a> {
    pub(super) server: &'a RunningServer,
    pub(super) source: ConfigSource<'a>,
    pub(super) allowed: SystemLimits,
    pub(super) fixed: FixedUntilRestart,
    pub(super) running: Running,
}

impl Reloader<'_> {
    /// Reloads the configuration, logs the result, and sends the result to all requesters.
    pub(super) fn answer(&mut self, requests: Vec<ReloadRequest>) {
        let report = self.reload();
        requests.into_iter().for_each(|request| request.answer(report.clone()));
    }

    /// Adapts settings to the limits of the process. Returns a warning if a setting was reduced.
    pub(super) fn refit(&self, settings: &mut Settings) -> Option<String> {
        self.allowed.refit(settings, self.fixed)
    }

    /// Reloads the configuration and logs the result. If the configuration is rejected, the server
    /// does not change.
    fn reload(&mut self) -> ReloadReport {
        if let Ok(since_boot) = NotifyState::monotonic_usec_now() {
            systemd::notify(&[NotifyState::Reloading, since_boot]);
        }
        let report = self.replace().unwrap_or_else(|error| {
            let outcome = ReloadOutcome::Refused;
            ReloadReport { error: Some(bounded(&error.to_string())), ..self.report(outcome) }
        });
        log(&report);
        systemd::notify(&[NotifyState::Ready]);
        report
    }

    /// Reads the configuration, adapts it to the limits of the process, and puts it into effect.
    fn replace(&mut self) -> anyhow::Result<ReloadReport> {
        let mut settings = self.source.load(self.server.addresses())?;
        let written = self.source.written(&settings);
        if let Some(reason) = follow::loses_upstreams(self.server, &settings) {
            anyhow::bail!("{reason}");
        }
        let mut warnings = settings.warnings();
        warnings.extend(self.refit(&mut settings));
        self.server.reload(&settings)?;
        tracing::info!("{}", settings.upstreams_in_words());
        let Changes { in_effect, mut waiting } = self.running.replace(written);
        if self.server.lacks_xdp(&settings) {
            waiting.push("upstream.xdp".to_owned());
        }
        let outcome = match waiting.is_empty() {
            true => ReloadOutcome::InEffect,
            false => ReloadOutcome::NeedsRestart,
        };
        Ok(ReloadReport { changed: in_effect, waiting, warnings, ..self.report(outcome) })
    }

    /// Returns a report with the given outcome. Its lists of keys and warnings are empty, and it has no error message.
    fn report(&self, outcome: ReloadOutcome) -> ReloadReport {
        let file = self.source.file.map_or("none".into(), |file| file.display().to_string());
        ReloadReport {
            schema_version: RELOAD_VERSION,
            file,
            outcome,
            changed: Vec::new(),
            waiting: Vec::new(),
            warnings: Vec::new(),
            error: None,
        }
    }
}

/// Logs the result of a reload.
fn log(report: &ReloadReport) {
    for warning in &report.warnings {
        tracing::warn!("{warning}");
    }
    if let Some(error) = &report.error {
        return tracing::error!("reload rejected, the old configuration stays in effect: {error}");
    }
    let changed = match &*report.changed {
        [] => "no effective key has changed".to_owned(),
        keys => format!("changed: {}", keys.join(", ")),
    };
    tracing::info!("configuration reloaded; {changed}");
    if !report.waiting.is_empty() {
        tracing::warn!("changed keys that need a restart: {}", report.waiting.join(", "));
    }
}
