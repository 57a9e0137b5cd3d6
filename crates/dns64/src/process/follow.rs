//! Follows resolv.conf while the server runs, if the configuration names no upstream.
//!
//! The file is read again every two seconds and compared with what was read before. So it does not
//! matter whether it was written, replaced, or is a link that leads elsewhere now; a watch of the
//! kernel (inotify(7)) must be renewed in each of these cases, and needs the folder to be there.

use std::time::Duration;

use crate::config::{RESOLV_CONF, ResolvConf, Settings};
use crate::server::RunningServer;

/// Time between two looks at the file.
pub(super) const LOOK: Duration = Duration::from_secs(2);

/// The last state of resolv.conf that was seen.
pub(super) struct Follower {
    seen: ResolvConf,
}

impl Follower {
    /// Follows changes from the resolv.conf of these settings on.
    pub(super) fn new(settings: &Settings) -> Follower {
        Follower { seen: settings.resolv_conf().clone() }
    }

    /// Notes the resolv.conf of settings that a reload put into use.
    pub(super) fn saw(&mut self, settings: &Settings) {
        self.seen = settings.resolv_conf().clone();
    }

    /// Gives the server the upstreams of resolv.conf, if the file has changed and the server uses
    /// it. Upstreams in use stay if it names none any more. `fit` makes settings fit the system.
    pub(super) fn look(
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
            Err(error) => tracing::error!("{RESOLV_CONF} has changed, but is not used: {error}"),
        }
    }
}

fn replace(
    server: &RunningServer,
    mut settings: Settings,
    fit: impl FnOnce(&mut Settings) -> Option<String>,
) {
    if let Some(reason) = loses_upstreams(server, &settings) {
        return tracing::warn!("{reason}; the upstreams in use stay");
    }
    let warning = fit(&mut settings);
    for warning in settings.unusable_name_servers().chain(warning) {
        tracing::warn!("{warning}");
    }
    match server.reload(&settings) {
        Ok(()) => tracing::info!("{RESOLV_CONF} has changed; {}", settings.upstreams_in_words()),
        Err(error) => tracing::error!("{RESOLV_CONF} has changed, but is not used: {error}"),
    }
}

/// The reason why these settings have no upstream, if the server has one.
pub(super) fn loses_upstreams(server: &RunningServer, settings: &Settings) -> Option<String> {
    settings.no_upstream().filter(|_| !server.settings().upstreams.is_empty())
}
