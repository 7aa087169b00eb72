//! Listening on an endpoint; a Unix socket's file is claimed with care and removed at the end.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::unistd::geteuid;

use crate::stream::Stream;
use crate::{Endpoint, Error};

/// Connections that the kernel keeps for us while the thread is busy.
const BACKLOG: i32 = 4096;
/// Longest wait for another coordinator that claims a socket in the same directory.
const CLAIM_WITHIN: Duration = Duration::from_secs(2);

/// A listening socket that does not block.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    /// With its file, which goes when this does.
    Unix {
        listener: UnixListener,
        _file: SocketFile,
    },
}

/// The file of our Unix socket, removed when this is dropped unless another has taken its place.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.identity) {
            // Nothing can be done about a directory that has become read-only.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Listens on `endpoint`; the second value is the endpoint with the real port.
    pub(crate) fn bind(endpoint: &Endpoint) -> Result<(Self, Endpoint), Error> {
        match endpoint {
            Endpoint::Tcp(addr) => {
                let (listener, addr) = bind_tcp(*addr)?;
                Ok((Self::Tcp(listener), addr.into()))
            }
            Endpoint::Unix(path) => {
                let (listener, file) = bind_unix(path)?;
                Ok((Self::Unix { listener, _file: file }, endpoint.clone()))
            }
        }
    }

    /// The next connection and who it comes from, as text for the log.
    pub(crate) fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                Ok((Stream::tcp(stream).map_err(aborted)?, peer.to_string()))
            }
            Self::Unix { listener, .. } => {
                let (stream, _) = listener.accept()?;
                let stream = Stream::unix(stream).map_err(aborted)?;
                let uid = stream.peer_uid().map_or_else(|| "?".to_owned(), |uid| uid.to_string());
                Ok((stream, format!("a process of uid {uid}")))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.as_fd(),
            Self::Unix { listener, .. } => listener.as_fd(),
        }
    }
}

/// A connection that cannot be set up, for instance because it was reset, is no fault of the listener.
fn aborted(cause: io::Error) -> io::Error {
    io::Error::new(ErrorKind::ConnectionAborted, cause)
}

fn bind_tcp(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let refuse = |cause: io::Error| match cause.kind() {
        ErrorKind::AddrInUse => Error::PortBusy(addr),
        _ => Error::Bind { addr, cause },
    };
    let listener = TcpListener::bind(addr).map_err(refuse)?;
    let backlog = Backlog::new(BACKLOG).map_err(|e| refuse(e.into()))?;
    listen(&listener, backlog).map_err(|e| refuse(e.into()))?;
    listener.set_nonblocking(true).map_err(refuse)?;
    let addr = listener.local_addr().map_err(refuse)?;
    Ok((listener, addr))
}

fn bind_unix(path: &Path) -> Result<(UnixListener, SocketFile), Error> {
    let refuse = |cause: io::Error| Error::BindUnix { path: path.to_owned(), cause };
    let refuse_nix = |cause: nix::Error| refuse(cause.into());
    let _claim = lock_directory(path).map_err(refuse)?;
    remove_stale(path)?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(refuse_nix)?;
    let addr = UnixAddr::new(path).map_err(refuse_nix)?;
    bind(fd.as_raw_fd(), &addr).map_err(refuse_nix)?;
    let made = fs::symlink_metadata(path).map_err(refuse)?;
    let file = SocketFile { path: path.to_owned(), identity: (made.dev(), made.ino()) };
    // Nobody can connect before `listen`, so that the mode is never too wide for a moment.
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(refuse)?;
    listen(&fd, Backlog::new(BACKLOG).map_err(refuse_nix)?).map_err(refuse_nix)?;
    Ok((UnixListener::from(fd), file))
}

/// Keeps other coordinators from claiming a socket in the same directory at the same time.
///
/// Without it, two that find one stale socket could both remove it, the later one the socket of the other.
fn lock_directory(path: &Path) -> io::Result<Flock<File>> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let started = Instant::now();
    let mut file = File::open(directory)?;
    loop {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((_, nix::Error::EWOULDBLOCK)) if started.elapsed() >= CLAIM_WITHIN => {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "another process holds a lock on the directory",
                ));
            }
            Err((back, nix::Error::EWOULDBLOCK | nix::Error::EINTR)) => file = back,
            Err((_, error)) => return Err(error.into()),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Removes the socket of a coordinator that was killed: one of ours that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), Error> {
    let refuse = |what| Err(Error::SocketPath { path: path.to_owned(), what });
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(cause) => return Err(Error::BindUnix { path: path.to_owned(), cause }),
    };
    if !found.file_type().is_socket() {
        return refuse("is not a socket");
    }
    if found.uid() != geteuid().as_raw() {
        return refuse("is a socket of another user");
    }
    match Stream::connect(&Endpoint::Unix(path.to_owned()), Duration::ZERO) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|cause| Error::BindUnix { path: path.to_owned(), cause })
        }
        // Connected, or its backlog is full: somebody listens.
        Ok(_) => Err(Error::SocketBusy(path.to_owned())),
        Err(error) if would_be_busy(&error) => Err(Error::SocketBusy(path.to_owned())),
        Err(_) => refuse("is a socket of unknown state"),
    }
}

fn would_be_busy(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(directory: &tempfile::TempDir) -> (Endpoint, PathBuf) {
        let path = directory.path().join("s");
        (Endpoint::unix(&path).unwrap(), path)
    }

    #[test]
    fn a_socket_is_private_and_goes_with_its_listener() {
        // Mode 0600 while it lives, no file afterwards.
        let directory = tempfile::tempdir().unwrap();
        let (endpoint, path) = endpoint(&directory);
        let (listener, bound) = Listener::bind(&endpoint).unwrap();
        assert_eq!((bound, fs::metadata(&path).unwrap().mode() & 0o777), (endpoint, 0o600));
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_live_socket_is_refused_and_a_stale_one_replaced() {
        // The live one goes on; a file that a killed process left is no obstacle.
        let directory = tempfile::tempdir().unwrap();
        let (endpoint, path) = endpoint(&directory);
        let (first, _) = Listener::bind(&endpoint).unwrap();
        assert!(matches!(Listener::bind(&endpoint).unwrap_err(), Error::SocketBusy(p) if p == path));
        assert!(Stream::connect(&endpoint, Duration::ZERO).is_ok());
        drop(first);
        drop(UnixListener::bind(&path).unwrap()); // std leaves its file, as a kill does
        assert!(path.exists());
        let (again, _) = Listener::bind(&endpoint).unwrap();
        assert!(Stream::connect(&endpoint, Duration::ZERO).is_ok());
        drop(again);
    }

    #[test]
    fn what_is_not_ours_is_not_removed() {
        // A file, a directory and a link at the path are refused and stay; so does a successor's socket.
        let directory = tempfile::tempdir().unwrap();
        let (endpoint, path) = endpoint(&directory);
        fs::write(&path, "data").unwrap();
        assert!(Listener::bind(&endpoint).unwrap_err().to_string().contains("is not a socket"));
        assert_eq!(fs::read(&path).unwrap(), b"data");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(directory.path().join("elsewhere"), &path).unwrap();
        assert!(matches!(Listener::bind(&endpoint).unwrap_err(), Error::SocketPath { .. }));
        fs::remove_file(&path).unwrap();
        let (listener, _) = Listener::bind(&endpoint).unwrap();
        fs::remove_file(&path).unwrap();
        let successor = UnixListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists(), "the file belongs to another listener now");
        drop(successor);
    }

    #[test]
    fn bad_places_say_what_to_do() {
        // A directory that does not exist is named with the path.
        let endpoint = Endpoint::unix("/nonexistent-directory/s").unwrap();
        let error = Listener::bind(&endpoint).unwrap_err().to_string();
        assert!(
            error.contains("/nonexistent-directory/s") && error.contains("directory that exists"),
            "{error}"
        );
    }
}
