//! The best path between any two devices: fewest links, then most bandwidth.

use super::machine::{DeviceId, Kind, LinkId, LinkKind, Machine};
use super::rates;
use crate::nccl::graph::PathType;
use crate::nccl::release::Release;

/// A way from one device to another.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    /// The links in the order of the way.
    pub(crate) links: Vec<LinkId>,
    /// Of the slowest link, in 10^9 bytes per second; 0 without a way.
    pub(crate) bandwidth: f32,
    /// The worst of its links.
    pub(crate) kind: PathType,
    /// The links with what a channel takes from each; made by [`Paths::weigh`] when all ways are settled.
    pub(crate) legs: Vec<Leg>,
    /// Place of `kind` in the release's order, and whether the way begins or ends at a port; made with the legs.
    pub(crate) distance: u8,
    pub(crate) outside: bool,
}

/// One link of a way, and what sending over it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Leg {
    pub(crate) link: LinkId,
    /// The other direction of the link.
    pub(crate) back: LinkId,
    /// PCIe on a way from a GPU through an Intel CPU takes a fifth more.
    pub(crate) costs_more: bool,
    pub(crate) answer: Answer,
}

/// What comes back over a link for what is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    None,
    /// GPUs before Ampere answer what others than GPUs send.
    Eighth,
    /// NVLink to POWER CPUs.
    Whole,
}

impl Path {
    const NONE: Self = Self::of(Vec::new(), 0.0, PathType::Dis);

    pub(super) const fn of(links: Vec<LinkId>, bandwidth: f32, kind: PathType) -> Self {
        Self { links, bandwidth, kind, legs: Vec::new(), distance: u8::MAX, outside: false }
    }

    /// How many links the way has.
    pub(crate) fn hops(&self) -> usize {
        self.links.len()
    }
}

/// The worse of two types in a release's order.
pub(super) fn worse(a: PathType, b: PathType, release: Release) -> PathType {
    if a.within(b, release) { b } else { a }
}

/// The paths to all devices that matter, from everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    devices: usize,
    /// The way from device `a` to device `b` is at `a * devices + b`.
    all: Vec<Path>,
}

impl Paths {
    /// Finds the paths; `through_gpus` allows NVLink ways over one other GPU.
    pub(crate) fn of(machine: &Machine, through_gpus: bool) -> Self {
        let devices = machine.devices.len();
        let mut paths = Self { devices, all: vec![Path::NONE; devices * devices] };
        let ends = [&machine.cpus, &machine.gpus, &machine.ports].into_iter().flatten().chain(&machine.nvs);
        for &end in ends {
            paths.spread(machine, end, through_gpus);
        }
        paths
    }

    pub(crate) fn get(&self, from: DeviceId, to: DeviceId) -> &Path {
        &self.all[from * self.devices + to]
    }

    /// Works out what each link of each way costs.
    pub(super) fn weigh(&mut self, machine: &Machine) {
        for (i, path) in self.all.iter_mut().enumerate() {
            let from_gpu = matches!(machine.devices[i / self.devices], Kind::Gpu { .. });
            let through_intel = path.kind == PathType::Phb
                && from_gpu
                && path.links.iter().any(|&link| machine.is_intel(machine.links[link].to));
            let leg = |&link: &LinkId| {
                let there = &machine.links[link];
                let answer = match machine.devices[there.to] {
                    Kind::Gpu { sm, .. } if sm < 80 && !from_gpu => Answer::Eighth,
                    _ if there.kind == LinkKind::Nvlink && machine.is_power(there.to) => Answer::Whole,
                    _ => Answer::None,
                };
                let costs_more = through_intel && there.kind == LinkKind::Pcie;
                Leg { link, back: there.back, costs_more, answer }
            };
            path.legs = path.links.iter().map(leg).collect();
            path.distance = path.kind.distance(machine.release);
            let is_port = |device: DeviceId| matches!(machine.devices[device], Kind::Port(_));
            path.outside = is_port(i / self.devices) || is_port(i % self.devices);
        }
    }

    /// The legs of all ways.
    pub(super) fn legs(&self) -> impl Iterator<Item = &Leg> {
        self.all.iter().flat_map(|path| &path.legs)
    }

    pub(super) fn set(&mut self, from: DeviceId, to: DeviceId, path: Path) {
        self.all[from * self.devices + to] = path;
    }

    /// Goes outwards from `end`, one link further each time, and notes the way back of each device that is met.
    fn spread(&mut self, machine: &Machine, end: DeviceId, through_gpus: bool) {
        let itself = Path::of(Vec::new(), rates::SAME_DEVICE, PathType::Loc);
        self.set(end, end, itself);
        let mut edge = vec![end];
        while !edge.is_empty() {
            let mut next: Vec<DeviceId> = Vec::new();
            for device in edge {
                for &link in &machine.leaving[device] {
                    if self.extend(machine, end, device, link, through_gpus) {
                        let to = machine.links[link].to;
                        if !next.contains(&to) {
                            next.push(to);
                        }
                    }
                }
            }
            edge = next;
        }
    }

    /// Lets the device behind `link` reach `end` by way of `device`, if that is better than what it has.
    fn extend(
        &mut self,
        machine: &Machine,
        end: DeviceId,
        device: DeviceId,
        link: LinkId,
        through_gpus: bool,
    ) -> bool {
        let there = machine.links[link];
        let here = self.get(device, end);
        let is_gpu = |device: DeviceId| matches!(machine.devices[device], Kind::Gpu { .. });
        let relayed = device != end && is_gpu(device);
        let nvlink = there.kind == LinkKind::Nvlink;
        // A GPU relays for one hop, between GPUs, over NVLink.
        if relayed && !(through_gpus && nvlink && is_gpu(there.to) && here.hops() <= 1) {
            return false;
        }
        let bandwidth = here.bandwidth.min(there.bandwidth);
        let known = self.get(there.to, end);
        let further = known.bandwidth == 0.0 || known.hops() > here.hops();
        if !further || known.bandwidth >= bandwidth {
            return false;
        }
        let mut kind = there.kind.path();
        let pair = (machine.devices[device], machine.devices[there.to]);
        if there.kind == LinkKind::Pcie {
            kind = match pair {
                (Kind::Cpu(_), _) | (_, Kind::Cpu(_)) => PathType::Phb,
                (Kind::Switch, Kind::Switch) => PathType::Pxb,
                _ => kind,
            };
        }
        if relayed && here.kind == PathType::Nvl && nvlink {
            kind = PathType::Nvb;
        }
        let kind = worse(here.kind, kind, machine.release);
        let mut links = Vec::with_capacity(here.hops() + 1);
        links.push(there.back);
        links.extend_from_slice(&here.links);
        self.set(there.to, end, Path::of(links, bandwidth, kind));
        true
    }
}
