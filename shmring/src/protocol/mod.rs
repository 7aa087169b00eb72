//! How one message lies in a slot and how it is published.
//!
//! | protocol | a slot is | data is there when | for |
//! | --- | --- | --- | --- |
//! | LL | 64-byte lines: 56 payload, flag | each line's flag names stamp and step | the smallest messages: one line is one cache-line transfer |
//! | LL128 | 128-byte lines: 120 payload, flag | each line's flag names stamp and step | small messages: half the flags |
//! | Simple | plain bytes | the sender's tail passes the step, and the slot's stamp is right | everything else: payload is contiguous and can be reduced in place |
//!
//! A flag is stored with Release after its line's payload, so the layouts do not rely on the atomicity of
//! wide stores: a reader that sees the flag sees the payload. They differ in cache-line transfers per message and
//! in the cost of packing, which is why they are chosen by size, see `docs/benchmarks.md`.

mod line;

pub(crate) use line::{Line, Reading, is_here, read_lines, write_lines};

use crate::layout::{LL_PAYLOAD, LL128_PAYLOAD, RingGeometry};

/// What a sender marks a message with and its receiver expects: a message with another stamp does not arrive.
///
/// The layer above derives it from what both sides are doing, so that data of one operation is never taken for that
/// of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp(pub u32);

impl Stamp {
    /// The flag of a line that belongs to message number `step`: the stamp above, the step plus one below.
    ///
    /// Steps repeat in the lower half after 2^32 messages. A line that nobody has written for exactly that long, and
    /// with the same stamp, would be taken for a new one; nothing shorter is.
    #[inline]
    pub(crate) fn flag(self, step: u64) -> u64 {
        u64::from(self.0) << 32 | u64::from((step as u32).wrapping_add(1))
    }
}

/// The layout of a message; NCCL's names, with the CPU meaning given above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Protocol {
    /// Flags in 64-byte lines.
    Ll = 0,
    /// Flags in 128-byte lines.
    Ll128 = 1,
    /// A counter beside the slot.
    Simple = 2,
}

impl Protocol {
    /// All protocols, by value.
    pub const ALL: [Self; 3] = [Self::Ll, Self::Ll128, Self::Simple];

    /// NCCL's name of the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ll => "LL",
            Self::Ll128 => "LL128",
            Self::Simple => "Simple",
        }
    }

    /// Largest payload of one message in a ring of this geometry, in bytes.
    #[inline]
    pub fn capacity(self, geometry: &RingGeometry) -> usize {
        match self {
            Self::Ll => geometry.ll_lines as usize * LL_PAYLOAD,
            Self::Ll128 => geometry.ll128_lines as usize * LL128_PAYLOAD,
            Self::Simple => geometry.slot_bytes as usize,
        }
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
