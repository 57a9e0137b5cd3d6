//! Detection of changes to resolv.conf at run time. The detection is active if no upstream is configured.
//!
//! The file is read every two seconds and compared with its last contents. Reading detects that the
//! file was written, was replaced, or has become a link to a different target. A kernel watch
//! (inotify(7)) would have to be set up again in each of these cases, and requires that the folder
//! exists.

use std::time::Duration;

use crate::config::{RESOLV_CONF, ResolvConf, Settings};
use crate::server::RunningServer;

/// Interval between reads of resolv.conf.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Detector of changes to resolv.conf. It stores the last contents of the file.
pub(super) struct Follower {
    seen: ResolvConf,
}

impl Follower {
    /// Returns a detector that compares resolv.conf with the contents stored in `settings`.
    pub(super) fn new(settings: &Settings) -> Follower {
        Follower { seen: settings.resolv_conf().clone() }
    }

    /// Replaces the stored contents of resolv.conf with those in `settings`. Called after a reload has put `settings`
    /// into effect.
    pub(super) fn record(&mut self, settings: &Settings) {
        self.seen = settings.resolv_conf().clone();
    }

    /// Updates the server's upstreams if they come from resolv.conf and this file has changed. If the file no longer
    /// lists an upstream, the server continues to use the current upstreams. `fit` adapts the settings to the limits of
    /// the system.
    pub(super) fn poll(
        &mut self,
        server: &RunningServer,
        fit: impl FnOnce(&mut Settings) -> Option<String>,
    ) {
        let used = server.settings();
        if !used.follows_system {
            return;
        }
        let found = ResolvConf::read();
        if found == self.seen {
            return;
        }
        self.seen = found.clone();
        match used.with_resolv_conf(found) {
            Ok(settings) if settings.upstreams == used.upstreams => {
                if let Some(reason) = settings.no_upstream() {
                    tracing::warn!("{reason}");
                }
            }
            Ok(settings) => replace(server, settings, fit),
            Err(error) => tracing::error!("{RESOLV_CONF} has changed, but cannot be used: {error}"),
        }
    }
}

fn replace(
    server: &RunningServer,
    mut settings: Settings,
    fit: impl FnOnce(&mut Settings) -> Option<String>,
) {
    if let Some(reason) = loses_upstreams(server, &settings) {
        return tracing::warn!("{reason}; the current upstreams are kept");
    }
    let warning = fit(&mut settings);
    for warning in settings.unusable_name_servers().chain(warning) {
        tracing::warn!("{warning}");
    }
    match server.reload(&settings) {
        Ok(()) => tracing::info!("{RESOLV_CONF} has changed; {}", settings.upstreams_in_words()),
        Err(error) => tracing::error!("{RESOLV_CONF} has changed, but cannot be used: {error}"),
    }
}

/// Returns the reason why the new settings have no upstream. Returns `None` if they have an upstream, or if the
/// running server has no upstream either.
pub(super) fn loses_upstreams(server: &RunningServer, settings: &Settings) -> Option<String> {
    settings.no_upstream().filter(|_| !server.settings().upstreams.is_empty())
}
