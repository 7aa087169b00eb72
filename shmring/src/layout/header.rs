//! The segment's header and the record that each member keeps in it.

use super::{Geometry, Journal, LAYOUT_VERSION, MAGIC};
use crate::doorbell::{Bell, Sleepers};
use crate::sync::{AtomicU32, AtomicU64, Ordering, PayloadWord, read_words, write_words};

/// The words of the header's description, by position; each is 8 bytes at `8 * position`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum HeaderWord {
    /// [`MAGIC`].
    Magic = 0,
    /// [`LAYOUT_VERSION`].
    Version,
    /// Hash over the sizes and offsets of all shared structures.
    LayoutHash,
    /// Random number of the job, so that one job's name never matches another's content.
    Generation,
    /// Length of the file.
    TotalBytes,
    /// Ranks.
    Members,
    /// Channels.
    Channels,
    /// Slots of a fan ring.
    FanSlots,
    /// LL lines of a slot of a fan ring.
    FanLlLines,
    /// LL128 lines of a slot of a fan ring.
    FanLl128Lines,
    /// Bytes of a Simple slot of a fan ring.
    FanSlotBytes,
    /// Slots of a pair ring.
    PairSlots,
    /// LL lines of a slot of a pair ring.
    PairLlLines,
    /// LL128 lines of a slot of a pair ring.
    PairLl128Lines,
    /// Bytes of a Simple slot of a pair ring.
    PairSlotBytes,
    /// A number that stands for what the layer above must have in common on all ranks.
    Settings,
}

impl HeaderWord {
    /// How many words the description has.
    pub const COUNT: usize = Self::Settings as usize + 1;
    /// The names in order, as the documentation and error messages write them.
    pub const NAMES: [&'static str; Self::COUNT] = [
        "magic",
        "version",
        "layout_hash",
        "generation",
        "total_bytes",
        "members",
        "channels",
        "fan.slots",
        "fan.ll_lines",
        "fan.ll128_lines",
        "fan.slot_bytes",
        "pair.slots",
        "pair.ll_lines",
        "pair.ll128_lines",
        "pair.slot_bytes",
        "settings",
    ];
}

/// The first page of a segment.
///
/// Rules of access: `words` are written by the creator before `ready` and by nobody after; each later line
/// is its own.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct SegmentHeader {
    words: [PayloadWord; HeaderWord::COUNT],
    /// 0 until the description is whole, then 1. Published last.
    ready: AtomicU64,
    /// How many members have attached.
    #[cfg_attr(loom, expect(dead_code, reason = "counted by `segment`, which needs real mappings"))]
    pub(crate) attached: Line<AtomicU32>,
    /// How many members sleep on their bells.
    pub sleepers: Sleepers,
    /// 0, or the reason why this job has ended; see [`SegmentHeader::abort`].
    abort: Line<AtomicU64>,
}

/// A value with a cache-line pair of its own.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub(crate) struct Line<T>(pub(crate) T);

impl SegmentHeader {
    /// Where the reason why the job has ended lies in the header.
    #[cfg(ringccl_sim)]
    pub const ABORT_OFFSET: usize = std::mem::offset_of!(Self, abort);

    /// The header of zeroed memory.
    pub fn new() -> Self {
        Self {
            words: std::array::from_fn(|_| PayloadWord::zeroed()),
            ready: AtomicU64::new(0),
            attached: Line(AtomicU32::new(0)),
            sleepers: Sleepers::new(),
            abort: Line(AtomicU64::new(0)),
        }
    }

    /// The creator's last act: writes the description, then says that it is there.
    pub fn publish(&self, layout_hash: u64, generation: u64, settings: u64, geometry: &Geometry) {
        let mut values = [0; HeaderWord::COUNT];
        values[HeaderWord::Magic as usize] = MAGIC;
        values[HeaderWord::Version as usize] = LAYOUT_VERSION;
        values[HeaderWord::LayoutHash as usize] = layout_hash;
        values[HeaderWord::Generation as usize] = generation;
        values[HeaderWord::TotalBytes as usize] = geometry.total_bytes();
        values[HeaderWord::Settings as usize] = settings;
        for (word, value) in geometry.to_words() {
            values[word as usize] = value;
        }
        // SAFETY: only the creator writes the words, once, before `ready`; readers wait for `ready`.
        unsafe { write_words(&self.words, |to| to.copy_from(values.as_ptr().cast(), size_of_val(&values))) };
        // ORDERING: Release pairs with the Acquire in `description`: the words are visible with `ready`.
        self.ready.store(1, Ordering::Release);
    }

    /// The description, or `None` while the creator has not published it. Copied out once and untrusted.
    pub fn description(&self) -> Option<[u64; HeaderWord::COUNT]> {
        // ORDERING: Acquire pairs with the Release in `publish`.
        if self.ready.load(Ordering::Acquire) != 1 {
            return None;
        }
        let mut values = [0u64; HeaderWord::COUNT];
        let size = size_of_val(&values);
        // SAFETY: after `ready` no correct process writes the words; a hostile one can only change values,
        // which the caller checks in its private copy.
        unsafe { read_words(&self.words, |from| from.copy_to(values.as_mut_ptr().cast(), size)) };
        Some(values)
    }

    /// Ends the job for `reason` (not 0) unless it has ended already. Returns the reason that holds.
    pub fn abort(&self, reason: u64) -> u64 {
        debug_assert_ne!(reason, 0, "0 means running");
        // ORDERING: Release on success publishes what the caller wrote about the reason; Acquire on failure
        // pairs with the winner's Release. The caller rings every bell afterwards.
        match self.abort.0.compare_exchange(0, reason, Ordering::Release, Ordering::Acquire) {
            Ok(_) => reason,
            Err(earlier) => earlier,
        }
    }

    /// Why the job has ended, or 0 while it runs.
    #[inline]
    pub fn aborted(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release in `abort`.
        self.abort.0.load(Ordering::Acquire)
    }
}

impl Default for SegmentHeader {
    fn default() -> Self {
        Self::new()
    }
}

/// Words of a member's record that the layer above gives a meaning.
pub const MEMBER_WORDS: usize = 64;

/// Where a member stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MemberState {
    /// Not attached yet.
    Absent = 0,
    /// Attached.
    Here = 1,
    /// Left on purpose: its silence is no failure.
    Left = 2,
}

/// One member's record: its bell, who it is, and words for the layer above. Written by the member only,
/// except the bell.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct MemberRecord {
    /// Rung by peers.
    pub bell: Bell,
    /// State and progress.
    pub identity: MemberIdentity,
    /// For the layer above: single-writer words that any member may read at any time.
    pub words: [AtomicU64; MEMBER_WORDS],
    /// What the member has lately begun; the meaning is the layer's above.
    pub journal: Journal,
}

/// Process and progress of a member.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct MemberIdentity {
    /// Process id.
    pub pid: AtomicU64,
    /// The process's start time in clock ticks since boot, which tells a reused id apart.
    pub start_time: AtomicU64,
    /// Operations begun.
    pub started: AtomicU64,
    /// Operations finished.
    pub finished: AtomicU64,
    state: AtomicU32,
}

impl MemberRecord {
    /// A record of zeroed memory.
    pub fn new() -> Self {
        Self {
            bell: Bell::new(),
            identity: MemberIdentity {
                pid: AtomicU64::new(0),
                start_time: AtomicU64::new(0),
                started: AtomicU64::new(0),
                finished: AtomicU64::new(0),
                state: AtomicU32::new(MemberState::Absent as u32),
            },
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            journal: Journal::new(),
        }
    }
}

impl Default for MemberRecord {
    fn default() -> Self {
        Self::new()
    }
}

impl MemberIdentity {
    /// Announces a state; what the member wrote before is visible to whoever reads the state.
    pub fn set_state(&self, state: MemberState) {
        // ORDERING: Release pairs with the Acquire in `state`.
        self.state.store(state as u32, Ordering::Release);
    }

    /// The member's state; a value that no correct member writes reads as `Absent`.
    pub fn state(&self) -> MemberState {
        // ORDERING: Acquire pairs with the Release in `set_state`.
        match self.state.load(Ordering::Acquire) {
            1 => MemberState::Here,
            2 => MemberState::Left,
            _ => MemberState::Absent,
        }
    }
}

#[cfg(not(loom))]
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<SegmentHeader>() == 640);
    assert!(offset_of!(SegmentHeader, ready) == 8 * HeaderWord::COUNT);
    assert!(size_of::<MemberRecord>() == 1280);
    assert!(offset_of!(MemberRecord, identity) == 128 && offset_of!(MemberRecord, words) == 256);
    assert!(offset_of!(MemberRecord, journal) == 768);
};
