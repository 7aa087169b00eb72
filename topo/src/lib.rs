//! The cluster that a job is meant to run on: nodes, the ranks and GPUs on them, and two classes
//! of links, read from the YAML files that FakeGPU's users have.
//!
//! ```text
//!   Cluster --- nodes[] --- id, host, ranks (global numbers), gpus (a profile per rank)
//!           \-- fabric  --- intra_node, inter_node: bandwidth, latency, oversubscription
//! ```
//!
//! # Invariants
//!
//! - A [`Cluster`] that exists is valid: its ranks are exactly `0 .. world_size`, every node has a
//!   GPU per rank, every number of a link is finite and in range.
//! - Reading files is the only I/O here; nothing knows of rings, sockets or processes.
//!
//! # Example
//!
//! ```
//! let text = "
//! version: 1
//! cluster: {name: lab, default_backend: nccl}
//! nodes:
//!   - {id: n0, host: localhost, ranks: [0, 2], gpus: [{profile: a100}, {profile: a100}]}
//!   - {id: n1, host: localhost, ranks: [1], gpus: [{profile: h100}]}
//! fabric:
//!   intra_node: {type: nvlink, bandwidth_gbps: 300, latency_us: 3}
//!   inter_node: {type: infiniband, bandwidth_gbps: 200, latency_us: 15}
//! ";
//! let cluster = topo::Cluster::parse("lab.yaml", text)?;
//! assert_eq!(cluster.world_size(), 3);
//! assert_eq!((cluster.node_of(2).id(), cluster.local_rank(2)), ("n0", 1));
//! # Ok::<(), topo::ConfigError>(())
//! ```
#![forbid(unsafe_code)]

mod cluster;
mod config;
mod error;
mod lines;
pub mod links;
pub mod nccl;
mod near;
mod profiles;
mod xml;

pub use cluster::{Cluster, Fabric, Given, LinkClass, Machine, Nccl, Node};
pub use error::{ConfigError, Problem};
pub use profiles::PROFILES;
