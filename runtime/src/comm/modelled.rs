//! What a modelled cluster means for operations: that they may take their modelled time, and what they cost at the end.

use super::Communicator;
use super::engine::Engine;
use super::shared::Shared;
use crate::model::Summary;
use crate::plan::{Call, Kind};
use crate::reduce::{DType, ReduceOp};
use std::time::{Duration, Instant};

/// How late a sleep may end: what is left of a modelled time is waited for awake.
const SLEEP_ERROR: Duration = Duration::from_micros(100);
/// Between two looks whether the communicator has ended.
const LONGEST_LINGER: Duration = Duration::from_millis(20);

impl Engine {
    /// Waits until the modelled time of an operation that is done is over, where operations are paced.
    pub(super) fn linger(&mut self, shared: &Shared, call: &Call) {
        while self.is_early(shared, call) && shared.aborted() == 0 {
            let due = self.meter.as_ref().and_then(|meter| meter.due());
            let left = due.map_or(Duration::ZERO, |due| due.saturating_duration_since(Instant::now()));
            match left.checked_sub(SLEEP_ERROR) {
                Some(most) => std::thread::sleep(most.min(LONGEST_LINGER)),
                None => std::thread::yield_now(),
            }
        }
    }

    /// Whether what is done must not end yet, because operations take their modelled time.
    #[inline]
    pub(crate) fn is_early(&mut self, shared: &Shared, call: &Call) -> bool {
        let seqno = self.seqno;
        self.meter.as_mut().is_some_and(|meter| meter.is_early(&shared.segment, seqno, call))
    }
}

impl Communicator {
    /// What the operations of all ranks cost on the modelled cluster: on rank 0, of the communicator of all its ranks
    /// everybody's; otherwise this rank's own. All ranks that have met call it.
    pub(super) fn modelled(&mut self, has_met: bool) -> Option<Summary> {
        let numbers = self.engine().ok()?.meter.as_ref()?.numbers();
        let mut all = numbers.clone();
        if has_met && !numbers.is_empty() {
            let call = Call::new(Kind::Reduce { root: 0 }, all.len(), DType::F64, ReduceOp::Sum);
            let (input, output) = (numbers.as_ptr().cast(), all.as_mut_ptr().cast());
            // What the model says is no reason for a job to fail.
            // SAFETY: both have the call's elements, and outlive it.
            let added = unsafe { self.run(call, input, output) };
            if added.is_err() || self.shared.rank != 0 {
                all.clear();
            }
        }
        Some(self.engine().ok()?.meter.as_ref()?.summary(&all))
    }
}
