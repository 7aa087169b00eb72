//! Connections through a shared-memory segment, made on first use.

use crate::error::Error;
use crate::plan::{Limits, Wires};
use shmring::layout::Geometry;
use shmring::segment::Segment;
use shmring::{Protocol, Receiver, Relay, Sender};

/// The ends of one channel's connections. Those to or from a single rank are found by its number; the vectors are empty
/// until there is one.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// This rank's ring to all others.
    pub(crate) fan_out: Option<Sender>,
    /// The other ranks' rings to all; `None` at the own rank.
    pub(crate) fan_in: Vec<Option<Receiver>>,
    /// The relay of all ranks.
    pub(crate) relay: Option<Relay>,
    /// This rank's pair rings.
    pub(crate) pair_out: Vec<Option<Sender>>,
    /// The pair rings to this rank.
    pub(crate) pair_in: Vec<Option<Receiver>>,
    /// Whether the Simple slots have memory: of the fan rings, of the pair rings from and to this rank.
    fan_slots: bool,
    out_slots: Vec<bool>,
    in_slots: Vec<bool>,
}

/// The connections of one rank.
#[derive(Debug)]
pub(crate) struct Shm {
    pub(crate) segment: Segment,
    pub(crate) lanes: Vec<Lane>,
    rank: u32,
    nranks: u32,
}

/// Whether a peer's end is there, and its Simple slots if they are `needed`.
#[inline]
fn is_there<T>(ends: &[Option<T>], slots: &[bool], peer: u32, needed: bool) -> bool {
    let peer = peer as usize;
    ends.get(peer).is_some_and(Option::is_some) && (!needed || slots[peer])
}

impl Lane {
    /// Whether every connection of a plan exists.
    #[inline]
    fn has(&self, channel: usize, wires: &Wires, slots: bool, (rank, nranks): (u32, u32)) -> bool {
        let Self { pair_out, pair_in, out_slots, in_slots, .. } = self;
        (!wires.relay || self.relay.is_some())
            && (!wires.fan || self.fan_out.is_some() && (!slots || self.fan_slots))
            && wires.to.iter(channel, rank, nranks).all(|peer| is_there(pair_out, out_slots, peer, slots))
            && wires.from.iter(channel, rank, nranks).all(|peer| is_there(pair_in, in_slots, peer, slots))
    }
}

impl Shm {
    pub(crate) fn new(segment: Segment) -> Self {
        let geometry = *segment.geometry();
        let lanes = (0..geometry.channels).map(|_| Lane::default()).collect();
        Self { rank: segment.member(), nranks: geometry.members, segment, lanes }
    }

    /// What one message can carry.
    pub(crate) fn limits(geometry: &Geometry) -> Limits {
        let capacity = |ring| Protocol::ALL.map(|p: Protocol| p.capacity(ring));
        let relay = [0, 0, geometry.relay().piece_bytes as usize];
        Limits {
            nranks: geometry.members,
            fan: capacity(&geometry.fan),
            pair: capacity(&geometry.pair),
            relay,
        }
    }

    /// Makes sure that the connections that a plan uses on the first `channels` channels exist, for an operation that
    /// begins.
    #[inline]
    pub(crate) fn connect(
        &mut self,
        wires: &Wires,
        protocol: Protocol,
        channels: usize,
    ) -> Result<(), Error> {
        let slots = protocol == Protocol::Simple;
        for channel in 0..channels {
            if !self.lanes[channel].has(channel, wires, slots, (self.rank, self.nranks)) {
                let connected = self.connect_lane(channel as u32, wires, slots);
                connected.map_err(|cause| Error::Segment { rank: self.rank, cause })?;
            }
            if wires.relay
                && let Some(relay) = &mut self.lanes[channel].relay
            {
                relay.begin();
            }
        }
        Ok(())
    }

    #[cold]
    fn connect_lane(&mut self, channel: u32, wires: &Wires, slots: bool) -> Result<(), shmring::Error> {
        let (rank, n) = (self.rank, self.nranks);
        if wires.fan {
            self.connect_fans(channel, slots)?;
        }
        let (lane, segment) = (&mut self.lanes[channel as usize], &self.segment);
        if wires.relay && lane.relay.is_none() {
            lane.relay = Some(segment.relay(channel)?);
        }
        for peer in wires.to.iter(channel as usize, rank, n) {
            let at = peer as usize;
            lane.pair_out.resize_with(n as usize, || None);
            lane.out_slots.resize(n as usize, false);
            if lane.pair_out[at].is_none() {
                lane.pair_out[at] = Some(segment.pair_sender(channel, peer)?);
            }
            if slots && !lane.out_slots[at] {
                segment.commit_pair_slots(channel, rank, peer)?;
                lane.out_slots[at] = true;
            }
        }
        for peer in wires.from.iter(channel as usize, rank, n) {
            let at = peer as usize;
            lane.pair_in.resize_with(n as usize, || None);
            lane.in_slots.resize(n as usize, false);
            if lane.pair_in[at].is_none() {
                lane.pair_in[at] = Some(segment.pair_receiver(channel, peer)?);
            }
            if slots && !lane.in_slots[at] {
                segment.commit_pair_slots(channel, peer, rank)?;
                lane.in_slots[at] = true;
            }
        }
        Ok(())
    }

    fn connect_fans(&mut self, channel: u32, slots: bool) -> Result<(), shmring::Error> {
        let (rank, n) = (self.rank, self.nranks);
        let lane = &mut self.lanes[channel as usize];
        if lane.fan_out.is_none() {
            let mut receivers = Vec::with_capacity(n as usize);
            for source in 0..n {
                let other = source != rank;
                receivers.push(other.then(|| self.segment.fan_receiver(channel, source)).transpose()?);
            }
            lane.fan_in = receivers;
            lane.fan_out = Some(self.segment.fan_sender(channel)?);
        }
        if slots && !lane.fan_slots {
            for source in 0..n {
                self.segment.commit_fan_slots(channel, source)?;
            }
            lane.fan_slots = true;
        }
        Ok(())
    }

    /// Messages that this rank has sent in each protocol, over all connections.
    pub(crate) fn sent(&self) -> [u64; 3] {
        let mut sum = [0; 3];
        for lane in &self.lanes {
            for sender in lane.fan_out.iter().chain(lane.pair_out.iter().flatten()) {
                for (total, carried) in sum.iter_mut().zip(sender.carried()) {
                    *total += carried;
                }
            }
            sum[Protocol::Simple as usize] += lane.relay.as_ref().map_or(0, Relay::carried);
        }
        sum
    }
}
