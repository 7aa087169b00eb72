//! Rendezvous, liveness and abort: how the ranks of a job find each other and hear of each other's end.
//!
//! A [`Coordinator`] waits, on a thread of its own, until every rank of a group has come, tells each of them who
//! the others are, and stays connected with them: a [`Session`] hears when a peer's connection ends or a peer
//! aborts, and splits its communicator. No operation goes through the coordinator, and nothing that runs needs it.
//!
//! ```text
//!   rank 0        rank 1        coordinator, on unix:PATH or tcp:HOST:PORT
//!     |--- HELLO nonce ------------>|
//!     |<-- CHALLENGE nonce, proof --|   rank 0 sees that the coordinator knows the secret
//!     |--- PROVE proof, INIT ------>|   and shows that it does; which group, which rank, how long it waits
//!     |             |--- ... ------>|   the last rank of the group
//!     |<-- WELCOME -----------------|   the job's number and every member in rank order
//!     |             |<-- WELCOME ---|
//!     |--- SPLIT colour, key ------>|
//!     |             |--- SPLIT ---->|   the last member
//!     |<-- SPLIT child -------------|   to each member: who is in the child with it, in which order
//!     |             |<-- SPLIT -----|
//!     |             x  (killed)     |
//!     |<-- PEERS GONE rank 1 -------|   at once
//!     |--- DESTROY ---------------->|   rank 0 is done; its end is no news
//! ```
//!
//! Instead of a welcome a rank may get a [`Refusal`]: a rank taken twice, sizes that differ, a
//! rank that died while the others waited, or the list of the ranks that never came.
//! `docs/coordinator.md` has all messages, and what each failure gives.
//!
//! # Invariants
//!
//! - [`state`] does no I/O and reads no clock: everything it needs is an argument.
//! - [`wire`] never allocates more than the stated bound, whatever a peer claims.
//! - A peer that has not proved that it knows the secret cannot touch a group, and the secret itself never
//!   travels, not even to an impostor.
//! - Connections that have proved nothing are bounded in number, bytes and time; those that have are never given
//!   up for them.
//!
//! # Example
//!
//! ```
//! use coordinator_lite::{Coordinator, Deadlines, Hello, Member, Secret, Session};
//! use std::time::Duration;
//!
//! let secret = Secret::random()?;
//! let coordinator = Coordinator::open(&"tcp:127.0.0.1:0".parse()?, secret.clone())?;
//! let hello = Hello { group: "world".into(), rank: 0, nranks: 1, member: Member::current("node0", 0)? };
//! let deadlines = Deadlines { connect: Duration::from_secs(5), join: Duration::from_secs(5) };
//! let (session, welcome) = Session::join(coordinator.endpoint(), &secret, hello, deadlines)?;
//! assert_eq!(welcome.members.len(), 1);
//! assert!(session.poll().is_empty());
//! session.destroy();
//! # Ok::<(), coordinator_lite::Error>(())
//! ```
#![forbid(unsafe_code)]

mod cancel;
mod client;
mod endpoint;
mod error;
mod listener;
mod member;
pub mod messages;
mod proof;
mod ranks;
mod refusal;
mod server;
mod session;
pub mod state;
mod stream;
mod unique_id;
pub mod wire;

pub use cancel::Cancel;
pub use client::{Key, join, ping, shutdown, status};
pub use endpoint::{Endpoint, SOCKET_PATH_BYTES_MAX};
pub use error::Error;
pub use member::{CommId, Hello, Member, Welcome};
pub use proof::{Nonce, Proof};
pub use ranks::RankList;
pub use refusal::Refusal;
pub use server::{Access, Coordinator, Server};
pub use session::{Deadlines, Notice, Session};
pub use unique_id::{Secret, UniqueId};
