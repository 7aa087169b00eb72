//! Sleeping on a word of shared memory: Linux futexes, or a model of them under loom.

use crate::sync::{AtomicU32, Ordering};
use std::time::Duration;

/// A futex word. Not `PRIVATE`: the sleeper and the waker are different processes.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(transparent))]
pub(crate) struct FutexWord {
    word: AtomicU32,
    #[cfg(loom)]
    queue: (loom::sync::Mutex<()>, loom::sync::Condvar),
}

impl FutexWord {
    pub(crate) fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            #[cfg(loom)]
            queue: (loom::sync::Mutex::new(()), loom::sync::Condvar::new()),
        }
    }

    /// The word's value now, to be given to [`FutexWord::wait`].
    #[inline]
    pub(crate) fn value(&self) -> u32 {
        // ORDERING: Acquire pairs with the Release in `wake_all`: what the waker wrote before is visible.
        self.word.load(Ordering::Acquire)
    }

    /// Sleeps until the word differs from `seen`, a wake-up, a signal or the time-out; may return early.
    pub(crate) fn wait(&self, seen: u32, timeout: Duration) {
        #[cfg(not(loom))]
        {
            let time = libc::timespec {
                tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            };
            // SAFETY: the word is a live, aligned u32 for the length of the call, and `time` is a valid
            // timespec; FUTEX_WAIT reads both and writes neither. Every result means "look again".
            unsafe {
                libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAIT, seen, &raw const time)
            };
        }
        #[cfg(loom)]
        {
            let _ = timeout; // A lost wake-up must hang the model, so that loom reports it.
            let guard = self.queue.0.lock().unwrap();
            if self.word.load(Ordering::Acquire) == seen {
                drop(self.queue.1.wait(guard).unwrap());
            }
        }
    }

    /// Changes the word and wakes every sleeper.
    #[cold]
    pub(crate) fn wake_all(&self) {
        // ORDERING: Release pairs with the Acquire in `value`. A sleeper that read the old value finds a
        // different one when the kernel compares, and does not sleep.
        #[cfg(not(loom))]
        {
            self.word.fetch_add(1, Ordering::Release);
            // SAFETY: the word is a live, aligned u32; FUTEX_WAKE does not access its value.
            unsafe { libc::syscall(libc::SYS_futex, self.word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
        }
        #[cfg(loom)]
        {
            let _guard = self.queue.0.lock().unwrap();
            self.word.fetch_add(1, Ordering::Release);
            self.queue.1.notify_all();
        }
    }
}
