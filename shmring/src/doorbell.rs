//! One doorbell per member of a segment: how a waiter sleeps and is woken without a lost wake-up.
//!
//! ```text
//!   waiter                                  publisher
//!   seen = bell.word                        counter.store(step, Release)
//!   sleepers += 1, bell.sleeping = 1        fence(SeqCst)                 (a)
//!   fence(SeqCst)                (b)        if sleepers != 0 && bell.sleeping:
//!   if counter says ready: go on                bell.word += 1, wake
//!   else futex_wait(bell.word, seen)
//! ```
//!
//! Whichever fence comes first in the single order of (a) and (b) decides: if (a), the waiter's look after
//! (b) sees the counter; if (b), the publisher's look after (a) sees the sleeper, and its change of `word`
//! makes `futex_wait` return. A publisher that finds nobody asleep makes no system call.

use crate::futex::FutexWord;
use crate::sync::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// A member's doorbell: rung by peers that moved a counter the member waits for.
///
/// Written by its owner (`sleeping`) and by ringing peers (`word`), both only on the slow path.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct Bell {
    word: FutexWord,
    sleeping: AtomicU32,
}

/// How many members sleep now. One line that every publisher reads and only sleepers write.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct Sleepers {
    count: AtomicU32,
}

impl Bell {
    /// A bell that nobody waits for, as zeroed shared memory is.
    pub fn new() -> Self {
        Self { word: FutexWord::new(), sleeping: AtomicU32::new(0) }
    }

    /// Rings if the owner has announced that it sleeps. Call [`Sleepers::any`] first.
    #[inline]
    pub fn ring(&self) {
        // ORDERING: Relaxed; the fence in `Sleepers::any` orders this look after the counter's store.
        if self.sleeping.load(Ordering::Relaxed) != 0 {
            self.word.wake_all();
        }
    }

    /// Rings whether or not the owner sleeps: for abort, where a spurious wake-up costs nothing.
    pub fn ring_always(&self) {
        self.word.wake_all();
    }

    /// Sleeps at most `timeout`, unless `ready` answers true after the announcement. Returns its answer.
    pub fn sleep<E>(
        &self,
        sleepers: &Sleepers,
        timeout: Duration,
        ready: impl FnOnce() -> Result<bool, E>,
    ) -> Result<bool, E> {
        let seen = self.word.value();
        // ORDERING: Relaxed for both; the fence below puts them before the last look at the counters.
        sleepers.count.fetch_add(1, Ordering::Relaxed);
        self.sleeping.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let answer = ready();
        if matches!(answer, Ok(false)) {
            self.word.wait(seen, timeout);
        }
        // ORDERING: Relaxed; a publisher that still sees the announcement rings once too often.
        self.sleeping.store(0, Ordering::Relaxed);
        sleepers.count.fetch_sub(1, Ordering::Relaxed);
        answer
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

impl Sleepers {
    /// Nobody sleeps, as in zeroed shared memory.
    pub fn new() -> Self {
        Self { count: AtomicU32::new(0) }
    }

    /// After the caller's counter stores: whether any member may be asleep and needs its bell rung.
    #[inline]
    pub fn any(&self) -> bool {
        // ORDERING: this is fence (a) above: the caller's counter stores come before the look at sleepers.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) != 0
    }
}

impl Default for Sleepers {
    fn default() -> Self {
        Self::new()
    }
}
