//! Connections through a shared-memory segment, made on first use.

use crate::error::Error;
use crate::plan::{Algorithm, Limits};
use shmring::layout::Geometry;
use shmring::segment::Segment;
use shmring::{Protocol, Receiver, Sender};

/// The ends of one channel's connections.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// This rank's ring to all others.
    pub(crate) fan_out: Option<Sender>,
    /// The other ranks' rings to all; `None` at the own rank.
    pub(crate) fan_in: Vec<Option<Receiver>>,
    /// To the next rank.
    pub(crate) next: Option<Sender>,
    /// From the previous rank.
    pub(crate) prev: Option<Receiver>,
    /// Whether the Simple slots of the fan and of the pair rings have memory.
    slots: [bool; 2],
}

/// The connections of one rank.
#[derive(Debug)]
pub(crate) struct Shm {
    pub(crate) segment: Segment,
    pub(crate) lanes: Vec<Lane>,
    rank: u32,
    nranks: u32,
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
        Limits { nranks: geometry.members, fan: capacity(&geometry.fan), pair: capacity(&geometry.pair) }
    }

    /// Makes sure that the connections that an algorithm uses on the first `channels` channels exist.
    #[inline]
    pub(crate) fn connect(
        &mut self,
        algorithm: Algorithm,
        protocol: Protocol,
        channels: usize,
    ) -> Result<(), Error> {
        let ring = algorithm == Algorithm::Ring;
        let slots = protocol == Protocol::Simple;
        for channel in 0..channels {
            let lane = &self.lanes[channel];
            let connected = if ring { lane.next.is_some() } else { lane.fan_out.is_some() };
            if !connected || (slots && !lane.slots[usize::from(ring)]) {
                let connected = self.connect_lane(channel as u32, ring, slots);
                connected.map_err(|cause| Error::Segment { rank: self.rank, cause })?;
            }
        }
        Ok(())
    }

    #[cold]
    fn connect_lane(&mut self, channel: u32, ring: bool, slots: bool) -> Result<(), shmring::Error> {
        let lane = &mut self.lanes[channel as usize];
        let (rank, n) = (self.rank, self.nranks);
        let (next, prev) = ((rank + 1) % n, (rank + n - 1) % n);
        if ring {
            if lane.next.is_none() {
                lane.prev = Some(self.segment.pair_receiver(channel, prev)?);
                lane.next = Some(self.segment.pair_sender(channel, next)?);
            }
            if slots {
                self.segment.commit_pair_slots(channel, rank, next)?;
                self.segment.commit_pair_slots(channel, prev, rank)?;
            }
        } else {
            if lane.fan_out.is_none() {
                let mut receivers = Vec::with_capacity(n as usize);
                for source in 0..n {
                    let other = source != rank;
                    receivers.push(other.then(|| self.segment.fan_receiver(channel, source)).transpose()?);
                }
                lane.fan_in = receivers;
                lane.fan_out = Some(self.segment.fan_sender(channel)?);
            }
            if slots {
                for source in 0..n {
                    self.segment.commit_fan_slots(channel, source)?;
                }
            }
        }
        lane.slots[usize::from(ring)] |= slots;
        Ok(())
    }

    /// Messages that this rank has sent in each protocol, over all connections.
    pub(crate) fn sent(&self) -> [u64; 3] {
        let mut sum = [0; 3];
        for sender in self.lanes.iter().flat_map(|lane| [&lane.fan_out, &lane.next]).flatten() {
            for (total, carried) in sum.iter_mut().zip(sender.carried()) {
                *total += carried;
            }
        }
        sum
    }
}
