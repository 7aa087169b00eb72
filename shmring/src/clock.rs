//! The time that waits are measured by: one place, so that a simulation can replace it.

use std::time::{Duration, Instant};

/// The present moment.
#[inline]
pub fn now() -> Instant {
    #[cfg(ringccl_sim)]
    if let Some(now) = crate::sim::with(|world| world.now()) {
        return now;
    }
    Instant::now()
}

/// Sleeps without a bell: for pauses that nobody ends early.
pub fn sleep(time: Duration) {
    #[cfg(ringccl_sim)]
    if crate::sim::with(|world| world.sleep(time)).is_some() {
        return;
    }
    std::thread::sleep(time);
}
