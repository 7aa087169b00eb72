//! A child of `fork` has the memory of its parent but none of its threads, so communicators are of no use to it, and
//! must not say goodbye in the name of its parent.

use crate::status::Failure;
use std::sync::Once;
// ATOMICS: written in a child that has one thread, read there; the parent's value never changes.
use std::sync::atomic::{AtomicU32, Ordering};

static FORKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn in_child() {
    // ORDERING: Relaxed; the child has one thread when this runs.
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// The process, as one that knows of its forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    /// The calling one.
    #[inline]
    pub(crate) fn current() -> Self {
        // ORDERING: Relaxed, as above.
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// The calling one, whose children will know that they are.
    pub(crate) fn watched() -> Self {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler is a function of this library, which has threads and is never unloaded; it only
            // counts.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        });
        Self::current()
    }
}

/// What a child is told.
#[cold]
pub(crate) fn refused() -> Failure {
    Failure::usage(
        "this process was forked after the communicator was made; make one in the child, or start it by spawn",
    )
}
