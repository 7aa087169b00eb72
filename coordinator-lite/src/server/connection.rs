//! One peer of the server, from its first byte to its last.
//!
//! ```text
//!   Hello ---request---> Waiting ---answer---> Answering ---sent---> Draining ---> closed
//!     |  deadline           | no deadline here:    | deadline           | deadline
//!     v                     v the group has one    v                    v
//!   dropped               (closed, malformed)    dropped              dropped
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use crate::wire::{REQUEST_BYTES_MAX, Reader, Request, WireError};

/// Time from accepting a connection to its whole request.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// Time that a peer has to take its whole answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Time that a peer has to close after its answer.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// What came of looking at a connection.
pub(super) enum Event {
    /// Nothing that anybody must know.
    Nothing,
    /// The peer's request is complete.
    Request(Request),
    /// The peer broke the protocol; it may be answered, but not believed.
    Malformed(WireError),
    /// The peer is gone.
    Closed,
}

/// A peer's socket and how far the talk with it is.
pub(super) struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    phase: Phase,
}

enum Phase {
    Hello { reader: Reader, until: Instant },
    Waiting,
    Answering { frame: Arc<[u8]>, sent: usize, until: Instant },
    Draining { until: Instant },
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, now: Instant) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let phase = Phase::Hello { reader: Reader::new(REQUEST_BYTES_MAX), until: now + HELLO_WITHIN };
        Ok(Self { stream, peer, phase })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What poll should look for.
    pub(super) fn interest(&self) -> PollFlags {
        match self.phase {
            Phase::Answering { .. } => PollFlags::POLLOUT,
            _ => PollFlags::POLLIN,
        }
    }

    /// When this connection is given up; a waiting member is its group's business.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Hello { until, .. } | Phase::Answering { until, .. } | Phase::Draining { until } => {
                Some(until)
            }
            Phase::Waiting => None,
        }
    }

    /// Whether the answer is on its way, so that giving up is no news.
    pub(super) fn is_answered(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
    }

    /// Starts sending the answer; [`Connection::advance`] goes on with it.
    pub(super) fn begin_answer(&mut self, now: Instant, frame: Arc<[u8]>) {
        self.phase = Phase::Answering { frame, sent: 0, until: now + ANSWER_WITHIN };
    }

    /// Does what can be done without blocking.
    pub(super) fn advance(&mut self, now: Instant) -> Event {
        match &mut self.phase {
            Phase::Hello { reader, .. } => match reader.poll(&mut self.stream) {
                Ok(Some(request)) => {
                    self.phase = Phase::Waiting;
                    Event::Request(request)
                }
                Ok(None) => Event::Nothing,
                Err(WireError::Io(_) | WireError::Closed { got: 0 }) => Event::Closed,
                Err(error) => Event::Malformed(error),
            },
            Phase::Waiting => match self.stream.read(&mut [0; 1]) {
                Ok(0) => Event::Closed,
                Ok(_) => Event::Malformed(WireError::TooLong { bytes: 1, limit: 0 }),
                Err(error) if would_block(&error) => Event::Nothing,
                Err(_) => Event::Closed,
            },
            Phase::Answering { frame, sent, .. } => match send(&mut self.stream, frame, sent) {
                Ok(false) => Event::Nothing,
                Ok(true) => {
                    // Closing with unread bytes would reset the connection and could take the
                    // answer with it, so the peer closes first, or its time runs out.
                    self.phase = Phase::Draining { until: now + CLOSE_WITHIN };
                    match self.stream.shutdown(Shutdown::Write) {
                        Ok(()) => Event::Nothing,
                        Err(_) => Event::Closed,
                    }
                }
                Err(_) => Event::Closed,
            },
            Phase::Draining { .. } => match self.stream.read(&mut [0; 4096]) {
                Ok(0) => Event::Closed,
                Ok(_) => Event::Nothing,
                Err(error) if would_block(&error) => Event::Nothing,
                Err(_) => Event::Closed,
            },
        }
    }
}

/// Sends what the socket takes; `true` once everything is sent.
fn send(stream: &mut TcpStream, frame: &[u8], sent: &mut usize) -> io::Result<bool> {
    while *sent < frame.len() {
        match stream.write(&frame[*sent..]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => *sent += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if would_block(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn would_block(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}
