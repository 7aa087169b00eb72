//! Operations without reductions that NCCL's tuner does not price: blocks that go straight to their ranks.
//!
//! | exchange | what a link carries, in parts of a buffer of `n` blocks |
//! | --- | --- |
//! | all-to-all | each pair of GPUs of a node `1/n`; a port `1/n` for each rank elsewhere and each GPU that it serves |
//! | gather | `1/n` from each rank to the root's GPU |
//! | scatter | the same from the root's GPU |

use super::calibration::Calibration;
use super::model::{Loads, Model};
use super::wiring::{End, LinkKind, Wiring};
use crate::nccl::tuner::Protocol;

/// An operation in which blocks go straight to their ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// A block from each rank to each rank.
    AllToAll,
    /// A block from each rank to one.
    Gather,
    /// A block from one rank to each.
    Scatter,
}

impl Exchange {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::AllToAll, Self::Gather, Self::Scatter];
}

impl Exchange {
    /// What a byte of the buffer puts on the links of the root's node, and of another one: `block` is a rank's part,
    /// `elsewhere` how many ranks are on other nodes.
    fn loads(self, wiring: &Wiring, block: f64, elsewhere: f64) -> (Vec<f64>, Vec<f64>) {
        let gpus = wiring.gpus;
        let port = |gpu: u32| End::Port(wiring.head_ports[gpu as usize]);
        let links = wiring.links.len();
        let (mut root, mut other) = (vec![0.0; links], vec![0.0; links]);
        match self {
            Self::AllToAll => {
                for gpu in 0..gpus {
                    for peer in (0..gpus).filter(|&peer| peer != gpu) {
                        wiring.add(End::Gpu(gpu), End::Gpu(peer), block, &mut root);
                    }
                    wiring.add(End::Gpu(gpu), port(gpu), block * elsewhere, &mut root);
                    wiring.add(port(gpu), End::Gpu(gpu), block * elsewhere, &mut root);
                }
                other.clone_from(&root);
            }
            Self::Gather => {
                for gpu in 0..gpus {
                    wiring.add(End::Gpu(gpu), End::Gpu(0), block, &mut root);
                    wiring.add(End::Gpu(gpu), port(gpu), block, &mut other);
                }
                wiring.add(port(0), End::Gpu(0), block * elsewhere, &mut root);
            }
            Self::Scatter => {
                for gpu in 0..gpus {
                    wiring.add(End::Gpu(0), End::Gpu(gpu), block, &mut root);
                    wiring.add(port(gpu), End::Gpu(gpu), block, &mut other);
                }
                wiring.add(End::Gpu(0), port(0), block * elsewhere, &mut root);
            }
        }
        (root, other)
    }
}

/// What an exchange costs, for a byte of the buffer that has all blocks.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) loads: Loads,
    pub(super) us_per_byte: Vec<f64>,
    slowest_us: f64,
    fixed_us: f64,
}

impl Move {
    /// The costs on a communicator; `None` if several nodes have no port.
    pub(super) fn of(model: &Model, exchange: Exchange) -> Option<Self> {
        let setup = model.tuner().setup();
        let (wiring, numbers) = (&model.wiring, model.calibration());
        let (ranks, nodes) = (f64::from(setup.ranks), f64::from(setup.nodes));
        if setup.nodes > 1 && wiring.ports == 0 {
            return None;
        }
        let (block, gpus) = (1.0 / ranks, wiring.gpus);
        let elsewhere = (ranks - f64::from(gpus)).max(0.0);
        let (mut root, mut other) = exchange.loads(wiring, block, elsewhere);
        if setup.nodes == 1 {
            other.fill(0.0);
        }
        if let Some(trunk) = wiring.trunk {
            // What the busiest leaf's nodes send to others, or take from them.
            let leaves = f64::from(model.crossings.leaves.max(1));
            let below = ranks / leaves;
            let crossing = match exchange {
                Exchange::AllToAll => below * (ranks - below) * block,
                Exchange::Gather | Exchange::Scatter => (ranks - below) * block,
            };
            for direction in trunk {
                root[direction] += crossing;
            }
        }
        let total = root.iter().zip(&other).map(|(root, other)| root + other * (nodes - 1.0)).collect();
        let busiest: Vec<f64> = root.iter().zip(&other).map(|(root, other)| root.max(*other)).collect();
        let p = Protocol::Simple.id();
        let per_byte = |link: usize| {
            let link = &wiring.links[link];
            1.0 / (1000.0 * link.effective_gbps * numbers.protocol_part[p])
        };
        let us_per_byte: Vec<f64> =
            busiest.iter().enumerate().map(|(link, load)| load * per_byte(link)).collect();
        let slowest_us = us_per_byte.iter().copied().fold(0.0, f64::max);
        let has_nvlink = wiring.links.iter().any(|link| link.kind == LinkKind::NvLink);
        let inside = if has_nvlink {
            numbers.nvlink_step_us[p] * numbers.nvlink_step_factor[model.generation as usize]
        } else {
            numbers.pcie_step_us[p]
        };
        let between = numbers.net_step_us[p] + 2.0 * f64::from(setup.plugin_latency_us);
        let fixed_us = numbers.start_us + if setup.nodes > 1 { between } else { inside };
        Some(Self { loads: Loads { busiest, total }, us_per_byte, slowest_us, fixed_us })
    }

    /// The time for a buffer of `bytes`, in us.
    pub(super) fn time_us(&self, bytes: f64, numbers: &Calibration) -> f64 {
        (self.fixed_us + bytes * self.slowest_us).max(numbers.launch_floor_us)
    }
}
