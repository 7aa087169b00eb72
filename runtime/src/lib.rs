//! Collective communication between the ranks of one host.
//!
//! ```text
//!  Communicator / Stream      the calls
//!    plan/       what a call does: primitives per channel, pure logic
//!    executor/   runs them: poll, never block
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

pub mod comm;
pub mod config;
mod error;
mod executor;
mod fail;
mod group;
mod mail;
mod plan;
pub mod report;
mod sched;
pub mod settings;
mod stream;
mod task;
pub mod trace;
mod transport;

pub use comm::Communicator;
pub use config::{Config, Numerics};
pub use coordinator_lite::UniqueId;
pub use error::{Error, ErrorClass, Stage};
pub use group::Group;
pub use plan::{Algorithm, Choice, Kind, NcclCut};
pub use ringccl_reduce as reduce;
pub use ringccl_reduce::{DType, Element, F8E4M3, F8E5M2, ReduceOp, Scalar};
pub use shmring::Protocol;
pub use stream::{Event, Pending, Stream};
