//! NCCL's tuner: from graphs to a table of latency and bandwidth, to the time of an operation, to the choice.
//!
//! ```text
//!   Setup (graphs, CPU, release, variables)
//!     | latency.rs, bandwidth.rs, rules.rs; the numbers of a release: constants.rs
//!   Tuner (table: a Cell per collective, algorithm, protocol, with its derivation)
//!     | choice.rs                            | flip.rs
//!   Choice (best, runner-up, corrections)   sizes at which it changes
//!     | channels.rs                          | line.rs
//!   Spread (channels, threads)              what NCCL prints
//! ```
//!
//! Numbers have the digits of NCCL's own: single precision where NCCL has it, double where a literal makes it so, and
//! no fused operations. Tables and times are compared with NCCL's for three releases (`topo/tests/nccl_golden.rs`);
//! the other releases follow the list of changes in `constants.rs`. CollNet's numbers are not compared with anything.
//!
//! A time is what NCCL *chooses by*. It is no prediction of how long an operation takes.

mod bandwidth;
mod channels;
mod choice;
mod constants;
mod environment;
mod error;
mod flip;
mod latency;
mod line;
mod names;
mod rules;
mod setup;
mod table;

pub use bandwidth::{Bandwidth, Rule, Step};
pub use channels::Spread;
pub use choice::{Choice, Correction, Estimate, Operation};
pub use constants::{GpuClass, HopClass};
pub use environment::{Environment, Permission};
pub use error::TunerError;
pub use flip::Flip;
pub use latency::{Latency, Part, Term};
pub use names::{Algorithm, Collective, Protocol, UnknownCollective};
pub use rules::Off;
pub use setup::{CollNet, Cpu, RANKS_MAX, Setup, UnknownCpu};
pub use table::{Cell, Tuner};

#[cfg(test)]
mod tests;
