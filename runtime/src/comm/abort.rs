//! Ending a communicator from another thread.

use super::health::Verdict;
use shmring::segment::Segment;
use std::sync::Arc;

/// Ends a communicator: every rank that waits in it wakes up and returns an error, unless all its data are there, and
/// every later call does.
///
/// It may outlive the communicator; then it ends nothing on this rank and still ends the others.
#[derive(Clone, Debug)]
pub struct AbortHandle {
    segment: Arc<Segment>,
}

impl AbortHandle {
    pub(super) fn new(segment: Segment) -> Self {
        Self { segment: Arc::new(segment) }
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

    /// Whether the communicator has ended, by this or anything else.
    pub fn is_aborted(&self) -> bool {
        self.segment.header().aborted() != 0
    }
}
