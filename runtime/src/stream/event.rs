//! Marks in the order of a stream.

use super::driver::Driver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Debug, Default)]
struct State {
    is_done: bool,
    /// Who drives streams that wait for this.
    waiters: Vec<Arc<Driver>>,
}

#[derive(Debug, Default)]
pub(super) struct Mark {
    state: Mutex<State>,
    done: Condvar,
}

impl Mark {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_done(&self) -> bool {
        self.state().is_done
    }

    /// Everything before the mark is done: lets those that wait go on.
    pub(super) fn set(&self) {
        let mut state = self.state();
        state.is_done = true;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        self.done.notify_all();
        waiters.iter().for_each(|driver| driver.ring());
    }

    /// Rings `driver` when the mark is set, unless it is.
    pub(super) fn tell(&self, driver: &Arc<Driver>) {
        let mut state = self.state();
        if !state.is_done && !state.waiters.iter().any(|other| Arc::ptr_eq(other, driver)) {
            state.waiters.push(Arc::clone(driver));
        }
    }
}

/// A point in a stream: done when everything that was queued before it is.
#[derive(Clone, Debug)]
pub struct Event {
    pub(super) mark: Arc<Mark>,
}

impl Event {
    /// Whether everything before the event is done.
    pub fn is_done(&self) -> bool {
        self.mark.is_done()
    }

    /// Waits for `limit` at most; whether the event is done. A callback of a stream must not wait and is told at once.
    pub fn wait(&self, limit: Duration) -> bool {
        let limit = if super::is_in_callback() { Duration::ZERO } else { limit };
        #[cfg(ringccl_sim)]
        if shmring::sim::with(|world| world.sleep(limit)).is_some() {
            return self.is_done();
        }
        let waited = self.mark.done.wait_timeout_while(self.mark.state(), limit, |state| !state.is_done);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_done
    }
}
