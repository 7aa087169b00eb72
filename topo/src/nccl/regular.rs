//! Machines whose GPUs all see each other over NVLink alike, on one node: their graphs have a closed form.
//!
//! A ring takes the fastest channel of which the most fit into a GPU's links; NVLS needs one channel per GPU, and each
//! GPU carries one more than there are. All other machines need the search, or their graphs from a log.

use super::graph::{Graph, Graphs, PathType, Pattern};
use super::release::Release;
use super::tuner::{Cpu, Environment, Setup};

/// A machine by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Name of the profile.
    pub name: &'static str,
    /// GPUs.
    pub gpus: u32,
    /// Compute capability, 90 for 9.0.
    pub compute_capability: u32,
    /// CPU.
    pub cpu: Cpu,
    /// NVLinks of each GPU.
    links: u32,
    /// Whether they lead to an NVSwitch; otherwise to each other GPU as many.
    switched: bool,
}

/// The machines with a closed form.
pub const MACHINES: [Machine; 8] = [
    machine("v100x4-nv2", 4, 70, Cpu::Intel, 6, false),
    machine("dgx-2", 16, 70, Cpu::Intel, 6, true),
    machine("a100x4", 4, 80, Cpu::Amd, 12, true),
    machine("dgx-a100", 8, 80, Cpu::Amd, 12, true),
    machine("h100x4", 4, 90, Cpu::Intel, 18, true),
    machine("dgx-h100", 8, 90, Cpu::Intel, 18, true),
    machine("h800x8", 8, 90, Cpu::Intel, 8, true),
    machine("dgx-b200", 8, 100, Cpu::Intel, 18, true),
];

const fn machine(
    name: &'static str,
    gpus: u32,
    compute_capability: u32,
    cpu: Cpu,
    links: u32,
    switched: bool,
) -> Machine {
    Machine { name, gpus, compute_capability, cpu, links, switched }
}

/// Why there is no closed form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegularError {
    /// No machine has this name.
    #[error(
        "no machine `{name}` with a closed form; those are {known}; give another one's graphs from a log"
    )]
    UnknownMachine {
        /// The name as given, shortened.
        name: String,
        /// Names of the machines.
        known: String,
    },
    /// The closed form holds for one node.
    #[error("{nodes} nodes of `{name}`: the closed form holds for one; give the graphs from a log")]
    Nodes {
        /// The machine.
        name: &'static str,
        /// Nodes asked for.
        nodes: u32,
    },
    /// The release does not know the GPUs.
    #[error("`{name}` needs NCCL {needs} or newer, not {release}")]
    TooOld {
        /// The machine.
        name: &'static str,
        /// First release with a closed form.
        needs: Release,
        /// Release asked for.
        release: Release,
    },
}

impl Machine {
    /// The machine with this name.
    ///
    /// # Errors
    ///
    /// [`RegularError::UnknownMachine`] with all names.
    pub fn find(name: &str) -> Result<Self, RegularError> {
        MACHINES.into_iter().find(|machine| machine.name.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let known = MACHINES.map(|machine| machine.name).join(", ");
            RegularError::UnknownMachine { name: name.chars().take(48).collect(), known }
        })
    }

    /// One node of the machine as the tuner of `release` sees it.
    ///
    /// # Errors
    ///
    /// [`RegularError::Nodes`] for several nodes, [`RegularError::TooOld`] for releases before the GPUs.
    pub fn setup(
        &self,
        nodes: u32,
        environment: Environment,
        release: Release,
    ) -> Result<Setup, RegularError> {
        let Self { name, gpus, compute_capability, cpu, .. } = *self;
        if nodes != 1 {
            return Err(RegularError::Nodes { name, nodes });
        }
        // Before 2.29 trees of these GPUs took another speed than rings.
        let needs = Release::new(2, 29, 1);
        if compute_capability >= 100 && release < needs {
            return Err(RegularError::TooOld { name, needs, release });
        }
        let ring = self.ring(release);
        let tree = Graph { pattern: Pattern::BalancedTree, ..ring.clone() };
        Ok(Setup {
            release,
            ranks: gpus,
            nodes,
            compute_capability,
            compute_capability_max: compute_capability,
            cpu,
            plugin_latency_us: 0.0,
            graphs: Graphs { ring, tree, nvls: self.nvls(release) },
            collnet: None,
            cuda_11_8: false,
            environment,
        })
    }

    /// Bandwidth of a GPU's NVLinks in 10^9 bytes per second.
    fn total(&self, release: Release) -> f32 {
        let link = match self.compute_capability {
            ..90 => 20.0,
            90..100 if release.since(19, 0) => 20.6,
            90..100 => 20.0,
            _ if release.since(28, 0) => 40.1,
            _ => 40.0,
        };
        self.links as f32 * link
    }

    /// Speeds of a channel that the search tries, the fastest first.
    fn speeds(&self) -> &'static [f32] {
        match self.compute_capability {
            ..90 => &[40.0, 30.0, 20.0, 18.0, 15.0, 12.0],
            90..100 => &[60.0, 50.0, 40.0, 30.0, 24.0, 20.0, 15.0, 12.0],
            _ => &[90.0, 80.0, 70.0, 60.0, 50.0, 45.0, 40.0, 30.0],
        }
    }

    /// The ring: the most bandwidth, then twice the channels where they are few and fast.
    fn ring(&self, release: Release) -> Graph {
        let total = self.total(release);
        let pair = if self.switched { total } else { total / (self.gpus - 1) as f32 };
        let fitting = self.speeds().iter().copied().filter(|speed| *speed <= pair);
        let sum = |speed: f32| (total / speed).floor() * speed;
        let (mut speed, mut channels) = (0.0, 0.0);
        for next in fitting {
            if sum(next) > speed * channels {
                (speed, channels) = (next, (total / next).floor());
            }
        }
        let many = self.compute_capability > 80 && speed < 50.0 && channels > 4.0;
        if speed >= 25.0 && !many {
            (speed, channels) = (speed / 2.0, channels * 2.0);
        }
        self.graph(Pattern::Ring, channels as u32, speed, speed, self.switched)
    }

    /// The NVLS graph of GPUs that have it, from 2.19.
    fn nvls(&self, release: Release) -> Option<Graph> {
        if self.compute_capability < 90 || !release.since(19, 0) {
            return None;
        }
        let total = self.total(release);
        let fits = |speed: &f32| speed * (self.gpus + 1) as f32 <= total;
        let intra = self.speeds().iter().copied().find(fits)?;
        let inter = self.speeds().iter().copied().find(|speed| *speed <= 2.0 * intra)?;
        Some(self.graph(Pattern::Nvls, self.gpus, intra, inter, false))
    }

    fn graph(
        &self,
        pattern: Pattern,
        channels: u32,
        bw_intra: f32,
        bw_inter: f32,
        same_channels: bool,
    ) -> Graph {
        Graph {
            pattern,
            channels,
            bw_intra,
            bw_inter,
            type_intra: PathType::Nvl,
            type_inter: PathType::Pix,
            same_channels,
            cross_nic: 0,
        }
    }
}
