//! Relays: pieces of shared memory that go from member to member, each adding to what it finds there.
//!
//! ```text
//!   piece q of block b:   member q        q + 1         ...    q - 1          everybody
//!                         writes          adds                 adds           reads, then: done += 1
//!   turn                  0         ->    1         ->         n - 1    ->
//! ```
//!
//! All members work at the same time, each on another piece. The sum of all inputs takes as much memory as one of them,
//! where rings would keep a copy of every input: so it stays in the cache.
//!
//! 1. A piece's line is written by the member whose turn it is only, each member's line by that member only.
//! 2. A piece belongs to the member with turn 0 from the moment it sees that all have done with block `b - blocks`, to
//!    the member with turn `t` from the moment it sees turn `t - 1` passed, each until it passes its own; after the
//!    last turn it belongs to all, until each has done with the block.
//! 3. Each member keeps a private copy of the least `done` of all, and looks at the lines only when that says "full".

use crate::error::Error;
use crate::layout::{MemberTurn, PieceTurn, RelayGeometry};
use crate::protocol::Stamp;
use crate::sync::{Ordering, PayloadWord, give_back, lend_words};
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Where a relay's parts lie, and what keeps that memory alive.
pub(crate) struct RelayMemory {
    geometry: RelayGeometry,
    members: NonNull<MemberTurn>,
    turns: NonNull<PieceTurn>,
    pieces: NonNull<PayloadWord>,
    /// Held for its `Drop` only: the pointers above point into it.
    _keep: Arc<dyn Any + Send + Sync>,
}

impl std::fmt::Debug for RelayMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayMemory").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl Clone for RelayMemory {
    fn clone(&self) -> Self {
        Self { _keep: Arc::clone(&self._keep), ..*self }
    }
}

// SAFETY: the pointers lead to atomics and `PayloadWord`s, which are shared by design and accessed under the rules
// above; `_keep` is Send and Sync.
unsafe impl Send for RelayMemory {}

impl RelayMemory {
    /// # Safety
    /// - The pointers are aligned and lead to zero-initialised (or live relay) memory of the sizes that `geometry`
    ///   gives; that memory stays valid while `keep` lives.
    /// - `geometry` has been validated.
    pub(crate) unsafe fn new(
        geometry: RelayGeometry,
        members: NonNull<MemberTurn>,
        turns: NonNull<PieceTurn>,
        pieces: NonNull<PayloadWord>,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self { geometry, members, turns, pieces, _keep: keep }
    }

    fn members(&self) -> &[MemberTurn] {
        // SAFETY: `members` lines lie there (contract of `new`); only atomics inside.
        unsafe { std::slice::from_raw_parts(self.members.as_ptr(), self.geometry.members as usize) }
    }

    /// Which of all pieces this is.
    #[inline]
    fn index(&self, block: u64, piece: u32) -> usize {
        let RelayGeometry { members, blocks, .. } = self.geometry;
        assert!(piece < members, "piece {piece} of {members}");
        (block % u64::from(blocks)) as usize * members as usize + piece as usize
    }

    #[inline]
    fn turn(&self, block: u64, piece: u32) -> &PieceTurn {
        // SAFETY: the index is below `pieces`, and so many lines lie there (contract of `new`).
        unsafe { self.turns.add(self.index(block, piece)).as_ref() }
    }

    #[inline]
    fn words(&self, block: u64, piece: u32) -> &[PayloadWord] {
        let words = self.geometry.piece_bytes as usize / 8;
        // SAFETY: as in `turn`; each piece has so many words.
        unsafe {
            std::slice::from_raw_parts(self.pieces.as_ptr().add(self.index(block, piece) * words), words)
        }
    }
}

/// One member of a relay. `Send`, not `Clone`: the type is the role.
#[derive(Debug)]
pub struct Relay {
    memory: RelayMemory,
    member: u32,
    /// The first block of the operation that runs.
    base: u64,
    /// Blocks that this member needs no more.
    done: u64,
    /// The least `done` of all members, as last seen.
    done_cache: u64,
    carried: u64,
}

impl Relay {
    /// Takes the role of `member`.
    ///
    /// # Errors
    /// [`Error::RoleTaken`] if the relay has this member.
    pub(crate) fn attach(memory: RelayMemory, member: u32) -> Result<Self, Error> {
        super::take_role(&memory.members()[member as usize].taken, "relay member")?;
        Ok(Self { memory, member, base: 0, done: 0, done_cache: 0, carried: 0 })
    }

    /// Begins an operation: its first block is number 0 from now on. Every block of the one before is finished.
    #[inline]
    pub fn begin(&mut self) {
        self.base = self.done;
    }

    /// Contributions of this member so far.
    pub fn carried(&self) -> u64 {
        self.carried
    }

    /// Bytes of a piece.
    pub fn piece_bytes(&self) -> usize {
        self.memory.geometry.piece_bytes as usize
    }

    /// The step of a contribution: turns of a piece, one block after the other.
    #[inline]
    fn step(&self, block: u64, turn: u32) -> u64 {
        (self.base + block) * u64::from(self.memory.geometry.members) + u64::from(turn)
    }

    /// Whether the pieces of `block` of this operation are free for their first contributions.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when a member claims to have done with blocks that cannot have begun, or with fewer than it
    /// had.
    #[inline]
    pub fn has_credit(&mut self, block: u64) -> Result<bool, Error> {
        let (block, blocks) = (self.base + block, u64::from(self.memory.geometry.blocks));
        if block < self.done_cache + blocks {
            return Ok(true);
        }
        let mut least = self.done;
        for line in self.memory.members() {
            // ORDERING: Acquire pairs with the Release in `finish`: the member's reads of the block are over before
            // this side writes to it.
            let done = line.done.load(Ordering::Acquire);
            if done > self.done + blocks || done < self.done_cache {
                return Err(Error::corrupt("a relay member's blocks", done, self.done));
            }
            least = least.min(done);
        }
        self.done_cache = least;
        Ok(block < least + blocks)
    }

    /// Whether contribution `turn` to a piece has been made, in the operation of this stamp.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the piece claims a turn that nobody can have had.
    #[inline]
    pub fn has_passed(&self, block: u64, piece: u32, turn: u32, stamp: Stamp) -> Result<bool, Error> {
        let flag = stamp.flag(self.step(block, turn));
        // ORDERING: Acquire pairs with the Release in `pass`: the contribution's bytes come with it.
        let found = self.memory.turn(self.base + block, piece).turn.load(Ordering::Acquire);
        if found == flag {
            return Ok(true);
        }
        // Older turns and other stamps wait here to be overwritten; later turns take one of ours.
        let ahead = (found as u32).wrapping_sub(flag as u32);
        if (1..=2 * self.memory.geometry.members).contains(&ahead) {
            return Err(Error::corrupt("a piece's turn", found, flag));
        }
        Ok(false)
    }

    /// Runs `f` on the memory of a piece and its length in bytes; the pointer may be used until [`Relay::pass`], or
    /// [`Relay::finish`] of the block.
    ///
    /// # Safety
    /// - With `write`, it is this member's turn: for turn 0 there is credit, for any other the turn before has passed.
    ///   Without, the last turn has passed.
    /// - `f` and whoever gets the pointer from it stay inside the piece, write only with `write`, and expect any
    ///   content.
    #[inline]
    pub unsafe fn piece<R>(
        &self,
        block: u64,
        piece: u32,
        write: bool,
        f: impl FnOnce(*mut u8, usize) -> R,
    ) -> R {
        let words = self.memory.words(self.base + block, piece);
        // SAFETY: the caller's contract and rule 2.
        unsafe { lend_words(words, write, |at| f(at, size_of_val(words))) }
    }

    /// Ends this member's `turn` on a piece.
    ///
    /// Non-temporal stores into the piece must have been fenced by whoever issued them.
    #[inline]
    pub fn pass(&mut self, block: u64, piece: u32, turn: u32, stamp: Stamp) {
        give_back(self.memory.words(self.base + block, piece));
        // ORDERING: Release pairs with the Acquire in `has_passed`: the piece's bytes come with the turn.
        let flag = stamp.flag(self.step(block, turn));
        self.memory.turn(self.base + block, piece).turn.store(flag, Ordering::Release);
        self.carried += 1;
    }

    /// Ends the reading of a piece; nothing happens outside of a simulation.
    #[inline]
    pub fn give_back(&self, block: u64, piece: u32) {
        give_back(self.memory.words(self.base + block, piece));
    }

    /// Says that this member needs the oldest of its blocks no more.
    #[inline]
    pub fn finish(&mut self) {
        self.done += 1;
        // ORDERING: Release pairs with the Acquire in `has_credit`: our reads of the block come before the next writes.
        self.memory.members()[self.member as usize].done.store(self.done, Ordering::Release);
    }
}

struct HeapRelay {
    members: Box<[MemberTurn]>,
    turns: Box<[PieceTurn]>,
    pieces: Box<[PayloadWord]>,
}

/// The members of a relay in this process's own memory: for model checking.
///
/// # Errors
/// [`Error::Geometry`] when a size is out of bounds.
pub fn heap_relay(geometry: RelayGeometry) -> Result<Vec<Relay>, Error> {
    geometry.validate()?;
    let words = geometry.pieces() * u64::from(geometry.piece_bytes) / 8;
    let heap = Arc::new(HeapRelay {
        members: (0..geometry.members).map(|_| MemberTurn::new()).collect(),
        turns: (0..geometry.pieces()).map(|_| PieceTurn::new()).collect(),
        pieces: (0..words).map(|_| PayloadWord::zeroed()).collect(),
    });
    // SAFETY: the boxes have the sizes that the geometry gives, are initialised, and live in `heap`.
    let memory = unsafe {
        RelayMemory::new(
            geometry,
            NonNull::from(&*heap.members).cast(),
            NonNull::from(&*heap.turns).cast(),
            NonNull::from(&*heap.pieces).cast(),
            Arc::<HeapRelay>::clone(&heap),
        )
    };
    (0..geometry.members).map(|member| Relay::attach(memory.clone(), member)).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHAPE: RelayGeometry = RelayGeometry { members: 3, blocks: 2, piece_bytes: 64 };
    const STAMP: Stamp = Stamp(9);

    /// Takes a turn whose time has come: adds `value` to the first word.
    fn add(relay: &mut Relay, block: u64, piece: u32, turn: u32, value: u64) {
        // SAFETY: one word of the piece, whose turn the caller has looked for.
        unsafe {
            relay.piece(block, piece, true, |at, len| {
                assert_eq!(len, 64);
                let word: *mut u64 = at.cast();
                *word = if turn == 0 { value } else { *word + value };
            });
        }
        relay.pass(block, piece, turn, STAMP);
    }

    /// Over three operations of five blocks every piece goes round all members before anybody finds it complete, and no
    /// member gets more than two blocks ahead of the slowest.
    #[test]
    fn pieces_go_round() {
        let mut members = heap_relay(SHAPE).unwrap();
        for operation in 0..3 {
            members.iter_mut().for_each(Relay::begin);
            for block in 0..5 {
                for piece in 0..3u32 {
                    for turn in 0..3 {
                        let here = ((piece + turn) % 3) as usize;
                        let is_complete = members[0].has_passed(block, piece, 2, STAMP).unwrap();
                        assert!(!is_complete, "{operation} {block} {piece} {turn}");
                        assert!(members[here].has_credit(block).unwrap());
                        add(&mut members[here], block, piece, turn, 1 << (8 * turn));
                    }
                }
                for member in &mut members {
                    assert!(member.has_credit(block + 1).unwrap());
                    assert!(!member.has_credit(block + 2).unwrap(), "the slowest has not done with it");
                }
                for member in &mut members {
                    for piece in 0..3 {
                        assert!(member.has_passed(block, piece, 2, STAMP).unwrap());
                        assert!(
                            !member.has_passed(block, piece, 2, Stamp(8)).unwrap(),
                            "another operation's"
                        );
                        // SAFETY: one word of a complete piece, which begins a line.
                        let sum: u64 = unsafe {
                            member.piece(block, piece, false, |at, _| at.cast::<u64>().read_unaligned())
                        };
                        assert_eq!(sum, 0x01_0101);
                    }
                    member.finish();
                }
            }
        }
        assert_eq!(members[1].carried(), 3 * 5 * 3);
    }

    /// What no correct member writes is an error: a turn that nobody can have had, blocks that nobody can have done.
    #[test]
    fn nonsense_is_told() {
        let mut members = heap_relay(SHAPE).unwrap();
        let other = Relay { memory: members[0].memory.clone(), ..heap_relay(SHAPE).unwrap().remove(1) };
        // ORDERING: Relaxed; one thread.
        other.memory.turn(0, 1).turn.store(STAMP.flag(2), Ordering::Relaxed);
        assert!(matches!(members[0].has_passed(0, 1, 0, STAMP), Err(Error::Corrupt { .. })));
        assert!(!members[0].has_passed(0, 2, 0, STAMP).unwrap());
        other.memory.members()[1].done.store(3, Ordering::Relaxed);
        assert!(members[0].has_credit(1).unwrap(), "not looked at while there is credit");
        assert!(matches!(members[0].has_credit(2), Err(Error::Corrupt { .. })));
    }

    /// A member's place is taken once.
    #[test]
    fn roles_are_taken_once() {
        let members = heap_relay(SHAPE).unwrap();
        let again = Relay::attach(members[0].memory.clone(), 2);
        assert!(matches!(again, Err(Error::RoleTaken { .. })));
    }
}
