//! How an operation of a stream ended, for whoever asks.

use crate::error::Error;
use std::any::Any;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What an operation gives back: the buffers that moved into the stream with it.
pub(super) type Payload = Box<dyn Any + Send>;
type Callback = Box<dyn FnOnce(Result<Payload, Error>) + Send>;

#[derive(Default)]
enum State {
    #[default]
    Running,
    /// It calls this when it ends.
    Calls(Callback),
    /// It is about to end, without a callback.
    Ending,
    Over(Result<Payload, Error>),
    /// The result has been taken.
    Taken,
}

/// The end of an operation, to come or past.
#[derive(Default)]
pub(super) struct Outcome {
    state: Mutex<State>,
    ended: Condvar,
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outcome").field("is_over", &self.is_over()).finish()
    }
}

impl Outcome {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(*self.state(), State::Over(_) | State::Taken)
    }

    /// Announces the end, unless somebody wants to be called then: false.
    pub(super) fn end_quietly(&self) -> bool {
        let mut state = self.state();
        match *state {
            State::Calls(_) => false,
            State::Running => {
                *state = State::Ending;
                true
            }
            State::Ending | State::Over(_) | State::Taken => true,
        }
    }

    /// The operation has ended.
    pub(super) fn end(&self, result: Result<Payload, Error>) {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Calls(callback) => {
                drop(state);
                self.ended.notify_all();
                callback(result);
            }
            State::Running | State::Ending => {
                *state = State::Over(result);
                drop(state);
                self.ended.notify_all();
            }
            // An operation ends once; a second end changes nothing.
            before @ (State::Over(_) | State::Taken) => *state = before,
        }
    }

    /// The result, if the operation has ended.
    pub(super) fn take(&self) -> Option<Result<Payload, Error>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Over(result) => Some(result),
            before => {
                *state = before;
                None
            }
        }
    }

    /// Waits for `time` at most until the operation has ended.
    pub(super) fn wait(&self, time: Duration) {
        #[cfg(ringccl_sim)]
        if shmring::sim::with(|world| world.sleep(time)).is_some() {
            return;
        }
        let is_running =
            |state: &mut State| matches!(state, State::Running | State::Calls(_) | State::Ending);
        let waited = self.ended.wait_timeout_while(self.state(), time, is_running);
        drop(waited);
    }

    /// Calls `callback` with the result: now, if it has ended.
    pub(super) fn call(&self, callback: Callback) {
        // The end that is announced comes at once: no callback can get in between.
        let is_ending = |state: &mut State| matches!(state, State::Ending);
        let waited = self.ended.wait_while(self.state(), is_ending);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Running => *state = State::Calls(callback),
            State::Over(result) => {
                drop(state);
                callback(result);
            }
            before @ (State::Calls(_) | State::Ending | State::Taken) => *state = before,
        }
    }
}
