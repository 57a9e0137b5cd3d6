//! File of the control socket, created before privileges are dropped and removed at shutdown.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use net::status::remove_left_over;
use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use nix::sys::stat::{Mode, SFlag, fchmod, fstat, umask};
use nix::unistd::{Gid, Group, fchownat};

/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 8;
/// File permissions that give access only to the owner.
const OWNER: Mode = Mode::from_bits_truncate(0o600);
/// File permissions that give access to the owner and to the members of a group.
const OWNER_AND_GROUP: Mode = Mode::from_bits_truncate(0o660);

/// The control socket, which is listening and non-blocking. Its file is removed when this value is dropped.
pub(crate) struct ControlSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// Guard of a socket's file. The file is removed when the guard is dropped. A different file that has replaced it is
/// not removed.
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode, which identify the file.
    identity: (u64, u64),
}

impl ControlSocket {
    /// Creates the socket. A socket that a killed server has left behind is replaced. The socket is
    /// accessible to its owner and, if `group` is given, to the members of this group.
    ///
    /// # Errors
    /// Returns an error if a server listens at this path, or if the path belongs to a file that is not a socket. Also
    /// returns an error if the group does not exist, or if a system call fails.
    pub(crate) fn bind(path: &Path, group: Option<&str>) -> io::Result<ControlSocket> {
        let group = group.map(group_id).transpose()?;
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        let mode = if group.is_some() { OWNER_AND_GROUP } else { OWNER };
        match bind_with(&socket, path, mode) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_left_over(path)?;
                bind_with(&socket, path, mode)?;
            }
            bound => bound?,
        }
        let (opened, identity) = open_socket(path)?;
        let file = SocketFile { path: path.into(), identity };
        if group.is_some() {
            fchownat(&opened, "", None, group, AtFlags::AT_EMPTY_PATH)?;
        }
        // Connections are refused until this call.
        listen(&socket, Backlog::new(BACKLOG)?)?;
        Ok(ControlSocket { listener: UnixListener::from(socket), file })
    }

    /// Returns the socket and the guard of its file. The guard must be dropped after the socket is
    /// closed.
    pub(crate) fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// Binds a socket to a file that has the given permissions from the moment it is created. Setting the permissions
/// later by path could affect a different file, because the owner of the folder can replace the socket with a link.
fn bind_with(socket: &OwnedFd, path: &Path, mode: Mode) -> io::Result<()> {
    let address = UnixAddr::new(path)?;
    // The file gets the permissions of the unbound socket, reduced by the umask.
    fchmod(socket, mode)?;
    let before = umask(Mode::from_bits_truncate(!mode.bits() & 0o077));
    let bound = bind(socket.as_raw_fd(), &address);
    umask(before);
    Ok(bound?)
}

/// Opens the file of a socket, so that the owner of the file can be changed. Also returns the device and the inode of
/// the file.
///
/// # Errors
/// Returns an error if a file that is not a socket has replaced the socket, or if a system call fails.
fn open_socket(path: &Path) -> io::Result<(OwnedFd, (u64, u64))> {
    let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let file = open(path, flags, Mode::empty())?;
    let found = fstat(&file)?;
    if SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT != SFlag::S_IFSOCK {
        return Err(io::Error::new(ErrorKind::AlreadyExists, "it was replaced by another file"));
    }
    Ok((file, (found.st_dev, found.st_ino)))
}

fn group_id(name: &str) -> io::Result<Gid> {
    let unknown = || io::Error::new(ErrorKind::NotFound, format!("group '{name}' does not exist"));
    Ok(Group::from_name(name)?.ok_or_else(unknown)?.gid)
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            // The next server replaces the file.
            tracing::debug!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn mode(path: &Path) -> Mode {
        Mode::from_bits_truncate(fs::symlink_metadata(path).unwrap().permissions().mode())
    }

    /// Between bind(2) and the change of owner, the folder's owner can replace the file.
    #[test]
    fn no_other_file_is_changed_in_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let victim = folder.path().join("victim");
        fs::write(&victim, "").unwrap();
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        bind_with(&socket, &path, OWNER_AND_GROUP).unwrap();
        assert_eq!(mode(&path), OWNER_AND_GROUP, "before anything else");
        let links: [fn(&Path, &Path) -> io::Result<()>; 2] =
            [|from, to| symlink(from, to), |from, to| fs::hard_link(from, to)];
        for replace in links {
            fs::remove_file(&path).unwrap();
            replace(&victim, &path).unwrap();
            assert_eq!(open_socket(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
        }
    }

    fn refused(path: &Path, group: Option<&str>) -> ErrorKind {
        ControlSocket::bind(path, group).err().expect("an error").kind()
    }

    #[test]
    fn the_socket_is_private_and_removed_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        let (listener, file) = ControlSocket::bind(&path, None).unwrap().into_parts();
        assert_eq!(mode(&path), OWNER);
        assert!(UnixStream::connect(&path).is_ok());
        assert_eq!(refused(&path, None), ErrorKind::AddrInUse, "a server listens");
        drop(file);
        assert!(!path.exists());
        drop(listener);
    }

    #[test]
    fn only_an_unused_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let (_listener, file) = ControlSocket::bind(&path, None).unwrap().into_parts();
        assert!(UnixStream::connect(&path).is_ok());
        // A file that has replaced the socket is not removed.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "something else").unwrap();
        drop(file);
        assert!(path.exists());
        assert_eq!(refused(&path, None), ErrorKind::AlreadyExists);
        assert_eq!(refused(&folder.path().join("none/control.sock"), None), ErrorKind::NotFound);
        let group = Some("no-such-group-of-ours");
        assert_eq!(refused(&folder.path().join("other.sock"), group), ErrorKind::NotFound);
    }

    #[test]
    fn members_of_its_group_may_use_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control.sock");
        // A process may always assign its primary group.
        let Ok(Some(group)) = Group::from_gid(nix::unistd::getegid()) else {
            assert!(refused(&path, Some("no-such-group-of-ours")) == ErrorKind::NotFound);
            return;
        };
        let _socket = ControlSocket::bind(&path, Some(&group.name)).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((mode(&path), metadata.gid()), (OWNER_AND_GROUP, group.gid.as_raw()));
    }
}
