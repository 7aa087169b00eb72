//! Rendezvous of the ranks of a job over TCP.
//!
//! A [`Server`] waits, on a thread of its own, until every rank of a group has said hello, then
//! tells each of them who the others are. Nothing that runs afterwards depends on it.
//!
//! ```text
//!   rank 0        rank 1        server
//!     |--- Hello ------------------>|   who I am, which group, how long I wait, the secret
//!     |             |--- Hello ---->|   the last rank of the group
//!     |<-- Welcome -----------------|   the job's number and every member in rank order
//!     |             |<-- Welcome ---|
//! ```
//!
//! Instead of a welcome a rank may get a [`Refusal`]: a rank taken twice, sizes that differ, a
//! rank that died while the others waited, or the list of the ranks that never came.
//!
//! # Invariants
//!
//! - [`state`] does no I/O and reads no clock: everything it needs is an argument.
//! - [`wire`] never allocates more than the stated bound, whatever a peer claims.
//! - A peer that has not proved that it knows the secret cannot touch a group.
//!
//! # Example
//!
//! ```
//! use coordinator_lite::{Hello, Member, Secret, Server, join};
//! use std::time::Duration;
//!
//! let server = Server::bind(([127, 0, 0, 1], 0).into(), Secret::random()?)?;
//! let id = server.unique_id();
//! let hello = Hello { group: "world".into(), rank: 0, nranks: 1, member: Member::current("node0", 0)? };
//! let welcome = join(id.addr(), id.secret(), hello, Duration::from_secs(5))?;
//! assert_eq!(welcome.members.len(), 1);
//! # Ok::<(), coordinator_lite::Error>(())
//! ```
#![forbid(unsafe_code)]

mod client;
mod error;
mod member;
mod server;
pub mod state;
mod unique_id;
pub mod wire;

pub use client::join;
pub use error::{Error, RankList, Refusal};
pub use member::{Hello, Member, Welcome};
pub use server::Server;
pub use unique_id::{Secret, UniqueId};
