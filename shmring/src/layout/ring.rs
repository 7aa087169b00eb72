//! The shape of one ring: counter lines, then LL, LL128 and Simple slots, each in an area of its own.
//!
//! ```text
//! | SenderLine 128 | ReceiverLine 128 x receivers | LL 64 x lines x slots | LL128 128 x lines x slots | pad |
//! | Simple slot 0 | slot 1 | ... |            (page aligned)
//! ```
//!
//! The areas never share memory, because a Simple payload may hold any bytes, also such as look like a flag.

use super::PAGE;
use crate::error::Error;
use crate::sync::{AtomicU32, AtomicU64, PayloadWord};

/// Payload bytes of an [`LlLine`].
pub const LL_PAYLOAD: usize = 56;
/// Payload bytes of an [`Ll128Line`].
pub const LL128_PAYLOAD: usize = 120;

/// Most slots of a ring.
pub const SLOTS_MAX: u32 = 16;

/// Written by the sender only; read by the receivers.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct SenderLine {
    /// Steps posted since creation by counter; monotonic. Steps of the LL protocols do not move it.
    pub tail: AtomicU64,
    /// 0, or 1 once a sender has taken its role.
    pub taken: AtomicU32,
    /// The stamp of the Simple message in each slot. Those of eight slots share a cache line with `tail`.
    pub stamps: [AtomicU32; SLOTS_MAX as usize],
}

/// Written by one receiver only; read by the sender.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct ReceiverLine {
    /// Steps released by this receiver since creation; monotonic.
    pub head: AtomicU64,
    /// 0, or 1 once a receiver has taken its role.
    pub taken: AtomicU32,
}

/// One cache line that carries 56 bytes of payload and the flag that says they are there.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(64)))]
pub struct LlLine {
    /// Payload, valid while `flag` names the step.
    pub data: [PayloadWord; LL_PAYLOAD / 8],
    /// Stamp and step of the message that this line was last written for, see `Stamp::flag`; 0 in a new ring.
    pub flag: AtomicU64,
}

/// Two adjacent cache lines, which the prefetcher brings together, with one flag for 120 bytes.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct Ll128Line {
    /// Payload, valid while `flag` names the step.
    pub data: [PayloadWord; LL128_PAYLOAD / 8],
    /// Stamp and step of the message that this line was last written for, see `Stamp::flag`; 0 in a new ring.
    pub flag: AtomicU64,
}

#[cfg(not(loom))] // loom's types are larger than the real ones
const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(SenderLine, stamps) + 8 * size_of::<AtomicU32>() <= 64);
    assert!(size_of::<SenderLine>() == 128 && size_of::<ReceiverLine>() == 128);
    assert!(size_of::<LlLine>() == 64 && offset_of!(LlLine, flag) == 56);
    assert!(size_of::<Ll128Line>() == 128 && offset_of!(Ll128Line, flag) == 120);
};

impl SenderLine {
    /// The line of a new ring.
    pub fn new() -> Self {
        let stamps = std::array::from_fn(|_| AtomicU32::new(0));
        Self { tail: AtomicU64::new(0), taken: AtomicU32::new(0), stamps }
    }
}

impl ReceiverLine {
    /// The line of a new ring.
    pub fn new() -> Self {
        Self { head: AtomicU64::new(0), taken: AtomicU32::new(0) }
    }
}

impl LlLine {
    /// The line of a new ring.
    pub fn new() -> Self {
        Self { data: std::array::from_fn(|_| PayloadWord::zeroed()), flag: AtomicU64::new(0) }
    }
}

impl Ll128Line {
    /// The line of a new ring.
    pub fn new() -> Self {
        Self { data: std::array::from_fn(|_| PayloadWord::zeroed()), flag: AtomicU64::new(0) }
    }
}

macro_rules! impl_default {
    ($($line:ty),*) => { $(impl Default for $line { fn default() -> Self { Self::new() } })* };
}
impl_default!(SenderLine, ReceiverLine, LlLine, Ll128Line);

/// The sizes of one ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingGeometry {
    /// Receivers, each of which gets every message.
    pub receivers: u32,
    /// Slots; a power of two. A step uses slot `step % slots`.
    pub slots: u32,
    /// LL lines of a slot; may be 0.
    pub ll_lines: u32,
    /// LL128 lines of a slot; may be 0.
    pub ll128_lines: u32,
    /// Bytes of a Simple slot; a multiple of 64.
    pub slot_bytes: u32,
}

impl RingGeometry {
    /// Checks every bound.
    ///
    /// # Errors
    /// [`Error::Geometry`] with the first field out of bounds.
    pub fn validate(&self) -> Result<(), Error> {
        let fail = |what, found: u32, allowed| Err(Error::Geometry { what, found: found.into(), allowed });
        if self.receivers == 0 || self.receivers > super::MAX_MEMBERS {
            return fail("receivers", self.receivers, "1 to 1024");
        }
        if !self.slots.is_power_of_two() || self.slots > SLOTS_MAX {
            return fail("slots", self.slots, "a power of two up to 16");
        }
        if self.ll_lines > 1024 {
            return fail("ll_lines", self.ll_lines, "0 to 1024");
        }
        if self.ll128_lines > 8192 {
            return fail("ll128_lines", self.ll128_lines, "0 to 8192");
        }
        if !self.slot_bytes.is_multiple_of(64) || self.slot_bytes > 1 << 28 {
            return fail("slot_bytes", self.slot_bytes, "a multiple of 64 up to 256 MiB");
        }
        Ok(())
    }

    /// Offset of the receiver lines in the ring.
    pub fn receivers_offset(&self) -> u64 {
        128
    }

    /// Offset of the LL area in the ring.
    pub fn ll_offset(&self) -> u64 {
        128 + 128 * u64::from(self.receivers)
    }

    /// Offset of the LL128 area in the ring.
    pub fn ll128_offset(&self) -> u64 {
        (self.ll_offset() + 64 * u64::from(self.ll_lines) * u64::from(self.slots)).next_multiple_of(128)
    }

    /// Bytes from the ring's start to its Simple area: counters and LL lines.
    pub fn simple_offset(&self) -> u64 {
        (self.ll128_offset() + 128 * u64::from(self.ll128_lines) * u64::from(self.slots))
            .next_multiple_of(PAGE)
    }

    /// Bytes of the Simple area, whole pages.
    pub fn simple_bytes(&self) -> u64 {
        (u64::from(self.slot_bytes) * u64::from(self.slots)).next_multiple_of(PAGE)
    }

    /// Bytes of the whole ring, whole pages.
    pub fn total_bytes(&self) -> u64 {
        self.simple_offset() + self.simple_bytes()
    }
}
