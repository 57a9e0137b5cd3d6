//! Unix sockets on which a running program reports its state.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

/// A listening Unix stream socket. Its file is removed when the value is dropped.
#[derive(Debug)]
pub struct StatusSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl StatusSocket {
    /// Creates the socket, and replaces a socket that a killed server has left behind. After this call, clients can
    /// connect. Their connections wait until [`StatusSocket::serve`] is called. A server should create this socket
    /// before its network sockets, so that its state is available as soon as the server is reachable over the network.
    ///
    /// # Errors
    /// Returns an error if another server listens on `path`, if `path` is a file but not a socket, or if the system
    /// reports an error.
    pub fn bind(path: &Path) -> io::Result<StatusSocket> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                remove_left_over(path)?;
                UnixListener::bind(path)?
            }
            bound => bound?,
        };
        Ok(StatusSocket { listener, path: path.into() })
    }

    /// Serves each connection in a separate thread until the process ends. An error on a connection ends only that
    /// connection.
    ///
    /// # Errors
    /// Returns an error if the socket cannot be duplicated, or no thread can be started.
    pub fn serve(
        &self,
        attend: impl Fn(&UnixStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<()> {
        let (listener, attend) = (self.listener.try_clone()?, Arc::new(attend));
        let thread = || thread::Builder::new().name("status".into());
        thread().spawn(move || {
            for stream in listener.incoming().flatten() {
                let attend = Arc::clone(&attend);
                // If no thread can be started, the connection is closed.
                let _ = thread().spawn(move || attend(&stream));
            }
        })?;
        Ok(())
    }
}

/// Removes the file of a socket on which no server listens.
///
/// # Errors
/// Returns an error if a server listens on `path`, if `path` is a file but not a socket, or if the system reports an
/// error.
pub fn remove_left_over(path: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Err(io::Error::new(
            ErrorKind::AlreadyExists,
            "the path exists and is not a socket",
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(ErrorKind::AddrInUse, "another server listens there")),
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_client_that_connects_before_the_service_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status");
        let socket = StatusSocket::bind(&path).unwrap();
        let mut client = UnixStream::connect(&path).unwrap();
        socket.serve(|mut stream| stream.write_all(b"answer")).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
        drop(socket);
        assert!(!path.exists());
    }

    #[test]
    fn only_a_left_over_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status");
        // A killed server closes its socket and leaves the file.
        drop(UnixListener::bind(&path).unwrap());
        let socket = StatusSocket::bind(&path).unwrap();
        let refused = |path| StatusSocket::bind(path).unwrap_err().to_string();
        assert_eq!(refused(&path), "another server listens there");
        assert!(UnixStream::connect(&path).is_ok());
        let file = folder.path().join("file");
        fs::write(&file, "text").unwrap();
        assert_eq!(refused(&file), "the path exists and is not a socket");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        drop(socket);
    }
}
