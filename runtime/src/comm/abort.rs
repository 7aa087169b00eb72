//! Ending a communicator from another thread.

use super::Shared;
use super::health::Verdict;
use crate::error::Error;
use shmring::segment::Segment;
use shmring::sync::Ordering;
use std::sync::{Arc, Weak};

/// Ends a communicator: every rank that waits in it wakes up and returns an error, unless all its data are there, and
/// every later call does.
///
/// It may outlive the communicator; then it ends nothing on this rank and still ends the others.
#[derive(Clone, Debug)]
pub struct AbortHandle {
    segment: Arc<Segment>,
    /// The communicator of this rank, while it exists.
    shared: Weak<Shared>,
}

impl AbortHandle {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { segment: Arc::new(shared.segment.view()), shared: Arc::downgrade(shared) }
    }

    /// Ends the communicator on every rank, unless it has ended already. Returns at once.
    pub fn abort(&self) {
        self.segment.header().abort(Verdict::Aborted(self.segment.member()).to_word());
        self.segment.ring_all();
    }

    /// Ends every operation of the communicator on every rank: see
    /// [`Communicator::revoke`](super::Communicator::revoke). One that has ended stays as it is. Returns at once.
    pub fn revoke(&self) {
        self.segment.header().abort(Verdict::Revoked(self.segment.member()).to_word());
        self.segment.ring_all();
    }

    /// As [`Communicator::async_error`](super::Communicator::async_error), from any thread, also while this rank waits
    /// in an operation; or that a rank has died, before an operation has met it. `None` once this rank's communicator
    /// has gone.
    pub fn async_error(&self) -> Option<Error> {
        let shared = self.shared.upgrade()?;
        match self.segment.header().aborted() {
            0 => shared.health().died(&shared.segment),
            word => {
                // ORDERING: Relaxed; the number is only told.
                let started = shared.record().identity.started.load(Ordering::Relaxed);
                Some(shared.explain(word, started))
            }
        }
    }

    /// Whether the communicator has ended, by this or anything else.
    pub fn is_aborted(&self) -> bool {
        self.segment.header().aborted() != 0
    }
}
