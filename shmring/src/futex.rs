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

    /// The kernel's queue of sleepers on one word.
    #[derive(Debug, Default)]
    pub(super) struct Queue {
        lock: Mutex<()>,
        sleepers: Condvar,
    }

    /// Without a time-out: a lost wake-up must hang the model, so that loom reports it.
    pub(super) fn wait(futex: &FutexWord, seen: u32, _timeout: Duration) {
        let guard = futex.queue.lock.lock().unwrap();
        // ORDERING: Relaxed; the kernel promises no more than that the value is not older than the last wake-up.
        if futex.word.load(Ordering::Relaxed) == seen {
            drop(futex.queue.sleepers.wait(guard).unwrap());
        }
    }

    pub(super) fn wake_all(futex: &FutexWord) {
        let _guard = futex.queue.lock.lock().unwrap();
        futex.queue.sleepers.notify_all();
    }
}
