//! Graphs that a log may have come from.

use super::read::Log;
use crate::nccl::graph::{Graphs, Pattern};
use crate::nccl::profiles;
use crate::nccl::release::Release;
use crate::nccl::search::{Env, graphs_of};
use crate::nccl::system::{CpuKind, Device, Node, Slot};
use crate::nccl::tuner::Cpu;

/// Speeds of network cards that are tried, in 10^6 bits per second.
pub(super) const SPEEDS: [u32; 8] = [10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000, 800_000];
/// Numbers of nodes that are tried where the log does not say.
const NODES: [u32; 5] = [1, 2, 4, 8, 16];

/// Where graphs come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The log's `Pattern` lines.
    Log,
    /// A known machine, with network cards of this speed if it is not the machine's own.
    Machine {
        /// Name of the profile.
        name: &'static str,
        /// Speed of the cards in 10^6 bits per second, if they were exchanged.
        mbps: Option<u32>,
    },
}

/// Graphs with what comes with them.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) origin: Origin,
    pub(super) graphs: Graphs,
    pub(super) ranks: Vec<(u32, u32)>,
    pub(super) latency_us: f32,
    pub(super) capability: Option<u32>,
    pub(super) cpu: Option<Cpu>,
}

/// Numbers of ranks and nodes that fit what the log says.
fn sizes(log: &Log, gpus: Option<u32>) -> Vec<(u32, u32)> {
    let nodes: Vec<u32> = log.nodes.map_or(NODES.to_vec(), |nodes| vec![nodes]);
    let per_node: Vec<u32> = gpus.map_or(vec![1, 2, 4, 6, 8, 16], |gpus| vec![gpus]);
    let mut sizes: Vec<(u32, u32)> = match log.ranks {
        // Whatever the machine: the log knows its ranks.
        Some(ranks) => nodes.iter().map(|nodes| (ranks, *nodes)).collect(),
        None => {
            nodes.iter().flat_map(|nodes| per_node.iter().map(move |gpus| (gpus * nodes, *nodes))).collect()
        }
    };
    sizes.retain(|(ranks, nodes)| {
        *ranks >= 2
            && nodes <= ranks
            && gpus.is_none_or(|gpus| u64::from(gpus) * u64::from(*nodes) == u64::from(*ranks))
    });
    sizes
}

/// The graphs of the log's own lines, if it has a ring and a tree.
pub(super) fn of_log(log: &Log) -> Option<Candidate> {
    let find =
        |patterns: &[Pattern]| log.graphs.iter().find(|graph| patterns.contains(&graph.pattern)).cloned();
    let ring = find(&[Pattern::Ring])?;
    let tree = find(&[Pattern::BalancedTree, Pattern::SplitTree, Pattern::Tree])?;
    let nvls = find(&[Pattern::Nvls]);
    Some(Candidate {
        origin: Origin::Log,
        graphs: Graphs { ring, tree, nvls },
        ranks: sizes(log, None),
        latency_us: 0.0,
        capability: None,
        cpu: None,
    })
}

/// A known machine, with the numbers of ranks and nodes that fit the log.
pub(super) struct Known {
    name: &'static str,
    node: Node,
    sizes: Vec<(u32, u32)>,
}

/// All known machines that fit the log's ranks and nodes.
pub(super) fn known(log: &Log) -> Vec<Known> {
    let machines = profiles::names().into_iter().filter_map(|name| {
        let node = profiles::find(name).ok()?;
        let sizes = sizes(log, Some(node.gpus().len() as u32));
        (!sizes.is_empty()).then_some(Known { name, node, sizes })
    });
    machines.collect()
}

impl Known {
    /// What the search finds on the machine, with its own cards or with others: one candidate for each size.
    pub(super) fn candidates(&self, mbps: Option<u32>, release: Release) -> impl Iterator<Item = Candidate> {
        let node = mbps.map_or_else(|| self.node.clone(), |mbps| with_cards(&self.node, mbps));
        let name = self.name;
        // On one node no card matters.
        let sizes = self.sizes.clone().into_iter().filter(move |(_, nodes)| *nodes > 1 || mbps.is_none());
        sizes.filter_map(move |size| {
            let search = graphs_of(&node, size.1, release, &Env::default()).ok()?;
            Some(Candidate {
                origin: Origin::Machine { name, mbps },
                graphs: search.graphs,
                ranks: vec![size],
                latency_us: search.net_latency_us,
                capability: node.gpus().iter().map(|gpu| gpu.sm).min(),
                cpu: node.cpus.first().map(|cpu| vendor(cpu.kind)),
            })
        })
    }
}

/// The vendor as the tuner knows it.
fn vendor(kind: CpuKind) -> Cpu {
    match kind {
        CpuKind::Intel(_) => Cpu::Intel,
        CpuKind::Amd => Cpu::Amd,
        CpuKind::Arm => Cpu::Arm,
        CpuKind::Power => Cpu::Power,
        CpuKind::Zhaoxin(_) => Cpu::Zhaoxin,
    }
}

/// The same node with other network cards.
fn with_cards(node: &Node, mbps: u32) -> Node {
    let mut node = node.clone();
    node.cpus.iter_mut().for_each(|cpu| exchange(&mut cpu.slots, mbps));
    node
}

/// Gives every card behind these slots another speed.
pub(super) fn exchange(slots: &mut [Slot], mbps: u32) {
    for slot in slots {
        match &mut slot.device {
            Device::Switch(slots) => exchange(slots, mbps),
            Device::Card(ports) => ports.iter_mut().for_each(|port| port.mbps = mbps),
            Device::Gpu(_) => {}
        }
    }
}
