//! In which order the walk tries ports and GPUs.

use super::walk::Walk;
use crate::nccl::graph::{PathType, Pattern};
use crate::nccl::system::GPUS_MAX;
use crate::nccl::system::routes::Routes;

/// Without what is behind the point; a cast, for `trunc` is a call on older processors.
fn whole(difference: f32) -> f32 {
    difference as i32 as f32
}

/// The ports to try for `gpu`, or for all GPUs: those that they prefer, then all others over paths up to `worst`.
pub(super) fn ports(routes: &Routes, worst: PathType, gpu: Option<usize>) -> Vec<usize> {
    let machine = &routes.machine;
    let gpus: Vec<usize> = match gpu {
        Some(gpu) => vec![gpu],
        None => (0..machine.gpus.len()).collect(),
    };
    let mut found: Vec<usize> = Vec::new();
    let mut add = |port: usize| {
        if !found.contains(&port) {
            found.push(port);
        }
    };
    for &gpu in &gpus {
        let first = routes.port_for(gpu, 0);
        let mut channel = 0;
        while let Some(port) = routes.port_for(gpu, channel) {
            if channel > 0 && Some(port) == first {
                break;
            }
            add(port);
            channel += 1;
        }
    }
    let mut kinds: Vec<PathType> = PathType::ALL.into_iter().collect();
    kinds.sort_by_key(|kind| kind.distance(machine.release));
    for kind in kinds.into_iter().filter(|kind| kind.within(worst, machine.release)) {
        for &gpu in &gpus {
            for (i, &port) in machine.ports.iter().enumerate() {
                if routes.paths.get(machine.gpus[gpu], port).kind == kind {
                    add(i);
                }
            }
        }
    }
    found
}

/// What makes a GPU a good next one.
#[derive(Clone, Copy)]
pub(super) struct Score {
    gpu: u32,
    /// How many GPUs after the current one it is listed.
    after: u32,
    intra_hops: u32,
    intra_bandwidth: f32,
    /// Seen from the port by which the channel came in; nothing where that does not matter.
    inter_hops: u32,
    inter_bandwidth: f32,
    inter_pcie: f32,
}

impl Score {
    /// Whether this one goes before `other`; differences below 1 GB/s do not count, so this is no total order.
    #[inline]
    fn goes_first(&self, other: &Self) -> bool {
        let inter = whole(other.inter_bandwidth - self.inter_bandwidth);
        if inter != 0.0 {
            return inter < 0.0;
        }
        let pcie = whole(other.inter_pcie - self.inter_pcie);
        if pcie != 0.0 {
            return pcie < 0.0;
        }
        if self.inter_hops != other.inter_hops {
            return self.inter_hops < other.inter_hops;
        }
        let intra = whole(other.intra_bandwidth - self.intra_bandwidth);
        if intra != 0.0 {
            return intra < 0.0;
        }
        (self.intra_hops, self.after) <= (other.intra_hops, other.after)
    }

    /// Whether only the order of the list tells the two apart.
    #[inline]
    fn is_like(&self, other: &Self) -> bool {
        self.inter_pcie == other.inter_pcie
            && self.inter_bandwidth == other.inter_bandwidth
            && self.intra_bandwidth == other.intra_bandwidth
            && (self.inter_hops, self.intra_hops) == (other.inter_hops, other.intra_hops)
    }
}

/// Numbers of GPUs in the order in which they are tried; kept on the stack, for the walk makes one at each step.
pub(super) struct Nexts {
    gpus: [u8; GPUS_MAX],
    len: usize,
}

impl Nexts {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, i: usize) -> usize {
        self.gpus[i].into()
    }
}

impl FromIterator<usize> for Nexts {
    fn from_iter<I: IntoIterator<Item = usize>>(gpus: I) -> Self {
        let mut nexts = Self { gpus: [0; GPUS_MAX], len: 0 };
        for (place, gpu) in nexts.gpus.iter_mut().zip(gpus) {
            // Nodes have at most GPUS_MAX GPUs.
            *place = gpu as u8;
            nexts.len += 1;
        }
        nexts
    }
}

/// The GPUs to try after `gpu`, without those in the bit set `visited`.
///
/// `toward_net` says whether the next GPU is the one that goes to the network, or a later one; `None` if none does.
pub(super) fn gpus(walk: &mut Walk<'_>, gpu: usize, visited: u64, toward_net: Option<bool>) -> Nexts {
    let routes = walk.routes;
    let machine = &routes.machine;
    let count = machine.gpus.len();
    let reachable = |other: usize| {
        visited & (1 << other) == 0 && routes.paths.get(machine.gpus[gpu], machine.gpus[other]).hops() > 0
    };
    if machine.nvs.is_some() && walk.habits.neighbours_only {
        return neighbours(gpu, count, walk.goal.pattern)
            .into_iter()
            .flatten()
            .filter(|&gpu| reachable(gpu))
            .collect();
    }
    let port = toward_net.and_then(|_| machine.ports.get(walk.ways[walk.count].ports[0])).copied();
    let [mut scores, mut spare] = std::mem::take(&mut walk.scores);
    scores.clear();
    for after in 1..count {
        let other = (gpu + after) % count;
        if !reachable(other) {
            continue;
        }
        let path = walk.routes.paths.get(machine.gpus[gpu], machine.gpus[other]);
        let from_port = port.map(|port| walk.routes.paths.get(port, machine.gpus[other]));
        scores.push(Score {
            gpu: other as u32,
            after: after as u32,
            intra_hops: path.hops() as u32,
            intra_bandwidth: path.bandwidth,
            inter_hops: from_port.map_or(0, |path| path.hops() as u32),
            inter_bandwidth: from_port.map_or(0.0, |path| path.bandwidth),
            inter_pcie: from_port.map_or(0.0, |_| pcie_left(walk, other)),
        });
    }
    // They are listed in order; most nodes' GPUs are alike.
    if scores.windows(2).any(|pair| !pair[0].is_like(&pair[1])) {
        spare.clone_from(&scores);
        merge_sort(&mut scores, &mut spare);
    }
    let alike = scores.windows(2).all(|pair| {
        pair[0].intra_bandwidth == pair[1].intra_bandwidth && pair[0].intra_hops == pair[1].intra_hops
    });
    if toward_net == Some(false) && alike {
        scores.reverse();
    }
    let nexts = scores.iter().map(|score| score.gpu as usize).collect();
    walk.scores = [scores, spare];
    nexts
}

/// An NVSwitch carries most where each GPU talks to few others: its neighbours, and nobody else.
fn neighbours(gpu: usize, count: usize, pattern: Pattern) -> [Option<usize>; 2] {
    let (before, after) = ((gpu + count - 1) % count, (gpu + 1) % count);
    match pattern {
        _ if before == after => [Some(after), None],
        Pattern::Ring => [Some(before), Some(after)],
        Pattern::SplitTree | Pattern::BalancedTree => [Some(after), Some(before)],
        _ => [Some(after), None],
    }
}

/// What is left of a GPU's PCIe link in its narrower direction.
pub(super) fn pcie_left(walk: &Walk<'_>, gpu: usize) -> f32 {
    let machine = &walk.routes.machine;
    let link = machine.pcie_of(machine.gpus[gpu]);
    link.map_or(-1.0, |link| walk.left_of(link).min(walk.left_of(machine.links[link].back)))
}

/// Sorts by halves that are merged; the outcome is defined by this even though the order is not total.
fn merge_sort(scores: &mut [Score], spare: &mut [Score]) {
    if scores.len() < 2 {
        return;
    }
    let half = scores.len() / 2;
    merge_sort(&mut scores[..half], &mut spare[..half]);
    merge_sort(&mut scores[half..], &mut spare[half..]);
    spare.copy_from_slice(scores);
    let (mut left, mut right) = (0, half);
    for place in scores {
        let is_left = left < half && (right == spare.len() || spare[left].goes_first(&spare[right]));
        let next = if is_left { &mut left } else { &mut right };
        *place = spare[*next];
        *next += 1;
    }
}
