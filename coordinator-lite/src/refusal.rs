//! Why the coordinator says no, with both sides of each contradiction.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::seconds;
use crate::{CommId, RankList};

/// Why the coordinator turned a rank away; travels over the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[rustfmt::skip] // rustfmt joins messages that are wrapped by hand
pub enum Refusal {
    /// The secret is not the coordinator's.
    #[error("wrong secret; use the unique id or RINGCCL_SECRET of this very job")]
    WrongSecret,
    /// The caller speaks another version of the protocol.
    #[error("the coordinator speaks wire version {ours}, this rank speaks {theirs}; run matching builds")]
    WireVersion {
        /// Version of the server.
        ours: u16,
        /// Version of the rank.
        theirs: u16,
    },
    /// The bytes were not a request.
    #[error("the coordinator could not read the request: {0}")]
    Malformed(String),
    /// Two processes claim one rank of a group that waits, or of one that is complete and still in use.
    #[error(
        "group `{group}`: rank {rank} joined twice, by process {first_pid} and by process {pid}; \
         give every process its own RANK, and each of several jobs at one coordinator its own RINGCCL_JOB"
    )]
    DuplicateRank {
        /// Name of the group.
        group: String,
        /// Rank claimed twice.
        rank: u32,
        /// Process that joined first.
        first_pid: u32,
        /// Process that was refused.
        pid: u32,
    },
    /// Two ranks disagree about the number of ranks.
    #[error(
        "group `{group}`: rank {rank} says {nranks} ranks, rank {first_rank} said {expected}; give \
         all ranks the same WORLD_SIZE, and each of several jobs at one coordinator its own RINGCCL_JOB"
    )]
    WorldSize {
        /// Name of the group.
        group: String,
        /// Rank that was refused.
        rank: u32,
        /// Its number of ranks.
        nranks: u32,
        /// Rank that joined first.
        first_rank: u32,
        /// Number of ranks that it said.
        expected: u32,
    },
    /// A rank outside of `0 .. nranks`, or a number of ranks outside of the supported range.
    #[error(
        "group `{group}`: rank {rank} of {nranks} is impossible; ranks go from 0 to the number of \
         ranks less 1, of which there may be 1 to {limit}"
    )]
    RankRange {
        /// Name of the group.
        group: String,
        /// Rank that was refused.
        rank: u32,
        /// Its number of ranks.
        nranks: u32,
        /// Largest number of ranks.
        limit: u32,
    },
    /// An empty or overlong group name.
    #[error("a group name has {found} bytes; use 1 to {limit}")]
    GroupName {
        /// Bytes of the name.
        found: usize,
        /// Largest number of bytes.
        limit: usize,
    },
    /// Too many groups are waiting for their ranks.
    #[error(
        "{limit} groups wait for ranks already; let some of them complete, or end the ranks that \
         wait in vain"
    )]
    TooManyGroups {
        /// Largest number of groups waiting at once.
        limit: usize,
    },
    /// Ranks run different versions of the library.
    #[error(
        "group `{group}`: rank {rank} runs version {version}, rank {first_rank} runs {expected}; \
         run matching builds"
    )]
    Version {
        /// Name of the group.
        group: String,
        /// Rank that was refused.
        rank: u32,
        /// Its version.
        version: String,
        /// Rank that joined first.
        first_rank: u32,
        /// Version of that rank.
        expected: String,
    },
    /// Some ranks did not come in time.
    #[error(
        "group `{group}`: {} of {nranks} ranks missing after {} (rank {rank} gave up first): \
         {missing}; look at their output for why they did not start",
        .missing.len(), seconds(Duration::from_millis(*.waited_ms))
    )]
    Timeout {
        /// Name of the group.
        group: String,
        /// Rank whose deadline passed first.
        rank: u32,
        /// How long that rank waited, in milliseconds.
        waited_ms: u64,
        /// Number of ranks of the group.
        nranks: u32,
        /// Ranks that have not joined.
        missing: RankList,
    },
    /// A rank that had joined went away before the group was complete.
    #[error(
        "group `{group}`: rank {rank} (process {pid}) went away while the others were still \
         joining; look at its output for why it ended"
    )]
    Vanished {
        /// Name of the group.
        group: String,
        /// Rank that went away.
        rank: u32,
        /// Its process.
        pid: u32,
    },
    /// Something was asked for that needs proof of the secret first.
    #[error("this needs proof of the job's secret; set RINGCCL_SECRET or give --secret-file")]
    NotProved,
    /// A rank without a secret, at a coordinator that does not take those.
    #[error(
        "the coordinator takes no rank without a secret; set RINGCCL_SECRET, or start the coordinator \
         on a Unix socket with --trust-uid"
    )]
    SecretNeeded,
    /// The caller's user is not the coordinator's.
    #[error("the coordinator belongs to another user than uid {uid}; run both as one user")]
    OtherUser {
        /// User id of the caller.
        uid: u32,
    },
    /// A connection that joins while it waits already.
    #[error("this connection waits in a group already; one at a time")]
    AlreadyJoining,
    /// The coordinator holds as many communicators or members as it can.
    #[error("the coordinator holds {comms} communicators with {seats} members; destroy some of them first")]
    TooManyCommunicators {
        /// Communicators at this moment.
        comms: u64,
        /// Members of all of them.
        seats: u64,
    },
    /// No communicator of this number has been made.
    #[error("there has been no communicator {comm} at this coordinator; was it made at another one?")]
    UnknownCommunicator {
        /// The number that was named.
        comm: CommId,
    },
    /// All members have left the communicator.
    #[error("communicator {comm} has ended: all its ranks have destroyed it or are gone")]
    Ended {
        /// The number that was named.
        comm: CommId,
    },
    /// The caller is no member of the communicator.
    #[error("communicator {comm} (`{group}`): this connection is no member of it")]
    NotMember {
        /// The number that was named.
        comm: CommId,
        /// Name of its group.
        group: String,
    },
    /// The caller has left the communicator.
    #[error("communicator `{group}`: rank {rank} has destroyed it already; destroy once and use it no more")]
    DoubleDestroy {
        /// Name of the group.
        group: String,
        /// Rank of the caller.
        rank: u32,
    },
    /// The communicator was aborted.
    #[error("communicator `{group}` was aborted by rank {by}: {reason}")]
    Aborted {
        /// Name of the group.
        group: String,
        /// Rank that did it.
        by: u32,
        /// What it said.
        reason: String,
    },
    /// A split cannot become complete, because a member is dead.
    #[error(
        "communicator `{group}` cannot be split: the connection of rank {rank} (process {pid}) has ended; \
         look at its output"
    )]
    PeerGone {
        /// Name of the group.
        group: String,
        /// Rank that is gone.
        rank: u32,
        /// Its process.
        pid: u32,
    },
    /// A split cannot become complete, because a member has left.
    #[error("communicator `{group}` cannot be split: rank {rank} has destroyed it; all ranks must take part")]
    PeerLeft {
        /// Name of the group.
        group: String,
        /// Rank that has left.
        rank: u32,
    },
    /// A rank takes part twice in one split.
    #[error("communicator `{group}`: rank {rank} splits it while it still waits in the split before")]
    SplitTwice {
        /// Name of the group.
        group: String,
        /// Rank of the caller.
        rank: u32,
    },
    /// Some members did not take part in time.
    #[error(
        "split of communicator `{group}`: {} of {nranks} ranks missing after {} (rank {rank} gave up \
         first): {missing}; every rank must call split",
        .missing.len(), seconds(Duration::from_millis(*.waited_ms))
    )]
    SplitTimeout {
        /// Name of the group.
        group: String,
        /// Rank whose deadline passed first.
        rank: u32,
        /// How long that rank waited, in milliseconds.
        waited_ms: u64,
        /// Number of ranks of the communicator.
        nranks: u32,
        /// Ranks that have not taken part.
        missing: RankList,
    },
}
