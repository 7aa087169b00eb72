//! From a log of NCCL back to what the tuner was told: the inputs that explain the most lines.
//!
//! ```text
//!   text --- read.rs ---> Log (facts, graphs, claims) --- candidates ---> Tuner --- explains? ---> best Fit
//! ```
//!
//! What the log says is taken; what it does not say is tried: the release, the GPUs' compute capability, the CPU's
//! vendor, the network plugin's latency, ranks and nodes. Without `Pattern` lines the graphs come from known machines
//! with network cards of various speeds.

mod fit;
mod machines;
mod read;

pub use fit::{Fit, Tried, infer};
pub use machines::Origin;
pub use read::{Claim, Line, Log};

#[cfg(test)]
mod tests;
