//! Sleeping on a word of shared memory: Linux futexes, or a model of them under loom.
//!
//! The protocol (change the word, then wake; sleep only if the word is still what was seen) is the same in both
//! builds; only the two calls into the kernel differ.

use crate::sync::{AtomicU32, Ordering};
use std::time::Duration;

/// A futex word. Not `PRIVATE`: the sleeper and the waker are different processes.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(transparent))]
pub(crate) struct FutexWord {
    word: AtomicU32,
    #[cfg(loom)]
    queue: kernel::Queue,
}

impl FutexWord {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            #[cfg(loom)]
            queue: kernel::Queue::default(),
        }
    }

    /// The word's value now, to be given to [`FutexWord::wait`].
    #[inline]
    pub(crate) fn value(&self) -> u32 {
        // ORDERING: Relaxed; the SeqCst fence in `Bell::sleep` follows and pairs with the Release in `wake_all`:
        // whoever reads the new value sees what the waker wrote before.
        self.word.load(Ordering::Relaxed)
    }

    /// Sleeps until the word differs from `seen`, a wake-up, a signal or the time-out; may return early.
    pub(crate) fn wait(&self, seen: u32, timeout: Duration) {
        kernel::wait(self, seen, timeout);
    }

    /// Sleeps until any of the words differs from what was seen of it, a wake-up, a signal or the time-out; may return
    /// early.
    pub(crate) fn wait_any(words: &[(&Self, u32)], timeout: Duration) {
        match words {
            [] => crate::clock::sleep(timeout),
            [(word, seen)] => word.wait(*seen, timeout),
            _ => kernel::wait_any(words, timeout),
        }
    }

    /// Changes the word and wakes every sleeper.
    #[cold]
    pub(crate) fn wake_all(&self) {
        // ORDERING: Release pairs with the fence in `Bell::sleep`, see `value`. A sleeper that read the old
        // value finds a different one when the kernel compares, and does not sleep.
        self.word.fetch_add(1, Ordering::Release);
        kernel::wake_all(self);
    }
}

#[cfg(not(loom))]
mod kernel {
    use super::{Duration, FutexWord};

    pub(super) fn wait(futex: &FutexWord, seen: u32, timeout: Duration) {
        #[cfg(ringccl_sim)]
        if crate::sim::with(|world| world.futex_wait(futex.word.word(), seen, timeout)).is_some() {
            return;
        }
        let time = libc::timespec {
            tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the word is a live, aligned u32 for the length of the call, and `time` is a valid
        // timespec; FUTEX_WAIT reads both and writes neither. Every result means "look again".
        unsafe {
            libc::syscall(libc::SYS_futex, futex.word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const time)
        };
    }

    /// Most words that the kernel takes at a time.
    const WORDS_MAX: usize = 128;
    /// How long a thread sleeps that cannot be woken by all of its words.
    const SHORT: Duration = Duration::from_millis(1);

    /// `struct futex_waitv` of the kernel.
    #[repr(C)]
    struct Wait {
        value: u64,
        address: u64,
        flags: u32,
        reserved: u32,
    }

    /// Sleeps on many words. A kernel before 5.16, or a sandbox without this call, sleeps on the first one, and only
    /// for a short time; so do the words beyond the most that the kernel takes.
    pub(super) fn wait_any(words: &[(&FutexWord, u32)], timeout: Duration) {
        #[cfg(ringccl_sim)]
        {
            let all: Vec<_> = words.iter().map(|(futex, seen)| (futex.word.word(), *seen)).collect();
            if crate::sim::with(|world| world.futex_wait_any(&all, timeout)).is_some() {
                return;
            }
        }
        let (first, seen) = words[0];
        if words.len() > WORDS_MAX {
            return wait(first, seen, timeout.min(SHORT));
        }
        // 32-bit words that other processes use too.
        const FUTEX2_SIZE_U32: u32 = 2;
        let waits: Vec<Wait> = words
            .iter()
            .map(|(futex, seen)| Wait {
                value: (*seen).into(),
                address: futex.word.as_ptr().addr() as u64,
                flags: FUTEX2_SIZE_U32,
                reserved: 0,
            })
            .collect();
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes one timespec to a valid place; this clock always exists on Linux.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut until) };
        let nanos = until.tv_nsec + libc::c_long::from(timeout.subsec_nanos());
        until.tv_sec += libc::time_t::try_from(timeout.as_secs()).unwrap_or(1 << 30) + nanos / 1_000_000_000;
        until.tv_nsec = nanos % 1_000_000_000;
        // SAFETY: every word is a live, aligned u32 for the length of the call, and the list and `until` are valid;
        // the call reads them and writes nothing. Every result but "no such call" means "look again".
        let result = unsafe {
            libc::syscall(
                libc::SYS_futex_waitv,
                waits.as_ptr(),
                waits.len() as u32,
                0,
                &raw const until,
                libc::CLOCK_MONOTONIC,
            )
        };
        if result < 0 && matches!(nix::errno::Errno::last_raw(), libc::ENOSYS | libc::EPERM | libc::EINVAL) {
            wait(first, seen, timeout.min(SHORT));
        }
    }

    pub(super) fn wake_all(futex: &FutexWord) {
        #[cfg(ringccl_sim)]
        if crate::sim::with(|world| world.futex_wake(futex.word.word())).is_some() {
            return;
        }
        // SAFETY: the word is a live, aligned u32; FUTEX_WAKE does not access its value.
        unsafe { libc::syscall(libc::SYS_futex, futex.word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// What the kernel promises: it compares the word and queues the sleeper in one step with respect to wake-ups.
#[cfg(loom)]
mod kernel {
    use super::{Duration, FutexWord, Ordering};
    use loom::sync::{Condvar, Mutex};
    use std::sync::Arc;

    /// The kernel's queue of sleepers on one word.
    #[derive(Debug, Default)]
    pub(super) struct Queue {
        /// Those that sleep on other words, too; the lock also stands for the kernel's on the word.
        many: Mutex<Vec<Arc<Sleeper>>>,
        /// All others.
        sleepers: Condvar,
    }

    /// One call that sleeps on several words.
    #[derive(Debug, Default)]
    struct Sleeper {
        is_woken: Mutex<bool>,
        wake: Condvar,
    }

    /// Without a time-out: a lost wake-up must hang the model, so that loom reports it.
    pub(super) fn wait(futex: &FutexWord, seen: u32, _timeout: Duration) {
        let guard = futex.queue.many.lock().unwrap();
        // ORDERING: Relaxed; the kernel promises no more than that the value is not older than the last wake-up.
        if futex.word.load(Ordering::Relaxed) == seen {
            drop(futex.queue.sleepers.wait(guard).unwrap());
        }
    }

    /// As `futex_waitv`: compares and queues word by word, then sleeps unless one that was queued has been woken.
    pub(super) fn wait_any(words: &[(&FutexWord, u32)], _timeout: Duration) {
        let sleeper = Arc::new(Sleeper::default());
        let all_as_seen = words.iter().all(|(futex, seen)| {
            let mut queue = futex.queue.many.lock().unwrap();
            // ORDERING: Relaxed, as in `wait`.
            let is_as_seen = futex.word.load(Ordering::Relaxed) == *seen;
            if is_as_seen {
                queue.push(Arc::clone(&sleeper));
            }
            is_as_seen
        });
        let mut is_woken = sleeper.is_woken.lock().unwrap();
        while all_as_seen && !*is_woken {
            is_woken = sleeper.wake.wait(is_woken).unwrap();
        }
        drop(is_woken);
        for (futex, _) in words {
            futex.queue.many.lock().unwrap().retain(|other| !Arc::ptr_eq(other, &sleeper));
        }
    }

    pub(super) fn wake_all(futex: &FutexWord) {
        let mut queue = futex.queue.many.lock().unwrap();
        futex.queue.sleepers.notify_all();
        for sleeper in queue.drain(..) {
            *sleeper.is_woken.lock().unwrap() = true;
            sleeper.wake.notify_one();
        }
    }
}
