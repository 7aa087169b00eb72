//! A rank's side of the rendezvous.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::state::WAIT_MAX;
use crate::wire::{self, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Reader, Reply, Request, WireError};
use crate::{Error, Hello, Secret, Welcome};

/// How much longer than the deadline a rank waits for the server's word about it: a quarter, 2 s at most.
fn answer_margin(deadline: Duration) -> Duration {
    (deadline / 4).min(Duration::from_secs(2))
}

/// Longest pause between two attempts to connect.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Joins the group named in `hello` at the server on `addr` and waits for the other ranks.
///
/// Connecting is tried again until `deadline` has passed (24 h at most), since the server may start
/// later than its ranks. The server keeps the same deadline and then answers with the ranks that are missing.
///
/// # Errors
///
/// [`Error::Refused`] with the server's reason; [`Error::Unreachable`], [`Error::Silent`],
/// [`Error::Lost`], [`Error::Protocol`], [`Error::WireVersion`] if no answer could be had;
/// [`Error::TooLarge`] if the names in `hello` are too long.
pub fn join(addr: SocketAddr, secret: &Secret, hello: Hello, deadline: Duration) -> Result<Welcome, Error> {
    let (started, deadline) = (Instant::now(), deadline.min(WAIT_MAX));
    let rank = hello.rank;
    let mut stream = connect(addr, started, deadline)?;
    let lost = |cause| Error::Lost { addr, cause };
    stream.set_nodelay(true).map_err(lost)?;

    let left = deadline.saturating_sub(started.elapsed());
    let wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    let request = Request::Hello { secret: secret.clone(), wait_ms, hello };
    stream.set_write_timeout(Some(left + answer_margin(deadline))).map_err(lost)?;
    // A server that refuses early may close before all is written: its answer is worth reading.
    let written = wire::write_message(&mut stream, &request, REQUEST_BYTES_MAX);
    if let Err(cause @ WireError::TooLong { .. }) = written {
        return Err(Error::TooLarge { rank, cause });
    }
    match read_reply(addr, &mut stream, started, deadline + answer_margin(deadline))? {
        Reply::Welcome(welcome) => Ok(welcome),
        Reply::Refused(refusal) => Err(refusal.into()),
    }
}

fn connect(addr: SocketAddr, started: Instant, deadline: Duration) -> Result<TcpStream, Error> {
    let mut pause = Duration::from_millis(1);
    loop {
        let left = deadline.saturating_sub(started.elapsed()).max(Duration::from_millis(1));
        let cause = match TcpStream::connect_timeout(&addr, left) {
            // A port without a listener can be connected to itself, when the system happens to
            // give that very port to the client.
            Ok(stream) if stream.local_addr().is_ok_and(|local| local == addr) => {
                io::Error::new(ErrorKind::ConnectionRefused, "connected to itself")
            }
            Ok(stream) => return Ok(stream),
            Err(cause) => cause,
        };
        if started.elapsed() + pause >= deadline {
            return Err(Error::Unreachable { addr, waited: started.elapsed(), cause });
        }
        thread::sleep(pause);
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

fn read_reply(
    addr: SocketAddr,
    stream: &mut TcpStream,
    started: Instant,
    deadline: Duration,
) -> Result<Reply, Error> {
    let lost = |cause| Error::Lost { addr, cause };
    let mut reader = Reader::new(REPLY_BYTES_MAX);
    loop {
        let left = deadline.saturating_sub(started.elapsed());
        if left.is_zero() {
            return Err(Error::Silent { addr, waited: started.elapsed() });
        }
        stream.set_read_timeout(Some(left)).map_err(lost)?;
        match reader.poll(stream) {
            Ok(Some(reply)) => return Ok(reply),
            Ok(None) => {}
            Err(WireError::Io(cause)) => return Err(lost(cause)),
            Err(WireError::Closed { .. }) => return Err(lost(ErrorKind::UnexpectedEof.into())),
            Err(WireError::Version { theirs }) => {
                return Err(Error::WireVersion { addr, ours: wire::VERSION, theirs });
            }
            Err(cause) => return Err(Error::Protocol { addr, cause }),
        }
    }
}
