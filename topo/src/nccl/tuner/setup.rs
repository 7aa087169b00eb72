//! What the tuner is told of a communicator.

use std::fmt;
use std::str::FromStr;

use super::constants::{Constants, HopClass};
use super::environment::Environment;
use super::error::TunerError;
use super::names::Algorithm;
use crate::nccl::CAPABILITIES;
use crate::nccl::graph::{Graph, Graphs, PathType};
use crate::nccl::release::Release;
use crate::nccl::search::Search;
use crate::nccl::system::{CpuKind, Node};

/// Most ranks of a communicator; far above any machine, small enough that no sum overflows.
pub const RANKS_MAX: u32 = 1 << 20;
/// Largest bandwidth of a channel in 10^9 bytes per second.
const BANDWIDTH_MAX: f32 = 10_000.0;
/// Longest latency of a plugin in microseconds.
const LATENCY_MAX_US: f32 = 1e6;

/// The CPU of the nodes, as far as the tuner cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cpu {
    /// Intel, x86.
    Intel,
    /// AMD, x86.
    Amd,
    /// Zhaoxin, x86.
    Zhaoxin,
    /// Any ARM.
    Arm,
    /// POWER.
    Power,
    /// x86 of several vendors; known to NCCL from 2.24.
    Mixed,
}

impl Cpu {
    /// Every CPU.
    pub const ALL: [Self; 6] = [Self::Intel, Self::Amd, Self::Zhaoxin, Self::Arm, Self::Power, Self::Mixed];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Intel => "intel",
            Self::Amd => "amd",
            Self::Zhaoxin => "zhaoxin",
            Self::Arm => "arm",
            Self::Power => "power",
            Self::Mixed => "mixed",
        }
    }

    pub(crate) fn is_x86(self) -> bool {
        !matches!(self, Self::Arm | Self::Power)
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no CPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no CPU; write intel, amd, zhaoxin, arm, power or mixed")]
pub struct UnknownCpu(pub String);

impl FromStr for Cpu {
    type Err = UnknownCpu;

    fn from_str(text: &str) -> Result<Self, UnknownCpu> {
        let found = Self::ALL.into_iter().find(|cpu| cpu.name().eq_ignore_ascii_case(text));
        found.ok_or_else(|| UnknownCpu(text.chars().take(32).collect()))
    }
}

/// A network that reduces (SHARP): what NCCL's CollNet algorithms need. Its numbers are not checked against NCCL.
#[derive(Clone, Debug, PartialEq)]
pub struct CollNet {
    /// Graph of CollNetDirect; without an NVSwitch there is none.
    pub direct: Option<Graph>,
    /// Graph of CollNetChain.
    pub chain: Option<Graph>,
    /// GPUs of a node that talk to the network.
    pub heads: u32,
    /// Whether the plugin can all-gather and reduce-scatter.
    pub gathers: bool,
}

/// A communicator as the tuner sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// NCCL's release.
    pub release: Release,
    /// Ranks, at least 2.
    pub ranks: u32,
    /// Nodes that they are on.
    pub nodes: u32,
    /// Smallest compute capability of the GPUs, 90 for 9.0.
    pub compute_capability: u32,
    /// Largest compute capability of the GPUs.
    pub compute_capability_max: u32,
    /// CPU of the nodes.
    pub cpu: Cpu,
    /// Latency in microseconds that the network's plugin reports; 0 for the built-in ones.
    pub plugin_latency_us: f32,
    /// What the search found.
    pub graphs: Graphs,
    /// The network's reduction, if there is one.
    pub collnet: Option<CollNet>,
    /// Whether NCCL was built with CUDA 11.8, for which it avoids LL128 once.
    pub cuda_11_8: bool,
    /// The variables in effect.
    pub environment: Environment,
}

impl Setup {
    /// Checks that all numbers are in range and fit each other.
    ///
    /// # Errors
    ///
    /// [`TunerError::Setup`] naming the first number that does not fit, and [`TunerError::Release`].
    pub fn check(&self) -> Result<(), TunerError> {
        self.release.check()?;
        let refuse = |what: String| Err(TunerError::Setup(what));
        let Self { ranks, nodes, .. } = *self;
        if !(2..=RANKS_MAX).contains(&ranks) {
            return refuse(format!("{ranks} ranks; the tuner chooses for 2 to {RANKS_MAX}"));
        }
        if nodes == 0 || nodes > ranks {
            return refuse(format!("{nodes} nodes for {ranks} ranks; each node has at least one rank"));
        }
        let (low, high) = (self.compute_capability, self.compute_capability_max);
        let (least, most) = (*CAPABILITIES.start(), *CAPABILITIES.end());
        if !CAPABILITIES.contains(&low) || !(low..=most).contains(&high) {
            return refuse(format!(
                "compute capability {low} to {high}; write {least} to {most}, such as 70 for 7.0, the smaller first"
            ));
        }
        let latency = self.plugin_latency_us;
        if !(0.0..=LATENCY_MAX_US).contains(&latency) {
            return refuse(format!("plugin latency {latency} us; give 0 to {LATENCY_MAX_US}"));
        }
        for algorithm in Algorithm::ALL {
            if let Some(graph) = self.graph(algorithm) {
                self.check_graph(algorithm, graph)?;
            }
        }
        Ok(())
    }

    fn check_graph(&self, algorithm: Algorithm, graph: &Graph) -> Result<(), TunerError> {
        let refuse = |what: String| Err(TunerError::Setup(format!("graph of {algorithm}: {what}")));
        let Graph { channels, bw_intra, bw_inter, .. } = *graph;
        let most = Constants::of(self.release).channels_max;
        if !(1..=most).contains(&channels) {
            return refuse(format!("{channels} channels; NCCL {} has 1 to {most}", self.release));
        }
        if ![bw_intra, bw_inter].iter().all(|bw| (0.0..=BANDWIDTH_MAX).contains(bw)) || bw_intra <= 0.0 {
            return refuse(format!(
                "bw {bw_intra}/{bw_inter}; give 10^9 bytes per second per channel, above 0 up to {BANDWIDTH_MAX}"
            ));
        }
        Ok(())
    }

    /// The communicator of all GPUs of `nodes` nodes like `node`, for which `found` is the search's result.
    pub fn of_search(
        node: &Node,
        nodes: u32,
        release: Release,
        found: &Search,
        environment: Environment,
    ) -> Self {
        let gpus = node.gpus();
        let capabilities = || gpus.iter().map(|gpu| gpu.sm);
        Self {
            release,
            ranks: (gpus.len() as u32).saturating_mul(nodes),
            nodes,
            compute_capability: capabilities().min().unwrap_or(0),
            compute_capability_max: capabilities().max().unwrap_or(0),
            cpu: Self::cpu_of(node),
            plugin_latency_us: found.net_latency_us,
            graphs: found.graphs.clone(),
            collnet: found.collnet.clone(),
            cuda_11_8: false,
            environment,
        }
    }

    /// The CPU of a node as the tuner knows it.
    pub fn cpu_of(node: &Node) -> Cpu {
        match node.cpus.first().map(|cpu| cpu.kind) {
            Some(CpuKind::Amd) => Cpu::Amd,
            Some(CpuKind::Arm) => Cpu::Arm,
            Some(CpuKind::Power) => Cpu::Power,
            Some(CpuKind::Zhaoxin(_)) => Cpu::Zhaoxin,
            Some(CpuKind::Intel(_)) | None => Cpu::Intel,
        }
    }

    /// The graph that an algorithm runs on, if there is one.
    pub fn graph(&self, algorithm: Algorithm) -> Option<&Graph> {
        let collnet = self.collnet.as_ref();
        match algorithm {
            Algorithm::Ring => Some(&self.graphs.ring),
            Algorithm::Tree | Algorithm::Pat => Some(&self.graphs.tree),
            Algorithm::Nvls | Algorithm::NvlsTree => self.graphs.nvls.as_ref(),
            Algorithm::CollNetDirect => collnet?.direct.as_ref(),
            Algorithm::CollNetChain => collnet?.chain.as_ref(),
        }
    }

    /// GPUs per node, a fraction if the nodes are not alike.
    pub fn ranks_per_node(&self) -> f32 {
        self.ranks as f32 / self.nodes as f32
    }

    /// Channels of the communicator: twice those of the graphs and more on fast networks, then what variables ask for.
    pub fn channels(&self) -> u32 {
        let graphs = &self.graphs;
        let most = Constants::of(self.release).channels_max;
        let mut channels = (2 * graphs.ring.channels.min(graphs.tree.channels)).min(most);
        let fast = self.compute_capability >= 90 && self.nodes > 1 && graphs.ring.bw_intra > 45.0;
        if fast && channels < 16 {
            channels = (2 * channels).min(most);
        }
        let asked = self.environment.channels();
        channels.min(asked.1.unwrap_or(most)).max(asked.0.unwrap_or(1)).min(most)
    }

    /// Channels of NVLS and NVLSTree.
    pub fn nvls_channels(&self) -> u32 {
        match (self.compute_capability, self.nodes) {
            (..100, _) => 16,
            (_, 1) => 24,
            _ => 32,
        }
    }

    /// Class of a graph's hops inside a node.
    pub(crate) fn intra_class(graph: &Graph) -> HopClass {
        if graph.type_intra == PathType::Nvl { HopClass::NvLink } else { HopClass::Pci }
    }

    /// Whether the network can take part in reductions of this communicator's nodes.
    pub(crate) fn collnet_reaches_all(&self) -> bool {
        let on = self.environment.collnet_enabled();
        self.collnet.as_ref().is_some_and(|collnet| on && self.ranks_per_node() <= collnet.heads as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nccl::tuner::tests::{Sample, sample};

    #[test]
    fn impossible_numbers_are_refused_by_name() {
        // One number out of range at a time; the message has it.
        let good = sample(Sample::V100x4);
        good.check().unwrap();
        type Break = fn(&mut Setup);
        let broken: [(&str, Break); 8] = [
            ("1 ranks", |setup| setup.ranks = 1),
            ("5 nodes", |setup| setup.nodes = 5),
            ("0 nodes", |setup| setup.nodes = 0),
            ("capability 80 to 70", |setup| setup.compute_capability = 80),
            ("latency NaN", |setup| setup.plugin_latency_us = f32::NAN),
            ("graph of Ring: 0 channels", |setup| setup.graphs.ring.channels = 0),
            ("graph of Tree: bw inf", |setup| setup.graphs.tree.bw_intra = f32::INFINITY),
            ("NCCL 2.17.3", |setup| setup.release.minor = 17),
        ];
        for (text, break_it) in broken {
            let mut setup = good.clone();
            break_it(&mut setup);
            let error = setup.check().map_err(|error| error.to_string());
            assert!(error.as_ref().is_err_and(|error| error.contains(text)), "{text}: {error:?}");
        }
    }

    #[test]
    fn channels_are_doubled_capped_and_padded() {
        // A fast network doubles once more below 16; NCCL_MAX_NCHANNELS caps first, NCCL_MIN_NCHANNELS pads after.
        let mut setup = sample(Sample::H100x16);
        assert_eq!(setup.channels(), 16);
        setup.graphs.ring.channels = 4;
        setup.graphs.tree.channels = 4;
        assert_eq!(setup.channels(), 16);
        setup.graphs.ring.bw_intra = 45.0;
        assert_eq!(setup.channels(), 8);
        for (pairs, expected) in [
            (&[("NCCL_MAX_NCHANNELS", "3")][..], 3),
            (&[("NCCL_MIN_NCHANNELS", "20")], 20),
            (&[("NCCL_MAX_NCHANNELS", "3"), ("NCCL_MIN_NCHANNELS", "5")], 5),
        ] {
            setup.environment = Environment::parse(pairs.iter().copied(), setup.release).unwrap();
            assert_eq!(setup.channels(), expected, "{pairs:?}");
        }
    }
}
