//! The bytes that each algorithm puts on each link, from the steps that its channels make.
//!
//! All numbers are parts of the operation's bytes as the tuner counts them: of one buffer, for all-gather and
//! reduce-scatter of all ranks together.
//!
//! | algorithm | what a channel carries of its share `s` of the bytes, with `n` ranks, `g` of them on a node |
//! | --- | --- |
//! | Ring | all-reduce `2 s (n-1)/n` on each edge, its halves half of it; broadcast, reduce `s` on all but one |
//! | Tree | `s` up and `s` down each edge of its tree |
//! | NVLS | each GPU sends `s` and `s/g` and receives as much; all-gather, reduce-scatter one of them each way |
//! | NVLSTree | the same, and at each of `g` heads `s/g` up and down each edge between nodes |
//! | CollNetDirect | `s/h` from each GPU to each of `h` heads and back, and from each head to the network and back |
//! | CollNetChain | `s` along the GPUs of a node and back, and from the first to the network and back |
//! | PAT | `s (n-1)/n` from each rank, over ports alone |

use super::between::{Crossings, Place, Role};
use super::wiring::{End, Wiring};
use crate::nccl::graph::Pattern;
use crate::nccl::search::Channel;
use crate::nccl::tuner::{Algorithm, Collective, Setup};

/// What the channels of an operation are spread over.
pub(super) struct Flows<'a> {
    pub(super) wiring: &'a Wiring,
    pub(super) setup: &'a Setup,
    pub(super) crossings: Crossings,
    pub(super) collective: Collective,
    pub(super) algorithm: Algorithm,
}

impl Flows<'_> {
    fn ranks(&self) -> f64 {
        self.setup.ranks.into()
    }

    /// What each edge of a ring carries of a channel's bytes.
    pub(super) fn ring_edge(&self) -> f64 {
        let part = (self.ranks() - 1.0) / self.ranks();
        match self.collective {
            Collective::AllReduce => 2.0 * part,
            Collective::AllGather | Collective::ReduceScatter => part,
            Collective::Broadcast | Collective::Reduce => 1.0,
        }
    }

    /// Adds what channel `channel` puts on the links of a node with `role`, of `share` bytes.
    pub(super) fn add(&self, channel: u32, role: Role, share: f64, loads: &mut [f64]) {
        let way = |ways: &'_ [Channel]| ways.get(channel as usize % ways.len().max(1)).cloned();
        match self.algorithm {
            Algorithm::Ring => {
                if let Some(way) = way(&self.wiring.ring) {
                    self.ring(&way, role, share * self.ring_edge(), loads);
                }
            }
            Algorithm::Tree => {
                if let Some(way) = way(&self.wiring.tree) {
                    let copies = (channel / self.setup.graphs.tree.channels.max(1)) as usize;
                    self.chain(&way, share, loads);
                    self.tree_between(&way, role.trees[copies % 2], share, loads);
                }
            }
            Algorithm::Nvls | Algorithm::NvlsTree => self.switch(channel, role, share, loads),
            Algorithm::CollNetDirect => self.collnet_direct(share, loads),
            Algorithm::CollNetChain => {
                if let Some(way) = way(&self.wiring.tree) {
                    self.chain(&way, share, loads);
                    if let Some((port, _)) = way.ports {
                        self.both_ways(End::Gpu(way.gpus[0]), End::Port(port), share, loads);
                    }
                }
            }
            Algorithm::Pat => {
                if let Some((way, (out, back))) = way(&self.wiring.tree).and_then(|way| {
                    let ports = way.ports?;
                    Some((way, ports))
                }) {
                    let part = share * (self.ranks() - 1.0) / self.ranks();
                    self.wiring.add(End::Gpu(way.gpus[0]), End::Port(out), part, loads);
                    self.wiring.add(End::Port(back), End::Gpu(way.gpus[0]), part, loads);
                }
            }
        }
        self.trunk(channel, share, loads);
    }

    fn both_ways(&self, a: End, b: End, amount: f64, loads: &mut [f64]) {
        self.wiring.add(a, b, amount, loads);
        self.wiring.add(b, a, amount, loads);
    }

    fn ring(&self, way: &Channel, role: Role, amount: f64, loads: &mut [f64]) {
        let one_way = matches!(self.collective, Collective::Broadcast | Collective::Reduce);
        for pair in way.gpus.windows(2) {
            self.wiring.add(End::Gpu(pair[0]), End::Gpu(pair[1]), amount, loads);
        }
        let (Some(&first), Some(&last)) = (way.gpus.first(), way.gpus.last()) else { return };
        match way.ports {
            // Nothing leads into the root of a broadcast or out of that of a reduction.
            None if one_way => {}
            None => self.wiring.add(End::Gpu(last), End::Gpu(first), amount, loads),
            Some((entry, exit)) => {
                if !(one_way && role.is_last) {
                    self.wiring.add(End::Gpu(last), End::Port(exit), amount, loads);
                }
                if !(one_way && role.is_first) {
                    self.wiring.add(End::Port(entry), End::Gpu(first), amount, loads);
                }
            }
        }
    }

    /// Up the GPUs of a node and down again.
    fn chain(&self, way: &Channel, share: f64, loads: &mut [f64]) {
        for pair in way.gpus.windows(2) {
            self.both_ways(End::Gpu(pair[0]), End::Gpu(pair[1]), share, loads);
        }
    }

    /// The edges of a tree between nodes, at the GPUs where the pattern has them.
    fn tree_between(&self, way: &Channel, place: Place, share: f64, loads: &mut [f64]) {
        let Some((entry, exit)) = way.ports else { return };
        let first = way.gpus[0];
        let second = way.gpus.get(1).copied().unwrap_or(first);
        if place.has_parent {
            self.both_ways(End::Gpu(first), End::Port(entry), share, loads);
        }
        for child in 0..place.children {
            let (gpu, port) = match (self.setup.graphs.tree.pattern, child) {
                (Pattern::BalancedTree, 0) => (first, exit),
                (Pattern::BalancedTree | Pattern::SplitTree, _) => (second, exit),
                _ => (first, entry),
            };
            self.both_ways(End::Gpu(gpu), End::Port(port), share, loads);
        }
    }

    fn switch(&self, channel: u32, role: Role, share: f64, loads: &mut [f64]) {
        let gpus = self.wiring.gpus;
        let own = share / f64::from(gpus);
        let (up, down) = match self.collective {
            Collective::AllGather => (own, share),
            Collective::ReduceScatter => (share, own),
            _ => (share + own, share + own),
        };
        for gpu in 0..gpus {
            self.wiring.add(End::Gpu(gpu), End::Switch, up, loads);
            self.wiring.add(End::Switch, End::Gpu(gpu), down, loads);
            if self.setup.nodes == 1 {
                continue;
            }
            let port = End::Port(self.wiring.head_ports[gpu as usize]);
            let edges = if self.algorithm == Algorithm::Nvls {
                1.0
            } else {
                let place = role.trees[channel as usize % 2];
                f64::from(u32::from(place.has_parent) + place.children)
            };
            let (out, back) = self.to_network(own);
            self.wiring.add(End::Gpu(gpu), port, out * edges, loads);
            self.wiring.add(port, End::Gpu(gpu), back * edges, loads);
        }
    }

    /// What goes to a network that reduces, and what comes back, of what a head has.
    fn to_network(&self, own: f64) -> (f64, f64) {
        let nodes = f64::from(self.setup.nodes);
        match self.collective {
            Collective::AllGather => (own / nodes, own),
            Collective::ReduceScatter => (own, own / nodes),
            _ => (own, own),
        }
    }

    fn collnet_direct(&self, share: f64, loads: &mut [f64]) {
        let gpus = self.wiring.gpus;
        let heads = self.setup.collnet.as_ref().map_or(gpus, |collnet| collnet.heads.clamp(1, gpus));
        let own = share / f64::from(heads);
        for head in 0..heads {
            for gpu in (0..gpus).filter(|&gpu| gpu != head) {
                self.both_ways(End::Gpu(gpu), End::Gpu(head), own, loads);
            }
            let port = End::Port(self.wiring.head_ports[head as usize]);
            let (out, back) = self.to_network(own);
            self.wiring.add(End::Gpu(head), port, out, loads);
            self.wiring.add(port, End::Gpu(head), back, loads);
        }
    }

    /// What of a channel's bytes crosses the busiest leaf switch's way to the spine.
    fn trunk(&self, channel: u32, share: f64, loads: &mut [f64]) {
        let Some(trunk) = self.wiring.trunk else { return };
        self.rails(channel, share, trunk, loads);
        if self.crossings.leaves < 2 {
            return;
        }
        let copies = (channel / self.setup.graphs.tree.channels.max(1)) as usize;
        let crossing = share
            * match self.algorithm {
                Algorithm::Ring => self.ring_edge() * self.crossings.ring,
                Algorithm::Tree => self.crossings.trees[copies % 2],
                Algorithm::NvlsTree => self.crossings.trees[channel as usize % 2],
                // The leaf reduces what is below it; only the result goes on.
                Algorithm::Nvls | Algorithm::CollNetDirect | Algorithm::CollNetChain => 1.0,
                // Every rank of the leaf sends all but its own part, most of it to other leaves.
                Algorithm::Pat => {
                    let below = self.ranks() / f64::from(self.crossings.leaves);
                    below * (1.0 - below / self.ranks())
                }
            };
        for direction in trunk {
            loads[direction] += crossing;
        }
    }

    /// What crosses the spine although both nodes are below the same leaf switches: with rails, whatever leaves by one
    /// port and enters by another.
    fn rails(&self, channel: u32, share: f64, trunk: [usize; 2], loads: &mut [f64]) {
        let Some(below) = self.crossings.rails else { return };
        let (ways, each) = match self.algorithm {
            Algorithm::Ring => (&self.wiring.ring, self.ring_edge()),
            Algorithm::Tree => (&self.wiring.tree, 1.0),
            // Heads of the switch, and what goes straight, stay on their rails.
            _ => return,
        };
        let Some(way) = ways.get(channel as usize % ways.len().max(1)) else { return };
        if way.ports.is_some_and(|(entry, exit)| entry != exit) {
            for direction in trunk {
                loads[direction] += share * each * f64::from(below.saturating_sub(1));
            }
        }
    }
}
