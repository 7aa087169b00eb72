//! Errors of the rendezvous, each with the values and the remedy.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::wire::WireError;
use crate::{Endpoint, Refusal};

/// Why a rendezvous failed or could not be offered.
#[derive(Debug, thiserror::Error)]
#[rustfmt::skip] // rustfmt joins messages that are wrapped by hand
pub enum Error {
    /// Another program listens on the wanted port.
    #[error(
        "port {} of {} is in use; stop the program that holds it (`ss -ltnp`) or choose another \
         port, 0 for any free one",
        .0.port(), .0.ip()
    )]
    PortBusy(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {cause}; use an address of this host and a port above 1023")]
    Bind {
        /// Address that was asked for.
        addr: SocketAddr,
        /// Answer of the system.
        cause: io::Error,
    },
    /// A text that names no endpoint.
    #[error("`{text}` is no endpoint: {why}")]
    Endpoint {
        /// What was given, cut and on one line.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Joining was cancelled by the caller's program.
    #[error("joining was cancelled")]
    Cancelled,
    /// Another coordinator listens on the wanted socket.
    #[error(
        "a program listens on {} already; stop it (`ringccl coordinator shutdown --listen unix:{}`) or \
         choose another path",
        .0.display(), .0.display()
    )]
    SocketBusy(PathBuf),
    /// Something that must not be removed stands at the wanted path.
    #[error("{} {what}; it is not removed: choose another path or remove it yourself", .path.display())]
    SocketPath {
        /// The wanted path.
        path: PathBuf,
        /// What stands there.
        what: &'static str,
    },
    /// The Unix socket cannot be made.
    #[error("cannot listen on unix:{}: {cause}; use a directory that exists and may be written", .path.display())]
    BindUnix {
        /// The wanted path.
        path: PathBuf,
        /// Answer of the system.
        cause: io::Error,
    },
    /// No random bytes for a secret.
    #[error("cannot read random bytes from /dev/urandom: {0}; mount /dev in this container")]
    Entropy(io::Error),
    /// The server's thread or its wake-up could not be made.
    #[error(
        "cannot start the coordinator's thread: {0}; raise the limits on threads (`ulimit -u`) and \
         descriptors (`ulimit -n`)"
    )]
    Start(io::Error),
    /// The process cannot say who it is.
    #[error("cannot read {path}: {cause}; ranks need /proc and /dev/shm")]
    Identity {
        /// File that was read.
        path: &'static str,
        /// Answer of the system.
        cause: io::Error,
    },
    /// Nobody answered at the address until the deadline.
    #[error(
        "no coordinator at {endpoint} within {}: {cause}; is the launcher (or rank 0) still running, \
         and is the address right?",
        seconds(*.waited)
    )]
    Unreachable {
        /// Endpoint that was tried.
        endpoint: Endpoint,
        /// Time spent trying.
        waited: Duration,
        /// Last answer of the system.
        cause: io::Error,
    },
    /// The connection broke before an answer came.
    #[error("the coordinator at {endpoint} went away before it answered: {cause}; look for why it ended")]
    Lost {
        /// Endpoint of the coordinator.
        endpoint: Endpoint,
        /// What was seen.
        cause: io::Error,
    },
    /// The coordinator took the connection and never answered.
    #[error(
        "{endpoint} took the connection but did not answer within {}; is another program listening \
         there?",
        seconds(*.waited)
    )]
    Silent {
        /// Endpoint of the coordinator.
        endpoint: Endpoint,
        /// Time spent waiting.
        waited: Duration,
    },
    /// The answer is not one of ours.
    #[error(
        "the answer from {endpoint} is not a coordinator's: {cause}; another program may listen \
         there, or the builds differ"
    )]
    Protocol {
        /// Endpoint of the peer.
        endpoint: Endpoint,
        /// What was wrong with its bytes.
        cause: WireError,
    },
    /// What listens does not answer as a coordinator.
    #[error("what listens at {endpoint} is no coordinator; check the address")]
    NotCoordinator {
        /// Endpoint of the peer.
        endpoint: Endpoint,
    },
    /// The coordinator speaks another version of the protocol.
    #[error(
        "the coordinator at {endpoint} speaks wire version {theirs}, this build speaks {ours}; run \
         matching builds"
    )]
    WireVersion {
        /// Endpoint of the coordinator.
        endpoint: Endpoint,
        /// Version of this build.
        ours: u16,
        /// Version of the coordinator.
        theirs: u16,
    },
    /// The coordinator does not know the secret of this rank.
    #[error(
        "wrong secret: what listens at {endpoint} does not know the secret of this rank, or this rank not \
         its; use the unique id or RINGCCL_SECRET of this very job"
    )]
    WrongSecret {
        /// Endpoint of the peer.
        endpoint: Endpoint,
    },
    /// A Unix socket that another user listens on.
    #[error("{endpoint} belongs to uid {uid}, not to this user; check the path")]
    OtherUser {
        /// Endpoint of the peer.
        endpoint: Endpoint,
        /// User that listens there.
        uid: u32,
    },
    /// The coordinator did not answer a request of a session in time.
    #[error("the coordinator did not answer within {}; is it stopped or overloaded?", seconds(*.waited))]
    NoAnswer {
        /// Time spent waiting.
        waited: Duration,
    },
    /// The coordinator has gone, and the request needs it.
    #[error("the coordinator is gone, so communicators can no longer be split; what exists goes on")]
    CoordinatorGone,
    /// The hello is larger than the protocol allows.
    #[error("a request is too large: {cause}; shorten the names of group and node")]
    TooLarge {
        /// The bound and the size.
        cause: WireError,
    },
    /// The coordinator said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A unique id that this build did not make, or that was damaged.
    #[error("not a unique id: {0}; pass on all 128 bytes of the id that rank 0 made")]
    UniqueId(&'static str),
    /// A secret that is not 64 hex digits.
    #[error(
        "not a secret: expected 64 hex digits, found {found} characters; take it from \
         RINGCCL_SECRET or the secret file as they were made"
    )]
    SecretText {
        /// Length of the text.
        found: usize,
    },
}

/// A duration as people say it: `0.25 s`, `30 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    let text = format!("{:.2}", duration.as_secs_f64());
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_no_idle_zeros() {
        // Messages read like text.
        assert_eq!(seconds(Duration::from_millis(250)), "0.25 s");
        assert_eq!(seconds(Duration::from_secs(30)), "30 s");
        assert_eq!(seconds(Duration::ZERO), "0 s");
    }
}
