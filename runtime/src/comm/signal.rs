//! Waiting for signals: like a receive without a message.

use super::refuse_in_callback;
use super::shared::Shared;
use super::watch::{Duty, Watch};
use super::{Communicator, registry};
use crate::error::{Error, Stage};
use crate::window::Signals;
use shmring::doorbell::Awaits;
use shmring::wait::{WaitPolicy, Waiter, usable_cores};
use std::cell::Cell;
use std::sync::Arc;

/// A wait for signals of one rank.
#[derive(Debug)]
pub(crate) struct SignalWait<'a> {
    shared: &'a Shared,
    from: u32,
}

impl<'a> SignalWait<'a> {
    pub(crate) fn new(shared: &'a Shared, from: u32) -> Self {
        Self { shared, from }
    }

    /// Waits until `is_here` says so.
    ///
    /// # Errors
    /// Why that cannot be, or the time-out.
    pub(crate) fn until(&self, is_here: impl Fn() -> bool) -> Result<(), Error> {
        let Self { shared, from } = *self;
        if is_here() {
            return Ok(());
        }
        let header = shared.segment.header();
        let duty = Duty { stage: Stage::Signal { from }, limit: shared.config.timeout };
        let ended = Cell::new(0);
        let mut watch = Watch::default();
        let mut waiter = Waiter::new(WaitPolicy::for_cores(shared.nranks as usize, usable_cores()));
        let outcome = waiter.wait(
            &shared.record().bell,
            &header.sleepers,
            || {
                // What was told before the end counts.
                if is_here() {
                    return Ok(None);
                }
                ended.set(header.aborted());
                Ok((ended.get() == 0).then_some(Awaits::Member(from)))
            },
            |_| registry::holding(|| watch.check_signal(shared, duty, from)),
        );
        match outcome {
            Ok(()) if is_here() => Ok(()),
            Ok(()) => Err(shared.explain(ended.get(), 0)),
            Err(error) => Err(shared.give_up(error, 0)),
        }
    }
}

impl Communicator {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn signals(&mut self) -> &mut Signals {
        &mut self.signals
    }

    /// An error where an operation must not wait, or the communicator has ended.
    pub(crate) fn refuse_to_wait_and_ended(&self) -> Result<(), Error> {
        refuse_in_callback(self.shared.rank)?;
        match self.shared.aborted() {
            0 => Ok(()),
            word => Err(self.shared.refuse(word, 0)),
        }
    }
}
