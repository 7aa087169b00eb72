//! The deadline of an operation that waits for its turn.

use crate::comm::Shared;
use crate::error::{Error, Stage};
use shmring::clock::now;
use std::time::{Duration, Instant};

/// What was last seen of the operations that come first.
///
/// Each of them has a deadline of its own once it runs, so it is only asked whether anything changes: one that is in a
/// group that is never run, or in a stream that waits for what does not happen, would hold up all behind it for ever.
#[derive(Debug, Default)]
pub(crate) struct TurnWatch {
    seen: Option<([u64; 2], Instant)>,
}

impl TurnWatch {
    /// Called now and then while a turn is awaited: an error when nothing, of `state`, has changed for `limit`.
    pub(crate) fn check(&mut self, shared: &Shared, state: [u64; 2], limit: Duration) -> Result<(), Error> {
        match self.seen {
            Some((seen, since)) if seen == state => {
                if now() - since < limit {
                    return Ok(());
                }
            }
            _ => {
                self.seen = Some((state, now()));
                return Ok(());
            }
        }
        let standing =
            "an operation that was queued before it on this rank does not run: run or drop the group that \
                        it is in, or look what its stream waits for"
                .into();
        Err(Error::Timeout { rank: shared.rank, stage: Stage::Turn, limit, standing })
    }
}
