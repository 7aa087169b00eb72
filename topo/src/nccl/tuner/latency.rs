//! Latency of a cell of the table: a base and the hops that nothing overlaps.

use std::fmt;

use super::constants::{Constants, HopClass, NvlsRule};
use super::names::{Algorithm, Collective, Protocol};
use super::setup::{Cpu, Setup};
use crate::nccl::graph::Graph;

/// What takes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Starting the algorithm with the protocol.
    Base,
    /// A hop inside a node.
    IntraHop(HopClass),
    /// Launching a step, where that takes longer than the hop.
    NetworkOverhead,
    /// A hop between nodes.
    InterHop,
    /// The network plugin's latency.
    PluginLatency,
    /// Handing over to another GPU of the node.
    LocalCopy,
    /// Work per rank.
    PerRank,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Base => "base",
            Self::IntraHop(HopClass::NvLink) => "hops over NVLink",
            Self::IntraHop(HopClass::Pci) => "hops over PCIe",
            Self::IntraHop(HopClass::Net) => "hops over the network",
            Self::NetworkOverhead => "steps at the network overhead",
            Self::InterHop => "hops between nodes",
            Self::PluginLatency => "latencies of the plugin",
            Self::LocalCopy => "copies to GPUs of the node",
            Self::PerRank => "ranks",
        })
    }
}

/// A part of a latency: `count` times `each` microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// What takes time.
    pub part: Part,
    /// How often.
    pub count: f64,
    /// Microseconds each time.
    pub each: f64,
}

/// A latency and its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// Microseconds, rounded as NCCL does.
    pub total: f32,
    /// The parts; their sum differs from the total by rounding alone.
    pub terms: Vec<Term>,
}

/// The latency of a cell.
pub(crate) fn latency(
    setup: &Setup,
    constants: &Constants,
    graph: &Graph,
    (collective, algorithm, protocol): (Collective, Algorithm, Protocol),
) -> Latency {
    let (a, p) = (algorithm.id(), protocol.id());
    let intra_class = Setup::intra_class(graph);
    let plugin = setup.plugin_latency_us;
    let sparse = constants.sparse_takes_tree_hop && setup.ranks_per_node() == 1.0;
    let row = if sparse { Algorithm::Tree.id() } else { a };
    let net_hop = constants.hop_latency(HopClass::Net, row, p);
    let simple = protocol == Protocol::Simple;
    // Simple waits for the network once more, to flush what a card has written.
    let inter = if simple { net_hop + plugin + plugin } else { net_hop + plugin };
    let cell = Cell {
        setup,
        constants,
        collective,
        protocol,
        same_channels: graph.same_channels,
        intra_class,
        intra: constants.hop_latency(intra_class, a, p),
        inter,
        net_hop,
        plugin: if simple { 2.0 * f64::from(plugin) } else { plugin.into() },
    };
    let base = constants.base[a][p];
    match algorithm {
        Algorithm::Ring if matches!(collective, Collective::Broadcast | Collective::Reduce) => {
            cell.chain(base)
        }
        Algorithm::Ring => cell.ring(base),
        Algorithm::Tree => cell.tree(base),
        Algorithm::Nvls | Algorithm::NvlsTree if constants.nvls == NvlsRule::Plain => {
            cell.first_nvls(base, algorithm)
        }
        Algorithm::Nvls => cell.sum(0.0, &[(1, cell.intra)], u32::from(setup.nodes > 1)),
        Algorithm::NvlsTree => cell.sum(0.0, &[(1, cell.intra)], 2 * setup.nodes.ilog2()),
        Algorithm::Pat => cell.pat(base),
        Algorithm::CollNetDirect => cell.collnet_direct(base),
        Algorithm::CollNetChain => {
            let hops = 2 * (cell.local_ranks() - 1);
            cell.sum(base, &[(hops, cell.intra)], 1)
        }
    }
}

struct Cell<'a> {
    setup: &'a Setup,
    constants: &'a Constants,
    collective: Collective,
    protocol: Protocol,
    same_channels: bool,
    intra_class: HopClass,
    /// Hop inside a node.
    intra: f32,
    /// Hop between nodes with all that belongs to it.
    inter: f32,
    /// The hop between nodes alone.
    net_hop: f32,
    /// The plugin's part of `inter`.
    plugin: f64,
}

impl Cell<'_> {
    fn local_ranks(&self) -> u32 {
        self.setup.ranks / self.setup.nodes
    }

    /// The terms of `count` hops between nodes.
    fn between(&self, count: f64, terms: &mut Vec<Term>) {
        if count > 0.0 {
            terms.push(Term { part: Part::InterHop, count, each: self.net_hop.into() });
            if self.plugin > 0.0 {
                terms.push(Term { part: Part::PluginLatency, count, each: self.plugin });
            }
        }
    }

    fn inside(&self, count: u32, each: f32, terms: &mut Vec<Term>) {
        if count > 0 {
            terms.push(Term {
                part: Part::IntraHop(self.intra_class),
                count: count.into(),
                each: each.into(),
            });
        }
    }

    fn base(base: f32) -> Vec<Term> {
        let term = Term { part: Part::Base, count: 1.0, each: base.into() };
        if base > 0.0 { vec![term] } else { Vec::new() }
    }

    /// Base, hops inside a node, then hops between nodes, added one after the other.
    fn sum(&self, base: f32, inside: &[(u32, f32)], between: u32) -> Latency {
        let mut terms = Self::base(base);
        let mut total = base;
        for &(count, each) in inside {
            self.inside(count, each, &mut terms);
            total += count as f32 * each;
        }
        self.between(between.into(), &mut terms);
        if between > 0 {
            total += between as f32 * self.inter;
        }
        Latency { total, terms }
    }

    /// Broadcast and reduce: one hop if all channels have the same order, otherwise all of them.
    fn chain(&self, base: f32) -> Latency {
        let class = if self.setup.nodes == 1 { self.intra_class } else { HopClass::Net };
        let whole = !self.same_channels;
        let row = if whole && self.protocol == Protocol::Simple { Algorithm::Tree } else { Algorithm::Ring };
        let each = self.constants.hop_latency(class, row.id(), self.protocol.id());
        let count = if whole { self.collective.ring_steps(self.setup.ranks) } else { 1 };
        let mut terms = Self::base(base);
        terms.push(Term { part: Part::IntraHop(class), count: count.into(), each: each.into() });
        Latency { total: base + count as f32 * each, terms }
    }

    fn ring(&self, base: f32) -> Latency {
        let Setup { ranks, nodes, .. } = *self.setup;
        let steps = self.collective.ring_steps(ranks);
        let between = match self.collective {
            _ if nodes == 1 => 0,
            Collective::AllReduce => 2 * nodes - self.constants.inter_steps_less,
            _ => nodes - 1,
        };
        let overhead = self.network_overhead();
        let each = self.intra.max(overhead);
        // On one GPU per node, up to 2.22, there are more steps between nodes than steps.
        let inside = steps as f32 - between as f32;
        let part =
            if overhead > self.intra { Part::NetworkOverhead } else { Part::IntraHop(self.intra_class) };
        let mut terms = Self::base(base);
        if inside != 0.0 {
            terms.push(Term { part, count: inside.into(), each: each.into() });
        }
        self.between(between.into(), &mut terms);
        Latency { total: base + (inside * each + between as f32 * self.inter), terms }
    }

    /// Microseconds that launching a step takes on several nodes.
    fn network_overhead(&self) -> f32 {
        if self.setup.nodes == 1 {
            return 0.0;
        }
        let each = match self.setup.environment.net_overhead_ns() {
            Some(ns) => (ns as f64 * 0.001) as f32,
            None if self.setup.cpu == Cpu::Amd => 2.0,
            None => 1.0,
        };
        if self.protocol == Protocol::Simple { 3.0 * each } else { each }
    }

    fn tree(&self, base: f32) -> Latency {
        let (inside, between) = (self.local_ranks() - 1, self.setup.nodes.ilog2());
        let mut terms = Self::base(base);
        self.inside(2 * inside, self.intra, &mut terms);
        self.between(f64::from(2 * between), &mut terms);
        let way = inside as f32 * self.intra + between as f32 * self.inter;
        Latency { total: base + 2.0 * way, terms }
    }

    /// 2.18: the hops between nodes are bare.
    fn first_nvls(&self, base: f32, algorithm: Algorithm) -> Latency {
        let between = if algorithm == Algorithm::Nvls {
            u32::from(self.setup.nodes > 1)
        } else {
            2 * (self.setup.nodes - 1)
        };
        let mut terms = Self::base(base);
        if between > 0 {
            terms.push(Term { part: Part::InterHop, count: between.into(), each: self.net_hop.into() });
        }
        Latency { total: base + between as f32 * self.net_hop, terms }
    }

    fn pat(&self, base: f32) -> Latency {
        let levels = f64::from(self.setup.nodes.ilog2());
        let per_rank = 2.8 * f64::from(self.setup.ranks);
        let mut terms = Self::base(base);
        // Levels overlap: each costs a part of its hop.
        self.between(levels / 3.5, &mut terms);
        terms.push(Term { part: Part::PerRank, count: self.setup.ranks.into(), each: 2.8 });
        let more = levels * (f64::from(self.inter) / 3.5) + per_rank;
        Latency { total: (f64::from(base) + more) as f32, terms }
    }

    /// Not compared with NCCL's numbers.
    fn collnet_direct(&self, base: f32) -> Latency {
        let others = self.setup.ranks_per_node() - 1.0;
        let once = others.min(1.0);
        let copy = self.constants.collnet_per_gpu;
        let mut terms = Self::base(base);
        if once > 0.0 {
            let part = Part::IntraHop(self.intra_class);
            terms.push(Term { part, count: (2.0 * once).into(), each: self.intra.into() });
            terms.push(Term { part: Part::LocalCopy, count: (2.0 * others).into(), each: copy.into() });
        }
        self.between(1.0, &mut terms);
        Latency { total: base + 2.0 * (once * self.intra + others * copy) + self.inter, terms }
    }
}
