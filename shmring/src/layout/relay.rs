//! The shape of a relay: lines of its members and of its pieces, then the pieces.
//!
//! ```text
//! | MemberTurn 128 x members | PieceTurn 128 x blocks x members | pad |
//! | piece 0 of block 0 | piece 1 of block 0 | ... | piece 0 of block 1 | ... |       (page aligned)
//! ```

use super::PAGE;
use crate::error::Error;
use crate::sync::{AtomicU32, AtomicU64};

/// What one member has done with the blocks. Written by that member only.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct MemberTurn {
    /// Blocks that it needs no more; monotonic.
    pub done: AtomicU64,
    /// 0, or 1 once the member has taken its role.
    pub taken: AtomicU32,
}

/// How far a piece is. Written by the member whose turn it is.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct PieceTurn {
    /// Stamp and turn of the last contribution, see `Stamp::flag`; 0 in a new relay.
    pub turn: AtomicU64,
}

#[cfg(not(loom))] // loom's types are larger than the real ones
const _: () = assert!(size_of::<MemberTurn>() == 128 && size_of::<PieceTurn>() == 128);

impl MemberTurn {
    /// The line of a new relay.
    pub fn new() -> Self {
        Self { done: AtomicU64::new(0), taken: AtomicU32::new(0) }
    }
}

impl PieceTurn {
    /// The line of a new relay.
    pub fn new() -> Self {
        Self { turn: AtomicU64::new(0) }
    }
}

impl Default for MemberTurn {
    fn default() -> Self {
        Self::new()
    }
}

impl Default for PieceTurn {
    fn default() -> Self {
        Self::new()
    }
}

/// The sizes of one relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayGeometry {
    /// Members, and pieces of a block.
    pub members: u32,
    /// Blocks that can be under way at once. Block `b` of all lies where block `b % blocks` does.
    pub blocks: u32,
    /// Bytes of a piece; a multiple of 64.
    pub piece_bytes: u32,
}

impl RelayGeometry {
    /// Checks every bound.
    ///
    /// # Errors
    /// [`Error::Geometry`] with the first field out of bounds.
    pub fn validate(&self) -> Result<(), Error> {
        let fail = |what, found: u32, allowed| Err(Error::Geometry { what, found: found.into(), allowed });
        if self.members == 0 || self.members > super::MAX_MEMBERS {
            return fail("members of a relay", self.members, "1 to 1024");
        }
        if self.blocks == 0 || self.blocks > 16 {
            return fail("blocks of a relay", self.blocks, "1 to 16");
        }
        if !self.piece_bytes.is_multiple_of(64) || self.piece_bytes > 1 << 26 {
            return fail("piece_bytes", self.piece_bytes, "a multiple of 64 up to 64 MiB");
        }
        Ok(())
    }

    /// Pieces of all blocks.
    pub fn pieces(&self) -> u64 {
        u64::from(self.blocks) * u64::from(self.members)
    }

    /// Offset of the pieces' lines.
    pub fn turns_offset(&self) -> u64 {
        128 * u64::from(self.members)
    }

    /// Offset of the pieces.
    pub fn pieces_offset(&self) -> u64 {
        (self.turns_offset() + 128 * self.pieces()).next_multiple_of(PAGE)
    }

    /// Bytes of the whole relay, whole pages.
    pub fn total_bytes(&self) -> u64 {
        (self.pieces_offset() + u64::from(self.piece_bytes) * self.pieces()).next_multiple_of(PAGE)
    }
}
