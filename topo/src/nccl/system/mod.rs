//! What stands in a node: CPUs, PCIe switches, GPUs, NVLinks and network cards.
//!
//! ```text
//!   YAML --- read.rs ----\
//!                         +--> Node --- machine.rs ---> devices and links, with the speeds of a release (rates.rs)
//!   XML --- import.rs ---/      |                       --- paths.rs ---> the best path between any two
//!                               \--- write.rs           --- routes.rs ---> the same after P2P, RDMA and PXN
//! ```
//!
//! A [`Node`] is what a person describes; a machine is what one release of NCCL makes of it.

mod import;
pub(crate) mod machine;
mod node;
pub(super) mod paths;
mod rates;
mod read;
pub(crate) mod routes;
mod write;

#[cfg(test)]
mod tests;

pub use import::{Imported, import, import_file};
pub(super) use node::GPUS_MAX;
pub use node::{Cpu, CpuKind, Device, Gpu, Node, NodeError, NvLink, NvPeer, Port, Slot};
pub(super) use read::is_capability;
pub(crate) use read::read_all;
pub use read::{load_nodes, parse_nodes};
pub use write::to_yaml;
