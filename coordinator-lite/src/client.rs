//! The way to a coordinator: connecting, proving, and the questions that need no session.

use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::unistd::geteuid;

use crate::cancel::Cancel;
use crate::messages::{Reply, Request, Status};
use crate::proof::{Nonce, Proof, Side, Talk};
use crate::session::{Deadlines, Session};
use crate::stream::{Stream, would_block};
use crate::unique_id::random_bytes;
use crate::wire::{self, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Reader, WireError};
use crate::{Endpoint, Error, Hello, Secret, Welcome};

/// Longest pause between two attempts to connect.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(50);
/// Connections that may break before the proof until this counts as an answer. A coordinator that is flooded
/// gives up those that have proved nothing, which may be ours.
const LOST_MAX: u32 = 20;
/// How long a caller that may cancel waits at most before it looks whether it was cancelled.
const CANCEL_SLICE: Duration = Duration::from_millis(10);
/// How long its attempts to connect take at most, for the same reason.
const CANCEL_CONNECT: Duration = Duration::from_millis(500);
/// Longest answer to a text command.
const LINE_BYTES_MAX: usize = 512;

/// What lets a caller in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key {
    /// Proof of the secret.
    Secret(Secret),
    /// Being the coordinator's user, over a Unix socket; ranks need a coordinator that trusts this.
    SameUser,
}

impl From<&Secret> for Key {
    fn from(secret: &Secret) -> Self {
        Self::Secret(secret.clone())
    }
}

impl From<Secret> for Key {
    fn from(secret: Secret) -> Self {
        Self::Secret(secret)
    }
}

/// Joins the group named in `hello` at the coordinator on `addr`, waits for the other ranks, and leaves in order.
///
/// Connecting is tried again until `deadline` has passed (24 h at most), since the server may start later than
/// its ranks. The server keeps the same deadline and then answers with the ranks that are missing. A rank that
/// wants to know of its peers' deaths keeps a [`Session`] instead.
///
/// # Errors
///
/// Those of [`Session::join`].
pub fn join(addr: SocketAddr, secret: &Secret, hello: Hello, deadline: Duration) -> Result<Welcome, Error> {
    let deadlines = Deadlines { connect: deadline, join: deadline };
    let (session, welcome) = Session::join(&addr.into(), secret, hello, deadlines)?;
    session.destroy();
    Ok(welcome)
}

/// Asks a coordinator with the text command `PING` and returns its line.
///
/// # Errors
///
/// [`Error::Unreachable`] at once if nobody listens; [`Error::Silent`], [`Error::Lost`] or
/// [`Error::NotCoordinator`] if what listens is not a coordinator.
pub fn ping(endpoint: &Endpoint, within: Duration) -> Result<String, Error> {
    let (started, until) = (Instant::now(), Instant::now() + within);
    let stream = connect_once(endpoint, within)?;
    let lost = |cause| Error::Lost { endpoint: endpoint.clone(), cause };
    stream.write_all_until(b"PING\n", until).map_err(lost)?;
    let mut line = Vec::new();
    let mut piece = [0; LINE_BYTES_MAX];
    while !line.contains(&b'\n') && line.len() < LINE_BYTES_MAX {
        match { &stream }.read(&mut piece[..LINE_BYTES_MAX - line.len()]) {
            Ok(0) => break,
            Ok(n) => line.extend_from_slice(&piece[..n]),
            Err(error) if would_block(&error) && Instant::now() < until => {
                stream.wait(PollFlags::POLLIN, until).map_err(lost)?;
            }
            Err(error) if would_block(&error) => {
                return Err(Error::Silent { endpoint: endpoint.clone(), waited: started.elapsed() });
            }
            Err(error) => return Err(lost(error)),
        }
    }
    let line = String::from_utf8_lossy(&line).trim_end().to_owned();
    if !line.starts_with("OK ") || !line.contains("status=ready") {
        return Err(Error::NotCoordinator { endpoint: endpoint.clone() });
    }
    Ok(line)
}

/// Asks a coordinator what it knows.
///
/// # Errors
///
/// As [`ping`], and [`Error::Refused`] or [`Error::WrongSecret`] if `key` is not enough.
pub fn status(endpoint: &Endpoint, key: &Key, within: Duration) -> Result<Status, Error> {
    match ask(endpoint, key, &Request::Status, within)? {
        Reply::Status(status) => Ok(status),
        _ => Err(out_of_turn(endpoint)),
    }
}

/// Tells a coordinator to end; it has stopped taking connections when this returns.
///
/// # Errors
///
/// As [`status`].
pub fn shutdown(endpoint: &Endpoint, key: &Key, within: Duration) -> Result<(), Error> {
    match ask(endpoint, key, &Request::Shutdown, within)? {
        Reply::Stopping => Ok(()),
        _ => Err(out_of_turn(endpoint)),
    }
}

fn ask(endpoint: &Endpoint, key: &Key, request: &Request, within: Duration) -> Result<Reply, Error> {
    let started = Instant::now();
    let mut lost = 0;
    loop {
        match ask_once(endpoint, key, request, started, started + within) {
            // As for ranks: under a flood it may be this connection that is given up.
            Err(Error::Lost { .. }) if lost < LOST_MAX && started.elapsed() < within => lost += 1,
            answer => return answer,
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn ask_once(
    endpoint: &Endpoint,
    key: &Key,
    request: &Request,
    started: Instant,
    until: Instant,
) -> Result<Reply, Error> {
    let stream = connect_once(endpoint, until.saturating_duration_since(Instant::now()))?;
    let mut wire = Wire::new(endpoint, stream, started, None);
    match key {
        Key::Secret(_) => {
            let proof = wire.introduce(key, until)?;
            wire.send_proved(proof, request, until)?;
        }
        // The user id is enough for an operator; there is nothing to prove.
        Key::SameUser => {
            wire.check_listener()?;
            wire.reader = Reader::new(REPLY_BYTES_MAX);
            wire.send(&[request], until)?;
        }
    }
    match wire.receive(until)? {
        Reply::Refused { refusal, .. } => Err(refusal.into()),
        reply => Ok(reply),
    }
}

fn connect_once(endpoint: &Endpoint, within: Duration) -> Result<Stream, Error> {
    let started = Instant::now();
    Stream::connect(endpoint, within.max(Duration::from_millis(1))).map_err(|cause| Error::Unreachable {
        endpoint: endpoint.clone(),
        waited: started.elapsed(),
        cause,
    })
}

fn out_of_turn(endpoint: &Endpoint) -> Error {
    Error::Protocol { endpoint: endpoint.clone(), cause: WireError::OutOfTurn }
}

/// A connection on which a caller waits for answers.
pub(crate) struct Wire<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) stream: Stream,
    pub(crate) reader: Reader,
    pub(crate) started: Instant,
    cancel: Option<&'a Cancel>,
}

/// Connects until `until`, as often as it takes, and exchanges the greetings. What comes back is what has yet
/// to be sent in front of the first request.
pub(crate) fn reach<'a>(
    endpoint: &'a Endpoint,
    key: &Key,
    until: Instant,
    cancel: Option<&'a Cancel>,
) -> Result<(Wire<'a>, Option<Proof>), Error> {
    let started = Instant::now();
    let (mut pause, mut lost) = (Duration::from_millis(1), 0);
    loop {
        check(cancel)?;
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let left = if cancel.is_some() { left.min(CANCEL_CONNECT) } else { left };
        let error = match Stream::connect(endpoint, left) {
            Ok(stream) => {
                let mut wire = Wire::new(endpoint, stream, started, cancel);
                match wire.introduce(key, until) {
                    Ok(proof) => return Ok((wire, proof)),
                    Err(error @ Error::Lost { .. }) if lost < LOST_MAX => {
                        lost += 1;
                        error
                    }
                    Err(error) => return Err(error),
                }
            }
            Err(cause) => Error::Unreachable { endpoint: endpoint.clone(), waited: started.elapsed(), cause },
        };
        if Instant::now() + pause >= until {
            return Err(error);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(RETRY_PAUSE_MAX);
    }
}

/// The error for a join that was cancelled.
fn check(cancel: Option<&Cancel>) -> Result<(), Error> {
    if cancel.is_some_and(Cancel::is_cancelled) { Err(Error::Cancelled) } else { Ok(()) }
}

impl<'a> Wire<'a> {
    /// Before its proof a coordinator may say little.
    fn new(endpoint: &'a Endpoint, stream: Stream, started: Instant, cancel: Option<&'a Cancel>) -> Self {
        Self { endpoint, stream, reader: Reader::new(REQUEST_BYTES_MAX), started, cancel }
    }

    fn lost(&self, cause: io::Error) -> Error {
        Error::Lost { endpoint: self.endpoint.clone(), cause }
    }

    /// A Unix socket must be listened on by this user, or root.
    fn check_listener(&self) -> Result<(), Error> {
        match self.stream.peer_uid() {
            Some(uid) if uid != geteuid().as_raw() && uid != 0 => {
                Err(Error::OtherUser { endpoint: self.endpoint.clone(), uid })
            }
            _ => Ok(()),
        }
    }

    /// Says hello and checks that the coordinator knows the secret; returns this side's proof.
    fn introduce(&mut self, key: &Key, until: Instant) -> Result<Option<Proof>, Error> {
        self.check_listener()?;
        let nonce = Nonce(random_bytes()?);
        self.send(&[&Request::Hello { nonce, same_user: *key == Key::SameUser }], until)?;
        let (theirs, proof) = match self.receive(until)? {
            Reply::Challenge { nonce, proof } => (nonce, proof),
            // Nothing is proved yet: text of an impostor must not reach a terminal's control sequences.
            Reply::Refused { refusal, .. } if !refusal.to_string().contains(char::is_control) => {
                return Err(refusal.into());
            }
            _ => return Err(out_of_turn(self.endpoint)),
        };
        self.reader = Reader::new(REPLY_BYTES_MAX);
        let Key::Secret(secret) = key else { return Ok(None) };
        let talk = Talk { rank: nonce, coordinator: theirs };
        if !proof.is_some_and(|proof| talk.holds(secret, Side::Coordinator, &proof)) {
            return Err(Error::WrongSecret { endpoint: self.endpoint.clone() });
        }
        Ok(Some(talk.prove(secret, Side::Rank)))
    }

    /// Sends a request, behind the proof if one is due, in one write.
    pub(crate) fn send_proved(
        &self,
        proof: Option<Proof>,
        request: &Request,
        until: Instant,
    ) -> Result<(), Error> {
        match proof {
            Some(proof) => self.send(&[&Request::Prove { proof }, request], until),
            None => self.send(&[request], until),
        }
    }

    fn send(&self, requests: &[&Request], until: Instant) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for request in requests {
            let too_large = |cause| Error::TooLarge { cause };
            bytes.extend(wire::encode(request, REQUEST_BYTES_MAX).map_err(too_large)?);
        }
        match self.stream.write_all_until(&bytes, until) {
            Ok(()) => Ok(()),
            // A coordinator that refuses early may close before all is written: its answer is worth reading.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Ok(())
            }
            Err(error) => Err(self.lost(error)),
        }
    }

    /// The next reply, until `until`.
    pub(crate) fn receive(&mut self, until: Instant) -> Result<Reply, Error> {
        loop {
            match self.reader.poll(&mut &self.stream) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) if Instant::now() >= until => {
                    let waited = self.started.elapsed();
                    return Err(Error::Silent { endpoint: self.endpoint.clone(), waited });
                }
                Ok(None) => {
                    check(self.cancel)?;
                    let slice = if self.cancel.is_some() { Instant::now() + CANCEL_SLICE } else { until };
                    self.stream.wait(PollFlags::POLLIN, until.min(slice)).map_err(|e| self.lost(e))?;
                }
                Err(WireError::Io(cause)) => return Err(self.lost(cause)),
                Err(WireError::Closed { .. }) => return Err(self.lost(ErrorKind::UnexpectedEof.into())),
                Err(WireError::Version { theirs }) => {
                    let endpoint = self.endpoint.clone();
                    return Err(Error::WireVersion { endpoint, ours: wire::VERSION, theirs });
                }
                Err(cause) => return Err(Error::Protocol { endpoint: self.endpoint.clone(), cause }),
            }
        }
    }
}
