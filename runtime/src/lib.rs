//! Collective communication between the ranks of one host.
//!
//! ```text
//!  Communicator    every call, blocking
//!  Group           several calls at a time, of one communicator or of many
//!  Stream          calls that run behind the caller's back, in order
//!    plan/       what a call does: primitives per channel, pure logic
//!    executor/   runs them: polls, never blocks
//!    transport/  connections: rings of the shared segment
//!  settings, config           variables, and what they come to
//!  report, trace              what a run leaves behind
//! ```
//!
//! A process per rank, started by `ringccl run -n 2 -- PROGRAM`:
//!
//! ```no_run
//! use ringccl::{Communicator, ReduceOp};
//!
//! # fn main() -> Result<(), ringccl::Error> {
//! let mut comm = Communicator::from_env()?;
//! let mine = vec![comm.rank() as f32; 1000];
//! let mut sum = vec![0.0; 1000];
//! comm.all_reduce(&mine, &mut sum, ReduceOp::Sum)?;
//! comm.finalize()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What to call
//!
//! | to | call |
//! | --- | --- |
//! | join a job | [`Communicator::from_env`]; [`Communicator::init`] with an id of [`comm::Root`]; without blocking [`Communicator::init_nonblocking`] |
//! | have many ranks in one process | [`Communicator::init_all`], then a thread for each rank or a [`Group`] |
//! | do one thing and have its result | the methods of [`Communicator`], `_in_place` where input and output are one, `_raw` for pointers |
//! | overlap it with computing | the same on a [`Stream`]; [`Pending`] has the result, [`Event`]s order streams |
//! | do several things at once | the same on a [`Group`]: it fails as a whole if one call is wrong |
//! | send to one rank | [`Communicator::send`], [`Communicator::recv`], [`Communicator::send_recv`]; with tags [`Communicator::send_tagged`], [`Communicator::recv_tagged`] |
//! | make communicators of parts | [`Communicator::split`], [`Communicator::duplicate`], [`Communicator::shrink`], [`Communicator::grow`] |
//! | have collectives that copy nothing | [`SharedMemory`], [`Communicator::register`] |
//! | end it from another thread | [`comm::AbortHandle`] |
//!
//! Ten programs in the repository's folder `examples/` show each of these. Reductions give the same bits on every rank
//! and every run. Every wait has a deadline ([`Config::timeout`]), and an [`Error`] says which rank is to blame.

pub mod comm;
pub mod config;
mod error;
mod executor;
mod fail;
mod group;
mod mail;
pub mod model;
mod plan;
pub mod report;
pub mod sched;
pub mod settings;
mod stream;
mod task;
pub mod trace;
mod transport;
mod window;

pub use comm::{Communicator, Source};
pub use config::{Config, Numerics};
pub use coordinator_lite::UniqueId;
pub use error::{Error, ErrorClass, Stage};
pub use group::Group;
pub use plan::{Algorithm, Choice, Kind, NcclCut, Tuning, TuningLines, TuningRow, TuningStep};
pub use ringccl_reduce as reduce;
pub use ringccl_reduce::{DType, Element, F8E4M3, F8E5M2, ReduceOp, Scalar};
pub use shmring::Protocol;
pub use stream::{Event, Pending, Stream};
pub use window::{SharedMemory, Window};
