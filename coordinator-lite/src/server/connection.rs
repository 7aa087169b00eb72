//! One peer of the server, from its first byte to its last.
//!
//! ```text
//!   Opening --"R"--> Frames ---last answer sent---> Draining ---> closed
//!      \---other---> Line ----last answer sent------/
//! ```
//!
//! A peer that has proved nothing has a deadline for everything it does, however slowly it drips. Members have
//! none: they may be stopped or compute for hours.

use std::collections::VecDeque;
use std::fmt;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::messages::Request;
use crate::proof::Talk;
use crate::stream::{Stream, would_block};
use crate::wire::{REQUEST_BYTES_MAX, Reader, WireError};

/// Longest line of a script.
const LINE_BYTES_MAX: usize = 128;
/// Most answers that wait for a peer to read; notices beyond are not queued for it.
const QUEUE_MAX: usize = 8192;
/// First byte of every message; scripts' commands begin otherwise.
const MESSAGE_BYTE: u8 = b'R';

/// What came of looking at a connection.
pub(super) enum Event {
    /// Nothing that anybody must know.
    Nothing,
    /// A request is complete.
    Request(Request),
    /// A script has sent a line.
    Line(String),
    /// The peer broke the protocol; it may be answered, but not believed.
    Malformed(WireError),
    /// The peer is gone.
    Closed,
}

/// What a peer has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing.
    Stranger,
    /// It was sent a challenge.
    Challenged(Talk),
    /// It knows the secret, or is of our user where that is enough.
    Proved,
}

/// A peer's socket and how far the talk with it is.
pub(super) struct Connection {
    stream: Stream,
    peer: String,
    phase: Phase,
    outgoing: VecDeque<Arc<[u8]>>,
    /// Bytes of the first outgoing frame that are sent.
    sent: usize,
    /// No more requests are taken; the connection ends once everything is sent.
    ending: bool,
    /// Whether epoll watches for room to write.
    pub(super) watches_room: bool,
    pub(super) standing: Standing,
    /// Peer on a Unix socket whose user id is ours or root's.
    pub(super) same_user: bool,
    /// When the connection is given up.
    pub(super) until: Option<Instant>,
}

enum Phase {
    Opening,
    Frames(Reader),
    Line(Vec<u8>),
    Draining,
}

impl Connection {
    pub(super) fn new(stream: Stream, peer: String, same_user: bool, until: Instant) -> Self {
        Self {
            stream,
            peer,
            phase: Phase::Opening,
            outgoing: VecDeque::new(),
            sent: 0,
            ending: false,
            watches_room: false,
            standing: Standing::Stranger,
            same_user,
            until: Some(until),
        }
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    pub(super) fn is_proved(&self) -> bool {
        self.standing == Standing::Proved
    }

    /// Whether it was told its last word, so that giving up is no news.
    pub(super) fn is_ending(&self) -> bool {
        self.ending
    }

    /// Whether something waits for the peer to read.
    pub(super) fn wants_room(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Queues bytes; [`Connection::flush`] sends them.
    pub(super) fn send(&mut self, frame: Arc<[u8]>) {
        if self.outgoing.len() < QUEUE_MAX && !self.ending {
            self.outgoing.push_back(frame);
        }
    }

    /// Takes no more requests and ends once everything queued is sent.
    pub(super) fn end(&mut self) {
        self.ending = true;
    }

    /// Sends what the socket takes.
    pub(super) fn flush(&mut self) -> Event {
        while let Some(frame) = self.outgoing.front() {
            match (&self.stream).write(&frame[self.sent..]) {
                Ok(0) => return Event::Closed,
                Ok(n) => self.sent += n,
                Err(error) if would_block(&error) => return Event::Nothing,
                Err(_) => return Event::Closed,
            }
            if self.sent == frame.len() {
                self.outgoing.pop_front();
                self.sent = 0;
            }
        }
        if self.ending && !matches!(self.phase, Phase::Draining) {
            // Closing with unread bytes would reset the connection and could take the answer with it, so the
            // peer closes first, or its time runs out.
            self.phase = Phase::Draining;
            if self.stream.end_writing().is_err() {
                return Event::Closed;
            }
        }
        Event::Nothing
    }

    /// Reads what has come, up to one request.
    pub(super) fn read(&mut self) -> Event {
        if self.ending {
            return drain(&self.stream);
        }
        loop {
            match &mut self.phase {
                Phase::Opening => {
                    let mut first = [0];
                    match (&self.stream).read(&mut first) {
                        Ok(0) => return Event::Closed,
                        Ok(_) if first[0] == MESSAGE_BYTE => {
                            self.phase = Phase::Frames(Reader::begun_with(MESSAGE_BYTE, REQUEST_BYTES_MAX));
                        }
                        Ok(_) => self.phase = Phase::Line(first.to_vec()),
                        Err(error) if would_block(&error) => return Event::Nothing,
                        Err(_) => return Event::Closed,
                    }
                }
                Phase::Frames(reader) => {
                    return match reader.poll(&mut &self.stream) {
                        Ok(Some(request)) => Event::Request(request),
                        Ok(None) => Event::Nothing,
                        Err(WireError::Io(_) | WireError::Closed { got: 0 }) => Event::Closed,
                        Err(error) => Event::Malformed(error),
                    };
                }
                Phase::Line(line) => return read_line(&self.stream, line),
                Phase::Draining => return drain(&self.stream),
            }
        }
    }
}

/// Reads a script's line up to its end, or to the end of what it sends.
fn read_line(mut stream: &Stream, line: &mut Vec<u8>) -> Event {
    let text = |line: &[u8]| Event::Line(String::from_utf8_lossy(line).trim().to_owned());
    let mut piece = [0; LINE_BYTES_MAX];
    loop {
        if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            return text(&line[..end]);
        }
        if line.len() >= LINE_BYTES_MAX {
            return text(line);
        }
        match stream.read(&mut piece[..LINE_BYTES_MAX - line.len()]) {
            Ok(0) => return text(line),
            Ok(n) => line.extend_from_slice(&piece[..n]),
            Err(error) if would_block(&error) => return Event::Nothing,
            Err(_) => return Event::Closed,
        }
    }
}

/// Throws away what still comes, in bounded pieces.
fn drain(mut stream: &Stream) -> Event {
    match stream.read(&mut [0; 4096]) {
        Ok(0) => Event::Closed,
        Ok(_) => Event::Nothing,
        Err(error) if would_block(&error) => Event::Nothing,
        Err(_) => Event::Closed,
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}
