//! What ranks and the coordinator say to each other.
//!
//! ```text
//!   rank                              coordinator
//!     |--- HELLO nonce ------------------->|
//!     |<-- CHALLENGE nonce, proof ---------|   the rank checks that the coordinator knows the secret
//!     |--- PROVE proof, INIT group, rank ->|   in one write
//!     |              ...                   |   until all ranks of the group are here
//!     |<-- WELCOME members ----------------|   the session begins
//!     |--- SPLIT colour, key ------------->|   from every member
//!     |<-- SPLIT child's members ----------|
//!     |<-- PEERS GONE ranks ---------------|   at any time
//!     |--- ABORT reason ------------------>|
//!     |<-- ABORTED by, reason -------------|   to the other members
//!     |--- DESTROY ----------------------->|
//!     |<-- DESTROYED ----------------------|
//! ```

use serde::{Deserialize, Serialize};

use crate::proof::{Nonce, Proof};
use crate::{CommId, Hello, Refusal, Welcome};

/// Largest size of the reason of an abort in bytes; longer ones are cut by who sends them.
pub const REASON_BYTES_MAX: usize = 512;

/// What a rank or an operator sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Begins the talk; nothing about the caller is said before the coordinator has proved itself.
    Hello {
        /// The caller's part of what both sides sign.
        nonce: Nonce,
        /// Whether the caller has no secret and wants to be taken by its user id, over a Unix socket.
        same_user: bool,
    },
    /// Shows that the caller knows the secret.
    Prove {
        /// Proof over both nonces.
        proof: Proof,
    },
    /// Joins a communicator that comes to be as soon as all its ranks have sent this.
    Init {
        /// How long the rank waits for the others, in milliseconds.
        wait_ms: u64,
        /// The group and the caller.
        hello: Hello,
    },
    /// Takes part in splitting a communicator; every member must.
    Split {
        /// The communicator to be split.
        comm: CommId,
        /// Members of one colour form a child; none: this rank is in no child.
        colour: Option<u32>,
        /// Order within the child; equal keys keep the parent's order.
        key: i32,
        /// How long the rank waits for the others, in milliseconds.
        wait_ms: u64,
    },
    /// This rank is done with a communicator.
    Destroy {
        /// The communicator.
        comm: CommId,
    },
    /// This rank is out of a communicator without being done with it; its peers are told that it is gone.
    Leave {
        /// The communicator.
        comm: CommId,
    },
    /// This rank ends a communicator for all.
    Abort {
        /// The communicator.
        comm: CommId,
        /// What is said to the other members; at most [`REASON_BYTES_MAX`] bytes.
        reason: String,
    },
    /// Asks for a [`Status`].
    Status,
    /// Ends the coordinator.
    Shutdown,
}

/// What the coordinator sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reply {
    /// Answer to a hello.
    Challenge {
        /// The coordinator's part of what both sides sign.
        nonce: Nonce,
        /// Proof that the coordinator knows the secret; none if the caller was taken by its user id.
        proof: Option<Proof>,
    },
    /// The communicator is complete.
    Welcome(Welcome),
    /// The split is complete.
    Split {
        /// The communicator that was split.
        parent: CommId,
        /// The child that the receiver is in.
        child: Option<Child>,
    },
    /// This rank's destroy was counted.
    Destroyed {
        /// The communicator.
        comm: CommId,
    },
    /// Members whose connections ended without a destroy.
    PeersGone {
        /// The communicator.
        comm: CommId,
        /// Those members, by rank.
        gone: Vec<Gone>,
    },
    /// A member ended the communicator.
    Aborted {
        /// The communicator.
        comm: CommId,
        /// Rank of that member.
        by: u32,
        /// What it said.
        reason: String,
    },
    /// Something that was asked for will not be.
    Refused {
        /// The communicator that was named, if one was.
        comm: Option<CommId>,
        /// Why.
        refusal: Refusal,
    },
    /// Answer to a question for the status.
    Status(Status),
    /// The coordinator ends now.
    Stopping,
}

/// A child communicator as its members see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its members in the order of their new ranks.
    pub welcome: Welcome,
    /// The parent's rank of each member, in the same order.
    pub parent_ranks: Vec<u32>,
}

/// A member whose connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    /// Its rank.
    pub rank: u32,
    /// Its process id, in its own namespace.
    pub pid: u32,
}

/// What a coordinator knows at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of the coordinator's build.
    pub version: String,
    /// Version of the messages.
    pub wire_version: u16,
    /// Where it listens.
    pub endpoint: String,
    /// Its process id.
    pub pid: u32,
    /// Connections that are open.
    pub connections: u64,
    /// Those among them that have proved nothing yet.
    pub unproved: u64,
    /// Groups that wait for ranks, by name; at most [`Status::LISTED_MAX`].
    pub waiting: Vec<WaitingStatus>,
    /// Communicators, by number; at most [`Status::LISTED_MAX`].
    pub communicators: Vec<CommStatus>,
    /// Groups and communicators beyond those listed.
    pub omitted: u64,
}

impl Status {
    /// Largest number of groups, and of communicators, in a status.
    pub const LISTED_MAX: usize = 1000;
}

/// A group that waits for ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingStatus {
    /// Name of the group.
    pub group: String,
    /// Number of its ranks.
    pub nranks: u32,
    /// Those that are here.
    pub here: u32,
}

/// A communicator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommStatus {
    /// Its number.
    pub comm: CommId,
    /// Name of its group.
    pub group: String,
    /// Its job, 16 hex digits.
    pub job: String,
    /// Number of its ranks.
    pub nranks: u32,
    /// Members that are still in it.
    pub active: u32,
    /// Members that have destroyed it.
    pub destroyed: u32,
    /// Members whose connections ended without that.
    pub gone: u32,
    /// Rank that aborted it.
    pub aborted_by: Option<u32>,
    /// Members that wait in a split.
    pub splitting: u32,
}

/// `text` cut to at most [`REASON_BYTES_MAX`] bytes, between characters.
pub(crate) fn cut_reason(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_BYTES_MAX)]
}
