//! Sockets in, sockets out: epoll, deadlines, and the bound on strangers. Every decision about groups is
//! `state`'s; what a request means for a connection is in `requests`.
//!
//! Connections that have proved nothing are [`UNPROVED_MAX`] at most: one more pushes out the oldest, which
//! had the most time. Those that have proved themselves are never given up for strangers.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::connection::{Connection, Event};
use super::log_limit::{Line, LogLimit};
use crate::listener::Listener;
use crate::messages::Reply;
use crate::state::{Answer, ConnId, State};
use crate::unique_id::{Entropy, hex};
use crate::wire::{self, REPLY_BYTES_MAX};
use crate::{Access, Endpoint};

/// Connections that have proved nothing, at most.
pub(super) const UNPROVED_MAX: usize = 512;
/// Time from accepting a connection to its proof.
pub(super) const PROVE_WITHIN: Duration = Duration::from_secs(5);
/// Time that a peer has to take its last answer and to close.
pub(super) const END_WITHIN: Duration = Duration::from_secs(5);
/// Time that a peer may be connected, after its proof, without a part in anything.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(10);
/// Pause in accepting when descriptors ran out and no stranger could be given up.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections accepted before others are served again; far below [`UNPROVED_MAX`], so that a rank that has just
/// come is served several times before a flood can push it out.
const ACCEPTS_AT_ONCE: usize = 64;
/// Events taken from the kernel at once.
const EVENTS_AT_ONCE: usize = 1024;

/// Tokens in epoll; connections count on from here.
const STOP: u64 = 0;
const LISTENER: u64 = 1;

/// What does not change while the coordinator runs.
pub(super) struct Rules {
    pub(super) access: Access,
    /// User of this process.
    pub(super) uid: u32,
    pub(super) endpoint: Endpoint,
}

pub(super) struct Loop {
    epoll: Epoll,
    pub(super) listener: Listener,
    stopped: UnixStream,
    pub(super) rules: Rules,
    pub(super) entropy: Entropy,
    pub(super) state: State,
    pub(super) connections: HashMap<ConnId, Connection>,
    /// Those that have proved nothing, oldest first.
    pub(super) unproved: BTreeSet<ConnId>,
    deadlines: BTreeSet<(Instant, ConnId)>,
    /// Connections that ended since the state was told.
    gone: Vec<ConnId>,
    /// Set by a request to stop.
    pub(super) stopping: bool,
    last_conn: u64,
    accept_after: Option<Instant>,
    log: LogLimit,
}

impl Loop {
    pub(super) fn new(
        listener: Listener,
        stopped: UnixStream,
        rules: Rules,
        entropy: Entropy,
    ) -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&stopped, EpollEvent::new(EpollFlags::EPOLLIN, STOP))?;
        epoll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        let mut jobs = JobNames { entropy: entropy.try_clone()?, last: u64::from(std::process::id()) };
        Ok(Self {
            epoll,
            listener,
            stopped,
            rules,
            entropy,
            state: State::new(move || jobs.next()),
            connections: HashMap::new(),
            unproved: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            gone: Vec::new(),
            stopping: false,
            last_conn: LISTENER,
            accept_after: None,
            log: LogLimit::default(),
        })
    }

    pub(super) fn run(mut self) {
        while !self.stopping && self.turn() {}
        // The handle learns that this thread has ended from the end of its stream; by then the socket is gone.
        let Self { listener, stopped, .. } = self;
        drop(listener);
        drop(stopped);
    }

    /// Serves what is ready, or waits for it; `false` when the server is dropped.
    pub(super) fn turn(&mut self) -> bool {
        let mut events = [EpollEvent::empty(); EVENTS_AT_ONCE];
        let ready = match self.epoll.wait(&mut events, self.timeout()) {
            Ok(count) => &events[..count],
            Err(nix::Error::EINTR) => &[],
            Err(error) => {
                tracing::error!("the coordinator cannot wait for its ranks and ends: {error}");
                return false;
            }
        };
        let now = Instant::now();
        let mut accept = self.accept_after.is_some_and(|after| after <= now);
        for event in ready {
            match event.data() {
                STOP => return false,
                LISTENER => accept = true,
                conn => self.serve(now, ConnId(conn)),
            }
        }
        if accept {
            self.accept(now);
        }
        self.expire(now);
        self.tell_of_gone(now);
        let answers = self.state.tick(now);
        self.answer(now, answers);
        true
    }

    fn timeout(&self) -> EpollTimeout {
        let own = self.deadlines.first().map(|&(until, _)| until);
        let next = [own, self.state.next_deadline(), self.accept_after].into_iter().flatten().min();
        let Some(next) = next else { return EpollTimeout::NONE };
        // A millisecond more, since epoll rounds down and would spin through the rest.
        let wait = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        EpollTimeout::try_from(wait).unwrap_or(EpollTimeout::MAX)
    }

    fn accept(&mut self, now: Instant) {
        if self.accept_after.take().is_some() {
            let _ = self.epoll.add(&self.listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER));
        }
        for _ in 0..ACCEPTS_AT_ONCE {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    let uid = stream.peer_uid();
                    let same_user = uid.is_some_and(|uid| uid == self.rules.uid || uid == 0);
                    let connection = Connection::new(stream, peer, same_user, now + PROVE_WITHIN);
                    self.admit(now, connection, uid.filter(|_| !same_user));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The peer gave up between its connect and our accept.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    // Most likely descriptors ran out: a stranger's is the first to be given up.
                    if self.push_out(now) {
                        continue;
                    }
                    self.warn(now, &format!("cannot accept a rank: {error}; raise `ulimit -n`"));
                    // The listener stays ready, and would keep this thread awake.
                    let _ = self.epoll.delete(&self.listener);
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Takes a connection in, unless its user is a foreign one.
    fn admit(&mut self, now: Instant, connection: Connection, foreign: Option<u32>) {
        self.last_conn += 1;
        let conn = ConnId(self.last_conn);
        let event = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP, conn.0);
        if let Err(error) = self.epoll.add(&connection, event) {
            self.warn(now, &format!("dropped {}: {error}", connection.peer()));
            return;
        }
        if self.unproved.len() >= UNPROVED_MAX {
            self.push_out(now);
        }
        self.unproved.insert(conn);
        self.deadlines.extend(connection.until.map(|until| (until, conn)));
        self.connections.insert(conn, connection);
        if let Some(uid) = foreign {
            self.refuse_and_end(now, conn, crate::Refusal::OtherUser { uid });
        }
    }

    /// Gives up the oldest connection that has proved nothing; `false` if there is none.
    fn push_out(&mut self, now: Instant) -> bool {
        let Some(&oldest) = self.unproved.first() else { return false };
        let peer = self.connections.get(&oldest).map_or_else(String::new, |c| c.peer().to_owned());
        self.warn(now, &format!("dropped {peer}: too many connections that have proved nothing"));
        self.remove(oldest);
        true
    }

    fn serve(&mut self, now: Instant, conn: ConnId) {
        if let Some(connection) = self.connections.get_mut(&conn)
            && connection.wants_room()
        {
            self.flush(conn);
        }
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        match connection.read() {
            Event::Nothing => {}
            Event::Request(request) => self.request(now, conn, request),
            Event::Line(line) => self.line(now, conn, &line),
            Event::Malformed(error) => self.malformed(now, conn, error),
            Event::Closed => self.remove(conn),
        }
    }

    /// Encodes and sends answers.
    pub(super) fn answer(&mut self, now: Instant, answers: Vec<Answer>) {
        for Answer { to, reply } in answers {
            if let Reply::Refused { refusal, .. } = &reply {
                self.warn(now, &format!("refused {} rank(s): {refusal}", to.len()));
            }
            // Encoded once for all ranks of a group: a welcome to thousands is megabytes.
            match wire::encode(&reply, REPLY_BYTES_MAX) {
                Ok(frame) => {
                    let frame: Arc<[u8]> = frame.into();
                    for conn in to {
                        self.send(conn, Arc::clone(&frame));
                        self.review(now, conn);
                    }
                }
                Err(error) => {
                    tracing::error!("an answer cannot be sent: {error}");
                    to.into_iter().for_each(|conn| self.remove(conn));
                }
            }
        }
    }

    /// Sends bytes, as far as the socket takes them now.
    pub(super) fn send(&mut self, conn: ConnId, frame: Arc<[u8]>) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.send(frame);
        self.flush(conn);
    }

    /// Takes no more requests of `conn`; it ends when it has read what is queued.
    pub(super) fn end(&mut self, now: Instant, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.end();
        self.set_deadline(conn, Some(now + END_WITHIN));
        self.flush(conn);
    }

    fn flush(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if let Event::Closed = connection.flush() {
            return self.remove(conn);
        }
        let wants = connection.wants_room();
        if wants != connection.watches_room {
            connection.watches_room = wants;
            let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP;
            flags.set(EpollFlags::EPOLLOUT, wants);
            let mut event = EpollEvent::new(flags, conn.0);
            if self.epoll.modify(&*connection, &mut event).is_err() {
                self.remove(conn);
            }
        }
    }

    /// Gives a proved connection without a part in anything a deadline, and takes it from those that have one.
    pub(super) fn review(&mut self, now: Instant, conn: ConnId) {
        let Some(connection) = self.connections.get(&conn) else { return };
        if !connection.is_proved() || connection.is_ending() {
            return;
        }
        match (self.state.is_bound(conn), connection.until) {
            (true, Some(_)) => self.set_deadline(conn, None),
            (false, None) => self.set_deadline(conn, Some(now + IDLE_MAX)),
            _ => {}
        }
    }

    pub(super) fn set_deadline(&mut self, conn: ConnId, until: Option<Instant>) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        if let Some(before) = connection.until {
            self.deadlines.remove(&(before, conn));
        }
        connection.until = until;
        self.deadlines.extend(until.map(|until| (until, conn)));
    }

    /// Drops a connection; the state learns of it at the end of this turn.
    pub(super) fn remove(&mut self, conn: ConnId) {
        let Some(connection) = self.connections.remove(&conn) else { return };
        self.unproved.remove(&conn);
        if let Some(until) = connection.until {
            self.deadlines.remove(&(until, conn));
        }
        if connection.is_proved() {
            self.gone.push(conn);
        }
        // Closing the descriptor takes it out of epoll.
    }

    /// Drops those whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while let Some(&(until, conn)) = self.deadlines.first()
            && until <= now
        {
            if let Some(connection) = self.connections.get(&conn).filter(|c| !c.is_ending()) {
                let line = format!("dropped {}: it was silent for too long", connection.peer());
                self.warn(now, &line);
            }
            self.remove(conn);
        }
    }

    /// Tells the state which connections ended, all at once, and the peers what follows.
    pub(super) fn tell_of_gone(&mut self, now: Instant) {
        // Telling may find more that are gone.
        while !self.gone.is_empty() {
            let gone = std::mem::take(&mut self.gone);
            let answers = self.state.closed(&gone);
            self.answer(now, answers);
        }
    }

    /// Logs a line about a peer, which may quote it.
    pub(super) fn warn(&mut self, now: Instant, line: &str) {
        let line: String = line.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        match self.log.next(now) {
            Line::Write => tracing::warn!("{line}"),
            Line::WriteAfter(omitted) => tracing::warn!("{line} (and {omitted} lines like it before)"),
            Line::Omit => {}
        }
    }
}

/// Random names of communicators: 8 random bytes.
struct JobNames {
    entropy: Entropy,
    last: u64,
}

impl JobNames {
    fn next(&mut self) -> String {
        // The odd step visits all 2^64 values if fresh bytes cannot be had.
        self.last = self
            .entropy
            .bytes()
            .map(u64::from_le_bytes)
            .unwrap_or_else(|_| self.last.wrapping_add(0x9e37_79b9_7f4a_7c15));
        hex(&self.last.to_be_bytes())
    }
}
