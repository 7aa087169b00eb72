//! A node as a person describes it, and what must hold for it to be one.

use super::rates;
use crate::nccl::CAPABILITIES;

/// Most GPUs of a node; NCCL itself has room for more, but no node has them.
pub(crate) const GPUS_MAX: usize = 32;
/// Most network ports of a node.
const PORTS_MAX: usize = 64;
/// Most devices of a node: CPUs, switches, GPUs and cards.
const DEVICES_MAX: usize = 256;
/// Deepest nesting of PCIe switches.
const DEPTH_MAX: usize = 8;
/// Most NVLinks between two devices; today's GPUs have 18 in all.
const LINKS_MAX: u32 = 64;
/// Fastest link in 10^9 bytes per second that is believed.
const BANDWIDTH_MAX: f32 = super::rates::SAME_DEVICE;

/// One node: its CPUs with what is plugged into each, and the NVLinks.
///
/// GPUs and ports are numbered in the order in which they stand here.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The CPUs, one for each NUMA node.
    pub cpus: Vec<Cpu>,
    /// NVLinks, each direction of a pair of GPUs by itself.
    pub nvlinks: Vec<NvLink>,
    /// Whether GPUs read each other's memory over PCIe; GeForce cards do not, NVLink always does.
    pub peer_access: bool,
}

/// One NUMA node of CPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Cpu {
    /// Who made it.
    pub kind: CpuKind,
    /// What its PCIe root has.
    pub slots: Vec<Slot>,
}

/// Maker and model of a CPU, as far as they decide speeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuKind {
    /// Intel, with the model number of CPUID (79 Broadwell, 85 Skylake, 106 Ice Lake, 143 Sapphire Rapids).
    Intel(u32),
    /// AMD.
    Amd,
    /// 64-bit ARM.
    Arm,
    /// POWER9.
    Power,
    /// Zhaoxin; true for Yongfeng and later.
    Zhaoxin(bool),
}

/// A device and the PCIe link that leads to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// Bandwidth of the link in 10^9 bytes per second and direction, as NCCL computes it from width and speed.
    pub bandwidth: f32,
    /// What is plugged in.
    pub device: Device,
}

/// What can be plugged into a slot.
#[derive(Clone, Debug, PartialEq)]
pub enum Device {
    /// A PCIe switch with its own slots.
    Switch(Vec<Slot>),
    /// A GPU.
    Gpu(Gpu),
    /// A network card with its ports.
    Card(Vec<Port>),
}

/// A GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Compute capability without the dot: 70, 80, 90, ...
    pub sm: u32,
    /// Whether network cards may reach its memory themselves.
    pub gdr: bool,
}

/// A port of a network card, as the transport reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Port {
    /// Speed in 10^6 bits per second.
    pub mbps: u32,
    /// Latency that the network plugin reports, in microseconds.
    pub latency_us: f32,
    /// Whether it may reach the memory of GPUs itself.
    pub gdr: bool,
    /// What tells cards apart; ports with the same value share the card's bandwidth. `None`: a card of its own.
    pub card: Option<u64>,
}

/// NVLinks from one GPU to one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvLink {
    /// Number of the GPU.
    pub gpu: u32,
    /// Where they lead.
    pub peer: NvPeer,
    /// How many there are.
    pub links: u32,
}

/// The other end of an NVLink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvPeer {
    /// The GPU with this number.
    Gpu(u32),
    /// The NVSwitches, which count as one.
    Switch,
}

/// Why a description is no node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NodeError {
    /// A node without GPUs has nothing to search.
    #[error("the node has no GPU; give it at least one")]
    NoGpu,
    /// A node without CPUs holds nothing.
    #[error("the node has no CPU; list at least one NUMA node")]
    NoCpu,
    /// More of something than a node can have.
    #[error("the node has {found} {what}; at most {limit} are modelled")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A link leads to a GPU that is not there.
    #[error("an NVLink joins GPU {gpu} and GPU {peer}, but the node has {gpus} GPUs; number them from 0")]
    Dangling {
        /// Where the link begins.
        gpu: u32,
        /// Where it ends.
        peer: u32,
        /// GPUs of the node.
        gpus: usize,
    },
    /// A number of NVLinks that no GPU has.
    #[error("GPU {gpu} has {links} NVLinks to one peer; write 1 to {LINKS_MAX}")]
    Links {
        /// The GPU.
        gpu: u32,
        /// The number.
        links: u32,
    },
    /// The two directions of a pair of GPUs differ.
    #[error("GPU {gpu} has {there} NVLinks to GPU {peer}, but {back} lead back; give both the same number")]
    OneWay {
        /// One end.
        gpu: u32,
        /// The other end.
        peer: u32,
        /// Links from one to the other.
        there: u32,
        /// Links back.
        back: u32,
    },
    /// A speed that no link has.
    #[error("a link runs at {0} GB/s; write more than 0 and at most {BANDWIDTH_MAX}")]
    Bandwidth(f32),
    /// A latency that is none.
    #[error("a port has a latency of {0} us; write 0 to 1000000")]
    Latency(f32),
    /// A compute capability that no GPU has.
    #[error("compute capability {0} is not modelled; write 35 to 139, such as 90 for an H100")]
    Sm(u32),
}

impl Node {
    /// The GPUs in the order of their numbers.
    pub fn gpus(&self) -> Vec<Gpu> {
        let mut gpus = Vec::new();
        self.visit(&mut |slot| {
            if let Device::Gpu(gpu) = slot.device {
                gpus.push(gpu);
            }
        });
        gpus
    }

    /// The network ports in the order of their numbers.
    pub fn ports(&self) -> Vec<Port> {
        let mut ports = Vec::new();
        self.visit(&mut |slot| {
            if let Device::Card(all) = &slot.device {
                ports.extend_from_slice(all);
            }
        });
        ports
    }

    /// The same node with those GPUs alone whose numbers are in `numbers`; they are numbered anew, in order.
    pub fn with_gpus(&self, numbers: &[u32]) -> Self {
        fn keep(slots: &[Slot], numbers: &[u32], next: &mut u32) -> Vec<Slot> {
            let mut kept = Vec::new();
            for slot in slots {
                let device = match &slot.device {
                    Device::Switch(below) => Device::Switch(keep(below, numbers, next)),
                    Device::Gpu(_) => {
                        *next += 1;
                        if !numbers.contains(&(*next - 1)) {
                            continue;
                        }
                        slot.device.clone()
                    }
                    Device::Card(_) => slot.device.clone(),
                };
                kept.push(Slot { bandwidth: slot.bandwidth, device });
            }
            kept
        }
        let mut next = 0;
        let cpus =
            self.cpus.iter().map(|cpu| Cpu { kind: cpu.kind, slots: keep(&cpu.slots, numbers, &mut next) });
        let cpus = cpus.collect();
        let mut sorted: Vec<u32> = numbers.iter().copied().filter(|&number| number < next).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let place = |gpu: u32| sorted.binary_search(&gpu).ok().map(|place| place as u32);
        let nvlinks = self.nvlinks.iter().filter_map(|link| {
            let peer = match link.peer {
                NvPeer::Gpu(peer) => NvPeer::Gpu(place(peer)?),
                NvPeer::Switch => NvPeer::Switch,
            };
            Some(NvLink { gpu: place(link.gpu)?, peer, links: link.links })
        });
        let nvlinks = nvlinks.collect();
        Self { cpus, nvlinks, peer_access: self.peer_access }
    }

    /// The same node whose network ports all run at `mbps` 10^6 bits per second.
    pub fn with_port_speed(&self, mbps: u32) -> Self {
        fn walk(slots: &mut [Slot], mbps: u32) {
            for slot in slots {
                match &mut slot.device {
                    Device::Switch(below) => walk(below, mbps),
                    Device::Card(ports) => ports.iter_mut().for_each(|port| port.mbps = mbps),
                    Device::Gpu(_) => {}
                }
            }
        }
        let mut node = self.clone();
        for cpu in &mut node.cpus {
            walk(&mut cpu.slots, mbps);
        }
        node
    }

    /// The bandwidth in 10^9 bytes per second of a PCIe link of generation 1 to 6 with `lanes` lanes, if it exists.
    pub fn pcie(generation: u64, lanes: u64) -> Option<f32> {
        rates::pcie(generation, lanes)
    }

    /// Calls `look` for each slot, those of a switch right after it.
    fn visit(&self, look: &mut dyn FnMut(&Slot)) {
        fn walk(slots: &[Slot], look: &mut dyn FnMut(&Slot)) {
            for slot in slots {
                look(slot);
                if let Device::Switch(below) = &slot.device {
                    walk(below, look);
                }
            }
        }
        for cpu in &self.cpus {
            walk(&cpu.slots, look);
        }
    }

    /// Checks that the node can be searched: bounded, without loose ends, with speeds that exist.
    ///
    /// # Errors
    ///
    /// The first [`NodeError`] that is found.
    pub fn check(&self) -> Result<(), NodeError> {
        if self.cpus.is_empty() {
            return Err(NodeError::NoCpu);
        }
        let limit = |what, found, limit| {
            if found > limit { Err(NodeError::TooMany { what, found, limit }) } else { Ok(()) }
        };
        limit("levels of PCIe switches", self.depth(), DEPTH_MAX)?;
        let mut devices = self.cpus.len();
        self.visit(&mut |_| devices += 1);
        limit("devices", devices, DEVICES_MAX)?;
        let (gpus, ports) = (self.gpus(), self.ports());
        if gpus.is_empty() {
            return Err(NodeError::NoGpu);
        }
        limit("GPUs", gpus.len(), GPUS_MAX)?;
        limit("network ports", ports.len(), PORTS_MAX)?;
        if let Some(gpu) = gpus.iter().find(|gpu| !CAPABILITIES.contains(&gpu.sm)) {
            return Err(NodeError::Sm(gpu.sm));
        }
        if let Some(port) = ports.iter().find(|port| !(0.0..=1e6).contains(&port.latency_us)) {
            return Err(NodeError::Latency(port.latency_us));
        }
        let mut slow = None;
        self.visit(&mut |slot| {
            if !(slot.bandwidth > 0.0 && slot.bandwidth <= BANDWIDTH_MAX) {
                slow.get_or_insert(slot.bandwidth);
            }
        });
        if let Some(bandwidth) = slow {
            return Err(NodeError::Bandwidth(bandwidth));
        }
        self.check_nvlinks(gpus.len())
    }

    fn check_nvlinks(&self, gpus: usize) -> Result<(), NodeError> {
        let limit = gpus * gpus + gpus;
        if self.nvlinks.len() > limit {
            return Err(NodeError::TooMany { what: "NVLink entries", found: self.nvlinks.len(), limit });
        }
        for &NvLink { gpu, peer, links } in &self.nvlinks {
            let other = if let NvPeer::Gpu(other) = peer { other } else { gpu };
            if gpu as usize >= gpus || other as usize >= gpus {
                return Err(NodeError::Dangling { gpu, peer: other, gpus });
            }
            if !(1..=LINKS_MAX).contains(&links) {
                return Err(NodeError::Links { gpu, links });
            }
            let NvPeer::Gpu(other) = peer else { continue };
            let (there, back) = (self.links_between(gpu, other), self.links_between(other, gpu));
            if there != back || gpu == other {
                return Err(NodeError::OneWay { gpu, peer: other, there, back });
            }
        }
        Ok(())
    }

    /// NVLinks straight from one GPU to another.
    pub fn links_between(&self, gpu: u32, other: u32) -> u32 {
        let peer = NvPeer::Gpu(other);
        self.nvlinks.iter().filter(|link| link.gpu == gpu && link.peer == peer).map(|link| link.links).sum()
    }

    fn depth(&self) -> usize {
        fn below(slots: &[Slot], depth: usize) -> usize {
            // Whoever is too deep is known to be so; the recursion ends there.
            if depth > DEPTH_MAX {
                return depth;
            }
            let deeper = slots.iter().filter_map(|slot| match &slot.device {
                Device::Switch(slots) => Some(below(slots, depth + 1)),
                _ => None,
            });
            deeper.max().unwrap_or(depth)
        }
        self.cpus.iter().map(|cpu| below(&cpu.slots, 0)).max().unwrap_or(0)
    }
}
