//! A cluster as the rest of the workspace sees it.

use crate::ConfigError;
use crate::links;
use crate::nccl::graph::{Graph, Graphs};
use crate::nccl::release::Release;
use crate::nccl::system;
use crate::nccl::tuner::Cpu;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A machine by its name: one that is known, or one that the file describes.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// The name.
    pub name: String,
    /// What it is made of.
    pub node: system::Node,
}

/// Graphs of a communicator as a log of NCCL prints them.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// Ring, tree, NVLS.
    pub graphs: Graphs,
    /// CollNetDirect.
    pub direct: Option<Graph>,
    /// CollNetChain.
    pub chain: Option<Graph>,
    /// Compute capability of the GPUs, if the file says it.
    pub compute_capability: Option<u32>,
    /// CPU of the nodes, if the file says it.
    pub cpu: Option<Cpu>,
    /// What the network's plugin reports, in us.
    pub plugin_latency_us: f32,
}

/// Which NCCL runs on a cluster, and what it is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Nccl {
    /// The release.
    pub release: Release,
    /// Variables with their values, those that force a choice first.
    pub variables: Vec<(String, String)>,
    /// Whether the network reduces (SHARP).
    pub collnet: bool,
    /// Graphs instead of a search, for communicators of all ranks.
    pub given: Option<Given>,
}

impl Default for Nccl {
    fn default() -> Self {
        Self { release: Release::NEWEST, variables: Vec::new(), collnet: false, given: None }
    }
}

/// One machine of the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) machine: Option<Arc<Machine>>,
    pub(crate) ranks: Vec<u32>,
    pub(crate) profiles: Vec<String>,
    pub(crate) gpus: Vec<u32>,
}

impl Node {
    /// Name of the node in reports, as written in the file.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Label of the machine; nothing connects to it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Global ranks on this node by local rank.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// The machine that the file names; `None` in FakeGPU's files.
    pub fn machine(&self) -> Option<&Arc<Machine>> {
        self.machine.as_ref()
    }

    /// Which GPU of its machine each rank has, by local rank.
    pub fn gpus(&self) -> &[u32] {
        &self.gpus
    }

    /// GPU profiles by local rank, as many as ranks; the name of the machine where the file names that alone.
    pub fn profiles(&self) -> &[String] {
        &self.profiles
    }
}

/// One class of links; all links of a class are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkClass {
    pub(crate) kind: String,
    pub(crate) bandwidth_gbps: f64,
    pub(crate) latency_us: f64,
    pub(crate) oversubscription: f64,
}

impl LinkClass {
    /// The word behind `type`, such as `nvlink`; it has no effect.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Bandwidth of one direction in 10^9 bits per second, above 0.
    pub fn bandwidth_gbps(&self) -> f64 {
        self.bandwidth_gbps
    }

    /// Microseconds added once per transfer, at least 0.
    pub fn latency_us(&self) -> f64 {
        self.latency_us
    }

    /// Number that divides the bandwidth, above 0.
    pub fn oversubscription(&self) -> f64 {
        self.oversubscription
    }
}

/// The two classes of links of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Fabric {
    pub(crate) intra_node: LinkClass,
    pub(crate) inter_node: LinkClass,
    pub(crate) nodes_per_leaf: u32,
    pub(crate) rails: bool,
}

/// Oversubscriptions that the link model takes; FakeGPU's files may say anything above 0.
const OVERSUBSCRIPTION: (f64, f64) = (0.01, 1000.0);

impl Fabric {
    /// The network between nodes as the link model takes it: leaf switches of so many nodes, and the oversubscription
    /// of the links between nodes.
    pub fn network(&self) -> links::Fabric {
        let (least, most) = OVERSUBSCRIPTION;
        links::Fabric {
            nodes_per_leaf: self.nodes_per_leaf,
            oversubscription: self.inter_node.oversubscription.clamp(least, most),
            rails: self.rails,
        }
    }

    /// Links between the GPUs of one node.
    pub fn intra_node(&self) -> &LinkClass {
        &self.intra_node
    }

    /// Links between nodes.
    pub fn inter_node(&self) -> &LinkClass {
        &self.inter_node
    }
}

/// Where a rank lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) node: usize,
    pub(crate) local_rank: u32,
}

/// A valid cluster file.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    pub(crate) path: PathBuf,
    pub(crate) version: u64,
    pub(crate) name: String,
    pub(crate) default_backend: String,
    pub(crate) nccl: Nccl,
    pub(crate) nodes: Vec<Node>,
    pub(crate) fabric: Fabric,
    pub(crate) places: Vec<Place>,
}

impl Cluster {
    /// The file that this cluster was read from, as it was named.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Format version of the file, above 0.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Name of the cluster in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Backend named by the file; shown in reports, without effect.
    pub fn default_backend(&self) -> &str {
        &self.default_backend
    }

    /// Which NCCL is modelled.
    pub fn nccl(&self) -> &Nccl {
        &self.nccl
    }

    /// Nodes in the order of the file.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Links of the cluster.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Number of ranks, at least 1.
    pub fn world_size(&self) -> u32 {
        self.nodes.iter().map(|node| node.ranks.len() as u32).sum()
    }

    /// Compares the world size of a job with this file's, before the job starts anything.
    ///
    /// # Errors
    ///
    /// [`ConfigError::WorldSize`] with both numbers if they differ.
    pub fn check_world_size(&self, ranks: u32) -> Result<(), ConfigError> {
        let described = self.world_size();
        if ranks == described {
            return Ok(());
        }
        Err(ConfigError::WorldSize { path: self.path.clone(), ranks, described })
    }

    /// The node that `rank` lives on.
    ///
    /// # Panics
    ///
    /// If `rank` is not below [`Cluster::world_size`].
    pub fn node_of(&self, rank: u32) -> &Node {
        &self.nodes[self.node_index(rank)]
    }

    /// Position in [`Cluster::nodes`] of the node that `rank` lives on.
    ///
    /// # Panics
    ///
    /// If `rank` is not below [`Cluster::world_size`].
    pub fn node_index(&self, rank: u32) -> usize {
        self.places[rank as usize].node
    }

    /// Position of `rank` among the ranks of its node.
    ///
    /// # Panics
    ///
    /// If `rank` is not below [`Cluster::world_size`].
    pub fn local_rank(&self, rank: u32) -> u32 {
        self.places[rank as usize].local_rank
    }

    /// Profile of the GPU that `rank` has.
    ///
    /// # Panics
    ///
    /// If `rank` is not below [`Cluster::world_size`].
    pub fn profile_of(&self, rank: u32) -> &str {
        &self.node_of(rank).profiles[self.local_rank(rank) as usize]
    }
}
