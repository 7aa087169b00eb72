//! Shrink and revoke: going on without some ranks, whatever has become of the communicator.
//!
//! The survivors know each other from the old communicator and pass the same list, so nothing is exchanged: it works
//! when ranks are dead or stopped, and when the communicator has ended, timed out or was revoked. The new one has
//! memory of its own; a stopped rank that wakes up writes to the old one's, which no survivor reads.

use super::Communicator;
use super::birth::Birth;
use super::health::{self, Verdict};
use super::roll::{self, hash};
use crate::config::Config;
use crate::error::Error;

const CALL: &str = "shrink";
/// How often a rank that came late goes on from a survivor's later call.
const TRIES: u32 = 16;

/// What becomes of the communicator that is shrunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shrink {
    /// It stays as it is; if it runs, it has no operation under way on any survivor.
    #[default]
    Keep,
    /// Its operations are ended on every rank first, those that are under way included, as by an abort.
    Abort,
}

impl Communicator {
    /// Makes a communicator of the ranks that are not in `exclude`, in the order of their ranks here. Every one of
    /// them must call this with the same list, in any order; the others need not and must not.
    ///
    /// An empty list is allowed. Settings are inherited, but no report is written.
    ///
    /// # Errors
    /// [`Error::Argument`] for a list with this rank, no rank, or one twice; [`Error::Disagreement`] and
    /// [`Error::GivenUp`] by the survivor that makes another communicator, or none; [`Error::Timeout`] with the
    /// survivors that have not called this within the join time-out; [`Error::PeerGone`] for one that is dead. Another
    /// try, with other ranks excluded, is possible after each.
    pub fn shrink(&mut self, exclude: &[usize], mode: Shrink) -> Result<Self, Error> {
        self.shrink_with(exclude, mode, None)
    }

    /// As [`Communicator::shrink`], with settings that must be equal on all survivors.
    ///
    /// # Errors
    /// As [`Communicator::shrink`].
    pub fn shrink_with(
        &mut self,
        exclude: &[usize],
        mode: Shrink,
        config: Option<&Config>,
    ) -> Result<Self, Error> {
        let survivors = self.survivors(exclude)?;
        if mode == Shrink::Abort {
            // What it says is for those that wait in the old communicator; this rank goes on in the new one.
            let _ = health::end(
                &self.shared.segment,
                Verdict::Aborted(self.shared.rank),
                &self.shared.health(),
                0,
            );
        }
        // Survivors count the calls for each list by itself: they may have shrunk without each other before.
        let kind = hash(CALL.bytes().map(u64::from).chain(survivors.iter().map(|rank| u64::from(*rank))));
        for _ in 0..TRIES {
            let word = self.lineage.calls.next(kind);
            let group = survivors.clone();
            let made = self.bear(Birth { call: CALL, word, colour: 0, group, is_agreed: false, config });
            let Err(Error::Disagreement { .. }) = made else { return made };
            // A survivor that did not wait for this rank may have called once more with the same list.
            let Some(later) = roll::ahead(&self.shared.segment, &survivors, word) else { return made };
            self.lineage.calls.skip_to(later);
        }
        let rank = self.shared.rank;
        Err(Error::Argument {
            rank,
            call: CALL,
            what: format!("the survivors call this {TRIES} times without waiting"),
        })
    }

    /// The ranks that are not in the list.
    fn survivors(&self, exclude: &[usize]) -> Result<Vec<u32>, Error> {
        let refuse = |what| Err(Error::Argument { rank: self.shared.rank, call: CALL, what });
        let mut is_excluded = vec![false; self.nranks()];
        for &rank in exclude {
            let Some(excluded) = is_excluded.get_mut(rank) else {
                return refuse(format!(
                    "rank {rank} is to be excluded, but there are only {}",
                    self.shared.nranks
                ));
            };
            if std::mem::replace(excluded, true) {
                return refuse(format!("rank {rank} is twice in the list of excluded ranks"));
            }
        }
        if is_excluded[self.rank()] {
            return refuse(
                "this rank itself is in the list of excluded ranks; only the others call this".into(),
            );
        }
        Ok((0..self.shared.nranks).filter(|rank| !is_excluded[*rank as usize]).collect())
    }

    /// Ends every operation of this communicator on every rank, those under way included: they and all later ones fail
    /// by [`Error::Revoked`]. Returns at once; any rank may call this, and another thread can by
    /// [`AbortHandle::revoke`](super::AbortHandle::revoke).
    ///
    /// It can still be shrunk, finalized and dropped.
    pub fn revoke(&self) {
        self.abort_handle().revoke();
    }
}
