//! Booking: a channel takes its bandwidth from each link of its way, or from none.

use super::walk::Walk;
use crate::nccl::graph::PathType;
use crate::nccl::system::machine::{DeviceId, Link, LinkKind};
use crate::nccl::system::paths::{Answer, Leg, Path};
use crate::nccl::system::routes::Routes;

impl Walk<'_> {
    /// Books `share` of a channel's bandwidth on the way from `from` to `to`, or nothing if the way is not allowed
    /// or too narrow; a negative share gives it back.
    pub(super) fn follow(&mut self, from: DeviceId, to: DeviceId, share: f32) -> bool {
        let path = self.routes.paths.get(from, to);
        let (bandwidth, worst) = match path.outside {
            true => (self.goal.bw_inter, self.worst_inter),
            false => (self.goal.bw_intra, self.worst_intra),
        };
        if path.kind == PathType::Dis {
            return false;
        }
        if share == 1.0 {
            let back = || self.routes.paths.get(to, from).distance;
            if path.distance > worst || (self.is_tree && back() > worst) {
                return false;
            }
        }
        let bandwidth = bandwidth * share;
        if let Some(left) = &mut self.thousandths {
            // The rates are whole thousandths, so this is exact.
            if !book_whole(left, path, whole_thousandths(bandwidth)) {
                return false;
            }
        } else {
            let booked = self.book(path, path.legs.len(), bandwidth);
            if booked < path.legs.len() {
                self.book(path, booked, -bandwidth);
                return false;
            }
        }
        self.hops += share as i64 * path.hops() as i64;
        true
    }

    /// Takes `bandwidth` from the first `count` legs of a path until one has too little; returns how many had enough.
    fn book(&mut self, path: &Path, count: usize, bandwidth: f32) -> usize {
        for (i, leg) in path.legs[..count].iter().enumerate() {
            let wanted = if leg.costs_more { bandwidth * 6.0 / 5.0 } else { bandwidth };
            if self.left[leg.link] < wanted {
                return i;
            }
            let answer = match leg.answer {
                Answer::None => {
                    self.left[leg.link] = rounded(self.left[leg.link] - wanted);
                    continue;
                }
                Answer::Eighth => wanted / 8.0,
                Answer::Whole => wanted,
            };
            if self.left[leg.back] < answer {
                return i;
            }
            self.left[leg.link] = rounded(self.left[leg.link] - wanted);
            self.left[leg.back] = rounded(self.left[leg.back] - answer);
        }
        count
    }
}

/// What is left of each link in thousandths of a GB/s, if a walk with channels of `rates` may count in these: if all
/// that it ever books are whole ones, and no link's own bandwidth is so near to one of them that rounding decides.
pub(super) fn thousandths(routes: &Routes, rates: [f32; 2]) -> Option<Vec<i32>> {
    let shares = rates.into_iter().flat_map(|rate| [1.0, 0.5, 2.0].map(|share| rate * share));
    let mut wanted: Vec<f32> = shares.collect();
    if routes.costs_more {
        let more: Vec<f32> = wanted.iter().map(|wanted| wanted * 6.0 / 5.0).collect();
        wanted.extend(more);
    }
    if routes.answers {
        let eighths: Vec<f32> = wanted.iter().map(|wanted| wanted / 8.0).collect();
        wanted.extend(eighths);
    }
    let is_whole = |rate: f32| rate < WHOLE_BELOW && (rate * 1000.0).round() / 1000.0 == rate;
    let none_is = |rate: f32| wanted.iter().all(|&wanted| (wanted - rate).abs() > 0.01);
    // What is left of PCIe also decides the order of GPUs, so it has to be the very same number.
    let fits = |link: &Link| {
        let rate = link.bandwidth;
        let near = (rate * 1000.0).round() / 1000.0;
        let decides = link.kind == LinkKind::Pcie || (near - rate).abs() > 0.0001 || !none_is(rate);
        rate < WHOLE_BELOW && (near == rate || !decides)
    };
    let links = &routes.machine.links;
    let whole = wanted.iter().all(|&rate| is_whole(rate)) && links.iter().all(fits);
    whole.then(|| links.iter().map(|link| whole_thousandths(link.bandwidth)).collect())
}

/// The nearest whole number of thousandths; a cast, for `round` is a call on older processors.
#[inline]
fn whole_thousandths(bandwidth: f32) -> i32 {
    let thousandths = bandwidth * 1000.0;
    (thousandths + 0.5f32.copysign(thousandths)) as i32
}

/// Bandwidths below this have thousandths in single precision, and some room.
const WHOLE_BELOW: f32 = 1000.0;

/// Takes `rate` thousandths from each leg of a path, or gives them back if it is negative; nothing if one has too
/// little.
#[inline]
fn book_whole(left: &mut [i32], path: &Path, rate: i32) -> bool {
    for (i, leg) in path.legs.iter().enumerate() {
        let (wanted, answer) = leg.whole(rate);
        let enough = left[leg.link] >= wanted && (leg.answer == Answer::None || left[leg.back] >= answer);
        // What is given back is below zero, and there may be less than nothing left of it for no link.
        if !enough {
            for leg in &path.legs[..i] {
                let (wanted, answer) = leg.whole(rate);
                left[leg.link] += wanted;
                left[leg.back] += answer;
            }
            return false;
        }
        left[leg.link] -= wanted;
        left[leg.back] -= answer;
    }
    true
}

impl Leg {
    /// What the leg takes of its link, and of the way back, in thousandths.
    #[inline]
    fn whole(&self, rate: i32) -> (i32, i32) {
        let wanted = if self.costs_more { rate * 6 / 5 } else { rate };
        let answer = match self.answer {
            Answer::None => 0,
            Answer::Eighth => wanted / 8,
            Answer::Whole => wanted,
        };
        (wanted, answer)
    }
}

/// To a thousandth of a GB/s, halves away from zero.
fn rounded(bandwidth: f32) -> f32 {
    // The same as `round`, which is a call where the processor's baseline has no instruction for it. What is left is
    // never far below zero, and less than 2^31 thousandths.
    let thousandths = bandwidth * 1000.0;
    let whole = thousandths as i32;
    let part = thousandths - whole as f32;
    let nearest = whole + i32::from(part >= 0.5) - i32::from(part <= -0.5);
    nearest as f32 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::env::Env;
    use super::super::walk::{Found, Goal, Walk};
    use super::*;
    use crate::nccl::graph::Pattern;
    use crate::nccl::release::Release;
    use crate::nccl::system::machine::Machine;
    use crate::nccl::system::parse_nodes;
    use crate::nccl::system::routes::Routes;

    const TOPOLOGIES: &str = include_str!("../../../testdata/nccl/topologies.yaml");

    /// What a walk over the golden node `name` has taken from each link by what `book` does.
    fn taken(name: &str, book: impl FnOnce(&mut Walk<'_>)) -> Vec<f32> {
        let nodes = parse_nodes("t", TOPOLOGIES).unwrap();
        let node = &nodes.iter().find(|(known, _)| known == name).unwrap().1;
        let routes = Routes::of(Machine::new(node, Release::new(2, 22, 3), true), &Env::default());
        let goal = Goal {
            pattern: Pattern::Ring,
            channels_min: 1,
            channels_max: 1,
            bw_intra: 8.0,
            bw_inter: 8.0,
            type_intra: PathType::Sys,
            type_inter: PathType::Sys,
            same_channels: true,
            cross_nic: 0,
        };
        let mut best = Found { goal: goal.clone(), ways: Vec::new(), hops: 0 };
        let mut walk = Walk::new(&routes, goal, &mut best, 1, 0);
        book(&mut walk);
        let links = routes.machine.links.iter().enumerate();
        let taken = links.map(|(number, link)| link.bandwidth - walk.left_of(number));
        // A link's own bandwidth may be a little off the nearest thousandth.
        taken.filter(|taken| taken.abs() > 0.0005).collect()
    }

    #[test]
    fn older_gpus_answer_an_eighth_to_ports() {
        // From the port to a T4: switch and GPU take 8, and the GPU sends back 1; an A100 does not.
        let of = |name| {
            taken(name, |walk| {
                let machine = &walk.routes.machine;
                assert!(walk.follow(machine.ports[0], machine.gpus[0], 1.0));
            })
        };
        let (mut t4, mut a100) = (of("t4x8_1x100"), of("a100x8_1x100"));
        t4.sort_by(f32::total_cmp);
        a100.sort_by(f32::total_cmp);
        assert_eq!((t4, a100), (vec![1.0, 8.0, 8.0, 8.0], vec![8.0, 8.0, 8.0]));
    }

    #[test]
    fn intel_takes_a_fifth_more_under_one_socket() {
        // Through one Intel socket PCIe carries 9.6 for 8; through AMD's, and between sockets, 8.
        let of = |name, a: usize, b: usize| {
            taken(name, |walk| {
                let gpus = &walk.routes.machine.gpus;
                assert!(walk.follow(gpus[a], gpus[b], 1.0));
            })
        };
        let t4 = of("t4x4_intel", 0, 1);
        assert!(t4.len() == 2 && t4.iter().all(|taken| (taken - 9.6).abs() < 1e-3), "{t4:?}");
        assert!(of("pcie_4090x4_amd", 0, 1) == [8.0, 8.0]);
        assert!(of("pcie_4090x4_intel2s", 0, 3).iter().all(|&taken| taken == 8.0));
    }

    #[test]
    fn what_does_not_fit_books_nothing_and_what_is_given_back_is_whole() {
        // A second channel of 8 on PCIe of 12 is refused and leaves no trace; giving back restores all.
        let left = taken("pcie_4090x8_intel_sw", |walk| {
            let gpus = &walk.routes.machine.gpus;
            let (a, b) = (gpus[0], gpus[7]);
            assert!(walk.follow(a, b, 1.0));
            let (before, hops) = (walk.thousandths.clone(), walk.hops);
            assert!(!walk.follow(a, b, 1.0));
            assert_eq!((&walk.thousandths, walk.hops), (&before, hops));
            walk.follow(a, b, -1.0);
            assert_eq!(walk.hops, 0);
        });
        assert_eq!(left, []);
    }

    #[test]
    fn thousandths_are_rounded_as_the_library_rounds() {
        // The quick way agrees with `round` over all thousandths and halves of what links have.
        for step in -20_000..5_000_000i32 {
            let bandwidth = step as f32 / 1000.0 * 0.999_7;
            assert_eq!(rounded(bandwidth), (bandwidth * 1000.0).round() / 1000.0, "{bandwidth}");
        }
        for (bandwidth, expected) in [(0.0005, 0.001), (-0.0005, -0.001), (2.4, 2.4), (5000.0, 5000.0)] {
            assert_eq!(rounded(bandwidth), expected);
        }
    }
}
