//! Connections over either kind of socket, never blocking.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};

use crate::Endpoint;

/// Silence after which the kernel asks whether the host at the other end still lives, in seconds.
const KEEP_IDLE_S: u32 = 10;
/// Time between two such questions, in seconds.
const KEEP_INTERVAL_S: u32 = 5;
/// Questions without an answer after which a connection ends.
const KEEP_COUNT: u32 = 3;

/// A connected socket that does not block.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Prepares a TCP connection: no delay, no blocking, and an end when the other host is gone.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        setsockopt(&stream, sockopt::KeepAlive, &true)?;
        setsockopt(&stream, sockopt::TcpKeepIdle, &KEEP_IDLE_S)?;
        setsockopt(&stream, sockopt::TcpKeepInterval, &KEEP_INTERVAL_S)?;
        setsockopt(&stream, sockopt::TcpKeepCount, &KEEP_COUNT)?;
        Ok(Self::Tcp(stream))
    }

    /// Prepares a connection over a Unix socket.
    pub(crate) fn unix(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::Unix(stream))
    }

    /// Connects to `endpoint` within `wait`, once.
    pub(crate) fn connect(endpoint: &Endpoint, wait: Duration) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(addr) => {
                let stream = TcpStream::connect_timeout(addr, wait)?;
                // A port without a listener can be connected to itself, when the system happens to give that
                // very port to the client.
                if stream.local_addr().is_ok_and(|local| local == *addr) {
                    return Err(io::Error::new(ErrorKind::ConnectionRefused, "connected to itself"));
                }
                Self::tcp(stream)
            }
            Endpoint::Unix(path) => {
                // Not through std, whose connect would wait for room in a full backlog without a deadline.
                let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
                let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
                connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
                Ok(Self::Unix(fd.into()))
            }
        }
    }

    /// User id of the process at the other end of a Unix socket.
    pub(crate) fn peer_uid(&self) -> Option<u32> {
        let Self::Unix(stream) = self else { return None };
        nix::sys::socket::getsockopt(stream, sockopt::PeerCredentials).ok().map(|peer| peer.uid())
    }

    /// Says that nothing more will be sent.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        }
    }

    /// Waits until the socket may be read, or written, or `until` has passed.
    pub(crate) fn wait(&self, flags: PollFlags, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        // A millisecond more, since poll rounds down and would spin through the rest.
        let left = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.as_fd(), flags)], left) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes all of `bytes` until `until`.
    pub(crate) fn write_all_until(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            match { self }.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if Instant::now() >= until {
                        return Err(ErrorKind::TimedOut.into());
                    }
                    self.wait(PollFlags::POLLOUT, until)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => { stream }.read(bytes),
            Stream::Unix(stream) => { stream }.read(bytes),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // std sends with MSG_NOSIGNAL, so that a closed peer is an error and no SIGPIPE.
            Stream::Tcp(stream) => { stream }.write(bytes),
            Stream::Unix(stream) => { stream }.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a socket has merely nothing to give or no room now.
pub(crate) fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
