//! Errors of communicators.

use std::time::Duration;

/// Why a communicator could not be made, or an operation not be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting has a value that it cannot have.
    #[error("{name}={value}: not {expected}")]
    Setting {
        /// The environment variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        expected: String,
    },
    /// A variable that this way of joining needs is not set.
    #[error(
        "{name} is not set: start the ranks with `ringccl run -n N -- PROGRAM`, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
    )]
    MissingSetting {
        /// The environment variable.
        name: &'static str,
    },
    /// The cluster file is wrong, or is for another number of ranks; every problem on a line of its own.
    #[error(transparent)]
    Cluster(#[from] Box<topo::ConfigError>),
    /// The ranks could not find each other.
    #[error(transparent)]
    Rendezvous(#[from] coordinator_lite::Error),
    /// Rank 0 hosts the rendezvous and does not answer.
    #[error("rank 0 hosts the rendezvous (MASTER_ADDR, MASTER_PORT) and {what}")]
    Host {
        /// What can be told of it from here, with the address, and what to do.
        what: String,
        /// What was tried.
        cause: coordinator_lite::Error,
    },
    /// The ranks share no memory.
    #[error(
        "rank {rank} runs on another host than rank 0 (or sees another /dev/shm): this version joins ranks of one host only"
    )]
    OtherHost {
        /// The rank.
        rank: u32,
    },
    /// The shared segment, or a ring in it.
    #[error("rank {rank}: {cause}")]
    Segment {
        /// The rank that failed.
        rank: u32,
        /// What failed.
        cause: shmring::Error,
    },
    /// The system has not as much memory as was asked for.
    #[error("cannot have {bytes} bytes of shared memory: {cause}")]
    Memory {
        /// Bytes that were asked for.
        bytes: usize,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The arguments of a call are wrong; nothing was done and the communicator can go on.
    #[error("rank {rank}, {call}: {what}")]
    Argument {
        /// The calling rank.
        rank: u32,
        /// The call.
        call: &'static str,
        /// What is wrong, with the values.
        what: String,
    },
    /// A process died, or left before the operation was through.
    #[error(
        "rank {dead} ({how}) is gone: {} on rank {rank} cannot finish; see what rank {dead} printed last",
        operation(*seqno)
    )]
    PeerGone {
        /// The rank that is gone.
        dead: u32,
        /// Its process id and whether it died or left.
        how: String,
        /// The rank that says so.
        rank: u32,
        /// The operation in which this was found.
        seqno: u64,
    },
    /// Something did not finish in time.
    #[error(
        "{stage} on rank {rank} did not finish within {limit:?}; {standing}; raise {} if the ranks only need longer",
        stage.setting()
    )]
    Timeout {
        /// The rank that says so.
        rank: u32,
        /// What.
        stage: Stage,
        /// The time limit.
        limit: Duration,
        /// Where each late rank stands.
        standing: String,
    },
    /// Two ranks called different things as the same operation. Every rank tells the same two.
    #[error(
        "{} does not match: rank {first} called {first_call}, rank {second} called {second_call} \
         ({difference}); every rank must make the same calls in the same order (told by rank {rank})",
        operation(*seqno)
    )]
    Mismatch {
        /// The rank that says so.
        rank: u32,
        /// The operation's number, from 1.
        seqno: u64,
        /// The lower of the two ranks.
        first: u32,
        /// What it called.
        first_call: String,
        /// The other rank.
        second: u32,
        /// What it called.
        second_call: String,
        /// The fields that differ, with both values.
        difference: String,
    },
    /// Ranks use communicators in different orders, so that each waits for the other: nobody could ever go on.
    #[error(
        "communicators are used in different orders: {first}, {second}, and each waits for the other; use them in \
         the same order on every rank, or each from a thread of its own (told by rank {rank})"
    )]
    Order {
        /// The rank that says so.
        rank: u32,
        /// A rank, the operation in which it waits, and the communicator: its number, which all its ranks have for it,
        /// is higher than those of the communicators that they had made before.
        first: String,
        /// Another rank and where it waits.
        second: String,
    },
    /// Ranks wait for each other in a circle, so that nobody on it could ever go on.
    #[error("deadlock: {waits}; {remedy} (told by rank {rank})")]
    Deadlock {
        /// The rank that says so.
        rank: u32,
        /// Where each rank on the circle waits, and for whom.
        waits: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A rank ended the communicator: another one, or this one's program by an abort handle.
    #[error("rank {by} has ended this communicator {reason}; rank {rank} was at operation {seqno}")]
    Aborted {
        /// The rank that ended it.
        by: u32,
        /// Why; after a time-out also who is behind.
        reason: String,
        /// The rank that says so.
        rank: u32,
        /// The operation.
        seqno: u64,
    },
    /// More came before anybody asked for it than is kept: the receives are in another order than the sends, by far.
    #[error(
        "rank {rank}: rank {from} sent {letter}, which no receive asks for, and messages that nobody asked for already \
         take up to {limit} bytes; receive them in the order of the sends, or with the tags they were sent with"
    )]
    EarlyMessages {
        /// The receiving rank.
        rank: u32,
        /// The sending rank.
        from: u32,
        /// What it sent.
        letter: String,
        /// Bytes that are kept at most.
        limit: usize,
    },
    /// A rank has revoked the communicator: only shrink and finalize can be called on it any more.
    #[error(
        "rank {by} has revoked this communicator; rank {rank} was at operation {seqno}; shrink it, with nobody excluded \
         if all ranks are well, or make a new one"
    )]
    Revoked {
        /// The rank that revoked it.
        by: u32,
        /// The rank that says so.
        rank: u32,
        /// The operation.
        seqno: u64,
    },
    /// Ranks that make a communicator together make different ones.
    #[error(
        "{call} on rank {rank}: rank {other} makes another communicator; all members must make the same call, and \
         shrink with the same list of excluded ranks"
    )]
    Disagreement {
        /// The rank that says so.
        rank: u32,
        /// What it called.
        call: &'static str,
        /// The rank that called something else.
        other: u32,
    },
    /// A rank with which this one was to make a communicator has given up.
    #[error("{call} on rank {rank}: rank {other} has given up, see its message")]
    GivenUp {
        /// The rank that says so.
        rank: u32,
        /// What it called.
        call: &'static str,
        /// The rank that has given up.
        other: u32,
    },
    /// Joining was cancelled by this rank's program.
    #[error("rank {rank}: joining was cancelled")]
    Cancelled {
        /// The rank.
        rank: u32,
    },
    /// A report or trace could not be written.
    #[error("cannot write {what} `{path}`: {cause}")]
    Output {
        /// What was written.
        what: &'static str,
        /// Where to.
        path: String,
        /// The system's answer.
        cause: std::io::Error,
    },
    /// A call in a group was wrong, so that nothing of it was run.
    #[error("the group was not run, because of a call in it: {wrong}")]
    GroupRefused {
        /// The first wrong call's error.
        wrong: String,
    },
    /// An operation ended before its end, by a panic in it or because its stream has ended.
    #[error(
        "rank {rank}: {what} was given up, so this communicator has ended; look for the panic that caused it"
    )]
    Abandoned {
        /// This rank.
        rank: u32,
        /// What was given up.
        what: &'static str,
    },
    /// A stream cannot go on.
    #[error("the stream has ended: {why}")]
    StreamEnded {
        /// Why.
        why: String,
    },
}

/// An operation in words: those of point-to-point have no numbers.
fn operation(seqno: u64) -> String {
    if seqno == 0 { "a message".into() } else { format!("operation {seqno}") }
}

/// What has a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Until every rank has attached to the communicator.
    Join,
    /// The operation of this number, from 1.
    Operation(u64),
    /// Leaving, which is the operation of this number.
    Finalize(u64),
    /// Sending to a rank.
    Send {
        /// The receiver.
        to: u32,
    },
    /// Receiving.
    Recv {
        /// The sender; `None` for any rank.
        from: Option<u32>,
    },
    /// Waiting for signals.
    Signal {
        /// The rank that sends them.
        from: u32,
    },
    /// Until the operations that were queued before have run.
    Turn,
}

impl Stage {
    /// The operation's number; 0 before the first.
    pub(crate) fn seqno(self) -> u64 {
        match self {
            Self::Join | Self::Send { .. } | Self::Recv { .. } | Self::Signal { .. } | Self::Turn => 0,
            Self::Operation(seqno) | Self::Finalize(seqno) => seqno,
        }
    }

    /// The variable that holds the deadline.
    fn setting(self) -> &'static str {
        match self {
            Self::Join => "RINGCCL_JOIN_TIMEOUT_MS",
            Self::Operation(_) | Self::Send { .. } | Self::Recv { .. } | Self::Signal { .. } | Self::Turn => {
                "RINGCCL_TIMEOUT_MS"
            }
            Self::Finalize(_) => "RINGCCL_FINALIZE_TIMEOUT_MS",
        }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Join => f.write_str("joining"),
            Self::Operation(seqno) => write!(f, "operation {seqno}"),
            Self::Finalize(seqno) => write!(f, "finalize (operation {seqno})"),
            Self::Send { to } => write!(f, "send to rank {to}"),
            Self::Recv { from: Some(from) } => write!(f, "recv from rank {from}"),
            Self::Recv { from: None } => f.write_str("recv from any rank"),
            Self::Signal { from } => write!(f, "wait_signal for rank {from}"),
            Self::Turn => f.write_str("an operation's turn"),
        }
    }
}

/// What kind of trouble an [`Error`] is: the closed set that other interfaces map from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// A wrong argument or setting; the caller can mend it.
    InvalidArgument,
    /// A wrong use of a communicator, for instance after it has failed.
    InvalidUsage,
    /// The operating system refused something.
    System,
    /// Another rank failed.
    Remote,
    /// A time limit passed.
    Timeout,
    /// A promise of this library does not hold.
    Internal,
}

impl Error {
    /// The kind of trouble.
    pub fn class(&self) -> ErrorClass {
        use shmring::Error as Shm;
        match self {
            Self::Setting { .. }
            | Self::MissingSetting { .. }
            | Self::Cluster(_)
            | Self::Argument { .. }
            | Self::GroupRefused { .. } => ErrorClass::InvalidArgument,
            Self::Revoked { .. }
            | Self::Disagreement { .. }
            | Self::Cancelled { .. }
            | Self::OtherHost { .. }
            | Self::StreamEnded { .. }
            | Self::Abandoned { .. }
            | Self::EarlyMessages { .. }
            | Self::Mismatch { .. }
            | Self::Order { .. }
            | Self::Deadlock { .. } => ErrorClass::InvalidUsage,
            Self::Host { cause: coordinator_lite::Error::Silent { .. }, .. } | Self::Timeout { .. } => {
                ErrorClass::Timeout
            }
            Self::Rendezvous(_) | Self::Host { .. } | Self::Output { .. } | Self::Memory { .. } => {
                ErrorClass::System
            }
            Self::Segment { cause, .. } => match cause {
                Shm::Exists { .. }
                | Shm::NoSpace { .. }
                | Shm::Memory { .. }
                | Shm::Io { .. }
                | Shm::NotPrivate { .. } => ErrorClass::System,
                Shm::NotReady { .. } => ErrorClass::Timeout,
                Shm::Geometry { .. } | Shm::Mismatch { .. } | Shm::RoleTaken { .. } => {
                    ErrorClass::InvalidUsage
                }
                Shm::Corrupt { .. } => ErrorClass::Internal,
            },
            Self::PeerGone { .. } | Self::Aborted { .. } | Self::GivenUp { .. } => ErrorClass::Remote,
        }
    }
}
