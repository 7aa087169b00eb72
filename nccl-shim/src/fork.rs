//! A child of `fork` has the memory of its parent but none of its threads, so communicators are of no use to it.

use std::sync::Once;
// ATOMICS: written in a child that has one thread, read there.
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    // ORDERING: Relaxed; the child has one thread when this runs.
    IS_CHILD.store(true, Ordering::Relaxed);
}

/// Has the children of this process know that they are.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a function of this library, which is not unloaded while threads of it run; it only
        // stores a flag.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Whether this process was forked after it had made a communicator.
#[inline]
pub(crate) fn is_child() -> bool {
    // ORDERING: Relaxed, as above.
    IS_CHILD.load(Ordering::Relaxed)
}
