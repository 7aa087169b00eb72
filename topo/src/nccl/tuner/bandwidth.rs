//! Algorithm bandwidth of a cell of the table: from a channel of the graph through shares and caps.

use std::fmt;

use super::constants::{Constants, NvlsRule, column};
use super::names::{Algorithm, Collective, Protocol};
use super::setup::{Cpu, Setup};
use crate::nccl::graph::{Graph, Pattern};

/// Why a bandwidth changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A channel inside a node.
    IntraChannel,
    /// A channel between nodes.
    InterChannel,
    /// What a GPU sends of its node's part.
    OthersOfNode,
    /// All GPUs of a node at once.
    GpusOfNode,
    /// What NVLS reaches of its links.
    NvlsEfficiency,
    /// One channel's worth is the reduction itself.
    NvlsHeads,
    /// All-reduce uses both directions at once.
    BothWays,
    /// Cap: a channel between nodes.
    InterCap,
    /// Cap: NVLSTree per channel.
    NvlsTreeCap,
    /// The graph's channels.
    Channels,
    /// Part of a ring's bandwidth that LL carries.
    RingLl,
    /// Cap: LL in total.
    LlTotal,
    /// Part of a ring's bandwidth that LL128 carries.
    RingLl128,
    /// Cap: rings with LL128, all channels.
    RingLl128Cap,
    /// What trees reach.
    Tree,
    /// Cap: trees, all channels.
    TreeCap,
    /// Part of a tree's bandwidth that LL carries.
    TreeLl,
    /// Part of a tree's bandwidth that LL128 carries.
    TreeLl128,
    /// Cap: trees with LL128, all channels.
    TreeLl128Cap,
    /// Trees whose links between nodes sit at one GPU.
    SimpleTree,
    /// What PAT reaches.
    Pat,
    /// What CollNetDirect loses to its fan-out.
    CollNetFan,
    /// What CollNetDirect reaches.
    CollNetShare,
    /// From bus to algorithm bandwidth: ranks by steps.
    RingSteps,
    /// From bus to algorithm bandwidth: NVLS.
    NvlsRatio,
    /// From bus to algorithm bandwidth: up and down again.
    Half,
}

impl Rule {
    /// Whether the rule sets an upper limit.
    pub fn is_cap(self) -> bool {
        use Rule::{InterCap, LlTotal, NvlsTreeCap, RingLl128Cap, TreeCap, TreeLl128Cap};
        matches!(self, InterCap | LlTotal | NvlsTreeCap | RingLl128Cap | TreeCap | TreeLl128Cap)
    }

    /// A few words for a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::IntraChannel => "channel inside a node",
            Self::InterChannel => "channel between nodes",
            Self::OthersOfNode => "part of the node's other GPUs",
            Self::GpusOfNode => "GPUs of a node",
            Self::NvlsEfficiency => "NVLS efficiency",
            Self::NvlsHeads => "channels less one",
            Self::BothWays => "both directions",
            Self::InterCap => "channel between nodes",
            Self::NvlsTreeCap => "NVLSTree channel cap",
            Self::Channels => "channels of the graph",
            Self::RingLl => "LL on a ring",
            Self::LlTotal => "LL total cap",
            Self::RingLl128 => "LL128 on a ring",
            Self::RingLl128Cap => "ring LL128 cap",
            Self::Tree => "tree",
            Self::TreeCap => "tree cap",
            Self::TreeLl => "LL on a tree",
            Self::TreeLl128 => "LL128 on a tree",
            Self::TreeLl128Cap => "tree LL128 cap",
            Self::SimpleTree => "simple tree (pattern 3)",
            Self::Pat => "PAT",
            Self::CollNetFan => "CollNet fan-out",
            Self::CollNetShare => "CollNet",
            Self::RingSteps => "ranks by steps",
            Self::NvlsRatio => "NVLS bus to algorithm",
            Self::Half => "bus to algorithm",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One step of a derivation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Why.
    pub rule: Rule,
    /// The first bandwidth, a factor, or a cap.
    pub operand: f64,
    /// Bandwidth after the step in 10^9 bytes per second.
    pub after: f32,
    /// Whether the step changed anything: false for caps that were not reached.
    pub active: bool,
}

/// A bandwidth and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Bandwidth {
    /// Algorithm bandwidth in 10^9 bytes per second; 0 if the cell is impossible.
    pub total: f32,
    /// The steps in order.
    pub steps: Vec<Step>,
}

impl Bandwidth {
    const NOTHING: Self = Self { total: 0.0, steps: Vec::new() };

    fn start(rule: Rule, bandwidth: f32) -> Self {
        let step = Step { rule, operand: bandwidth.into(), after: bandwidth, active: true };
        Self { total: bandwidth, steps: vec![step] }
    }

    fn push(&mut self, rule: Rule, operand: f64, after: f32) {
        self.steps.push(Step { rule, operand, after, active: after != self.total });
        self.total = after;
    }

    /// Multiplies in double and rounds, as NCCL does with literal factors.
    fn scale(&mut self, rule: Rule, factor: f64) {
        self.push(rule, factor, (f64::from(self.total) * factor) as f32);
    }

    /// Multiplies in single precision.
    fn scale_single(&mut self, rule: Rule, factor: f32) {
        self.push(rule, factor.into(), self.total * factor);
    }

    /// Compares in double; rounding later or earlier gives the same, for it keeps the order.
    fn cap(&mut self, rule: Rule, cap: f64) {
        self.push(rule, cap, f64::from(self.total).min(cap) as f32);
    }
}

/// The bandwidth of a cell before anything is switched off.
pub(crate) fn bandwidth(
    setup: &Setup,
    constants: &Constants,
    (collective, algorithm, protocol): (Collective, Algorithm, Protocol),
) -> Bandwidth {
    let Some(graph) = setup.graph(algorithm) else { return Bandwidth::NOTHING };
    let plain_only = !matches!(algorithm, Algorithm::Ring | Algorithm::Tree);
    if plain_only && protocol != Protocol::Simple {
        return Bandwidth::NOTHING;
    }
    let cell = Cell { setup, constants, graph, collective, algorithm };
    let Some(mut bandwidth) = cell.channel() else { return Bandwidth::NOTHING };
    if !cell.is_collnet_gather() {
        bandwidth.scale_single(Rule::Channels, graph.channels as f32);
    }
    cell.correct(&mut bandwidth, protocol);
    cell.convert(&mut bandwidth);
    bandwidth
}

struct Cell<'a> {
    setup: &'a Setup,
    constants: &'a Constants,
    graph: &'a Graph,
    collective: Collective,
    algorithm: Algorithm,
}

impl Cell<'_> {
    fn is_collnet_gather(&self) -> bool {
        self.algorithm == Algorithm::CollNetDirect && self.collective.counts_all_ranks()
    }

    /// Bandwidth of one channel.
    fn channel(&self) -> Option<Bandwidth> {
        let (rule, algorithm) = (self.constants.nvls, self.algorithm);
        if algorithm.is_nvls() && rule == NvlsRule::Efficiency {
            return self.efficient_nvls();
        }
        if algorithm.is_nvls() && rule != NvlsRule::Plain {
            return Some(self.smaller_nvls());
        }
        let inside = self.setup.nodes <= 2 || algorithm.is_collnet();
        Some(if inside {
            Bandwidth::start(Rule::IntraChannel, self.graph.bw_intra)
        } else {
            Bandwidth::start(Rule::InterChannel, self.graph.bw_inter)
        })
    }

    /// NVLS and NVLSTree from 2.19 to 2.27: the slower of the two sides.
    fn smaller_nvls(&self) -> Bandwidth {
        let Graph { bw_intra, bw_inter, .. } = *self.graph;
        let mut bandwidth = Bandwidth::start(Rule::IntraChannel, bw_intra);
        let gathered =
            self.constants.nvls == NvlsRule::SmallerOrGathered && self.collective.counts_all_ranks();
        let inter = match self.algorithm {
            Algorithm::NvlsTree if self.setup.nodes > 2 => bw_inter / 2.0,
            Algorithm::Nvls if gathered => {
                let gpus = self.setup.ranks_per_node();
                bandwidth.push(
                    Rule::OthersOfNode,
                    f64::from((gpus - 1.0) / gpus),
                    bw_intra * (gpus - 1.0) / gpus,
                );
                bw_inter * 0.9
            }
            _ => bw_inter,
        };
        bandwidth.cap(Rule::InterCap, inter.into());
        bandwidth
    }

    /// NVLS and NVLSTree from 2.28; nothing with a single channel.
    fn efficient_nvls(&self) -> Option<Bandwidth> {
        let Graph { bw_intra, bw_inter, channels, .. } = *self.graph;
        if channels < 2 {
            return None;
        }
        let class = self.constants.class(self.setup.compute_capability) as usize;
        let mut bandwidth = Bandwidth::start(Rule::IntraChannel, bw_intra);
        bandwidth.scale_single(Rule::NvlsEfficiency, self.constants.nvls_efficiency[class] as f32);
        let channels = channels as f32;
        let part = f64::from((channels - 1.0) / channels);
        bandwidth.push(Rule::NvlsHeads, part, bandwidth.total * (channels - 1.0) / channels);
        let gpus = self.setup.ranks_per_node();
        match self.collective {
            Collective::AllReduce => bandwidth.scale_single(Rule::BothWays, 2.0),
            _ => bandwidth.scale_single(Rule::OthersOfNode, (gpus - 1.0) / gpus),
        }
        let is_tree = self.algorithm == Algorithm::NvlsTree;
        let twice = is_tree && self.setup.nodes <= 2;
        bandwidth.cap(Rule::InterCap, f64::from(bw_inter * if twice { 2.0 } else { 1.0 }));
        if is_tree {
            let cap = self.constants.nvls_tree[class][column(self.setup.nodes)] as f32;
            bandwidth.cap(Rule::NvlsTreeCap, cap.into());
        }
        Some(bandwidth)
    }

    /// What protocols and algorithms take away.
    fn correct(&self, bandwidth: &mut Bandwidth, protocol: Protocol) {
        match self.algorithm {
            Algorithm::Ring => self.correct_ring(bandwidth, protocol),
            Algorithm::Tree => self.correct_tree(bandwidth, protocol),
            Algorithm::Pat => bandwidth.scale(Rule::Pat, self.constants.pat),
            Algorithm::CollNetDirect => self.correct_collnet(bandwidth),
            Algorithm::CollNetChain | Algorithm::Nvls | Algorithm::NvlsTree => {}
        }
    }

    fn correct_ring(&self, bandwidth: &mut Bandwidth, protocol: Protocol) {
        let reduces = matches!(self.collective, Collective::AllReduce | Collective::Reduce);
        match protocol {
            Protocol::Ll => {
                let reducing = reduces || self.setup.nodes > 1;
                let part = if reducing { self.constants.ring_ll_reducing } else { self.constants.ring_ll };
                bandwidth.scale(Rule::RingLl, part);
                bandwidth.cap(Rule::LlTotal, self.ll_total());
            }
            Protocol::Ll128 => {
                let sparse = self.setup.ranks_per_node() < 2.0;
                bandwidth
                    .scale(Rule::RingLl128, if sparse { self.constants.ring_ll128_sparse } else { 0.92 });
                bandwidth.cap(Rule::RingLl128Cap, self.all_channels(&self.constants.ring_ll128));
            }
            Protocol::Simple => {}
        }
    }

    fn correct_tree(&self, bandwidth: &mut Bandwidth, protocol: Protocol) {
        bandwidth.scale(Rule::Tree, 0.92);
        bandwidth.cap(Rule::TreeCap, self.all_channels(&self.constants.tree));
        match protocol {
            Protocol::Ll => {
                let after = (f64::from(bandwidth.total) / 3.8) as f32;
                bandwidth.push(Rule::TreeLl, 1.0 / 3.8, after);
                bandwidth.cap(Rule::LlTotal, self.ll_total());
            }
            Protocol::Ll128 => {
                let part = if self.setup.nodes == 1 { 7.0 / 9.0 } else { 120.0 / 128.0 };
                bandwidth.scale(Rule::TreeLl128, part);
                bandwidth.cap(Rule::TreeLl128Cap, self.all_channels(&self.constants.tree_ll128));
            }
            Protocol::Simple => {}
        }
        if self.graph.pattern == Pattern::Tree && self.constants.simple_tree != 1.0 {
            bandwidth.scale(Rule::SimpleTree, self.constants.simple_tree);
        }
    }

    /// CollNetDirect; not compared with NCCL's numbers.
    fn correct_collnet(&self, bandwidth: &mut Bandwidth) {
        let gpus = self.setup.ranks_per_node();
        if !self.is_collnet_gather() {
            let fan = gpus / self.graph.channels as f32;
            let fan = fan - (fan - 1.0) / 2.0;
            bandwidth.push(Rule::CollNetFan, f64::from(1.0 / fan), bandwidth.total / fan);
            if self.setup.compute_capability >= 90 {
                bandwidth.scale(Rule::CollNetShare, 0.85);
            }
            return;
        }
        if self.constants.nvls == NvlsRule::SmallerOrGathered || self.constants.nvls == NvlsRule::Efficiency {
            bandwidth.cap(Rule::InterCap, 0.9 * f64::from(self.graph.bw_inter));
            bandwidth.scale_single(Rule::GpusOfNode, gpus);
        } else {
            bandwidth.scale_single(Rule::GpusOfNode, gpus);
            let weight = f64::from(gpus - 1.0) / 7.0;
            bandwidth.scale(Rule::CollNetShare, 0.85 * weight + 0.95 * (1.0 - weight));
        }
    }

    /// From bus to algorithm bandwidth.
    fn convert(&self, bandwidth: &mut Bandwidth) {
        let ranks = self.setup.ranks;
        let steps = self.collective.ring_steps(ranks);
        let by_steps = (f64::from(ranks) / f64::from(steps)) as f32;
        let release = self.setup.release;
        let gathers = self.collective.counts_all_ranks();
        let kept = gathers && (release.since(23, 0) || (release.since(20, 0) && self.is_collnet_gather()));
        match self.algorithm {
            Algorithm::Ring => bandwidth.scale_single(Rule::RingSteps, by_steps),
            _ if kept => {}
            Algorithm::Nvls | Algorithm::NvlsTree if self.constants.nvls == NvlsRule::Efficiency => {
                bandwidth.scale_single(Rule::RingSteps, by_steps);
            }
            Algorithm::NvlsTree if self.constants.nvls == NvlsRule::Plain => {
                let nodes = f64::from(self.setup.nodes);
                bandwidth.scale(Rule::NvlsRatio, 0.70 * nodes / (2.0 * (nodes - 1.0)));
            }
            Algorithm::Nvls | Algorithm::NvlsTree => {
                bandwidth.scale_single(Rule::NvlsRatio, self.constants.nvls_ratio);
            }
            _ => bandwidth.scale_single(Rule::Half, 0.5),
        }
    }

    /// Cap of LL in total: by GPU on one node, by CPU vendor on several.
    fn ll_total(&self) -> f64 {
        let Setup { nodes, cpu, release, compute_capability, .. } = *self.setup;
        let amd = cpu == Cpu::Amd || (cpu == Cpu::Mixed && release.since(24, 0));
        let row = match nodes {
            1 => self.constants.class(compute_capability) as usize,
            _ => usize::from(amd),
        };
        self.constants.ll_total[row][column(nodes)]
    }

    /// A cap per channel, for all channels of the graph.
    fn all_channels(&self, caps: &[[f64; 3]; 4]) -> f64 {
        let class = self.constants.class(self.setup.compute_capability) as usize;
        f64::from(self.graph.channels) * caps[class][column(self.setup.nodes)]
    }
}
