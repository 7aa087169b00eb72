//! Booking: a channel takes its bandwidth from each link of its way, or from none.

use super::walk::Walk;
use crate::nccl::graph::{PathType, Pattern};
use crate::nccl::system::machine::{DeviceId, Kind};
use crate::nccl::system::paths::{Answer, Path};

impl Walk<'_> {
    /// Books `share` of a channel's bandwidth on the way from `from` to `to`, or nothing if the way is not allowed
    /// or too narrow; a negative share gives it back.
    pub(super) fn follow(&mut self, from: DeviceId, to: DeviceId, share: f32) -> bool {
        let (routes, release) = (self.routes, self.routes.machine.release);
        let path = routes.paths.get(from, to);
        let is_port = |device: DeviceId| matches!(routes.machine.devices[device], Kind::Port(_));
        let outside = is_port(from) || is_port(to);
        let (bandwidth, worst) = match outside {
            true => (self.goal.bw_inter, self.goal.type_inter),
            false => (self.goal.bw_intra, self.goal.type_intra),
        };
        if path.kind == PathType::Dis {
            return false;
        }
        if share == 1.0 {
            let tree =
                matches!(self.goal.pattern, Pattern::BalancedTree | Pattern::SplitTree | Pattern::Tree);
            let back = routes.paths.get(to, from);
            if !path.kind.within(worst, release) || (tree && !back.kind.within(worst, release)) {
                return false;
            }
        }
        let bandwidth = bandwidth * share;
        let booked = self.book(path, path.legs.len(), bandwidth);
        if booked < path.legs.len() {
            self.book(path, booked, -bandwidth);
            return false;
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
