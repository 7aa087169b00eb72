//! What a simulation of the machine replaces: every access to shared memory, sleeping, time.
//!
//! This module exists under `--cfg ringccl_sim` only. A simulation implements [`World`] and runs its ranks inside
//! [`install`]; code of this crate then asks the world of its thread at every access to shared memory, so that the
//! world decides who runs next and when a store becomes visible. A thread without a world behaves as in a normal build.
//!
//! ```text
//!  ring, doorbell, wait ──> sync, futex, clock ──> World (simulator crate) ──> memory of the segment
//! ```
//!
//! Payload of slots is handed out as addresses that live longer than one access ([`World::lend`]). A world
//! gives a private copy instead, and learns when the turn on the words ends ([`World::give_back`]).

pub(crate) mod atomics;
pub(crate) mod payload;

use crate::layout::Geometry;
use crate::sync::Ordering;
use std::cell::Cell;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A word of shared memory: 4 or 8 bytes, always accessed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// Four bytes.
    Small(NonNull<u32>),
    /// Eight bytes.
    Large(NonNull<u64>),
}

impl Word {
    /// Where the word lies.
    #[inline]
    pub fn address(self) -> usize {
        match self {
            Self::Small(at) => at.as_ptr().addr(),
            Self::Large(at) => at.as_ptr().addr(),
        }
    }

    /// What memory holds.
    ///
    /// # Safety
    /// - The memory is mapped, and no other thread writes it meanwhile.
    #[inline]
    pub unsafe fn read(self) -> u64 {
        // SAFETY: the caller's contract; words are aligned because they come from aligned types.
        unsafe {
            match self {
                Self::Small(at) => at.read().into(),
                Self::Large(at) => at.read(),
            }
        }
    }

    /// Changes what memory holds; a small word takes the low half.
    ///
    /// # Safety
    /// - The memory is mapped for writing, and no other thread accesses it meanwhile.
    #[inline]
    pub unsafe fn write(self, value: u64) {
        // SAFETY: as in `read`.
        unsafe {
            match self {
                Self::Small(at) => at.write(value as u32),
                Self::Large(at) => at.write(value),
            }
        }
    }
}

/// How a thread shows that it only waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// It stays on its core.
    Spin,
    /// It gives its core away.
    Yield,
}

/// The machine as ranks see it. Every method may run other ranks before it returns, except where it says otherwise.
pub trait World {
    /// The value that a load returns; without an ordering, one of plain memory.
    fn load(&self, word: Word, order: Option<Ordering>) -> u64;

    /// Stores a value; without an ordering, to plain memory.
    fn store(&self, word: Word, value: u64, order: Option<Ordering>);

    /// Changes a word in one step: `change` gets what memory holds and answers what replaces it, if anything.
    /// Returns what memory held.
    fn update(&self, word: Word, order: Ordering, change: &mut dyn FnMut(u64) -> Option<u64>) -> u64;

    /// A fence between accesses of the running rank.
    fn fence(&self, order: Ordering);

    /// What the running rank itself would load now; nobody else runs.
    fn peek(&self, word: Word) -> u64;

    /// An address where the running rank finds the payload words `words`, or writes them if `write`; valid until the
    /// simulation ends, meaningful until [`World::give_back`].
    fn lend(&self, words: &[Word], write: bool) -> *mut u8;

    /// The running rank's turn on the words that start at `address` ends: what it wrote is stored now.
    fn give_back(&self, address: usize);

    /// The running rank waits for another.
    fn pause(&self, pause: Pause);

    /// `FUTEX_WAIT`: sleeps if the word still is `seen`, until woken or `timeout` has passed; may return early.
    fn futex_wait(&self, word: Word, seen: u32, timeout: Duration);

    /// `futex_waitv`: as [`World::futex_wait`], on several words at a time.
    fn futex_wait_any(&self, words: &[(Word, u32)], timeout: Duration);

    /// `FUTEX_WAKE` for all sleepers.
    fn futex_wake(&self, word: Word);

    /// The present moment; nobody else runs.
    fn now(&self) -> Instant;

    /// Sleeps.
    fn sleep(&self, time: Duration);

    /// Cores that the simulated machine has; nobody else runs.
    fn cores(&self) -> usize;

    /// The member whose code runs; nobody else runs.
    fn running(&self) -> u32;

    /// The number of the thread that runs, of all of the simulation's; nobody else runs.
    fn thread(&self) -> u32;

    /// Starts a thread of the running member's process. It serves the others: the simulation does not wait for its end.
    fn spawn(&self, body: Box<dyn FnOnce()>);

    /// Members whose processes have ended, in order; nobody else runs.
    fn ended(&self) -> Vec<u32>;

    /// Whether a member's process is stopped; nobody else runs.
    fn is_stopped(&self, member: u32) -> bool;
}

thread_local! {
    static WORLD: Cell<Option<NonNull<dyn World>>> = const { Cell::new(None) };
    static MAPPED: Cell<Option<(usize, Geometry)>> = const { Cell::new(None) };
    static RUNS: Cell<u64> = const { Cell::new(0) };
}

/// How many simulations this thread has begun: what one of them leaves behind is not the next one's.
pub fn runs() -> u64 {
    RUNS.get()
}

/// Runs `body` with `world` in place of the machine, on this thread.
pub fn install<R>(world: &(dyn World + 'static), body: impl FnOnce() -> R) -> R {
    struct Restore(Option<NonNull<dyn World>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            WORLD.set(self.0);
        }
    }
    RUNS.set(RUNS.get() + 1);
    let _restore = Restore(WORLD.replace(Some(NonNull::from(world))));
    body()
}

/// Asks the world of this thread, if it has one.
#[inline]
pub fn with<R>(ask: impl FnOnce(&dyn World) -> R) -> Option<R> {
    // SAFETY: `install` borrows the world for as long as its address stands here.
    WORLD.get().map(|world| ask(unsafe { world.as_ref() }))
}

/// Notes where a segment of this process lies.
pub(crate) fn mapped(base: usize, geometry: &Geometry) {
    MAPPED.set(Some((base, *geometry)));
}

/// Base address and geometry of the last segment that this thread has made in its own memory.
pub fn last_mapped() -> Option<(usize, Geometry)> {
    MAPPED.get()
}
