//! Interfaces to systemd: notifications, passed sockets, and the runtime folder.

use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use sd_notify::NotifyState;

use crate::config::ControlKeys;
use crate::server::Activated;

/// Name of the environment variable that lists the runtime folders (`RuntimeDirectory=`), separated by colons
/// (systemd.exec(5)).
const RUNTIME_FOLDERS: &str = "RUNTIME_DIRECTORY";
/// Name of the control socket in a runtime folder.
const SOCKET: &str = "control.sock";

/// Notifies systemd of a state. Does nothing without systemd.
pub(super) fn notify(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// Returns the sockets that systemd has passed to the process. Without socket activation, the result is empty.
///
/// # Errors
/// Returns an error if a passed socket is neither a UDP socket nor a listening TCP socket.
pub(super) fn activated_sockets() -> std::io::Result<Activated> {
    let mut passed = ListenFd::from_env();
    let mut activated = Activated::default();
    for i in 0..passed.len() {
        // `take_udp_socket` leaves a socket of a different type in place.
        if let Ok(Some(socket)) = passed.take_udp_socket(i) {
            activated.udp.push(socket);
        } else {
            activated.tcp.extend(passed.take_tcp_listener(i)?);
        }
    }
    Ok(activated)
}

/// If no control socket is configured, sets its path to a file in the runtime folder of the systemd unit. `systemctl
/// reload` then works with every configuration.
pub(super) fn fill_in(control: &mut ControlKeys) {
    let folders = std::env::var_os(RUNTIME_FOLDERS).map(PathBuf::from);
    if control.socket.is_none() {
        control.socket = folders.as_deref().and_then(socket_in);
    }
}

/// Returns the path of the control socket in the first folder of `folders`, a list separated by colons.
fn socket_in(folders: &Path) -> Option<PathBuf> {
    let first = folders.to_str()?.split(':').next()?;
    Path::new(first).is_absolute().then(|| Path::new(first).join(SOCKET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_in_the_first_runtime_folder() {
        for (folders, socket) in [
            ("/run/dns64d", Some("/run/dns64d/control.sock")),
            ("/run/dns64d:/run/other", Some("/run/dns64d/control.sock")),
            ("dns64d", None),
            ("", None),
        ] {
            assert_eq!(socket_in(Path::new(folders)), socket.map(PathBuf::from), "{folders}");
        }
    }
}
