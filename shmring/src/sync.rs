//! The only file that names atomics, cells and spin hints: the real ones, loom's under `--cfg loom`, or those of a
//! simulated machine under `--cfg ringccl_sim` (see `sim`).
//!
//! Everything two threads or two processes share is one of the types re-exported here, so that a model
//! checker sees each access. Payload is made of [`PayloadWord`]s: plain memory in a mapping, a tracked cell
//! under loom, which then reports a payload access that no counter ordered.
#![allow(clippy::disallowed_types)]

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(any(loom, ringccl_sim)))]
pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(ringccl_sim)]
pub use crate::sim::atomics::{AtomicU32, AtomicU64, fence};
#[cfg(ringccl_sim)]
use crate::sim::{self, Pause, payload};
#[cfg(ringccl_sim)]
pub use std::sync::atomic::Ordering;
/// What a simulated machine is built on, and what threads outside of one use.
#[cfg(ringccl_sim)]
pub(crate) mod real {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, fence};
}

/// Tells the processor that this thread only waits for another.
#[inline]
pub fn spin_hint() {
    #[cfg(ringccl_sim)]
    if sim::with(|world| world.pause(Pause::Spin)).is_some() {
        return;
    }
    #[cfg(not(loom))]
    std::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Asks for ownership of the cache line of `line`, for a write that is to come; a hint that accesses nothing.
#[inline]
pub fn prefetch_for_write<T>(line: &T) {
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch neither reads nor writes architecturally; processors without it ignore it.
        unsafe { _mm_prefetch(std::ptr::from_ref(line).cast(), _MM_HINT_ET0) };
    }
    #[cfg(any(not(target_arch = "x86_64"), loom))]
    let _ = line;
}

/// Gives the core to another runnable thread.
#[inline]
pub fn yield_core() {
    #[cfg(ringccl_sim)]
    if sim::with(|world| world.pause(Pause::Yield)).is_some() {
        return;
    }
    #[cfg(not(loom))]
    std::thread::yield_now();
    #[cfg(loom)]
    loom::thread::yield_now();
}

/// Takes a lock that threads of one process share; what a panic left behind counts as whole.
///
/// In a simulation these threads are one, which must not stand still: others run until the lock is free.
#[cfg(not(loom))]
pub fn lock<T: ?Sized>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    #[cfg(ringccl_sim)]
    if sim::with(|_| ()).is_some() {
        loop {
            match mutex.try_lock() {
                Ok(guard) => return guard,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => yield_core(),
            }
        }
    }
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Eight bytes of payload that one side writes and the other reads, in turns that the counters decide.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub struct PayloadWord(pub(crate) std::cell::UnsafeCell<u64>);

/// Eight bytes of payload, of which loom tracks each access.
#[cfg(loom)]
#[derive(Debug)]
pub struct PayloadWord(loom::cell::UnsafeCell<u64>);

// SAFETY: a word is only reached through `read_words` and `write_words`, whose callers hold the turn that the
// ring's counters give to exactly one side.
unsafe impl Sync for PayloadWord {}
// SAFETY: as for `Sync`; the word itself is plain data.
unsafe impl Send for PayloadWord {}

impl PayloadWord {
    /// A word that holds zero.
    pub fn zeroed() -> Self {
        #[cfg(not(loom))]
        return Self(std::cell::UnsafeCell::new(0));
        #[cfg(loom)]
        return Self(loom::cell::UnsafeCell::new(0));
    }
}

/// Runs `f` with the address of the bytes of `words`, for reading.
///
/// # Safety
/// - It is this side's turn: nobody writes these words until the caller's next release.
/// - `f` reads at most `8 * words.len()` bytes and does not keep the pointer.
#[inline]
pub unsafe fn read_words<R>(words: &[PayloadWord], f: impl FnOnce(*const u8) -> R) -> R {
    #[cfg(loom)]
    {
        // SAFETY: the caller vouches for the turn; loom itself reports a violation.
        let copy: Vec<u64> = words.iter().map(|w| w.0.with(|p| unsafe { *p })).collect();
        f(copy.as_ptr().cast())
    }
    #[cfg(not(loom))]
    {
        #[cfg(ringccl_sim)]
        if let Some(copy) = payload::load(words) {
            return f(copy.as_ptr().cast());
        }
        f(words.as_ptr().cast())
    }
}

/// Runs `f` with the address of the bytes of `words`, for writing.
///
/// # Safety
/// - It is this side's turn: nobody else reads or writes these words until the caller's next release.
/// - `f` writes at most `8 * words.len()` bytes and does not keep the pointer.
#[inline]
pub unsafe fn write_words<R>(words: &[PayloadWord], f: impl FnOnce(*mut u8) -> R) -> R {
    #[cfg(loom)]
    {
        // SAFETY: the caller vouches for the turn; loom itself reports a violation.
        let mut copy: Vec<u64> = words.iter().map(|w| w.0.with_mut(|p| unsafe { *p })).collect();
        let result = f(copy.as_mut_ptr().cast());
        for (word, value) in words.iter().zip(copy) {
            // SAFETY: as above.
            word.0.with_mut(|p| unsafe { *p = value });
        }
        result
    }
    #[cfg(not(loom))]
    {
        #[cfg(ringccl_sim)]
        if let Some(before) = payload::peek(words) {
            let mut after = before.clone();
            let result = f(after.as_mut_ptr().cast());
            payload::store_changes(words, &before, &after);
            return result;
        }
        f(words.as_ptr().cast_mut().cast())
    }
}

/// As [`read_words`] or, with `write`, as [`write_words`], but the pointer may be used until [`give_back`].
///
/// # Safety
/// - It is this side's turn on the words until `give_back`, which comes before the release that ends the turn.
/// - `f` and whoever gets the pointer from it stay within `8 * words.len()` bytes, and write only with `write`.
#[inline]
pub unsafe fn lend_words<R>(words: &[PayloadWord], write: bool, f: impl FnOnce(*mut u8) -> R) -> R {
    #[cfg(ringccl_sim)]
    if let Some(copy) = payload::lend(words, write) {
        return f(copy);
    }
    // SAFETY: the caller's contract; outside of a simulation the pointer is the words' own address.
    unsafe { if write { write_words(words, f) } else { read_words(words, |from| f(from.cast_mut())) } }
}

/// Ends the use of the pointer that [`lend_words`] gave for `words`; nothing happens outside of a simulation.
#[inline]
pub fn give_back(words: &[PayloadWord]) {
    #[cfg(ringccl_sim)]
    sim::with(|world| world.give_back(words.as_ptr().addr()));
    #[cfg(not(ringccl_sim))]
    let _ = words;
}
