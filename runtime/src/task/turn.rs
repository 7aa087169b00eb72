//! The deadline of an operation that waits for its turn.

use crate::comm::{SUSPECTED_AFTER, Shared};
use crate::error::{Error, Stage};
use crate::settings;
use shmring::clock::now;
use std::time::{Duration, Instant};

/// What was last seen of the operations that come first.
///
/// Each of them has a deadline of its own once it runs, so it is only asked whether anything changes: one that is in a
/// group that is never run, or in a stream that waits for what does not happen, would hold up all behind it for ever.
#[derive(Debug, Default)]
pub(crate) struct TurnWatch {
    seen: Option<([u64; 2], Instant)>,
    /// Whether it was told what may hold the turn up.
    is_told: bool,
}

/// What holds a turn up for long, if what comes before does not run.
const HELD: &str = "an operation that was queued before it on this rank does not run: run or drop the group that it is \
                    in, or look what its stream waits for";

impl TurnWatch {
    /// Called now and then while a turn is awaited: an error when nothing, of `state`, has changed for `limit`. A quarter
    /// of that is told to the log, unless an operation runs, which has its own to tell.
    pub(crate) fn check(&mut self, shared: &Shared, state: [u64; 2], limit: Duration) -> Result<(), Error> {
        match self.seen {
            Some((seen, since)) if seen == state => {
                let waited = now() - since;
                if waited < limit {
                    if waited >= limit / SUSPECTED_AFTER && !self.is_told && shared.aborted() == 0 {
                        self.is_told = true;
                        self.suspect(shared, waited, limit);
                    }
                    return Ok(());
                }
            }
            _ => {
                self.seen = Some((state, now()));
                return Ok(());
            }
        }
        Err(Error::Timeout { rank: shared.rank, stage: Stage::Turn, limit, standing: HELD.into() })
    }

    #[cold]
    fn suspect(&self, shared: &Shared, waited: Duration, limit: Duration) {
        if shared.is_in_collective() {
            return;
        }
        let (stage, rank) = (Stage::Turn, shared.rank);
        settings::warn(&format!(
            "{stage} on rank {rank} has not come within {waited:.1?} (limit {limit:?}); suspected: {HELD}"
        ));
    }
}
