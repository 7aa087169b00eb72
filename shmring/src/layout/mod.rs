//! What the bytes of a segment mean: pure data and arithmetic, no access to memory.
//!
//! ```text
//! 0            4096                  members end (page)      fan rings end
//! | header     | member records ... | fan ring (ch 0, rank 0), ... | pair ring (ch 0, 0 -> 0), ... |
//! | mail ring (0 -> 0), (0 -> 1), ... | relay (ch 0), (ch 1), ... | signals to 0, 1, ... |    end (page)
//! ```
//!
//! Every offset follows from the [`Geometry`], which each process computes or validates once and keeps
//! privately; no offset is ever read from shared memory. The file is sparse: a ring takes memory only once
//! one of its ends commits it.

mod header;
mod journal;
mod relay;
mod ring;

pub use header::{HeaderWord, MEMBER_WORDS, MemberRecord, MemberState, SegmentHeader};
pub use journal::{JOURNAL_ENTRIES, JOURNAL_WORDS, Journal, Record};
pub use relay::{MemberTurn, PieceTurn, RelayGeometry};
pub use ring::{
    LL_PAYLOAD, LL128_PAYLOAD, Ll128Line, LlLine, ReceiverLine, RingGeometry, SLOTS_MAX, SenderLine,
};

use crate::error::Error;

/// `RINGCCL1`, little endian.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RINGCCL1");
/// Version of the layout in this module; changed with every change of it.
pub const LAYOUT_VERSION: u64 = 5;
/// Segments and their parts start and end on this boundary.
pub const PAGE: u64 = 4096;
/// Most members of one segment.
pub const MAX_MEMBERS: u32 = 1024;
/// Most channels of one segment.
pub const MAX_CHANNELS: u32 = 64;

/// What the mail rings between all ranks take at most, unless their slots are the least.
pub const MAIL_BYTES: u64 = 32 << 20;
/// Least bytes of a Simple slot of a mail ring, where pair rings have so many.
const MAIL_SLOT_LEAST: u64 = 1 << 10;

/// Blocks of a relay: one is filled and one read while the next members are on their way.
const RELAY_BLOCKS: u32 = 4;
/// Largest piece of a relay.
const RELAY_PIECE_BYTES: u32 = 256 << 10;
/// What the pieces of all relays take at most, unless they are the least.
pub const RELAY_BYTES: u64 = 32 << 20;
/// Least bytes of a piece, where rings have such slots.
const RELAY_PIECE_LEAST: u64 = 4 << 10;

/// The sizes that decide where everything in a segment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Ranks that share the segment.
    pub members: u32,
    /// Parallel lanes, each with its own rings.
    pub channels: u32,
    /// Shape of the rings from one rank to all others (one receiver line per member).
    pub fan: RingGeometry,
    /// Shape of the rings from one rank to one other.
    pub pair: RingGeometry,
}

impl Geometry {
    /// Checks every bound, so that no later offset can overflow.
    ///
    /// # Errors
    /// [`Error::Geometry`] with the first field out of bounds.
    pub fn validate(&self) -> Result<(), Error> {
        let bound = |what, found: u32, max: u32, allowed| {
            if found == 0 || found > max {
                return Err(Error::Geometry { what, found: found.into(), allowed });
            }
            Ok(())
        };
        bound("members", self.members, MAX_MEMBERS, "1 to 1024")?;
        bound("channels", self.channels, MAX_CHANNELS, "1 to 64")?;
        self.fan.validate()?;
        self.pair.validate()?;
        self.relay().validate()?;
        if self.fan.receivers != self.members || self.pair.receivers != 1 {
            return Err(Error::Geometry {
                what: "receivers of the fan rings",
                found: self.fan.receivers.into(),
                allowed: "the number of members, and 1 for pair rings",
            });
        }
        Ok(())
    }

    /// Offset of the record of `member`.
    #[inline]
    pub fn member_offset(&self, member: u32) -> u64 {
        assert!(member < self.members, "member {member} of {}", self.members);
        PAGE + u64::from(member) * size_of::<MemberRecord>() as u64
    }

    /// Offset of the ring from `source` to all other members on `channel`.
    pub fn fan_offset(&self, channel: u32, source: u32) -> u64 {
        assert!(channel < self.channels && source < self.members, "fan ring {channel}/{source}");
        let index = u64::from(channel) * u64::from(self.members) + u64::from(source);
        self.control_bytes() + index * self.fan.total_bytes()
    }

    /// Offset of the ring from `source` to `destination` on `channel`.
    pub fn pair_offset(&self, channel: u32, source: u32, destination: u32) -> u64 {
        assert!(channel < self.channels && source < self.members && destination < self.members);
        let members = u64::from(self.members);
        let index = (u64::from(channel) * members + u64::from(source)) * members + u64::from(destination);
        self.fans_end() + index * self.pair.total_bytes()
    }

    /// Shape of the ring for messages from one rank to one other beside all channels: as that of a pair ring, with
    /// slots so small that the rings between all ranks together stay within [`MAIL_BYTES`], as far as lines allow.
    pub fn mail(&self) -> RingGeometry {
        let rings = u64::from(self.members) * u64::from(self.members.saturating_sub(1)).max(1);
        let slot = MAIL_BYTES / rings / u64::from(self.pair.slots.max(1)) / 64 * 64;
        let slot_bytes = u64::from(self.pair.slot_bytes).min(slot.max(MAIL_SLOT_LEAST)) as u32;
        RingGeometry { slot_bytes, ..self.pair }
    }

    /// Offset of the mail ring from `source` to `destination`.
    pub fn mail_offset(&self, source: u32, destination: u32) -> u64 {
        assert!(source < self.members && destination < self.members);
        let index = u64::from(source) * u64::from(self.members) + u64::from(destination);
        self.pairs_end() + index * self.mail().total_bytes()
    }

    /// Shape of the relay of a channel: pieces are not larger than the slots of the rings to all, and so small that all
    /// of them, on all channels, stay within [`RELAY_BYTES`], unless there are very many members.
    pub fn relay(&self) -> RelayGeometry {
        let pieces = u64::from(self.members.max(1) * self.channels.max(1)) * u64::from(RELAY_BLOCKS);
        let each = (RELAY_BYTES / pieces / 64 * 64).max(RELAY_PIECE_LEAST);
        let piece_bytes = u64::from(self.fan.slot_bytes.min(RELAY_PIECE_BYTES)).min(each) as u32;
        RelayGeometry { members: self.members, blocks: RELAY_BLOCKS, piece_bytes }
    }

    /// Offset of the relay of `channel`.
    pub fn relay_offset(&self, channel: u32) -> u64 {
        assert!(channel < self.channels, "relay {channel} of {}", self.channels);
        self.mails_end() + u64::from(channel) * self.relay().total_bytes()
    }

    /// Bytes of header and member records: what the creator commits.
    pub fn control_bytes(&self) -> u64 {
        (PAGE + u64::from(self.members) * size_of::<MemberRecord>() as u64).next_multiple_of(PAGE)
    }

    /// Length of the sparse file.
    pub fn total_bytes(&self) -> u64 {
        self.relays_end() + u64::from(self.members) * self.signals_bytes()
    }

    /// Offset of the signals to `destination`: a counter for each member that sends some.
    pub fn signals_offset(&self, destination: u32) -> u64 {
        assert!(destination < self.members, "signals to {destination} of {}", self.members);
        self.relays_end() + u64::from(destination) * self.signals_bytes()
    }

    /// Bytes of the signals to one member.
    pub fn signals_bytes(&self) -> u64 {
        (u64::from(self.members) * 8).next_multiple_of(PAGE)
    }

    fn relays_end(&self) -> u64 {
        self.mails_end() + u64::from(self.channels) * self.relay().total_bytes()
    }

    fn mails_end(&self) -> u64 {
        let members = u64::from(self.members);
        self.pairs_end() + members * members * self.mail().total_bytes()
    }

    fn pairs_end(&self) -> u64 {
        let members = u64::from(self.members);
        self.fans_end() + u64::from(self.channels) * members * members * self.pair.total_bytes()
    }

    fn fans_end(&self) -> u64 {
        self.control_bytes() + u64::from(self.channels) * u64::from(self.members) * self.fan.total_bytes()
    }

    /// The header words that describe this geometry, in the order of the header.
    pub fn to_words(&self) -> [(HeaderWord, u64); 10] {
        [
            (HeaderWord::Members, self.members.into()),
            (HeaderWord::Channels, self.channels.into()),
            (HeaderWord::FanSlots, self.fan.slots.into()),
            (HeaderWord::FanLlLines, self.fan.ll_lines.into()),
            (HeaderWord::FanLl128Lines, self.fan.ll128_lines.into()),
            (HeaderWord::FanSlotBytes, self.fan.slot_bytes.into()),
            (HeaderWord::PairSlots, self.pair.slots.into()),
            (HeaderWord::PairLlLines, self.pair.ll_lines.into()),
            (HeaderWord::PairLl128Lines, self.pair.ll128_lines.into()),
            (HeaderWord::PairSlotBytes, self.pair.slot_bytes.into()),
        ]
    }
}

/// A hash of every size and offset of the shared structures: differs when two builds would read differently.
#[cfg(not(loom))]
pub fn layout_hash() -> u64 {
    use std::mem::{offset_of, size_of};
    let facts = [
        LAYOUT_VERSION,
        size_of::<SegmentHeader>() as u64,
        size_of::<MemberRecord>() as u64,
        offset_of!(MemberRecord, identity) as u64,
        offset_of!(MemberRecord, words) as u64,
        offset_of!(MemberRecord, journal) as u64,
        size_of::<SenderLine>() as u64,
        size_of::<ReceiverLine>() as u64,
        size_of::<LlLine>() as u64,
        size_of::<Ll128Line>() as u64,
        size_of::<MemberTurn>() as u64,
        size_of::<PieceTurn>() as u64,
        offset_of!(SenderLine, stamps) as u64,
        MEMBER_WORDS as u64,
        JOURNAL_ENTRIES as u64,
        HeaderWord::COUNT as u64,
    ];
    // FNV-1a over the little-endian bytes.
    facts.iter().flat_map(|fact| fact.to_le_bytes()).fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn geometry() -> Geometry {
        let ring =
            |receivers| RingGeometry { receivers, slots: 8, ll_lines: 4, ll128_lines: 8, slot_bytes: 65536 };
        Geometry { members: 3, channels: 2, fan: ring(3), pair: ring(1) }
    }

    /// No two parts of a segment overlap and the last one ends at the end of the file.
    #[test]
    fn parts_tile_the_file() {
        let g = geometry();
        g.validate().unwrap();
        let mut parts = vec![(0, PAGE)];
        for m in 0..g.members {
            parts.push((g.member_offset(m), size_of::<MemberRecord>() as u64));
        }
        for c in 0..g.channels {
            for s in 0..g.members {
                parts.push((g.fan_offset(c, s), g.fan.total_bytes()));
                for d in 0..g.members {
                    parts.push((g.pair_offset(c, s, d), g.pair.total_bytes()));
                }
            }
        }
        for s in 0..g.members {
            for d in 0..g.members {
                parts.push((g.mail_offset(s, d), g.mail().total_bytes()));
            }
        }
        for c in 0..g.channels {
            parts.push((g.relay_offset(c), g.relay().total_bytes()));
        }
        for d in 0..g.members {
            parts.push((g.signals_offset(d), g.signals_bytes()));
        }
        parts.sort_unstable();
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        let last = parts.last().unwrap();
        assert_eq!(last.0 + last.1, g.total_bytes());
    }

    /// Each bound of the geometry is refused by name.
    #[test]
    fn bounds_are_checked() {
        type Change = fn(&mut Geometry);
        let set: [(&str, Change); 7] = [
            ("members", |g| g.members = 0),
            ("members", |g| g.members = MAX_MEMBERS + 1),
            ("channels", |g| g.channels = 0),
            ("slots", |g| g.fan.slots = 3),
            ("slot_bytes", |g| g.pair.slot_bytes = 100),
            ("ll_lines", |g| g.pair.ll_lines = 1 << 20),
            ("receivers of the fan rings", |g| g.fan.receivers = 2),
        ];
        for (field, change) in set {
            let mut g = geometry();
            change(&mut g);
            match g.validate() {
                Err(Error::Geometry { what, .. }) => assert_eq!(what, field),
                other => panic!("{field}: {other:?}"),
            }
        }
    }
}
