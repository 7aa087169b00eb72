//! NCCL's graph search: which rings and trees a node's links allow, and how fast.
//!
//! ```text
//!   Node --- system/ ---> routes --- relax.rs: what to demand --- walk.rs: as many channels as fit ---> Search
//!                     \- speeds.rs                   \- next.rs: in which order; book.rs: what is left
//! ```
//!
//! `habits.rs` has what releases do differently. The search is the real one, with its order and its limits on steps:
//! no result is written down here.

mod agree;
mod book;
mod collnet;
mod env;
mod habits;
mod next;
mod relax;
mod speeds;
mod walk;

#[cfg(test)]
mod tests;

pub use agree::{Channel, Search, SearchError, graphs_of, graphs_of_nodes};
pub use env::{Env, EnvError};
