//! The virtual links of a node and the ways of its channels over them.

use std::fmt;

use super::calibration::{Calibration, Generation, NicKind};
use super::site::Fabric;
use crate::nccl::graph::{Graph, PathType};
use crate::nccl::search::{Channel, Env, Search};
use crate::nccl::system::Port;
use crate::nccl::system::machine::{Kind, LinkKind as Made, Machine};
use crate::nccl::system::routes::Routes;
use crate::nccl::tuner::Setup;

/// What a virtual link is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkKind {
    /// NVLinks of one pair of GPUs, or of a GPU and the NVSwitch.
    NvLink,
    /// PCIe.
    Pcie,
    /// Between sockets.
    Socket,
    /// A network port.
    Nic,
    /// A leaf switch's way to the spine.
    Trunk,
}

impl LinkKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::NvLink => "NVLink",
            Self::Pcie => "PCIe",
            Self::Socket => "socket",
            Self::Nic => "NIC",
            Self::Trunk => "trunk",
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One direction of a link; every node has the same, a trunk belongs to a leaf switch.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualLink {
    /// What it is made of.
    pub kind: LinkKind,
    /// Both ends, such as `gpu0 -> nvswitch`.
    pub name: String,
    /// Bandwidth in 10^9 bytes per second, as NCCL counts it.
    pub bandwidth_gbps: f64,
    /// The part of it that is reached, in 10^9 bytes per second.
    pub effective_gbps: f64,
}

/// An end of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Gpu(u32),
    Port(u32),
    Switch,
}

/// How two GPUs meet, the fastest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meeting {
    NvLink,
    Pcie,
    Host,
}

/// Links of a node, and how a communicator's channels go over them.
#[derive(Clone, Debug)]
pub(super) struct Wiring {
    pub(super) links: Vec<VirtualLink>,
    pub(super) gpus: u32,
    /// The ways of the ring's and the tree's channels.
    pub(super) ring: Vec<Channel>,
    pub(super) tree: Vec<Channel>,
    /// The port that a head of the NVSwitch's channels uses, by GPU.
    pub(super) head_ports: Vec<u32>,
    /// The two directions of the trunk, if nodes have one.
    pub(super) trunk: Option<[usize; 2]>,
    pub(super) has_switch: bool,
    /// What all ports of a node carry together in one direction, in 10^9 bytes per second.
    pub(super) ports_gbps: f64,
    pub(super) ports: u32,
    routes: Ways,
}

#[derive(Clone, Debug)]
enum Ways {
    /// Of a machine that is known, and how each pair of GPUs meets.
    Known(Box<Routes>, Vec<Meeting>),
    /// Of graphs alone: a GPU has one way out and one in, and so has a port.
    Plain(Meeting),
}

impl Wiring {
    /// The links of a machine, and the ways that the search found.
    pub(super) fn of_machine(
        machine: Machine,
        env: &Env,
        found: &Search,
        generation: Generation,
        calibration: &Calibration,
    ) -> Self {
        let routes = Routes::of(machine, env);
        let machine = &routes.machine;
        let names = names(machine);
        let ports: Vec<Port> = (0..machine.ports.len()).map(|port| machine.port(port)).collect();
        let nic = ports.iter().map(nic_kind).max_by_key(|&kind| kind as u8).unwrap_or(NicKind::Rdma);
        let mut links = Vec::with_capacity(machine.links.len() + 2);
        for link in &machine.links {
            let from = machine.links[link.back].to;
            let (kind, part) = match link.kind {
                Made::Nvlink => (LinkKind::NvLink, calibration.nvlink_part[generation as usize]),
                Made::Pcie => (LinkKind::Pcie, calibration.pcie_part),
                Made::Socket => (LinkKind::Socket, calibration.socket_part),
                Made::Wire => (LinkKind::Nic, calibration.nic_part[nic as usize]),
            };
            links.push(VirtualLink {
                kind,
                name: format!("{} -> {}", names[from], names[link.to]),
                bandwidth_gbps: link.bandwidth.into(),
                effective_gbps: f64::from(link.bandwidth) * part,
            });
        }
        let gpus = machine.gpus.len();
        let meet = |a: usize, b: usize| {
            let nvlink = routes
                .paths
                .get(machine.gpus[a], machine.gpus[b])
                .kind
                .within(PathType::Nvb, machine.release);
            match (a == b || nvlink, routes.are_peers(a, b, env)) {
                (true, true) => Meeting::NvLink,
                (_, true) => Meeting::Pcie,
                (_, false) => Meeting::Host,
            }
        };
        let meetings = (0..gpus * gpus).map(|pair| meet(pair / gpus, pair % gpus)).collect();
        let mut wiring = Self {
            links,
            gpus: gpus as u32,
            ring: found.ring.clone(),
            tree: found.tree.clone(),
            head_ports: (0..gpus).map(|gpu| routes.port_for(gpu, 0).unwrap_or(0) as u32).collect(),
            trunk: None,
            has_switch: machine.nvs.is_some(),
            ports_gbps: routes.port_bandwidths().into_iter().map(f64::from).sum::<f64>()
                * calibration.nic_part[nic as usize],
            ports: ports.len() as u32,
            routes: Ways::Known(Box::new(routes), meetings),
        };
        wiring.slow_host_links(calibration);
        wiring
    }

    /// Links over which neighbours meet in memory of the host carry less.
    fn slow_host_links(&mut self, calibration: &Calibration) {
        let Ways::Known(_, meetings) = &self.routes else { return };
        let mut loads = vec![0.0; self.links.len()];
        let ring = self.ring.iter().flat_map(|way| {
            let closing = way.ports.is_none().then(|| way.gpus.first()).flatten();
            way.gpus.iter().zip(way.gpus.iter().skip(1).chain(closing))
        });
        let tree = self.tree.iter().flat_map(|way| {
            let pairs = || way.gpus.iter().zip(way.gpus.iter().skip(1));
            pairs().chain(pairs().map(|(a, b)| (b, a)))
        });
        for (&a, &b) in ring.chain(tree) {
            if meetings.get((a * self.gpus + b) as usize) == Some(&Meeting::Host) {
                self.add(End::Gpu(a), End::Gpu(b), 1.0, &mut loads);
            }
        }
        for (link, load) in self.links.iter_mut().zip(&loads) {
            if *load > 0.0 && link.kind == LinkKind::Pcie {
                link.effective_gbps = link.bandwidth_gbps * calibration.host_part;
            }
        }
    }

    /// The links that graphs tell of, where nothing else is known: as much as the best of them carries.
    pub(super) fn of_graphs(setup: &Setup, calibration: &Calibration) -> Self {
        let graphs = &setup.graphs;
        let all = [Some(&graphs.ring), Some(&graphs.tree), graphs.nvls.as_ref()];
        let most = |pick: fn(&Graph) -> f32| {
            let carried = |graph: &Graph| f64::from(graph.channels as f32 * pick(graph));
            all.into_iter().flatten().map(carried).fold(0.0, f64::max)
        };
        let generation = Generation::of(setup.compute_capability);
        let meeting = match graphs.ring.type_intra {
            PathType::Loc | PathType::Nvl | PathType::Nvb | PathType::C2c => Meeting::NvLink,
            PathType::Pix | PathType::Pxb => Meeting::Pcie,
            _ => Meeting::Host,
        };
        let (kind, part) = match meeting {
            Meeting::NvLink => (LinkKind::NvLink, calibration.nvlink_part[generation as usize]),
            Meeting::Pcie => (LinkKind::Pcie, calibration.pcie_part),
            Meeting::Host => (LinkKind::Pcie, calibration.host_part),
        };
        let nic = if setup.plugin_latency_us > 0.0 { NicKind::Plugin } else { NicKind::Rdma };
        let gpus = (setup.ranks / setup.nodes).max(1);
        let ports = if setup.nodes > 1 { graphs.ring.channels } else { 0 };
        let mut links = Vec::new();
        let mut both = |kind, name: String, bandwidth: f64, part: f64| {
            for way in ["out", "in"] {
                let name = format!("{name} {way}");
                links.push(VirtualLink {
                    kind,
                    name,
                    bandwidth_gbps: bandwidth,
                    effective_gbps: bandwidth * part,
                });
            }
        };
        // What an NVSwitch reduces needs a part more on each link than NCCL's number says.
        let inside = most(|graph| graph.bw_intra);
        for gpu in 0..gpus {
            both(kind, format!("gpu{gpu}"), inside, part);
        }
        // Channels enter and leave by the ports that the ring's bandwidth needs.
        let outside = f64::from(graphs.ring.bw_inter.max(graphs.tree.bw_inter));
        for port in 0..ports {
            both(LinkKind::Nic, format!("port{port}"), outside, calibration.nic_part[nic as usize]);
        }
        let channel = |port: u32| Channel {
            gpus: (0..gpus).map(|gpu| (gpu + port) % gpus).collect(),
            ports: (ports > 0).then_some((port, port)),
        };
        let ways: Vec<Channel> = (0..graphs.ring.channels.max(1)).map(channel).collect();
        Self {
            links,
            gpus,
            ring: ways.clone(),
            tree: ways,
            head_ports: (0..gpus).map(|gpu| gpu % ports.max(1)).collect(),
            trunk: None,
            has_switch: graphs.nvls.is_some(),
            ports_gbps: f64::from(ports) * outside * calibration.nic_part[nic as usize],
            ports,
            routes: Ways::Plain(meeting),
        }
    }

    /// Names the GPUs by their numbers on the whole node, of which the communicator has a part.
    pub(super) fn rename_gpus(&mut self, numbers: &[u32]) {
        for link in &mut self.links {
            let renamed = link.name.split(' ').map(|word| {
                let number = word.strip_prefix("gpu").and_then(|number| number.parse::<usize>().ok());
                match number.and_then(|number| numbers.get(number)) {
                    Some(number) => format!("gpu{number}"),
                    None => word.to_owned(),
                }
            });
            link.name = renamed.collect::<Vec<_>>().join(" ");
        }
    }

    /// Adds the trunk of a leaf switch.
    pub(super) fn add_trunk(&mut self, fabric: &Fabric, nodes: u32) {
        let below = f64::from(fabric.nodes_per_leaf.min(nodes));
        let bandwidth = self.ports_gbps * below / fabric.oversubscription;
        let first = self.links.len();
        for name in ["leaf -> spine", "spine -> leaf"] {
            self.links.push(VirtualLink {
                kind: LinkKind::Trunk,
                name: name.to_owned(),
                bandwidth_gbps: bandwidth,
                effective_gbps: bandwidth,
            });
        }
        self.trunk = Some([first, first + 1]);
    }

    /// How the GPUs of the slowest pair of neighbours meet.
    pub(super) fn slowest_meeting(&self, ways: &[Channel], closed: bool) -> Meeting {
        match &self.routes {
            Ways::Plain(meeting) => *meeting,
            Ways::Known(_, meetings) => {
                let pairs = ways.iter().flat_map(|way| {
                    let next = way.gpus.iter().skip(1).chain(way.gpus.first().filter(|_| closed));
                    way.gpus.iter().zip(next)
                });
                let at = |(&a, &b): (&u32, &u32)| meetings.get((a * self.gpus + b) as usize).copied();
                pairs.filter_map(at).max().unwrap_or(Meeting::NvLink)
            }
        }
    }

    /// Adds `amount` to each link of the way from one end to another.
    pub(super) fn add(&self, from: End, to: End, amount: f64, loads: &mut [f64]) {
        let is_there = |end: End| !matches!(end, End::Port(port) if port >= self.ports);
        if from == to || amount == 0.0 || !is_there(from) || !is_there(to) {
            return;
        }
        match &self.routes {
            Ways::Known(routes, _) => {
                let machine = &routes.machine;
                let device = |end: End| match end {
                    End::Gpu(gpu) => machine.gpus.get(gpu as usize).copied(),
                    End::Port(port) => machine.ports.get(port as usize).copied(),
                    End::Switch => machine.nvs,
                };
                if let Some((from, to)) = device(from).zip(device(to)) {
                    for &link in &routes.paths.get(from, to).links {
                        loads[link] += amount;
                    }
                }
            }
            Ways::Plain(_) => {
                // A GPU's card is beside it: only ways between GPUs use what joins these.
                let port = |port: u32| 2 * (self.gpus + port) as usize;
                match (from, to) {
                    (End::Gpu(_), End::Port(at)) => loads[port(at)] += amount,
                    (End::Port(at), End::Gpu(_)) => loads[port(at) + 1] += amount,
                    _ => {
                        if let End::Gpu(gpu) = from {
                            loads[2 * gpu as usize] += amount;
                        }
                        if let End::Gpu(gpu) = to {
                            loads[2 * gpu as usize + 1] += amount;
                        }
                    }
                }
            }
        }
    }
}

/// What moves the bytes of a port.
fn nic_kind(port: &Port) -> NicKind {
    match (port.latency_us > 0.0, port.gdr) {
        (true, _) => NicKind::Plugin,
        (false, true) => NicKind::Rdma,
        (false, false) => NicKind::Socket,
    }
}

/// A name for each device: its kind and its number among those of its kind.
fn names(machine: &Machine) -> Vec<String> {
    let mut counts = [0usize; 5];
    let name = |kind: &Kind| {
        let (at, word) = match kind {
            Kind::Nvs => return "nvswitch".to_owned(),
            Kind::Cpu(_) => (0, "cpu"),
            Kind::Switch => (1, "switch"),
            Kind::Gpu { .. } => (2, "gpu"),
            Kind::Card => (3, "nic"),
            Kind::Port(_) => (4, "port"),
        };
        counts[at] += 1;
        format!("{word}{}", counts[at] - 1)
    };
    machine.devices.iter().map(name).collect()
}
