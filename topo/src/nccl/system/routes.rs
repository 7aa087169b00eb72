//! Detours: where GPUs or cards may not reach each other, and where a neighbour is a better way to the network.

use super::machine::{DeviceId, Kind, Machine};
use super::paths::{Answer, Path, Paths, worse};
use super::{CpuKind, rates};
use crate::nccl::graph::PathType;
use crate::nccl::search::Env;

/// Most channels a communicator can have up to 2.24, and from 2.25.
const CHANNELS_MAX: (usize, usize) = (32, 64);

/// A machine with the paths that its communicators use.
#[derive(Clone, Debug)]
pub(crate) struct Routes {
    pub(crate) machine: Machine,
    pub(crate) paths: Paths,
    /// For each port the GPU next to it that uses it.
    near: Vec<Option<usize>>,
    /// For each port those that share its bandwidth.
    sharing: Vec<Vec<usize>>,
    /// Types that paths inside of the node have, and paths to ports.
    used: (Vec<PathType>, Vec<PathType>),
    /// Whether any leg costs more than what goes over it, and whether any is answered.
    pub(crate) costs_more: bool,
    pub(crate) answers: bool,
}

impl Routes {
    /// Paths, and the detours that the environment asks for.
    pub(crate) fn of(machine: Machine, env: &Env) -> Self {
        let paths = Paths::of(&machine, !env.nvb_disable);
        let mut routes = Self {
            machine,
            paths,
            near: Vec::new(),
            sharing: Vec::new(),
            used: (Vec::new(), Vec::new()),
            costs_more: false,
            answers: false,
        };
        for at in 0..routes.machine.gpus.len() {
            routes.avoid_peer_access(at, env);
        }
        for port in 0..routes.machine.ports.len() {
            for gpu in 0..routes.machine.gpus.len() {
                routes.reach_port(port, gpu, env);
            }
        }
        routes.paths.weigh(&routes.machine);
        routes.costs_more = routes.paths.legs().any(|leg| leg.costs_more);
        routes.answers = routes.paths.legs().any(|leg| leg.answer != Answer::None);
        routes.used = routes.used_types();
        let ports = 0..routes.machine.ports.len();
        let sharing = |port| ports.clone().filter(|&other| routes.same_port(port, other)).collect();
        routes.sharing = ports.clone().map(sharing).collect();
        routes.near = (0..routes.machine.ports.len()).map(|port| routes.user_of(port)).collect();
        routes
    }

    /// Most channels that the release has room for.
    pub(crate) fn channels_max(&self) -> usize {
        if self.machine.release.since(25, 0) { CHANNELS_MAX.1 } else { CHANNELS_MAX.0 }
    }

    /// Sends what comes from GPUs without peer access through the CPU next to the GPU with number `at`.
    fn avoid_peer_access(&mut self, at: usize, env: &Env) {
        let gpu = self.machine.gpus[at];
        for peer in self.machine.gpus.clone() {
            let kind = self.paths.get(peer, gpu).kind;
            if peer != gpu && !kind.within(self.peer_level(env), self.machine.release) {
                let cpu = self.nearest_cpu(gpu);
                self.detour(peer, cpu, gpu);
            }
        }
    }

    /// Whether GPU number `a` reads the memory of GPU number `b`; otherwise they meet in memory of the host.
    pub(crate) fn are_peers(&self, a: usize, b: usize, env: &Env) -> bool {
        let gpus = &self.machine.gpus;
        let kind = self.paths.get(gpus[a], gpus[b]).kind;
        kind.within(self.peer_level(env), self.machine.release)
    }

    /// The worst path over which GPUs read each other's memory.
    fn peer_level(&self, env: &Env) -> PathType {
        let cpu = self.machine.cpus.iter().find_map(|&cpu| match self.machine.devices[cpu] {
            Kind::Cpu(kind) => Some(kind),
            _ => None,
        });
        let few = self.machine.gpus.len() <= 2;
        if !self.machine.peer_access {
            return env.p2p_level.filter(|&level| level == PathType::Loc).unwrap_or(PathType::Nvb);
        }
        env.p2p_level.unwrap_or(match cpu {
            Some(CpuKind::Amd) if few || !self.machine.release.since(23, 0) => PathType::Sys,
            Some(CpuKind::Power) if !self.machine.release.since(23, 0) => PathType::Sys,
            _ => PathType::Pxb,
        })
    }

    /// Takes the way from a GPU to a port through a better placed GPU, or through the CPU without RDMA.
    fn reach_port(&mut self, port: usize, gpu: usize, env: &Env) {
        let (end, start) = (self.machine.ports[port], self.machine.gpus[gpu]);
        let release = self.machine.release;
        if !env.pxn_disable
            && let Some(local) = self.user_of(port)
            && local != gpu
        {
            let relay = self.machine.gpus[local];
            let (last, first) = (self.paths.get(relay, end), self.paths.get(relay, start));
            let own = self.paths.get(start, end);
            if last.kind.within(PathType::Pxb, release)
                && first.kind.within(PathType::Nvl, release)
                && (last.bandwidth > own.bandwidth || !own.kind.within(PathType::Pxb, release))
            {
                self.detour(start, relay, end);
            }
        }
        let own = self.paths.get(start, end);
        if !self.reads_gpu_memory(port, gpu, own, env) {
            let cpu = self.nearest_cpu(start);
            self.detour(end, cpu, start);
            self.detour(start, cpu, end);
        }
    }

    /// Whether the port reaches the GPU's memory itself over `own`.
    fn reads_gpu_memory(&self, port: usize, gpu: usize, own: &Path, env: &Env) -> bool {
        let (end, start) = (self.machine.ports[port], self.machine.gpus[gpu]);
        let able = matches!(self.machine.devices[end], Kind::Port(port) if port.gdr)
            && matches!(self.machine.devices[start], Kind::Gpu { gdr: true, .. });
        let mut kind = own.kind;
        if kind == PathType::Pxn {
            // What counts is how near the relay is.
            let relays = own.links.iter().map(|&link| self.machine.links[link].to);
            let mut gpus = relays.filter(|&device| matches!(self.machine.devices[device], Kind::Gpu { .. }));
            kind = gpus.next().map_or(kind, |relay| self.paths.get(relay, end).kind);
        }
        able && kind.within(env.gdr_level.unwrap_or(PathType::Pxb), self.machine.release)
    }

    /// Replaces the way from `from` to `to` by the one that passes `by`.
    fn detour(&mut self, from: DeviceId, by: DeviceId, to: DeviceId) {
        let (first, last) = (self.paths.get(from, by), self.paths.get(by, to));
        let kind = match self.machine.devices[by] {
            Kind::Gpu { .. } => PathType::Pxn,
            _ => worse(first.kind, last.kind, self.machine.release),
        };
        let links = first.links.iter().chain(&last.links).copied().collect();
        let bandwidth = first.bandwidth.min(last.bandwidth);
        let path = Path::of(links, bandwidth, kind);
        self.paths.set(from, to, path);
    }

    /// The first of the CPUs that are the fewest links away.
    fn nearest_cpu(&self, gpu: DeviceId) -> DeviceId {
        let hops = |&cpu: &DeviceId| self.paths.get(gpu, cpu).hops();
        // A checked node has a CPU.
        self.machine.cpus.iter().copied().min_by_key(hops).unwrap_or(0)
    }

    /// Numbers of those `ends` that a device reaches with most bandwidth, and of these over the nearest path.
    pub(crate) fn nearest(&self, from: DeviceId, ends: &[DeviceId]) -> Vec<usize> {
        let mut best = (0.0f32, PathType::Dis);
        let mut found = Vec::new();
        for (i, &end) in ends.iter().enumerate() {
            let &Path { bandwidth, kind, .. } = self.paths.get(from, end);
            let nearer = kind.distance(self.machine.release) < best.1.distance(self.machine.release);
            if bandwidth > best.0 || (bandwidth == best.0 && nearer) {
                best = (bandwidth, kind);
                found.clear();
            }
            if (bandwidth, kind) == best && kind != PathType::Dis {
                found.push(i);
            }
        }
        found
    }

    /// The port that a GPU uses on a channel.
    pub(crate) fn port_for(&self, gpu: usize, channel: usize) -> Option<usize> {
        let ports = self.nearest(self.machine.gpus[gpu], &self.machine.ports);
        let first = self.machine.ports[*ports.first()?];
        let sharers = self.nearest(first, &self.machine.gpus).len().max(1);
        let mut index = gpu;
        if ports.len().is_power_of_two() {
            index = mirrored(index, ports.len());
        }
        index += channel % ports.len().div_ceil(sharers);
        Some(ports[index % ports.len()])
    }

    /// The GPU that is next to a port and uses it on the lowest channel.
    pub(crate) fn gpu_near(&self, port: usize) -> Option<usize> {
        self.near[port]
    }

    /// Finds what [`Self::gpu_near`] keeps, with the paths as they are now.
    fn user_of(&self, port: usize) -> Option<usize> {
        let near = self.nearest(self.machine.ports[port], &self.machine.gpus);
        // Which port a GPU uses repeats at the latest after as many channels as there are ports.
        let channels = self.channels_max().min(self.machine.ports.len());
        (0..channels)
            .find_map(|channel| near.iter().copied().find(|&gpu| self.port_for(gpu, channel) == Some(port)))
    }

    /// Largest bandwidth of a path from a GPU to the network, or to another GPU where there is none.
    pub(crate) fn bandwidth_max(&self) -> f32 {
        let machine = &self.machine;
        if machine.ports.is_empty() && machine.gpus.len() == 1 {
            return rates::SAME_DEVICE;
        }
        let ends = if machine.ports.is_empty() { &machine.gpus } else { &machine.ports };
        let pairs =
            machine.gpus.iter().flat_map(|&gpu| ends.iter().map(move |&end| self.paths.get(gpu, end)));
        pairs.filter(|path| path.hops() > 0).map(|path| path.bandwidth).fold(0.0, f32::max)
    }

    /// What the busiest GPU can send in all.
    pub(crate) fn bandwidth_total(&self) -> f32 {
        let alone = self.machine.ports.is_empty() && self.machine.gpus.len() == 1;
        if alone { rates::SAME_DEVICE } else { self.machine.busiest() }
    }

    /// Numbers of the GPUs that are the fewest links from a port among those with the most bandwidth, if that is
    /// at least `bandwidth`.
    pub(crate) fn closest_gpus(&self, port: DeviceId, bandwidth: f32) -> Vec<usize> {
        let paths: Vec<&Path> = self.machine.gpus.iter().map(|&gpu| self.paths.get(port, gpu)).collect();
        let most = paths.iter().map(|path| path.bandwidth).fold(0.0, f32::max);
        let wide = |path: &Path| path.bandwidth == most && most >= bandwidth && path.hops() > 0;
        let hops = paths.iter().filter(|path| wide(path)).map(|path| path.hops()).min();
        (0..paths.len()).filter(|&gpu| wide(paths[gpu]) && Some(paths[gpu].hops()) == hops).collect()
    }

    /// Bandwidth of each port in 10^9 bytes per second.
    pub(crate) fn port_bandwidths(&self) -> Vec<f32> {
        (0..self.machine.ports.len()).map(|port| rates::port(self.machine.port(port).mbps)).collect()
    }

    /// The ports that share the bandwidth of `port`, itself among them.
    pub(crate) fn sharing(&self, port: usize) -> &[usize] {
        &self.sharing[port]
    }

    /// Whether two numbers stand for one port: the same, or the same card.
    pub(crate) fn same_port(&self, a: usize, b: usize) -> bool {
        let card = self.machine.port(a).card;
        a == b || (card.is_some() && card == self.machine.port(b).card)
    }

    /// Nearest and farthest type between GPUs, then between GPUs and ports.
    pub(crate) fn type_ranges(&self) -> [(PathType, PathType); 2] {
        let machine = &self.machine;
        let mut intra = (PathType::Loc, PathType::Sys);
        if machine.gpus.len() > 1 {
            intra = self.range(&machine.gpus);
        }
        let mut inter = (PathType::Pix, PathType::Sys);
        if !machine.ports.is_empty() {
            inter = self.range(&machine.ports);
        }
        [intra, inter]
    }

    /// Nearest and farthest type of the paths from GPUs to other devices, `ends`.
    fn range(&self, ends: &[DeviceId]) -> (PathType, PathType) {
        let pairs = self.machine.gpus.iter().flat_map(|&gpu| ends.iter().map(move |&end| (gpu, end)));
        let kinds = pairs.filter(|(gpu, end)| gpu != end).map(|(gpu, end)| self.paths.get(gpu, end).kind);
        let distance = |kind: &PathType| kind.distance(self.machine.release);
        let (near, far) = (kinds.clone().min_by_key(distance), kinds.max_by_key(distance));
        (near.unwrap_or(PathType::Sys), far.unwrap_or(PathType::Sys))
    }

    /// The farthest type up to `worst` that a path has which channels take: inside of the node, or to a port.
    pub(crate) fn nearest_used(&self, worst: PathType, inside: bool) -> PathType {
        let release = self.machine.release;
        let used = if inside { &self.used.0 } else { &self.used.1 };
        let allowed = used.iter().copied().filter(|kind| kind.within(worst, release));
        allowed.max_by_key(|kind| kind.distance(release)).unwrap_or(PathType::Loc)
    }

    /// The types of paths between GPUs and with the switch, and of those between GPUs and ports.
    fn used_types(&self) -> (Vec<PathType>, Vec<PathType>) {
        let machine = &self.machine;
        let inner: Vec<DeviceId> = machine.gpus.iter().copied().chain(machine.nvs).collect();
        let kinds = |ends: &[DeviceId]| {
            let mut kinds: Vec<PathType> = Vec::new();
            for (&from, &to) in inner.iter().flat_map(|from| ends.iter().map(move |to| (from, to))) {
                for kind in [self.paths.get(from, to).kind, self.paths.get(to, from).kind] {
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                    }
                }
            }
            kinds
        };
        (kinds(&inner), kinds(&machine.ports))
    }

    /// The type after `kind` in the release's order.
    pub(crate) fn next_type(&self, kind: PathType) -> PathType {
        let release = self.machine.release;
        let farther = PathType::ALL
            .into_iter()
            .filter(|other| other.exists_in(release) && other.distance(release) > kind.distance(release));
        farther.min_by_key(|other| other.distance(release)).unwrap_or(PathType::Dis)
    }

    /// Largest latency of ports, in microseconds, as their plugin reports it.
    pub(crate) fn latency_us(&self, ports: impl Iterator<Item = usize>) -> f32 {
        let latencies = ports.filter(|&port| port < self.machine.ports.len());
        latencies.map(|port| self.machine.port(port).latency_us).fold(0.0, f32::max)
    }

    /// Whether there are two groups of GPUs, with NVLinks inside of each and none between them.
    pub(crate) fn nvlink_is_split(&self) -> bool {
        let gpus = &self.machine.gpus;
        // Each GPU takes the group of the last GPU before it that it has NVLinks to.
        let mut groups: Vec<usize> = (0..gpus.len()).collect();
        for first in 0..gpus.len() {
            for later in first + 1..gpus.len() {
                if self.paths.get(gpus[first], gpus[later]).kind == PathType::Nvl {
                    groups[later] = groups[first];
                }
            }
        }
        let members = |group: usize| groups.iter().filter(|&&other| other == group).count();
        (0..gpus.len()).filter(|&group| members(group) > 1).count() == 2
    }
}

/// The lowest bits of `index` in reverse order; as many as numbers below `count`, a power of two, have.
fn mirrored(index: usize, count: usize) -> usize {
    let bits = count.trailing_zeros();
    if bits == 0 { 0 } else { (index % count).reverse_bits() >> (usize::BITS - bits) }
}
