//! A node as one release of NCCL sees it: devices, and links in the order in which they are looked at.

use super::{CpuKind, Device, Node, NvPeer, Port, Slot, rates};
use crate::nccl::graph::PathType;
use crate::nccl::release::Release;

/// Number of a device in [`Machine::devices`].
pub(crate) type DeviceId = usize;
/// Number of a link in [`Machine::links`].
pub(crate) type LinkId = usize;

/// A device with what the search asks of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Cpu(CpuKind),
    Switch,
    Gpu {
        sm: u32,
        gdr: bool,
    },
    /// All NVSwitches.
    Nvs,
    Card,
    Port(Port),
}

/// What a link is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkKind {
    Nvlink,
    Pcie,
    Socket,
    /// Between a card and its port; no part of a way inside of the node.
    Wire,
}

impl LinkKind {
    /// The type of a path that is this link alone.
    pub(super) fn path(self) -> PathType {
        match self {
            Self::Nvlink => PathType::Nvl,
            Self::Pcie => PathType::Pix,
            Self::Socket => PathType::Sys,
            Self::Wire => PathType::Loc,
        }
    }
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) to: DeviceId,
    pub(crate) kind: LinkKind,
    /// In 10^9 bytes per second.
    pub(crate) bandwidth: f32,
    /// The other direction.
    pub(crate) back: LinkId,
}

/// Devices and links of a node.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) release: Release,
    pub(crate) devices: Vec<Kind>,
    pub(crate) links: Vec<Link>,
    /// The links that leave each device: fast ones first, the one towards the CPU last.
    pub(super) leaving: Vec<Vec<LinkId>>,
    pub(crate) cpus: Vec<DeviceId>,
    pub(crate) gpus: Vec<DeviceId>,
    pub(crate) ports: Vec<DeviceId>,
    pub(crate) nvs: Option<DeviceId>,
    /// Whether GPUs read each other's memory over PCIe.
    pub(crate) peer_access: bool,
}

impl Machine {
    /// The machine that `release` makes of a node that has been checked; without ports for a job on one node.
    pub(crate) fn new(node: &Node, release: Release, with_ports: bool) -> Self {
        let mut machine = Self {
            release,
            devices: Vec::new(),
            links: Vec::new(),
            leaving: Vec::new(),
            cpus: Vec::new(),
            gpus: Vec::new(),
            ports: Vec::new(),
            nvs: None,
            peer_access: node.peer_access,
        };
        for cpu in &node.cpus {
            let id = machine.add(Kind::Cpu(cpu.kind));
            machine.cpus.push(id);
            machine.plug(id, &cpu.slots, with_ports);
        }
        machine.join_nvlinks(node);
        for &from in &machine.cpus.clone() {
            let Kind::Cpu(kind) = machine.devices[from] else { continue };
            let bandwidth = rates::socket(kind, release);
            for &to in machine.cpus.clone().iter().filter(|&&to| to > from) {
                machine.join(from, to, LinkKind::Socket, bandwidth);
            }
        }
        for cpu in machine.cpus.clone() {
            machine.put_up_link_last(cpu, None);
        }
        machine
    }

    pub(crate) fn sm(&self, gpu: DeviceId) -> u32 {
        if let Kind::Gpu { sm, .. } = self.devices[gpu] { sm } else { 0 }
    }

    /// The smallest compute capability.
    pub(crate) fn sm_min(&self) -> u32 {
        self.gpus.iter().map(|&gpu| self.sm(gpu)).min().unwrap_or(0)
    }

    /// The largest of what each GPU can send: over all its NVLinks, or over PCIe.
    pub(crate) fn busiest(&self) -> f32 {
        let of_gpu = |&gpu: &DeviceId| {
            let (mut nvlink, mut pcie) = (0.0f32, 0.0f32);
            for link in self.leaving[gpu].iter().map(|&link| &self.links[link]) {
                match link.kind {
                    LinkKind::Nvlink => nvlink += link.bandwidth,
                    LinkKind::Pcie => pcie = link.bandwidth,
                    _ => {}
                }
            }
            nvlink.max(pcie)
        };
        self.gpus.iter().map(of_gpu).fold(0.0, f32::max)
    }

    pub(crate) fn is_intel(&self, device: DeviceId) -> bool {
        matches!(self.devices[device], Kind::Cpu(CpuKind::Intel(_)))
    }

    pub(crate) fn is_power(&self, device: DeviceId) -> bool {
        matches!(self.devices[device], Kind::Cpu(CpuKind::Power))
    }

    /// The port with this number.
    pub(crate) fn port(&self, number: usize) -> Port {
        match self.devices[self.ports[number]] {
            Kind::Port(port) => port,
            _ => Port { mbps: 0, latency_us: 0.0, gdr: false, card: None },
        }
    }

    /// The PCIe link that leaves a GPU.
    pub(crate) fn pcie_of(&self, gpu: DeviceId) -> Option<LinkId> {
        self.leaving[gpu].iter().copied().find(|&link| self.links[link].kind == LinkKind::Pcie)
    }

    fn add(&mut self, kind: Kind) -> DeviceId {
        self.devices.push(kind);
        self.leaving.push(Vec::new());
        self.devices.len() - 1
    }

    /// Joins two devices in both directions; links of one kind between the same two add up.
    fn join(&mut self, a: DeviceId, b: DeviceId, kind: LinkKind, bandwidth: f32) {
        let known =
            self.leaving[a].iter().copied().find(|&l| self.links[l].to == b && self.links[l].kind == kind);
        let (there, back) = match known {
            Some(there) => (there, self.links[there].back),
            None => {
                let there = self.links.len();
                self.links.push(Link { to: b, kind, bandwidth: 0.0, back: there + 1 });
                self.links.push(Link { to: a, kind, bandwidth: 0.0, back: there });
                self.leaving[a].push(there);
                self.leaving[b].push(there + 1);
                (there, there + 1)
            }
        };
        for (from, link) in [(a, there), (b, back)] {
            self.links[link].bandwidth += bandwidth;
            let links = &self.links;
            // Stable, so that equal links stay in the order in which they came.
            self.leaving[from].sort_by(|&x, &y| links[y].bandwidth.total_cmp(&links[x].bandwidth));
        }
    }

    fn plug(&mut self, above: DeviceId, slots: &[Slot], with_ports: bool) {
        for slot in slots {
            let id = match &slot.device {
                Device::Switch(below) => {
                    let id = self.add(Kind::Switch);
                    self.plug(id, below, with_ports);
                    id
                }
                Device::Gpu(gpu) => {
                    let id = self.add(Kind::Gpu { sm: gpu.sm, gdr: gpu.gdr });
                    self.gpus.push(id);
                    id
                }
                Device::Card(ports) => {
                    let id = self.add(Kind::Card);
                    for port in ports.iter().filter(|_| with_ports) {
                        let end = self.add(Kind::Port(*port));
                        self.ports.push(end);
                        self.join(id, end, LinkKind::Wire, rates::port(port.mbps));
                    }
                    id
                }
            };
            self.join(id, above, LinkKind::Pcie, slot.bandwidth);
        }
    }

    fn join_nvlinks(&mut self, node: &Node) {
        for link in &node.nvlinks {
            let gpu = self.gpus[link.gpu as usize];
            let bandwidth = link.links as f32 * rates::nvlink(self.sm(gpu), self.release);
            match link.peer {
                NvPeer::Switch => {
                    let nvs = self.nvs.unwrap_or_else(|| self.add(Kind::Nvs));
                    self.nvs = Some(nvs);
                    self.join(gpu, nvs, LinkKind::Nvlink, bandwidth);
                }
                // The entry of the other direction says the same again.
                NvPeer::Gpu(peer) if link.gpu < peer => {
                    self.join(gpu, self.gpus[peer as usize], LinkKind::Nvlink, bandwidth);
                }
                NvPeer::Gpu(_) => {}
            }
        }
    }

    /// The link towards the CPU goes last wherever there is one; what lies below it is put in order too.
    fn put_up_link_last(&mut self, device: DeviceId, above: Option<DeviceId>) {
        if let Some(above) = above {
            let up = self.leaving[device].iter().position(|&link| self.links[link].to == above);
            if let Some(up) = up {
                let link = self.leaving[device].remove(up);
                self.leaving[device].push(link);
            }
        }
        for link in self.leaving[device].clone() {
            let Link { to, kind, .. } = self.links[link];
            if kind == LinkKind::Pcie && Some(to) != above {
                self.put_up_link_last(to, Some(device));
            }
        }
    }
}
