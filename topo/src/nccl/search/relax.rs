//! The search for one graph: strict demands first, relaxed one after the other, then faster with what was found.

use super::env::Env;
use super::habits::Habits;
use super::speeds;
use super::walk::{Found, Goal, OPTIMAL, Walk, Way};
use crate::nccl::graph::{PathType, Pattern};
use crate::nccl::system::CpuKind;
use crate::nccl::system::machine::Kind;
use crate::nccl::system::routes::Routes;

/// Steps of an attempt, and of one in which all channels are alike.
const STEPS: i64 = 1 << 14;
const STEPS_SAME: i64 = 1 << 8;
/// Bandwidth of a channel, in GB/s, from which it is cut in two.
const SPLIT_FROM: f32 = 25.0;
/// The same for GPUs newer than Ampere with more than so many channels.
const SPLIT_FROM_MANY: f32 = 50.0;
const MANY: usize = 4;

/// Searches the graph of `pattern` with `channels` from and to.
///
/// `None` if there is none: only NVLS may be missing, all others fall back to one slow channel.
pub(super) fn search(
    routes: &Routes,
    pattern: Pattern,
    channels: (usize, usize),
    env: &Env,
) -> Option<Found> {
    let mut search = Search::new(routes, pattern, channels, env);
    if pattern == Pattern::Nvls && (routes.machine.nvs.is_none() || routes.machine.sm_min() < 90) {
        return None;
    }
    search.relax();
    if search.habits.splits_last {
        search.raise();
        search.split();
    } else {
        search.split();
        search.raise();
    }
    match search.best {
        found if !found.ways.is_empty() => Some(found),
        _ if pattern == Pattern::Nvls => None,
        nothing => Some(listed_order(routes, nothing)),
    }
}

/// One search under way.
struct Search<'a> {
    routes: &'a Routes,
    habits: Habits,
    speeds: Vec<f32>,
    best: Found,
    /// Pattern that was asked for; the tree may become simpler.
    pattern: Pattern,
    /// Best paths that exist, with which the search begins, and the worst.
    intra: (PathType, PathType),
    inter: (PathType, PathType),
    /// What `NCCL_CROSS_NIC` says: 0 never, 1 always, 2 where it helps.
    cross_nic: u8,
    channels: (usize, usize),
    bandwidth_max: f32,
    bandwidth_total: f32,
    /// Steps left for all attempts.
    budget: i64,
    hops: i64,
    /// Walks of the first pass, each with the steps that it left.
    made: Vec<(Made, i64)>,
}

/// What a walk depends on: speed, pattern, worst types inside and to the network, same channels, crossing.
type Made = (u32, Pattern, PathType, PathType, bool, u8);

/// Whether the first pass goes on.
#[derive(PartialEq, Eq)]
enum Pass {
    Goes,
    Done,
}

impl<'a> Search<'a> {
    fn new(routes: &'a Routes, pattern: Pattern, channels: (usize, usize), env: &Env) -> Self {
        let (machine, habits) = (&routes.machine, Habits::of(routes.machine.release));
        let (gpus, network) = (machine.gpus.len(), !machine.ports.is_empty());
        let alone = gpus == 1;
        let pattern = if alone && pattern != Pattern::Ring { Pattern::Tree } else { pattern };
        let mut channels = channels;
        if pattern == Pattern::Nvls {
            channels.1 = channels.1.min(gpus);
            if !network {
                // Inside a node all GPUs pull alike.
                channels.0 = channels.1;
            }
        }
        if pattern == Pattern::Ring
            && machine.release.since(26, 0)
            && routes.nvlink_is_split()
            && channels.1 >= 2
        {
            channels.0 = channels.0.max(2);
        }
        let crossing = matches!(pattern, Pattern::Ring | Pattern::BalancedTree | Pattern::SplitTree);
        let cross_nic = if machine.ports.len() > 1 && crossing { env.cross_nic } else { 0 };
        let [intra, inter] = routes.type_ranges();
        let goal = Goal {
            pattern,
            channels_min: channels.0,
            channels_max: channels.1,
            bw_intra: 0.0,
            bw_inter: 0.0,
            type_intra: intra.0,
            type_inter: inter.0,
            same_channels: pattern != Pattern::Nvls,
            cross_nic: u8::from(cross_nic == 1),
        };
        let total = routes.bandwidth_total();
        let spread = if alone || pattern == Pattern::Ring { 1.0 } else { gpus as f64 / (gpus - 1) as f64 };
        Self {
            routes,
            speeds: speeds::candidates(machine.sm_min(), network, machine.release),
            best: Found { goal, ways: Vec::new(), hops: 0 },
            pattern,
            intra,
            inter,
            cross_nic,
            channels,
            bandwidth_max: routes.bandwidth_max(),
            bandwidth_total: (f64::from(total) * spread) as f32,
            budget: habits.steps_all,
            habits,
            hops: 0,
            made: Vec::new(),
        }
    }

    /// First pass: demands are relaxed until the best that was found cannot be beaten, or time is up.
    fn relax(&mut self) {
        let last = self.speeds.len() - 1;
        let too_fast =
            |speed: f32| speed > self.bandwidth_max || speed * self.channels.0 as f32 > self.bandwidth_total;
        let start = self.speeds.iter().position(|&speed| !too_fast(speed)).unwrap_or(last);
        for at in start..=last {
            let found = !self.best.ways.is_empty();
            // Half the speed of what was found would need twice the channels to be better.
            if at > start && found && self.speeds[at] / self.best.goal.bw_inter <= 0.49 {
                return;
            }
            if self.relax_crossing(self.speeds[at]) == Pass::Done {
                return;
            }
        }
    }

    fn relax_crossing(&mut self, speed: f32) -> Pass {
        let first = u8::from(self.cross_nic == 1);
        if self.relax_inter(speed, first) == Pass::Done {
            return Pass::Done;
        }
        // A tree that enters and leaves at two GPUs, and a ring, may use two ports.
        if self.cross_nic == 2 && matches!(self.pattern, Pattern::Ring | Pattern::BalancedTree) {
            // Up to 2.22 any two, then two that the next ring uses in the other direction.
            let how = if self.routes.machine.release.since(23, 0) { 2 } else { 1 };
            return self.relax_inter(speed, how);
        }
        Pass::Goes
    }

    fn relax_inter(&mut self, speed: f32, cross_nic: u8) -> Pass {
        let release = self.routes.machine.release;
        let mut type_inter = self.inter.0;
        loop {
            if self.relax_intra(speed, cross_nic, type_inter) == Pass::Done {
                return Pass::Done;
            }
            let may = self.best.ways.is_empty()
                || nearer(type_inter, self.best.goal.type_inter, release)
                || nearer(type_inter, PathType::Pxn, release);
            let at_end = !nearer(type_inter, self.inter.1, release) || self.routes.machine.ports.is_empty();
            if at_end || !may {
                return Pass::Goes;
            }
            type_inter = self.routes.next_type(type_inter);
        }
    }

    fn relax_intra(&mut self, speed: f32, cross_nic: u8, type_inter: PathType) -> Pass {
        let release = self.routes.machine.release;
        let worst = if self.routes.machine.ports.is_empty() { self.intra.1 } else { type_inter };
        let mut type_intra = self.intra.0;
        loop {
            let goal = Goal {
                pattern: self.pattern,
                channels_min: self.channels.0,
                channels_max: self.channels.1,
                bw_intra: speed,
                bw_inter: speed,
                type_intra,
                type_inter,
                same_channels: true,
                cross_nic,
            };
            if self.attempt_both(&goal) == Pass::Done {
                return Pass::Done;
            }
            if self.pattern == Pattern::BalancedTree && self.routes.machine.sm_min() >= 90 {
                let simpler = Goal { pattern: Pattern::Tree, ..goal };
                if self.attempt_both(&simpler) == Pass::Done {
                    return Pass::Done;
                }
            }
            let may = self.best.ways.is_empty() || nearer(type_intra, self.best.goal.type_intra, release);
            if !nearer(type_intra, worst, release) || !may {
                return Pass::Goes;
            }
            type_intra = self.routes.next_type(type_intra);
        }
    }

    /// Tries channels that are all alike, then any.
    fn attempt_both(&mut self, goal: &Goal) -> Pass {
        let amd = self
            .routes
            .machine
            .cpus
            .first()
            .is_some_and(|&cpu| matches!(self.routes.machine.devices[cpu], Kind::Cpu(CpuKind::Amd)));
        let only_same = self.habits.alike_on_amd && amd && goal.type_intra == PathType::Sys;
        let mut left = 0;
        for same_channels in [true, false] {
            if (same_channels && self.pattern == Pattern::Nvls) || (!same_channels && only_same) {
                continue;
            }
            let steps = if same_channels { STEPS_SAME } else { STEPS };
            self.budget -= steps;
            left = self.attempt_once(Goal { same_channels, ..goal.clone() }, steps);
            let reached = self.best.ways.len() as f32 * self.best.goal.bw_inter;
            if left == OPTIMAL || reached >= self.routes.bandwidth_total() {
                return Pass::Done;
            }
        }
        self.budget += left;
        if self.budget < 0 && !self.best.ways.is_empty() { Pass::Done } else { Pass::Goes }
    }

    /// As [`Self::attempt`], but not again where the same walk has been made at this speed: it would find what it has
    /// found, which is no better than the best any more, and leave the same steps.
    fn attempt_once(&mut self, goal: Goal, steps: i64) -> i64 {
        // Types that no path has allow nothing new.
        let intra = self.routes.nearest_used(goal.type_intra, true);
        let inter = self.routes.nearest_used(goal.type_inter, false);
        // A simple tree cannot cross; but graphs that do are compared with each other in more detail.
        let cannot_cross = goal.pattern == Pattern::Tree && self.best.goal.cross_nic == 0;
        let cross_nic = if cannot_cross { 0 } else { goal.cross_nic };
        let walk = (goal.bw_intra.to_bits(), goal.pattern, intra, inter, goal.same_channels, cross_nic);
        if let Some((_, left)) = self.made.iter().find(|(known, _)| *known == walk) {
            return *left;
        }
        let left = self.attempt(goal, steps);
        self.made.push((walk, left));
        left
    }

    /// Lets the walk try; returns the steps that are left.
    fn attempt(&mut self, goal: Goal, steps: i64) -> i64 {
        let mut walk = Walk::new(self.routes, goal, &mut self.best, steps, self.hops);
        walk.channel();
        walk.steps
    }

    /// Cuts wide channels in two: more channels keep more of the GPU busy.
    fn split(&mut self) {
        let (found, bandwidth) = (self.best.ways.len(), self.best.goal.bw_intra);
        let modern = self.routes.machine.sm_min() > 80 && bandwidth < SPLIT_FROM_MANY && found > MANY;
        if found == 0 || self.pattern == Pattern::Nvls || bandwidth < SPLIT_FROM || modern {
            return;
        }
        let channels = (2 * found).min(self.channels.1);
        let parts = channels.div_ceil(found) as f32;
        let again: Vec<Way> = self.best.ways[..channels - found].to_vec();
        self.best.ways.extend(again);
        self.best.goal.bw_intra /= parts;
        self.best.goal.bw_inter /= parts;
    }

    /// Second pass: the same number of channels, each faster, as long as that works.
    fn raise(&mut self) {
        if self.best.ways.is_empty() {
            return;
        }
        let last = self.speeds.len() - 1;
        let slow = |&speed: &f32| speed <= self.best.goal.bw_inter;
        let mut at = self.speeds.iter().position(slow).unwrap_or(last);
        let mut goal = self.best.goal.clone();
        (goal.bw_intra, goal.bw_inter) = (self.speeds[at], self.speeds[at]);
        goal.channels_min = self.best.ways.len();
        self.hops = self.best.hops;
        let mut left = OPTIMAL;
        while left != 0 && at > 0 {
            let faster = self.speeds[at - 1];
            match self.pattern {
                Pattern::Ring if self.habits.splits_last => return,
                Pattern::Ring => (goal.bw_intra, goal.bw_inter) = (faster, faster),
                Pattern::Nvls
                    if !self.habits.splits_last
                        && goal.bw_inter == self.best.goal.bw_inter
                        && goal.bw_inter < 2.0 * goal.bw_intra =>
                {
                    goal.channels_min = self.best.ways.len();
                    goal.channels_max = goal.channels_min;
                    goal.bw_inter = faster;
                }
                // The branch for trees serves NVLS too when its own does not.
                _ if goal.bw_intra == self.best.goal.bw_intra && goal.bw_intra < 2.0 * goal.bw_inter => {
                    goal.bw_intra = faster;
                }
                _ => return,
            }
            at -= 1;
            let steps = if goal.same_channels { STEPS_SAME } else { STEPS };
            left = self.attempt(goal.clone(), steps);
        }
    }
}

/// Whether `a` is nearer than `b`.
fn nearer(a: PathType, b: PathType, release: crate::nccl::release::Release) -> bool {
    a.distance(release) < b.distance(release)
}

/// What NCCL takes if nothing was found: one channel in the order of the GPUs' numbers.
fn listed_order(routes: &Routes, nothing: Found) -> Found {
    let gpus = (0..routes.machine.gpus.len()).collect();
    let goal = Goal {
        bw_intra: 0.1,
        bw_inter: 0.1,
        type_intra: PathType::Sys,
        type_inter: PathType::Sys,
        ..nothing.goal
    };
    Found { goal, ways: vec![Way { gpus, ports: [0, 0] }], hops: 0 }
}
