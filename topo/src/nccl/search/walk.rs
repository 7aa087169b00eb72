//! One attempt: as many channels as fit, each with its bandwidth booked along its whole way.
//!
//! A depth-first walk. It enters a node from a port, goes from GPU to GPU, leaves to a port or returns to where it
//! began, and goes on with the next channel; it takes back what it booked wherever it cannot go on. Every GPU that
//! it looks at costs a step of a budget, so what it finds in large nodes depends on the order in which it looks.

use super::book;
use super::habits::Habits;
use super::next::{self, Score};
use crate::nccl::graph::{PathType, Pattern};
use crate::nccl::system::machine::DeviceId;
use crate::nccl::system::routes::Routes;

/// What all channels of an attempt must keep to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Goal {
    pub(super) pattern: Pattern,
    pub(super) channels_min: usize,
    pub(super) channels_max: usize,
    /// Bandwidth of a channel inside the node and to the network, in 10^9 bytes per second.
    pub(super) bw_intra: f32,
    pub(super) bw_inter: f32,
    /// Worst paths that are allowed.
    pub(super) type_intra: PathType,
    pub(super) type_inter: PathType,
    /// Whether all channels go the way of the first one.
    pub(super) same_channels: bool,
    /// 0: out by the port that it came in by; 1: by any; 2: pairs of channels exchange theirs.
    pub(super) cross_nic: u8,
}

/// The way of one channel through the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Numbers of the GPUs, in order.
    pub(super) gpus: Vec<usize>,
    /// Ports by which it enters and leaves.
    pub(super) ports: [usize; 2],
}

/// What an attempt has found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) goal: Goal,
    pub(super) ways: Vec<Way>,
    /// Links that all channels use, counted each time.
    pub(super) hops: i64,
}

/// How the next GPU is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// By what is left of bandwidth, and distance.
    Best,
    /// By number.
    Listed,
    /// As the channel before.
    Replayed,
}

/// What a channel still has to do.
#[derive(Clone, Copy)]
struct Errand {
    order: Order,
    /// At which step it goes to the network.
    to_net: Option<usize>,
    /// At which step it returns to its first GPU.
    to_first: Option<usize>,
}

/// How much slower, as a part, a graph may be that leaves by the port it came in by.
const SAME_PORT_BONUS: f64 = 0.15;
/// Steps for an attempt in the order of the GPUs' numbers, which sets a mark for the others.
const LISTED_STEPS: i64 = 1 << 10;
/// What is left of a budget when nothing better can be found.
pub(super) const OPTIMAL: i64 = -1;

/// An attempt under way.
pub(super) struct Walk<'a> {
    pub(super) routes: &'a Routes,
    pub(super) habits: Habits,
    /// What it looks for.
    pub(super) goal: Goal,
    /// The best that any attempt has found so far.
    pub(super) best: &'a mut Found,
    /// Steps left; [`OPTIMAL`] once there is nothing better.
    pub(super) steps: i64,
    /// Links of the channels so far.
    pub(super) hops: i64,
    /// Finished channels.
    pub(super) count: usize,
    /// Finished channels, then the one under way.
    pub(super) ways: Vec<Way>,
    /// GPUs that the channel under way has visited, by channel.
    visited: Vec<u64>,
    /// Bandwidth left on each link; counted in thousandths where that is exact, which is faster.
    pub(super) left: Vec<f32>,
    pub(super) thousandths: Option<Vec<i32>>,
    /// Bandwidth left of each port.
    ports_left: Vec<f32>,
    /// Ports by which channels may enter, and by which they may leave from each GPU, the preferred ones first.
    entries: Vec<usize>,
    exits: Vec<Vec<usize>>,
    /// The GPUs at which channels from each port begin, in the order of their numbers.
    closest: Vec<Vec<usize>>,
    /// Places of the goal's worst types in the release's order, and whether it is a tree, which goes both ways.
    pub(super) worst_intra: u8,
    pub(super) worst_inter: u8,
    pub(super) is_tree: bool,
    /// Memory for the choice of the next GPU, used again at each step.
    pub(super) scores: [Vec<Score>; 2],
}

impl<'a> Walk<'a> {
    /// An attempt at `goal` with `steps` steps that begins to count links at `hops`.
    pub(super) fn new(routes: &'a Routes, goal: Goal, best: &'a mut Found, steps: i64, hops: i64) -> Self {
        let room = goal.channels_max + 1;
        let (gpus, release) = (routes.machine.gpus.len(), routes.machine.release);
        Self {
            habits: Habits::of(release),
            routes,
            best,
            steps,
            hops,
            count: 0,
            ways: vec![Way { gpus: vec![0; gpus], ports: [0; 2] }; room],
            visited: vec![0; room],
            left: routes.machine.links.iter().map(|link| link.bandwidth).collect(),
            thousandths: book::thousandths(routes, [goal.bw_intra, goal.bw_inter]),
            ports_left: routes.port_bandwidths(),
            entries: next::ports(routes, goal.type_inter, None),
            exits: (0..gpus).map(|gpu| next::ports(routes, goal.type_inter, Some(gpu))).collect(),
            closest: routes
                .machine
                .ports
                .iter()
                .map(|&port| routes.closest_gpus(port, goal.bw_inter.trunc()))
                .collect(),
            worst_intra: goal.type_intra.distance(release),
            worst_inter: goal.type_inter.distance(release),
            is_tree: matches!(goal.pattern, Pattern::BalancedTree | Pattern::SplitTree | Pattern::Tree),
            scores: [Vec::with_capacity(gpus), Vec::with_capacity(gpus)],
            goal,
        }
    }

    /// What is left of a link, in GB/s.
    pub(super) fn left_of(&self, link: usize) -> f32 {
        self.thousandths.as_ref().map_or(self.left[link], |left| left[link] as f32 / 1000.0)
    }

    /// Looks for the channel after those that are finished.
    pub(super) fn channel(&mut self) {
        let last = self.routes.machine.gpus.len() - 1;
        let (ring, split) = (self.goal.pattern == Pattern::Ring, self.goal.pattern == Pattern::SplitTree);
        if !self.routes.machine.ports.is_empty() {
            let at = if ring { last } else { usize::from(split) };
            self.try_entries(Errand { order: Order::Best, to_net: Some(at), to_first: None });
            return;
        }
        let errand = Errand { order: Order::Best, to_net: None, to_first: ring.then_some(last) };
        if self.goal.pattern == Pattern::Nvls {
            self.try_gpu(None, self.count, 0, errand);
            return;
        }
        if self.count == 0 {
            self.try_gpu(None, 0, 0, Errand { order: Order::Listed, ..errand });
        } else {
            let first = self.ways[self.count - 1].gpus[0];
            self.try_gpu(None, first, 0, Errand { order: Order::Replayed, ..errand });
        }
        if !self.goal.same_channels || self.count == 0 {
            for gpu in 0..=last {
                self.try_gpu(None, gpu, 0, errand);
            }
        }
    }

    /// Enters the node by each port in turn.
    fn try_entries(&mut self, errand: Errand) {
        // The port's own budget is counted in whole GB/s.
        let bandwidth = self.goal.bw_inter.trunc();
        let ports = self.entries.len();
        for i in 0..ports {
            let turn = if self.habits.rotates { self.count } else { 0 };
            let port = self.entries[(turn + i) % ports];
            if self.ports_left[port] < bandwidth || !self.may_enter(port) {
                continue;
            }
            self.ways[self.count].ports[0] = port;
            let sharing = self.routes.sharing(port);
            for &other in sharing {
                self.ports_left[other] -= bandwidth;
            }
            if self.goal.pattern == Pattern::Nvls {
                self.head(port, ports, errand);
            } else {
                self.enter(port, errand);
            }
            for &other in sharing {
                self.ports_left[other] += bandwidth;
            }
        }
    }

    /// Whether the next ring of a pair may come in by `port`: where the one before left.
    fn may_enter(&self, port: usize) -> bool {
        let paired = self.goal.pattern == Pattern::Ring && self.goal.cross_nic == 2 && self.count % 2 == 1;
        !paired || self.ways[self.count - 1].ports[1] == port
    }

    /// Makes the GPU next to `port` a head of the NVLS graph, if it is not one yet.
    fn head(&mut self, port: usize, ports: usize, errand: Errand) {
        let Some(gpu) = self.routes.gpu_near(port) else { return };
        let is_head = self.ways[..self.count].iter().any(|way| way.gpus[0] == gpu);
        if self.count < ports && !is_head {
            self.try_gpu(Some(self.routes.machine.ports[port]), gpu, 0, errand);
        }
    }

    /// Goes from `port` to those GPUs that are worth a try.
    fn enter(&mut self, port: usize, errand: Errand) {
        let (routes, habits) = (self.routes, self.habits);
        let from = routes.machine.ports[port];
        if self.count > 0 && (self.goal.same_channels || habits.replays) {
            let first = self.ways[self.count - 1].gpus[0];
            self.try_gpu(Some(from), first, 0, Errand { order: Order::Replayed, ..errand });
        }
        if self.count > 0 && self.goal.same_channels {
            return;
        }
        if self.count == 0 && (routes.machine.nvs.is_none() || habits.lists_switched) {
            let before = std::mem::replace(&mut self.steps, LISTED_STEPS);
            self.try_gpu(Some(from), 0, 0, Errand { order: Order::Listed, ..errand });
            self.steps = if self.steps == OPTIMAL { OPTIMAL } else { before };
        }
        if habits.user_first {
            let user = routes.gpu_near(port);
            let near = routes.nearest(from, &routes.machine.gpus);
            for gpu in user.into_iter().chain(near.into_iter().filter(|&gpu| Some(gpu) != user)) {
                self.try_gpu(Some(from), gpu, 0, errand);
            }
            return;
        }
        let closest = self.closest[port].len();
        if habits.spares_busy {
            for busy in [false, true] {
                for i in 0..closest {
                    let gpu = self.closest[port][i];
                    if (next::pcie_left(self, gpu) <= 0.0) == busy {
                        self.try_gpu(Some(from), gpu, 0, errand);
                    }
                }
            }
            return;
        }
        let gpus = routes.machine.gpus.len();
        let turn = self.count % gpus;
        let later = self.closest[port].partition_point(|&gpu| gpu < turn);
        for i in 0..closest {
            let gpu = self.closest[port][(later + i) % closest];
            self.try_gpu(Some(from), gpu, 0, errand);
        }
    }

    /// Books the way to `gpu`, goes on from there, and takes the way back.
    fn try_gpu(&mut self, from: Option<DeviceId>, gpu: usize, step: usize, errand: Errand) {
        let to = self.routes.machine.gpus[gpu];
        if let Some(from) = from
            && !self.follow(from, to, 1.0)
        {
            return;
        }
        self.visited[self.count] ^= 1 << gpu;
        self.visit(gpu, step, errand);
        self.visited[self.count] ^= 1 << gpu;
        if let Some(from) = from {
            self.follow(from, to, -1.0);
        }
    }

    /// Goes on from a GPU that the channel has reached as its `step`-th.
    fn visit(&mut self, gpu: usize, step: usize, errand: Errand) {
        if self.steps <= 0 {
            return;
        }
        self.steps -= 1;
        self.ways[self.count].gpus[step] = gpu;
        let last = self.routes.machine.gpus.len() - 1;
        if errand.to_net == Some(step) {
            self.try_exits(gpu, step, errand);
        } else if self.goal.pattern == Pattern::Nvls {
            self.through_switch(gpu);
        } else if step < last {
            self.go_on(gpu, step, errand);
        } else if errand.to_first == Some(step) {
            let gpus = &self.routes.machine.gpus;
            let (from, first) = (gpus[gpu], gpus[self.ways[self.count].gpus[0]]);
            if self.follow(from, first, 1.0) {
                self.finish();
                self.follow(from, first, -1.0);
            }
        } else {
            self.finish();
        }
    }

    /// Tries the GPUs after `gpu`, in order.
    fn go_on(&mut self, gpu: usize, step: usize, errand: Errand) {
        let from = Some(self.routes.machine.gpus[gpu]);
        match errand.order {
            Order::Listed => self.try_gpu(from, step + 1, step + 1, errand),
            Order::Replayed => {
                let next = self.ways[self.count - 1].gpus[step + 1];
                self.try_gpu(from, next, step + 1, errand);
            }
            Order::Best => {
                let toward = errand.to_net.map(|at| at == step + 1);
                let nexts = next::gpus(self, gpu, self.visited[self.count], toward);
                for i in 0..nexts.len() {
                    self.try_gpu(from, nexts.get(i), step + 1, errand);
                }
            }
        }
    }

    /// Leaves the node to each port that is allowed, and goes on from the same GPU.
    fn try_exits(&mut self, gpu: usize, step: usize, errand: Errand) {
        let routes = self.routes;
        let start = self.ways[self.count].ports[0];
        let balanced = self.goal.pattern == Pattern::BalancedTree;
        for i in 0..self.exits[gpu].len() {
            let port = self.exits[gpu][i];
            if !self.may_leave(port, start) {
                continue;
            }
            // The first two GPUs of a balanced tree carry half of the network's traffic each.
            let share = if balanced { 0.5 } else { 1.0 };
            let to_net = (balanced && step == 0).then_some(1);
            if balanced && step != 0 && self.ways[self.count].ports[1] != port {
                continue;
            }
            let (from, end) = (routes.machine.gpus[gpu], routes.machine.ports[port]);
            let whole = self.goal.bw_inter;
            self.goal.bw_inter = whole * share;
            let booked = self.follow(from, end, 1.0);
            self.goal.bw_inter = whole;
            if booked {
                self.ways[self.count].ports[1] = port;
                self.visit(gpu, step, Errand { to_net, ..errand });
                self.goal.bw_inter = whole * share;
                self.follow(from, end, -1.0);
                self.goal.bw_inter = whole;
            }
        }
    }

    /// Whether a channel that came in by `start` may leave by `port`.
    fn may_leave(&self, port: usize, start: usize) -> bool {
        if self.goal.pattern == Pattern::Tree {
            return port == start;
        }
        if self.goal.pattern == Pattern::Ring && self.goal.cross_nic == 2 {
            return self.count.is_multiple_of(2) || self.ways[self.count - 1].ports[0] == port;
        }
        self.goal.cross_nic != 0 || self.routes.same_port(port, start)
    }

    /// Books what one head of an NVLS graph needs: all GPUs to the switch and back, twice at the head.
    fn through_switch(&mut self, head: usize) {
        let routes = self.routes;
        let Some(nvs) = routes.machine.nvs else { return };
        let gpus = &routes.machine.gpus;
        let share = |gpu: usize| if gpu == head { 2.0 } else { 1.0 };
        let down = (0..gpus.len()).take_while(|&gpu| self.follow(nvs, gpus[gpu], share(gpu))).count();
        if down == gpus.len() {
            let up = (0..gpus.len()).take_while(|&gpu| self.follow(gpus[gpu], nvs, share(gpu))).count();
            if up == gpus.len() {
                self.finish();
            }
            for gpu in (0..up).rev() {
                self.follow(gpus[gpu], nvs, -share(gpu));
            }
        }
        for gpu in (0..down).rev() {
            self.follow(nvs, gpus[gpu], -share(gpu));
        }
    }

    /// Counts the channel under way as finished, keeps what there is if it is the best, and looks for more.
    fn finish(&mut self) {
        if self.steps <= 0 {
            return;
        }
        self.steps -= 1;
        self.count += 1;
        if self.is_better() {
            let ways = self.ways[..self.count].to_vec();
            *self.best = Found { goal: self.goal.clone(), ways, hops: self.hops };
            if self.count == self.goal.channels_max {
                self.steps = OPTIMAL;
            }
        }
        if self.count < self.goal.channels_max {
            self.visited[self.count] = 0;
            self.channel();
        }
        self.count -= 1;
    }

    /// Whether the finished channels beat the best so far.
    fn is_better(&self) -> bool {
        let best = &*self.best;
        if self.count < self.goal.channels_min {
            return false;
        }
        let total = |channels: usize, bandwidth: f32| channels as f32 * bandwidth;
        if self.goal.pattern == Pattern::Nvls {
            // Each channel is a GPU that pulls, so many come first.
            let inter = (self.count, self.goal.bw_inter, best.ways.len(), best.goal.bw_inter);
            let more = self.count > best.ways.len() && self.count <= self.routes.machine.gpus.len();
            return more || total(inter.0, inter.1) > total(inter.2, inter.3);
        }
        let (ours, mut theirs) =
            (total(self.count, self.goal.bw_intra), total(best.ways.len(), best.goal.bw_intra));
        if self.habits.same_port_bonus {
            let crossing = f64::from(best.goal.cross_nic) - f64::from(self.goal.cross_nic);
            theirs *= (1.0 - crossing * SAME_PORT_BONUS) as f32;
        }
        let alike = self.goal.pattern == best.goal.pattern && self.goal.cross_nic == best.goal.cross_nic;
        ours > theirs || (ours == theirs && alike && self.hops < best.hops)
    }
}
