//! From the searches of the nodes to the graphs of a communicator: all ranks take the least of what any has.

use super::collnet;
use super::env::Env;
use super::relax;
use super::walk::{Found, Way};
use crate::nccl::graph::{Graph, Graphs, PathType, Pattern};
use crate::nccl::release::{Release, ReleaseError};
use crate::nccl::system::machine::Machine;
use crate::nccl::system::routes::Routes;
use crate::nccl::system::{Node, NodeError};
use crate::nccl::tuner::CollNet;

/// Bandwidth of a ring's channel, in GB/s, above which newer GPUs between nodes need twice the channels.
const TWICE_ABOVE: f32 = 45.0;
/// With so many channels there are enough.
const ENOUGH: u32 = 16;

/// The graphs of a communicator and what else its searches yield.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// The graphs that all ranks agree on.
    pub graphs: Graphs,
    /// Channels of the communicator, after doubling and the environment's limits.
    pub channels: u32,
    /// Latency that the network plugin reports for the ports in use, in microseconds.
    pub net_latency_us: f32,
    /// What the network's reduction is told, where there is one.
    pub collnet: Option<CollNet>,
    /// The ways of the ring's channels through the first node.
    pub ring: Vec<Channel>,
    /// The ways of the tree's channels through the first node.
    pub tree: Vec<Channel>,
    /// The GPUs of the NVLink-SHARP channels on the first node, heads first.
    pub nvls: Vec<Channel>,
}

/// The way of one channel through a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Numbers of the GPUs, in order.
    pub gpus: Vec<u32>,
    /// Ports by which it enters and leaves; `None` on a single node.
    pub ports: Option<(u32, u32)>,
}

/// Why there is no search.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SearchError {
    /// A node that cannot be.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// A release that is not modelled.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// Several nodes without a network between them.
    #[error("{nodes} nodes, but a node has no network port; give it a `nics` entry")]
    NoNetwork {
        /// Nodes of the communicator.
        nodes: u32,
    },
    /// No node at all.
    #[error("a communicator needs at least one node")]
    NoNode,
}

/// The graphs of `nodes` nodes like `node`, one rank per GPU.
///
/// # Errors
///
/// [`SearchError`] if the node cannot be, has no network for several nodes, or the release is not modelled.
pub fn graphs_of(node: &Node, nodes: u32, release: Release, env: &Env) -> Result<Search, SearchError> {
    graphs_of_nodes(&[(node, nodes)], release, env)
}

/// The graphs of a communicator over `nodes`, each with how many there are of it.
///
/// # Errors
///
/// As [`graphs_of`].
pub fn graphs_of_nodes(nodes: &[(&Node, u32)], release: Release, env: &Env) -> Result<Search, SearchError> {
    release.check()?;
    let count = nodes.iter().fold(0u32, |sum, &(_, times)| sum.saturating_add(times));
    let mut found: Vec<OfNode> = Vec::new();
    for &(node, _) in nodes.iter().filter(|&&(_, times)| times > 0) {
        node.check()?;
        if count > 1 && node.ports().is_empty() {
            return Err(SearchError::NoNetwork { nodes: count });
        }
        found.push(OfNode::search(node, count > 1, release, env));
    }
    let mut found = found.into_iter();
    let first = found.next().ok_or(SearchError::NoNode)?;
    let all = found.fold(first, |all, next| all.agree(next, release));
    Ok(all.finish(count, env))
}

/// What the ranks of one node find.
struct OfNode {
    graphs: Graphs,
    latency_us: f32,
    sm: u32,
    /// The most channels that the release has room for.
    room: u32,
    collnet: Option<CollNet>,
    ring: Vec<Channel>,
    tree: Vec<Channel>,
    nvls: Vec<Channel>,
}

impl OfNode {
    fn search(node: &Node, network: bool, release: Release, env: &Env) -> Self {
        let routes = Routes::of(Machine::new(node, release, network), env);
        let room = routes.channels_max();
        let ring = relax::search(&routes, Pattern::Ring, (1, room / 2), env);
        let channels = ring.as_ref().map_or(1, |ring| ring.ways.len());
        let tree = relax::search(&routes, Pattern::BalancedTree, (channels, channels), env);
        // Two GPUs have had nothing to gain from the switch's arithmetic before 2.28.
        let gpus = routes.machine.gpus.len();
        let nvls = env.nvls_enable && (gpus > 2 || (gpus == 2 && release.since(28, 0)));
        let nvls = nvls.then(|| relax::search(&routes, Pattern::Nvls, (1, room), env)).flatten();
        let collnet =
            (env.collnet && network).then(|| collnet::search(&routes, channels, release, env)).flatten();
        let graph = |found: &Option<Found>| found.as_ref().map(graph_of);
        let ways = |found: Option<Found>| found.map_or(Vec::new(), |found| channels_of(&found.ways, network));
        // A ring and a tree are always found, if only in the order of the numbers.
        let missing = || Graph {
            pattern: Pattern::Ring,
            channels: 1,
            bw_intra: 0.1,
            bw_inter: 0.1,
            type_intra: PathType::Sys,
            type_inter: PathType::Sys,
            same_channels: true,
            cross_nic: 0,
        };
        Self {
            graphs: Graphs {
                ring: graph(&ring).unwrap_or_else(missing),
                tree: graph(&tree).unwrap_or_else(missing),
                nvls: graph(&nvls),
            },
            latency_us: ring
                .as_ref()
                .map_or(0.0, |ring| routes.latency_us(ring.ways.iter().flat_map(|way| way.ports))),
            sm: routes.machine.sm_min(),
            room: room as u32,
            collnet,
            ring: ways(ring),
            tree: ways(tree),
            nvls: ways(nvls),
        }
    }

    /// What both nodes can do.
    fn agree(self, other: Self, release: Release) -> Self {
        let graphs = Graphs {
            ring: least(&self.graphs.ring, &other.graphs.ring, release),
            tree: least(&self.graphs.tree, &other.graphs.tree, release),
            nvls: self.graphs.nvls.zip(other.graphs.nvls).map(|(a, b)| least(&a, &b, release)),
        };
        let latency_us = self.latency_us.max(other.latency_us);
        let both = |a: Option<Graph>, b: Option<Graph>| a.zip(b).map(|(a, b)| least(&a, &b, release));
        let collnet = self.collnet.zip(other.collnet).map(|(a, b)| CollNet {
            direct: both(a.direct, b.direct),
            chain: both(a.chain, b.chain),
            heads: a.heads.min(b.heads),
            gathers: a.gathers && b.gathers,
        });
        Self { graphs, collnet, latency_us, sm: self.sm.min(other.sm), ..self }
    }

    fn finish(mut self, nodes: u32, env: &Env) -> Search {
        let Graphs { ring, tree, .. } = &mut self.graphs;
        let least = ring.channels.min(tree.channels);
        (ring.channels, tree.channels) = (least, least);
        let mut channels = (2 * least).min(self.room);
        if self.sm >= 90 && nodes > 1 && ring.bw_intra > TWICE_ABOVE && channels < ENOUGH {
            channels *= 2;
        }
        channels = channels.min(env.channels_max.unwrap_or(self.room));
        channels = channels.max(env.channels_min.unwrap_or(1)).min(self.room);
        Search {
            graphs: self.graphs,
            channels,
            net_latency_us: self.latency_us,
            collnet: self.collnet,
            ring: self.ring,
            tree: self.tree,
            nvls: self.nvls,
        }
    }
}

/// The least of two nodes' graphs, field by field.
fn least(a: &Graph, b: &Graph, release: Release) -> Graph {
    let worse = |a: PathType, b: PathType| if a.within(b, release) { b } else { a };
    Graph {
        // A simple tree costs more than a balanced one; from 2.26 one of them is enough.
        pattern: if release.since(26, 0) && b.pattern.id() > a.pattern.id() { b.pattern } else { a.pattern },
        channels: a.channels.min(b.channels),
        bw_intra: a.bw_intra.min(b.bw_intra),
        bw_inter: a.bw_inter.min(b.bw_inter),
        type_intra: worse(a.type_intra, b.type_intra),
        type_inter: worse(a.type_inter, b.type_inter),
        same_channels: a.same_channels && b.same_channels,
        cross_nic: a.cross_nic.max(b.cross_nic),
    }
}

pub(super) fn graph_of(found: &Found) -> Graph {
    let goal = &found.goal;
    Graph {
        pattern: goal.pattern,
        channels: found.ways.len() as u32,
        bw_intra: goal.bw_intra,
        bw_inter: goal.bw_inter,
        type_intra: goal.type_intra,
        type_inter: goal.type_inter,
        same_channels: goal.same_channels,
        cross_nic: goal.cross_nic,
    }
}

fn channels_of(ways: &[Way], network: bool) -> Vec<Channel> {
    let channel = |way: &Way| Channel {
        gpus: way.gpus.iter().map(|&gpu| gpu as u32).collect(),
        ports: network.then_some((way.ports[0] as u32, way.ports[1] as u32)),
    };
    ways.iter().map(channel).collect()
}
