//! The coordinator: a thread of its own that lasts until it is dropped or told to stop.

mod connection;
mod event_loop;
mod log_limit;
mod requests;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};

use nix::unistd::geteuid;

use self::event_loop::{Loop, Rules};
use crate::listener::Listener;
use crate::unique_id::{Entropy, reachable};
use crate::{Endpoint, Error, Secret, UniqueId};

/// Who may join a coordinator.
#[derive(Clone, Debug)]
pub struct Access {
    /// What a rank must prove to know.
    pub secret: Secret,
    /// Whether a rank of the same user may join over a Unix socket without it.
    pub trust_uid: bool,
}

impl From<Secret> for Access {
    /// Only ranks that know the secret.
    fn from(secret: Secret) -> Self {
        Self { secret, trust_uid: false }
    }
}

/// A coordinator that runs on a thread of its own until it is dropped or told to stop over its socket.
#[derive(Debug)]
pub struct Coordinator {
    endpoint: Endpoint,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Coordinator {
    /// Listens on `endpoint` (TCP port 0: any free port) for ranks that `access` allows.
    ///
    /// A Unix socket is made with mode 0600. A stale socket of this user at the path is removed before; the new
    /// one is removed when the coordinator ends.
    ///
    /// # Errors
    ///
    /// [`Error::PortBusy`], [`Error::Bind`], [`Error::SocketBusy`], [`Error::SocketPath`], [`Error::BindUnix`] if
    /// the endpoint cannot be had, [`Error::Entropy`], [`Error::Start`] if the thread cannot be started.
    pub fn open(endpoint: &Endpoint, access: impl Into<Access>) -> Result<Self, Error> {
        let entropy = Entropy::new()?;
        let (listener, endpoint) = Listener::bind(endpoint)?;
        let (stop, stopped) = UnixStream::pair().map_err(Error::Start)?;
        let rules = Rules { access: access.into(), uid: geteuid().as_raw(), endpoint: endpoint.clone() };
        let serving = Loop::new(listener, stopped, rules, entropy).map_err(Error::Start)?;
        let thread = thread::Builder::new()
            .name("coordinator".into())
            .spawn(move || serving.run())
            .map_err(Error::Start)?;
        Ok(Self { endpoint, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, with the real port.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Readable once the coordinator has ended by itself: it was told to over its socket, or it failed.
    pub fn ended_fd(&self) -> Option<BorrowedFd<'_>> {
        self.stop.as_ref().map(AsFd::as_fd)
    }
}

impl Drop for Coordinator {
    /// Ends the thread and removes the socket; ranks that still wait see their connection close.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened; dropping must not add another.
            let _ = thread.join();
        }
    }
}

/// A coordinator on TCP that belongs to one job: what a launcher hosts, or whoever made a unique id.
#[derive(Debug)]
pub struct Server {
    coordinator: Coordinator,
    addr: SocketAddr,
    secret: Secret,
}

impl Server {
    /// Listens on `addr` (port 0: any free port) for ranks that know `secret`.
    ///
    /// # Errors
    ///
    /// Those of [`Coordinator::open`].
    pub fn bind(addr: SocketAddr, secret: Secret) -> Result<Self, Error> {
        let coordinator = Coordinator::open(&addr.into(), secret.clone())?;
        let addr = coordinator.endpoint().addr().unwrap_or(addr);
        Ok(Self { coordinator, addr, secret })
    }

    /// Address that the server listens on, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The same as an endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        self.coordinator.endpoint()
    }

    /// The id that ranks on this host need to join; an unspecified address becomes loopback.
    pub fn unique_id(&self) -> UniqueId {
        UniqueId::new(reachable(self.addr), self.secret.clone())
    }
}

#[cfg(test)]
mod tests;
