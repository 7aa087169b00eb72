//! How long an operation takes on the links of a cluster: a prediction, which the tuner's number is not.
//!
//! ```text
//!   Node, Search --- wiring.rs ---> virtual links: NVLink, PCIe, sockets, network ports, trunks
//!        \--- flows.rs ---> bytes of each step on each link (between.rs: trees and trunks between nodes)
//!                 \--- model.rs ---> Prediction: start, hops, filling, the slowest link, contention
//!                         \--- pricer.rs: the same for a running job, without allocation
//! ```
//!
//! A virtual link costs a base latency for each step that nothing overlaps, bytes by its effective bandwidth, and a
//! penalty for what else it carries. An operation takes as long as its costliest link, or as its channels: a channel
//! is one block of threads, which moves so many bytes per second and not more, so one channel is slower than twelve.
//!
//! The numbers that no data sheet has are in [`Calibration`], by kind of link and generation of GPU; no machine has
//! numbers of its own. `docs/accuracy.md` compares predictions with published measurements.
//!
//! # Example
//!
//! ```
//! use topo::links::{Calibration, Fabric, Model, Site};
//! use topo::nccl::tuner::{Collective, Environment, Operation};
//! use topo::nccl::{profiles, release::Release};
//!
//! let site = Site { node: profiles::find("dgx-a100")?, nodes: 2, fabric: Fabric::default() };
//! let model = Model::of_site(&site, Release::NEWEST, Environment::default(), Calibration::default())?;
//! let one = model.predict(Operation::new(Collective::AllReduce, 64 << 20))?;
//! assert!(one.total_us > one.tuner_us.into());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod between;
mod calibration;
mod contention;
mod error;
mod exchange;
mod flows;
mod model;
mod places;
mod predict;
mod pricer;
mod site;
mod wiring;

#[cfg(test)]
mod tests;

pub use calibration::{Calibration, Generation, NicKind};
pub use contention::together_us;
pub use error::LinkError;
pub use exchange::Exchange;
pub use model::Model;
pub use predict::{LinkLoad, Prediction, Term, TermKind};
pub use pricer::{Booked, Group, Price, Pricer};
pub use site::{Fabric, Site};
pub use wiring::{LinkKind, VirtualLink};
