//! The coordinator's thread: sockets in, sockets out; every decision is `state`'s.

mod connection;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Backlog, listen};

use self::connection::{Connection, Event};
use crate::state::{Answer, ConnId, State};
use crate::unique_id::{hex, random_bytes, reachable};
use crate::wire::{self, REPLY_BYTES_MAX, Reply, Request};
use crate::{Error, Refusal, Secret, UniqueId};

/// Connections that the kernel keeps for us while the thread is busy.
const BACKLOG: i32 = 4096;
/// Pause in accepting after the process ran out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A rendezvous that runs on a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    secret: Secret,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens on `addr` (port 0: any free port) for ranks that know `secret`.
    ///
    /// # Errors
    ///
    /// [`Error::PortBusy`], [`Error::Bind`] if the address cannot be had, [`Error::Start`] if the
    /// thread cannot.
    pub fn bind(addr: SocketAddr, secret: Secret) -> Result<Self, Error> {
        let refuse = |cause: io::Error| match cause.kind() {
            ErrorKind::AddrInUse => Error::PortBusy(addr),
            _ => Error::Bind { addr, cause },
        };
        let listener = TcpListener::bind(addr).map_err(refuse)?;
        let backlog = Backlog::new(BACKLOG).map_err(|e| refuse(e.into()))?;
        listen(&listener, backlog).map_err(|e| refuse(e.into()))?;
        listener.set_nonblocking(true).map_err(refuse)?;
        let addr = listener.local_addr().map_err(refuse)?;

        let (stop, stopped) = UnixStream::pair().map_err(Error::Start)?;
        let jobs = JobNames::new()?;
        let served = secret.clone();
        let thread = thread::Builder::new()
            .name("coordinator".into())
            .spawn(move || Loop::new(listener, stopped, served, jobs).run())
            .map_err(Error::Start)?;
        Ok(Self { addr, secret, stop: Some(stop), thread: Some(thread) })
    }

    /// Address that the server listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The id that ranks on this host need to join; an unspecified address becomes loopback.
    pub fn unique_id(&self) -> UniqueId {
        UniqueId::new(reachable(self.addr), self.secret.clone())
    }
}

impl Drop for Server {
    /// Ends the thread; ranks that still wait see their connection close.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened; dropping must not add another.
            let _ = thread.join();
        }
    }
}

/// Random names of group instances: 8 random bytes, counted up so that no two are equal.
struct JobNames(u64);

impl JobNames {
    fn new() -> Result<Self, Error> {
        random_bytes().map(|bytes| Self(u64::from_le_bytes(bytes)))
    }

    fn next(&mut self) -> String {
        // Fresh bytes where they can be had; the odd step visits all 2^64 values otherwise.
        self.0 = random_bytes()
            .map(u64::from_le_bytes)
            .unwrap_or_else(|_| self.0.wrapping_add(0x9e37_79b9_7f4a_7c15));
        hex(&self.0.to_be_bytes())
    }
}

struct Loop {
    listener: TcpListener,
    stopped: UnixStream,
    secret: Secret,
    state: State,
    /// In order of arrival, which is the order of serving as well.
    connections: BTreeMap<ConnId, Connection>,
    next_conn: u64,
    accept_after: Option<Instant>,
}

impl Loop {
    fn new(listener: TcpListener, stopped: UnixStream, secret: Secret, mut jobs: JobNames) -> Self {
        let state = State::new(move || jobs.next());
        let connections = BTreeMap::new();
        Self { listener, stopped, secret, state, connections, next_conn: 0, accept_after: None }
    }

    fn run(mut self) {
        loop {
            let Some(ready) = self.wait() else { return };
            let now = Instant::now();
            for conn in ready {
                self.serve(now, conn);
            }
            self.accept(now);
            let answers = self.state.tick(now);
            self.answer(now, answers);
            self.drop_late(now);
        }
    }

    /// Sleeps until a connection needs care or a deadline passes; `None` when the server is dropped.
    fn wait(&mut self) -> Option<Vec<ConnId>> {
        let (ids, mut fds): (Vec<ConnId>, Vec<PollFd<'_>>) =
            self.connections.iter().map(|(&id, c)| (id, PollFd::new(c.as_fd(), c.interest()))).unzip();
        fds.push(PollFd::new(self.stopped.as_fd(), PollFlags::POLLIN));
        if self.accept_after.is_none() {
            fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        match poll(&mut fds, self.timeout()) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => {
                tracing::error!("the coordinator cannot wait for its ranks and ends: {error}");
                return None;
            }
        }
        if fds[ids.len()].any().unwrap_or(true) {
            return None;
        }
        let ready = ids.iter().zip(&fds).filter(|(_, fd)| fd.any().unwrap_or(true));
        Some(ready.map(|(&id, _)| id).collect())
    }

    fn timeout(&self) -> PollTimeout {
        let own = self.connections.values().filter_map(Connection::deadline).min();
        let Some(next) = [own, self.state.next_deadline(), self.accept_after].into_iter().flatten().min()
        else {
            return PollTimeout::NONE;
        };
        // A millisecond more, since poll rounds down and would spin through the rest.
        let wait = next.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX)
    }

    fn accept(&mut self, now: Instant) {
        if self.accept_after.is_some_and(|after| now < after) {
            return;
        }
        self.accept_after = None;
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => match Connection::new(stream, peer, now) {
                    Ok(connection) => {
                        self.next_conn += 1;
                        self.connections.insert(ConnId(self.next_conn), connection);
                    }
                    Err(error) => tracing::warn!("dropped {peer}: {error}"),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The peer gave up between its connect and our accept.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) => {
                    tracing::warn!(
                        "cannot accept a rank: {error}; if descriptors ran out, raise `ulimit -n`"
                    );
                    self.accept_after = Some(now + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn serve(&mut self, now: Instant, conn: ConnId) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        let peer = connection.peer();
        match connection.advance(now) {
            Event::Nothing => {}
            Event::Request(request) => self.request(now, conn, request),
            Event::Malformed(error) => {
                tracing::warn!("dropped {peer}: {error}");
                let refusal = match error {
                    wire::WireError::Version { theirs } => {
                        Refusal::WireVersion { ours: wire::VERSION, theirs }
                    }
                    other => Refusal::Malformed(other.to_string()),
                };
                self.leave(now, conn);
                self.answer(now, vec![Answer { to: vec![conn], reply: Reply::Refused(refusal) }]);
            }
            Event::Closed => {
                self.connections.remove(&conn);
                self.leave(now, conn);
            }
        }
    }

    fn request(&mut self, now: Instant, conn: ConnId, request: Request) {
        let Request::Hello { secret, wait_ms, hello } = request;
        let answers = if secret == self.secret {
            self.state.hello(now, conn, hello, Duration::from_millis(wait_ms))
        } else {
            vec![Answer { to: vec![conn], reply: Reply::Refused(Refusal::WrongSecret) }]
        };
        self.answer(now, answers);
    }

    fn leave(&mut self, now: Instant, conn: ConnId) {
        let answers = self.state.closed(conn);
        self.answer(now, answers);
    }

    fn answer(&mut self, now: Instant, answers: Vec<Answer>) {
        for Answer { to, reply } in answers {
            if let Reply::Refused(refusal) = &reply {
                tracing::warn!("refused {} rank(s): {refusal}", to.len());
            }
            // Encoded once for all ranks of a group: a welcome to thousands is megabytes.
            match wire::encode(&reply, REPLY_BYTES_MAX) {
                Ok(frame) => {
                    let frame: Arc<[u8]> = frame.into();
                    for conn in to {
                        self.begin_answer(now, conn, &frame);
                    }
                }
                Err(error) => {
                    tracing::error!("an answer cannot be sent: {error}");
                    to.iter().for_each(|conn| drop(self.connections.remove(conn)));
                }
            }
        }
    }

    fn begin_answer(&mut self, now: Instant, conn: ConnId, frame: &Arc<[u8]>) {
        let Some(connection) = self.connections.get_mut(&conn) else { return };
        connection.begin_answer(now, Arc::clone(frame));
        // Most answers fit into the socket's buffer: no need to go through poll.
        if let Event::Closed = connection.advance(now) {
            self.connections.remove(&conn);
        }
    }

    fn drop_late(&mut self, now: Instant) {
        self.connections.retain(|_, connection| {
            let late = connection.deadline().is_some_and(|deadline| deadline <= now);
            if late && !connection.is_answered() {
                tracing::warn!("dropped {}: it was silent for too long", connection.peer());
            }
            !late
        });
    }
}

#[cfg(test)]
mod tests;
