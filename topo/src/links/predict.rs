//! From loads to a time, term by term.

use std::fmt;

use super::error::LinkError;
use super::model::{Loads, Model, Steps};
use super::wiring::{LinkKind, Meeting, VirtualLink};
use crate::nccl::tuner::{Algorithm, Collective, Estimate, Operation, Protocol};

/// What an operation puts on one link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkLoad {
    /// Number of the link in [`Model::links`].
    pub link: usize,
    /// Bytes of payload on this link of the node where it is busiest.
    pub bytes: f64,
    /// Bytes of payload on this link, of all nodes (of all leaf switches for a trunk) together.
    pub total_bytes: f64,
    /// How long the link needs for the bytes of its busiest node, in us.
    pub busy_us: f64,
}

/// A part of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TermKind {
    /// Start and end of the kernel.
    Start,
    /// Steps inside a node that nothing overlaps.
    StepsInside,
    /// Steps between nodes that nothing overlaps, with what the network plugin reports.
    StepsBetween,
    /// The first chunk on its way through a chain or a tree, while the rest of the way is empty.
    Filling,
    /// The bytes at the bandwidth of the costliest link, or of the channels if these are slower.
    Transfer,
    /// What the transfer takes longer because others use the link, or because the network is oversubscribed.
    Contention,
    /// What is missing to the least time between two launches.
    LaunchFloor,
}

impl TermKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::StepsInside => "steps inside a node",
            Self::StepsBetween => "steps between nodes",
            Self::Filling => "filling",
            Self::Transfer => "transfer",
            Self::Contention => "contention",
            Self::LaunchFloor => "launch floor",
        }
    }
}

impl fmt::Display for TermKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A part of the time with its size: `count` times `each_us` where it has a count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Term {
    /// What takes time.
    pub kind: TermKind,
    /// How often.
    pub count: f64,
    /// Microseconds each time.
    pub each_us: f64,
}

/// How long an operation takes, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Channels that carry bytes.
    pub channels: u32,
    /// The tuner's time in us, by which NCCL chooses.
    pub tuner_us: f32,
    /// The predicted time in us: the sum of the terms.
    pub total_us: f64,
    /// The terms, those that are 0 left out.
    pub terms: Vec<Term>,
    /// Every link that carries something, the costliest first.
    pub loads: Vec<LinkLoad>,
    /// The channels' own time in us: what they need to copy their bytes.
    pub channels_us: f64,
    /// Whether the channels, not a link, decide the transfer.
    pub is_bound_by_channels: bool,
}

impl Prediction {
    /// The link that decides the transfer, if the channels do not.
    pub fn bottleneck(&self) -> Option<&LinkLoad> {
        self.loads.first().filter(|_| !self.is_bound_by_channels)
    }

    /// Microseconds of all terms of a kind.
    pub fn term(&self, kind: TermKind) -> f64 {
        self.terms.iter().filter(|term| term.kind == kind).map(|term| term.count * term.each_us).sum()
    }
}

/// Numbers of a cell that do not depend on the operation's bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fixed {
    pub(super) start_us: f64,
    pub(super) steps: Steps,
    pub(super) inside_us: f64,
    pub(super) between_us: f64,
    /// What a channel moves in 10^9 bytes per second, and how much of its share each byte of it is moved.
    pub(super) channel_gbps: f64,
    pub(super) channel_part: f64,
    /// What the ports of a node carry together, in 10^9 bytes per second.
    pub(super) ports_gbps: f64,
    /// Factor of the payload's bandwidth on links.
    pub(super) protocol_part: f64,
    /// Whether the NVSwitch reduces, which slows NVLinks.
    pub(super) nvls_factor: f64,
    pub(super) chunk_bytes: (f64, f64),
}

impl Fixed {
    /// Time of a chunk on its way before the last step, in us.
    pub(super) fn filling_us(&self, bytes: f64, channels: u32) -> f64 {
        let depth = self.steps.inside + self.steps.between;
        if !self.steps.fills || depth <= 0.0 {
            return 0.0;
        }
        let of_channel = bytes / f64::from(channels);
        let (low, high) = self.chunk_bytes;
        // Small operations are cut so that several chunks are under way.
        let chunk = (of_channel / (2.0 * depth)).clamp(low, high).min(of_channel);
        let outside = if self.ports_gbps > 0.0 {
            chunk * f64::from(channels) / (1000.0 * self.ports_gbps * self.protocol_part)
        } else {
            0.0
        };
        self.steps.inside * chunk / (1000.0 * self.channel_gbps) + self.steps.between * outside
    }

    /// Time that the channels need, in us.
    pub(super) fn channels_us(&self, bytes: f64, channels: u32) -> f64 {
        bytes * self.channel_part / (f64::from(channels) * 1000.0 * self.channel_gbps)
    }
}

/// An operation before it is known what else its links carry.
struct Alone {
    bytes: f64,
    choice: Estimate,
    channels: u32,
    loads: Loads,
    fixed: Fixed,
    /// How long each link needs, in us.
    busy: Vec<f64>,
}

impl Model {
    /// The operation with the algorithm and protocol that NCCL chooses.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if NCCL has nothing to choose, or the machine lacks what the choice needs.
    pub fn predict(&self, operation: Operation) -> Result<Prediction, LinkError> {
        Ok(self.predict_together(&[operation])?.swap_remove(0))
    }

    /// Operations that run at the same time on all ranks and share the links, each with NCCL's choice.
    ///
    /// # Errors
    ///
    /// As [`Model::predict`], for the first operation that cannot be.
    pub fn predict_together(&self, operations: &[Operation]) -> Result<Vec<Prediction>, LinkError> {
        let mut alone = Vec::with_capacity(operations.len());
        let mut together = vec![0.0; self.wiring.links.len()];
        for &operation in operations {
            let choice = self.tuner.choose(operation)?.best;
            let channels = self.tuner.spread(operation, choice.algorithm, choice.protocol).last_channel + 1;
            let flows = self.flows(operation.collective, choice.algorithm)?;
            let loads = self.loads(&flows, channels);
            let fixed = self.fixed(operation.collective, choice.algorithm, choice.protocol);
            let busy = self.busy(&loads, &fixed, operation.bytes as f64);
            for (sum, own) in together.iter_mut().zip(&busy) {
                *sum += own;
            }
            alone.push(Alone { bytes: operation.bytes as f64, choice, channels, loads, fixed, busy });
        }
        Ok(alone.iter().map(|one| self.finish(one, &together)).collect())
    }

    /// How long each link needs for an operation's bytes, in us.
    pub(super) fn busy(&self, loads: &Loads, fixed: &Fixed, bytes: f64) -> Vec<f64> {
        let links = self.wiring.links.iter().zip(&loads.busiest);
        links.map(|(link, load)| load * bytes * self.us_per_byte(link, fixed)).collect()
    }

    pub(super) fn us_per_byte(&self, link: &VirtualLink, fixed: &Fixed) -> f64 {
        let slowed = if link.kind == LinkKind::NvLink { fixed.nvls_factor } else { 1.0 };
        1.0 / (1000.0 * link.effective_gbps * slowed * fixed.protocol_part)
    }

    fn finish(&self, one: &Alone, together: &[f64]) -> Prediction {
        let Alone { bytes, channels, loads, fixed, busy, choice } = one;
        let (bytes, channels) = (*bytes, *channels);
        let channels_us = fixed.channels_us(bytes, channels);
        // Alone, and on a network that is not oversubscribed, no trunk decides.
        let is_trunk = |link: usize| self.wiring.links[link].kind == LinkKind::Trunk;
        let own = (0..busy.len()).filter(|&link| !is_trunk(link)).map(|link| busy[link]).fold(0.0, f64::max);
        let transfer = own.max(channels_us);
        let shared =
            (0..busy.len()).filter(|&link| busy[link] > 0.0).map(|link| together[link]).fold(0.0, f64::max);
        let contention = (shared - transfer).max(0.0);
        let mut terms = vec![
            Term { kind: TermKind::Start, count: 1.0, each_us: fixed.start_us },
            Term { kind: TermKind::StepsInside, count: fixed.steps.inside, each_us: fixed.inside_us },
            Term { kind: TermKind::StepsBetween, count: fixed.steps.between, each_us: fixed.between_us },
            Term { kind: TermKind::Filling, count: 1.0, each_us: fixed.filling_us(bytes, channels) },
            Term { kind: TermKind::Transfer, count: 1.0, each_us: transfer },
            Term { kind: TermKind::Contention, count: 1.0, each_us: contention },
        ];
        let sum: f64 = terms.iter().map(|term| term.count * term.each_us).sum();
        let missing = (self.calibration.launch_floor_us - sum).max(0.0);
        terms.push(Term { kind: TermKind::LaunchFloor, count: 1.0, each_us: missing });
        terms.retain(|term| term.count * term.each_us > 0.0);
        let mut by_link: Vec<LinkLoad> = (0..busy.len())
            .filter(|&link| busy[link] > 0.0)
            .map(|link| LinkLoad {
                link,
                bytes: loads.busiest[link] * bytes,
                total_bytes: loads.total[link] * bytes,
                busy_us: together[link],
            })
            .collect();
        by_link.sort_by(|a, b| b.busy_us.total_cmp(&a.busy_us));
        Prediction {
            algorithm: choice.algorithm,
            protocol: choice.protocol,
            channels,
            tuner_us: choice.time,
            total_us: sum + missing,
            terms,
            loads: by_link,
            channels_us,
            is_bound_by_channels: channels_us > shared.max(own),
        }
    }

    /// What does not depend on the bytes.
    pub(super) fn fixed(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> Fixed {
        let numbers = &self.calibration;
        let (p, generation) = (protocol.id(), self.generation as usize);
        let steps = self.steps(collective, algorithm);
        let meeting = self.meeting(algorithm);
        let inside_us = match meeting {
            Meeting::NvLink => numbers.nvlink_step_us[p] * numbers.nvlink_step_factor[generation],
            _ => numbers.pcie_step_us[p],
        };
        // What is no line of 8 bytes waits for the network once more: a card's writes have to be flushed.
        let plugin = f64::from(self.tuner.setup().plugin_latency_us);
        let waits = if protocol == Protocol::Ll { 1.0 } else { 2.0 };
        let is_nvls = algorithm.is_nvls();
        let channel_part = match algorithm {
            Algorithm::Ring => self.flows(collective, algorithm).map_or(1.0, |flows| flows.ring_edge()),
            // A GPU within a chain sends once up and once down.
            Algorithm::Tree | Algorithm::CollNetChain | Algorithm::CollNetDirect => 2.0,
            _ => 1.0,
        };
        Fixed {
            start_us: if is_nvls { numbers.nvls_start_us } else { numbers.start_us },
            steps,
            inside_us,
            between_us: numbers.net_step_us[p] + waits * plugin,
            channel_gbps: if is_nvls {
                numbers.nvls_channel_gbps
            } else {
                numbers.channel_rate(self.generation, protocol, meeting == Meeting::Host)
            },
            channel_part,
            ports_gbps: self.wiring.ports_gbps,
            protocol_part: numbers.protocol_part[p],
            nvls_factor: if is_nvls {
                numbers.nvls_part[generation] / numbers.nvlink_part[generation]
            } else {
                1.0
            },
            chunk_bytes: numbers.chunk_bytes[p],
        }
    }
}
