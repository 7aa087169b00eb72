//! The time that waits are measured by: one place, so that a simulation can replace it.

use std::time::{Duration, Instant};

/// The present moment.
#[inline]
pub fn now() -> Instant {
    Instant::now()
}

/// Sleeps without a bell: for pauses that nobody ends early.
pub fn sleep(time: Duration) {
    std::thread::sleep(time);
}
