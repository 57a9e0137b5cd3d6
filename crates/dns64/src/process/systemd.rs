//! Interfaces to systemd: state notifications, passed sockets, the runtime folder.

use std::path::{Path, PathBuf};

use listenfd::ListenFd;
use sd_notify::NotifyState;

use crate::config::ControlKeys;
use crate::server::Activated;

/// Variable with the folders that `RuntimeDirectory=` makes, separated by colons (systemd.exec(5)).
const RUNTIME_FOLDERS: &str = "RUNTIME_DIRECTORY";
/// The control socket in such a folder.
const SOCKET: &str = "control.sock";

/// Notifies systemd of a state. Without systemd this does nothing.
pub(super) fn notify(state: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(state);
}

/// The sockets that systemd passes (socket activation); none otherwise.
///
/// # Errors
/// If one of them is neither a datagram nor a listening stream socket of IP.
pub(super) fn activated_sockets() -> std::io::Result<Activated> {
    let mut passed = ListenFd::from_env();
    let mut activated = Activated::default();
    for i in 0..passed.len() {
        // A socket of another kind stays in its place.
        if let Ok(Some(socket)) = passed.take_udp_socket(i) {
            activated.udp.push(socket);
        } else {
            activated.tcp.extend(passed.take_tcp_listener(i)?);
        }
    }
    Ok(activated)
}

/// Puts the control socket into the unit's runtime folder if the configuration names no socket, so
/// that `systemctl reload` works with every configuration.
pub(super) fn fill_in(control: &mut ControlKeys) {
    let folders = std::env::var_os(RUNTIME_FOLDERS).map(PathBuf::from);
    if control.socket.is_none() {
        control.socket = folders.as_deref().and_then(socket_in);
    }
}

/// The control socket in the first of several folders.
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
