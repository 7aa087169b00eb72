//! What NCCL would do on a cluster: the graphs that its search finds and the choice that its tuner makes.
//!
//! ```text
//!   node description --- system/, search/ ---> Graphs --- tuner/ ---> latency, bandwidth ---> choice for a size
//! ```
//!
//! Each layer can be used alone: [`graph::Graphs`] may come from a search or from the lines of a log.

use std::ops::RangeInclusive;

/// Compute capabilities that are modelled, without the dot: from the oldest GPU that a modelled release runs on to
/// some that are yet to come.
pub const CAPABILITIES: RangeInclusive<u32> = 35..=139;

pub mod graph;
pub mod graph_file;
pub mod graph_xml;
pub mod infer;
pub mod log;
pub mod profiles;
pub mod release;
pub mod search;
pub mod system;
pub mod tuner;
