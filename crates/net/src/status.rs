//! Unix sockets on which a running program reports its state.

use std::fs;
use std::io;
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
    /// Creates the socket. Clients can connect from now on; they wait until it is served. If a server creates it before
    /// its network sockets, it is reachable here as soon as it is reachable there.
    ///
    /// # Errors
    /// If the socket cannot be created, for instance because its file is left over from a killed server.
    pub fn bind(path: &Path) -> io::Result<StatusSocket> {
        Ok(StatusSocket { listener: UnixListener::bind(path)?, path: path.into() })
    }

    /// Serves each connection in a separate thread until the process ends. An error ends only its connection.
    ///
    /// # Errors
    /// If the socket cannot be shared, or no thread can be started.
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
}
