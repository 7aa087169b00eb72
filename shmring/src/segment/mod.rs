//! Named shared-memory segments: how the processes of one host come to share rings.
//!
//! The creator makes the file exclusively (mode 0600), sizes it, commits and fills the header, and publishes
//! it last. The others look for the name until their deadline and validate the header before they trust a
//! byte. The last to attach removes the name, so that a job killed later leaves nothing behind. Names carry
//! the creator's process, so that a later job recognises and removes what a job killed earlier left.
//!
//! The file is sparse. A range is committed (`fallocate`) before it is touched, by whichever process needs it
//! first; a full file system is an error then and there, and never a SIGBUS later.

mod attach;
mod create;
mod mapping;
mod name;

pub use name::{SegmentName, process_start_time, remove_stale};

use crate::error::Error;
use crate::layout::{Geometry, MemberRecord, MemberState, RingGeometry, SegmentHeader};
use crate::ring::{Receiver, Relay, RelayMemory, RingMemory, Sender};
use crate::sync::{AtomicU64, Ordering};
use mapping::Mapping;
use std::path::PathBuf;
use std::sync::Arc;

/// Everything the members of a segment must agree on.
#[derive(Clone, Debug)]
pub struct SegmentSpec {
    /// Directory of segments, a tmpfs; normally `/dev/shm`.
    pub dir: PathBuf,
    /// Name of the file in `dir`.
    pub name: SegmentName,
    /// Random number of the job.
    pub generation: u64,
    /// A number that stands for what the layer above must have in common on all ranks.
    pub settings: u64,
    /// Where everything lies.
    pub geometry: Geometry,
}

impl SegmentSpec {
    fn path(&self) -> PathBuf {
        self.dir.join(self.name.file_name())
    }
}

/// This member's view of a segment.
#[derive(Debug)]
pub struct Segment {
    mapping: Arc<Mapping>,
    geometry: Geometry,
    member: u32,
    /// Held for its `Drop`: the creator removes the name if it gives up before everybody has attached.
    _name: Option<name::NameGuard>,
}

/// A member's place in a segment of this process that nobody has taken yet.
#[derive(Debug)]
pub struct Seat(Segment);

impl Seat {
    /// Attaches as the member whose seat this is.
    #[must_use]
    pub fn take(self) -> Segment {
        self.0.announce();
        self.0
    }
}

impl Segment {
    /// A segment that only this process has: the views of all members, in order, each attached.
    ///
    /// # Errors
    /// [`Error::Geometry`], [`Error::Memory`].
    pub fn in_memory(geometry: &Geometry) -> Result<Vec<Self>, Error> {
        Ok(Self::seats(geometry)?.into_iter().map(Seat::take).collect())
    }

    /// A segment that only this process has, to which nobody has attached yet: the seats of all members, in order.
    ///
    /// # Errors
    /// As [`Segment::in_memory`].
    pub fn seats(geometry: &Geometry) -> Result<Vec<Seat>, Error> {
        geometry.validate()?;
        let mapping = Arc::new(Mapping::in_memory(geometry.total_bytes())?);
        #[cfg(ringccl_sim)]
        crate::sim::mapped(mapping.at::<u8>(0).as_ptr().addr(), geometry);
        let seats = (0..geometry.members).map(|member| {
            let mapping = Arc::<Mapping>::clone(&mapping);
            Seat(Self { mapping, geometry: *geometry, member, _name: None })
        });
        Ok(seats.collect())
    }

    fn join(mapping: Mapping, spec: &SegmentSpec, member: u32, name: Option<name::NameGuard>) -> Self {
        let segment = Self { mapping: Arc::new(mapping), geometry: spec.geometry, member, _name: name };
        if segment.announce() == spec.geometry.members {
            name::remove(&spec.path());
        }
        segment
    }

    /// Another view of the same member: for threads that end or watch what this one does.
    #[must_use]
    pub fn view(&self) -> Self {
        let mapping = Arc::<Mapping>::clone(&self.mapping);
        Self { mapping, geometry: self.geometry, member: self.member, _name: None }
    }

    /// Whether only this process has the memory, so that members of other processes cannot attach.
    pub fn is_private(&self) -> bool {
        self.mapping.is_private()
    }

    /// Writes this member's record; how many have attached with it.
    fn announce(&self) -> u32 {
        let identity = &self.member_record(self.member).identity;
        let pid = std::process::id();
        // ORDERING: Relaxed; `set_state` publishes both.
        identity.pid.store(pid.into(), Ordering::Relaxed);
        identity.start_time.store(process_start_time(pid).unwrap_or(0), Ordering::Relaxed);
        identity.set_state(MemberState::Here);
        // ORDERING: AcqRel; whoever counts to the end has seen every earlier member's record.
        self.header().attached.0.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Whether every member has attached; from then on no name is left and nobody else can join.
    pub fn is_complete(&self) -> bool {
        // ORDERING: Acquire pairs with the AcqRel in `announce`.
        self.header().attached.0.load(Ordering::Acquire) >= self.geometry.members
    }

    /// Rings the bells of the members that sleep until this one does something. Call after moving counters.
    #[inline]
    pub fn notify(&self) {
        if self.header().sleepers.any() {
            self.ring_sleepers();
        }
    }

    #[cold]
    fn ring_sleepers(&self) {
        for member in (0..self.geometry.members).filter(|m| *m != self.member) {
            self.member_record(member).bell.ring(self.member);
        }
    }

    /// Rings this member's own bell if another of its threads sleeps until this member does something.
    #[inline]
    pub fn notify_self(&self) {
        if self.header().sleepers.any() {
            self.member_record(self.member).bell.ring(self.member);
        }
    }

    /// Rings every bell, whether or not its owner has announced that it sleeps: for abort and leaving.
    pub fn ring_all(&self) {
        for member in 0..self.geometry.members {
            self.member_record(member).bell.ring_always();
        }
    }

    /// This member's index.
    pub fn member(&self) -> u32 {
        self.member
    }

    /// Where everything lies.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The header.
    #[inline]
    pub fn header(&self) -> &SegmentHeader {
        // SAFETY: the header lies at offset 0 of every mapping (its length was checked), is committed by the
        // creator, and holds only atomics and payload words.
        unsafe { self.mapping.at(0).as_ref() }
    }

    /// The record of `member`.
    ///
    /// # Panics
    /// If there is no such member.
    #[inline]
    pub fn member_record(&self, member: u32) -> &MemberRecord {
        // SAFETY: the offset is aligned and inside the control range, which the creator has committed; the
        // record holds only atomics.
        unsafe { self.mapping.at(self.geometry.member_offset(member)).as_ref() }
    }

    /// Takes the sending role of this member's ring to all others on `channel`; commits counters and LL lines.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::RoleTaken`].
    pub fn fan_sender(&self, channel: u32) -> Result<Sender, Error> {
        let memory = self.ring(self.geometry.fan_offset(channel, self.member), self.geometry.fan)?;
        Sender::attach(memory, Some(self.member))
    }

    /// Takes this member's receiving role in the ring from `source` to all others on `channel`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::RoleTaken`].
    pub fn fan_receiver(&self, channel: u32, source: u32) -> Result<Receiver, Error> {
        let memory = self.ring(self.geometry.fan_offset(channel, source), self.geometry.fan)?;
        Receiver::attach(memory, self.member)
    }

    /// Takes the sending role of the ring from this member to `destination` on `channel`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::RoleTaken`].
    pub fn pair_sender(&self, channel: u32, destination: u32) -> Result<Sender, Error> {
        let offset = self.geometry.pair_offset(channel, self.member, destination);
        Sender::attach(self.ring(offset, self.geometry.pair)?, None)
    }

    /// Takes the receiving role of the ring from `source` to this member on `channel`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::RoleTaken`].
    pub fn pair_receiver(&self, channel: u32, source: u32) -> Result<Receiver, Error> {
        let offset = self.geometry.pair_offset(channel, source, self.member);
        Receiver::attach(self.ring(offset, self.geometry.pair)?, 0)
    }

    /// Takes the sending role of the mail ring from this member to `destination`.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::RoleTaken`].
    pub fn mail_sender(&self, destination: u32) -> Result<Sender, Error> {
        let offset = self.geometry.mail_offset(self.member, destination);
        Sender::attach(self.ring(offset, self.geometry.mail())?, None)
    }

    /// Takes the receiving role of the mail ring from `source` to this member.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::RoleTaken`].
    pub fn mail_receiver(&self, source: u32) -> Result<Receiver, Error> {
        let offset = self.geometry.mail_offset(source, self.member);
        Receiver::attach(self.ring(offset, self.geometry.mail())?, 0)
    }

    /// Takes this member's role in the relay of `channel`; commits all of it.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::RoleTaken`].
    pub fn relay(&self, channel: u32) -> Result<Relay, Error> {
        let (offset, shape) = (self.geometry.relay_offset(channel), self.geometry.relay());
        self.mapping.commit(offset, shape.total_bytes())?;
        // SAFETY: the offsets follow from the validated geometry, so each area is aligned (the relay starts on a page)
        // and inside the mapping; all of it was committed just now; the mapping is kept alive by the Arc.
        let memory = unsafe {
            RelayMemory::new(
                shape,
                self.mapping.at(offset),
                self.mapping.at(offset + shape.turns_offset()),
                self.mapping.at(offset + shape.pieces_offset()),
                Arc::<Mapping>::clone(&self.mapping),
            )
        };
        Relay::attach(memory, self.member)
    }

    /// The counters of signals to `destination`, one of each member, which only that member counts up; commits them.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    ///
    /// # Panics
    /// If there is no such member.
    pub fn signals(&self, destination: u32) -> Result<&[AtomicU64], Error> {
        let (offset, bytes) = (self.geometry.signals_offset(destination), self.geometry.signals_bytes());
        self.mapping.commit(offset, bytes)?;
        let first = self.mapping.at::<AtomicU64>(offset).as_ptr();
        // SAFETY: the range follows from the validated geometry, so it is aligned and inside the mapping; it was
        // committed just now, holds only atomics, and the mapping lives for as long as this view of it.
        Ok(unsafe { std::slice::from_raw_parts(first, self.geometry.members as usize) })
    }

    /// Commits the Simple slots of a mail ring: needed by each end before its first Simple message.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn commit_mail_slots(&self, source: u32, destination: u32) -> Result<(), Error> {
        self.commit_slots(self.geometry.mail_offset(source, destination), self.geometry.mail())
    }

    /// Commits the Simple slots of a fan ring: needed by each end before its first Simple message.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn commit_fan_slots(&self, channel: u32, source: u32) -> Result<(), Error> {
        self.commit_slots(self.geometry.fan_offset(channel, source), self.geometry.fan)
    }

    /// Commits the Simple slots of a pair ring: needed by each end before its first Simple message.
    ///
    /// # Errors
    /// [`Error::NoSpace`].
    pub fn commit_pair_slots(&self, channel: u32, source: u32, destination: u32) -> Result<(), Error> {
        self.commit_slots(self.geometry.pair_offset(channel, source, destination), self.geometry.pair)
    }

    fn commit_slots(&self, ring: u64, shape: RingGeometry) -> Result<(), Error> {
        self.mapping.commit(ring + shape.simple_offset(), shape.simple_bytes())
    }

    fn ring(&self, offset: u64, shape: RingGeometry) -> Result<RingMemory, Error> {
        self.mapping.commit(offset, shape.simple_offset())?;
        // SAFETY: the offsets follow from the validated geometry, so each area is aligned (the ring starts on
        // a page) and inside the mapping; counters and lines were committed just now, Simple slots are
        // committed before their first use (`commit_*_slots`); the mapping is kept alive by the Arc.
        Ok(unsafe {
            RingMemory::new(
                shape,
                self.mapping.at(offset),
                self.mapping.at(offset + shape.receivers_offset()),
                self.mapping.at(offset + shape.ll_offset()),
                self.mapping.at(offset + shape.ll128_offset()),
                self.mapping.at(offset + shape.simple_offset()),
                Arc::<Mapping>::clone(&self.mapping),
            )
        })
    }

    /// Bytes of shared memory that the whole job has committed so far.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn committed_bytes(&self) -> Result<u64, Error> {
        self.mapping.committed_bytes()
    }
}

#[cfg(test)]
mod tests;
