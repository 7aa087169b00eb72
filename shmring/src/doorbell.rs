//! One doorbell per member of a segment: how a waiter sleeps and is woken without a lost wake-up.
//!
//! ```text
//!   waiter                                  publisher
//!   seen = bell.word                        counter.store(step, Release)
//!   sleepers += 1, bell.sleeping = whom     fence(SeqCst)                 (a)
//!   fence(SeqCst)                (b)        if sleepers != 0 && bell.sleeping is me or anyone:
//!   if counter says ready: go on                bell.word += 1, wake
//!   if it now waits for another: start over
//!   else futex_wait(bell.word, seen)
//! ```
//!
//! Whichever fence comes first in the single order of (a) and (b) decides: if (a), the waiter's look after
//! (b) sees the counter; if (b), the publisher's look after (a) sees the sleeper, and its change of `word`
//! makes `futex_wait` return. A publisher that finds nobody asleep makes no system call.
//!
//! A sleeper names the member it waits for, so that the others do not wake it in vain: with many ranks on few
//! cores, waking everybody for every message costs more than the messages. The name must be the one that the last
//! look found; a look that is blocked by somebody else than announced starts over.
//!
//! Several threads of a member may sleep on its bell. If they wait for different members, the bell announces
//! "anyone", and a wake-up wakes all of them; and one thread may sleep on the bells of several segments at a time
//! ([`sleep_any`]).

use crate::futex::FutexWord;
use crate::sync::{AtomicU32, Ordering, fence};
use std::time::Duration;

/// A member's doorbell: rung by peers that moved a counter the member waits for.
///
/// Written by its owner's threads (`sleeping`) and by ringing peers (`word`), both only on the slow path.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct Bell {
    word: FutexWord,
    sleeping: AtomicU32,
}

/// The lower half of `sleeping`: for whom. The upper half counts the threads that sleep.
const WHOM: u32 = 0xffff;
/// One sleeping thread in `sleeping`.
const THREAD: u32 = WHOM + 1;

/// Whose doing ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaits {
    /// It may be any member's.
    Anyone,
    /// Only this member's.
    Member(u32),
}

impl Awaits {
    /// The lower half of what `sleeping` holds: 1 is "for anyone", above that a member's number plus two.
    fn code(self) -> u32 {
        match self {
            Self::Anyone => 1,
            // Members are fewer (`MAX_MEMBERS`); who is not is waited for as anyone.
            Self::Member(member) if member < WHOM - 2 => member + 2,
            Self::Member(_) => 1,
        }
    }

    /// Whether a sleeper that announced `self` is also woken by all that ends a wait for `now`.
    fn covers(self, now: Self) -> bool {
        self == Self::Anyone || self == now
    }
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

    /// Rings if a thread of the owner has announced that it sleeps until member `by`, or anyone, does something. Call
    /// [`Sleepers::any`] first.
    #[inline]
    pub fn ring(&self, by: u32) {
        // ORDERING: Relaxed; the fence in `Sleepers::any` orders this look after the counter's store.
        let announced = self.sleeping.load(Ordering::Relaxed) & WHOM;
        if announced == Awaits::Anyone.code() || announced == Awaits::Member(by).code() {
            self.word.wake_all();
        }
    }

    /// Rings whether or not the owner sleeps: for abort, where a spurious wake-up costs nothing.
    pub fn ring_always(&self) {
        self.word.wake_all();
    }

    /// Sleeps at most `timeout`, waiting for `awaits`, unless `look` after the announcement finds that the
    /// wait is over (`None`) or that it is for somebody else. Returns what it found.
    ///
    /// # Errors
    /// Those of `look`.
    pub fn sleep<E>(
        &self,
        sleepers: &Sleepers,
        timeout: Duration,
        awaits: Awaits,
        look: impl FnOnce() -> Result<Option<Awaits>, E>,
    ) -> Result<Option<Awaits>, E> {
        // ORDERING: this is fence (b) above: the announcement comes before the look at what is waited for.
        let seen = self.announce(sleepers, awaits);
        fence(Ordering::SeqCst);
        let answer = look();
        if matches!(answer, Ok(Some(now)) if awaits.covers(now)) {
            self.word.wait(seen, timeout);
        }
        self.withdraw(sleepers);
        answer
    }

    /// Says that one more thread sleeps; the word's value before, by which the kernel sees a ring since.
    fn announce(&self, sleepers: &Sleepers, awaits: Awaits) -> u32 {
        let seen = self.word.value();
        // ORDERING: Relaxed for both; the caller's fence puts them before the last look at the counters.
        sleepers.count.fetch_add(1, Ordering::Relaxed);
        self.change(|old| {
            let whom = if old < THREAD || old & WHOM == awaits.code() { awaits } else { Awaits::Anyone };
            (old & !WHOM).wrapping_add(THREAD) | whom.code()
        });
        seen
    }

    /// Says that one thread fewer sleeps.
    fn withdraw(&self, sleepers: &Sleepers) {
        // ORDERING: Relaxed; a publisher that still sees the announcement rings once too often. Of several threads the
        // others may go on waiting for whom the first one named.
        self.change(|old| if old < 2 * THREAD { 0 } else { old - THREAD });
        sleepers.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Replaces `sleeping` in one step: threads of one member may do so at the same time.
    fn change(&self, next: impl Fn(u32) -> u32) {
        // ORDERING: Relaxed, as where this is called.
        let mut old = self.sleeping.load(Ordering::Relaxed);
        while let Err(found) =
            self.sleeping.compare_exchange(old, next(old), Ordering::Relaxed, Ordering::Relaxed)
        {
            old = found;
        }
    }
}

/// One of the bells that a thread sleeps on.
#[derive(Clone, Copy, Debug)]
pub struct Nap<'a> {
    /// The thread's member's bell in a segment.
    pub bell: &'a Bell,
    /// The sleepers of that segment.
    pub sleepers: &'a Sleepers,
    /// Whose doing there ends the wait.
    pub awaits: Awaits,
}

/// Sleeps at most `timeout` on all `naps`, each bell once, unless `look` after the announcements answers that
/// something has changed (false). Returns what it answered.
///
/// # Errors
/// Those of `look`.
pub fn sleep_any<E>(
    naps: &[Nap<'_>],
    timeout: Duration,
    look: impl FnOnce() -> Result<bool, E>,
) -> Result<bool, E> {
    // ORDERING: fence (b) above, once for all bells.
    let seen: Vec<_> =
        naps.iter().map(|nap| (&nap.bell.word, nap.bell.announce(nap.sleepers, nap.awaits))).collect();
    fence(Ordering::SeqCst);
    let answer = look();
    if matches!(answer, Ok(true)) {
        FutexWord::wait_any(&seen, timeout);
    }
    naps.iter().for_each(|nap| nap.bell.withdraw(nap.sleepers));
    answer
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
