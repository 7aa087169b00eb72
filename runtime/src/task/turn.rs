//! The deadline of an operation that waits for its turn.

use crate::comm::{SUSPECTED_AFTER, Shared};
use crate::error::{Error, Stage};
use crate::settings;
use shmring::clock::now;
use std::time::{Duration, Instant};

/// The operations that come first: all collectives of the rank, or its sends to one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// Changes while they go on.
    pub(crate) state: [u64; 2],
    /// Whether one of them has begun and is not over.
    pub(crate) runs: bool,
}

/// What was last seen of the operations that come first.
///
/// Each of them has a deadline of its own once it runs, so it is only asked whether anything changes: one that is in a
/// group that is never run, or in a stream that waits for what does not happen, would hold up all behind it for ever.
#[derive(Debug, Default)]
pub(crate) struct TurnWatch {
    seen: Option<(Ahead, Instant)>,
    /// Whether it was told what may hold the turn up.
    is_told: bool,
}

/// What holds a turn up for long, if what comes before does not run.
const HELD: &str = "an operation that was queued before it on this rank does not run: run or drop the group that it is \
                    in, or look what its stream waits for";

impl TurnWatch {
    /// Called now and then while a turn is awaited: an error when nothing has changed `ahead` for `limit`. The log is
    /// told when nothing has run for a quarter of the time that an operation may take.
    pub(crate) fn check(&mut self, shared: &Shared, ahead: Ahead, limit: Duration) -> Result<(), Error> {
        match self.seen {
            Some((seen, since)) if seen == ahead => {
                let waited = now() - since;
                if waited < limit {
                    // What runs has a watch of its own to tell of it.
                    if !ahead.runs {
                        self.suspect(shared, waited, limit);
                    }
                    return Ok(());
                }
            }
            _ => {
                self.seen = Some((ahead, now()));
                return Ok(());
            }
        }
        Err(Error::Timeout { rank: shared.rank, stage: Stage::Turn, limit, standing: HELD.into() })
    }

    fn suspect(&mut self, shared: &Shared, waited: Duration, limit: Duration) {
        let quarter = shared.config.timeout / SUSPECTED_AFTER;
        if self.is_told || waited < quarter || shared.aborted() != 0 {
            return;
        }
        self.is_told = true;
        let (stage, rank) = (Stage::Turn, shared.rank);
        settings::warn(&format!(
            "{stage} on rank {rank} has not come within {waited:.1?} (limit {limit:?}); suspected: {HELD}"
        ));
    }
}
