//! Communicators that are used in different orders on different ranks, found while everybody waits.
//!
//! ```text
//!  rank 0: a.all_reduce(..)  waits for rank 1, which has not called it
//!  rank 1: b.all_reduce(..)  waits for rank 0, which has not called it
//! ```
//!
//! From its own wait a rank walks along "waits for" through the records of the communicators that it belongs to.
//! If the way leads back to itself, and every process on it has no thread but the one that waits, nobody on it can ever
//! go on. Two walks that find the same waits make that certain. With more threads in a process it is not, since any of
//! them may come with the missing call; then nothing is said before the time-out.

use super::registry::{self, Stuck};
use crate::error::Error;
use shmring::layout::MemberRecord;
use shmring::sync::Ordering;

/// Where the words lie among those of a member's record: as those of a `Clash`, of which there is none then.
const FIRST_WORD: usize = 48;
/// Longest way that is followed.
const STEPS_MAX: usize = 64;

/// Two waits of a circle, in different communicators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tangle {
    /// Rank, communicator by its number on the rank that found this, and operation.
    waits: [(u32, u64, u64); 2],
}

/// Looks from one wait to the next.
#[derive(Debug, Default)]
pub(super) struct Walker {
    /// The epochs on the circle that the last walk found.
    last: Vec<u64>,
}

/// One wait on the way: who waits, in its own communicator.
#[derive(Clone, Copy, Debug)]
struct Hop {
    rank: u32,
    stuck: Stuck,
}

impl Walker {
    /// Walks from `stuck`, this thread's own wait as `rank`. The second walk in a row that finds the same circle
    /// through at least two communicators says so and ends them all, each with its ranks.
    pub(super) fn walk(
        &mut self,
        rank: u32,
        stuck: Stuck,
        end: impl Fn(&registry::Entry, &Tangle),
    ) -> Option<Tangle> {
        let circle = circle(rank, stuck).unwrap_or_default();
        let other = circle.iter().find(|hop| hop.stuck.job != stuck.job);
        let epochs: Vec<u64> = circle.iter().map(|hop| hop.stuck.epoch).collect();
        let again = !epochs.is_empty() && epochs == self.last;
        self.last = epochs;
        let other = other.filter(|_| again)?;
        let name = |hop: &Hop| {
            let number = registry::of_job(hop.stuck.job).first().map_or(0, |entry| entry.number);
            (hop.rank, number, hop.stuck.seqno)
        };
        let mut waits = [name(&Hop { rank, stuck }), name(other)];
        waits.sort_by_key(|(_, number, _)| *number);
        let tangle = Tangle { waits };
        let mut jobs: Vec<u64> = circle.iter().map(|hop| hop.stuck.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let entries: Vec<_> = jobs.into_iter().flat_map(registry::of_job).collect();
        // All have ended before anybody is woken: who wakes up in one may drop another.
        entries.iter().for_each(|entry| end(entry, &tangle));
        entries.iter().for_each(|entry| entry.view.ring_all());
        Some(tangle)
    }
}

/// The waits from this one back to itself, this one first; `None` when the way ends elsewhere.
fn circle(rank: u32, own: Stuck) -> Option<Vec<Hop>> {
    let mut way = vec![Hop { rank, stuck: own }];
    while way.len() <= STEPS_MAX {
        let at = way.last()?.stuck;
        // Only communicators that this process belongs to can be looked into.
        let entries = registry::of_job(at.job);
        let view = &entries.first()?.view;
        if at.awaits >= view.geometry().members {
            return None;
        }
        let record = view.member_record(at.awaits);
        // ORDERING: Relaxed; what counts is that two walks see the same.
        let started = record.identity.started.load(Ordering::Relaxed);
        let next = registry::read(record)?;
        let is_in_it = next.job == at.job && next.seqno == at.seqno;
        if started >= at.seqno && !is_in_it {
            return None;
        }
        if next.epoch == own.epoch
            && next.job == own.job
            && entries.iter().any(|e| e.view.member() == at.awaits)
        {
            return Some(way);
        }
        way.push(Hop { rank: at.awaits, stuck: next });
    }
    None
}

impl Tangle {
    /// Writes this to a record of the rank that found it, before that rank ends the communicator.
    pub(super) fn publish(&self, record: &MemberRecord) {
        let words = self.waits.iter().flat_map(|(rank, number, seqno)| [u64::from(*rank), *number, *seqno]);
        for (word, value) in record.words[FIRST_WORD..].iter().zip(words) {
            // ORDERING: Relaxed; the abort word's Release publishes them.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads what the rank that found it has written, whatever that is.
    pub(super) fn read(record: &MemberRecord) -> Self {
        // ORDERING: Relaxed; the caller has acquired the abort word.
        let word = |i: usize| record.words[FIRST_WORD + i].load(Ordering::Relaxed);
        let wait = |i| (word(i) as u32, word(i + 1), word(i + 2));
        Self { waits: [wait(0), wait(3)] }
    }

    pub(super) fn into_error(self, rank: u32) -> Error {
        let [first, second] = self.waits.map(|(rank, communicator, seqno)| {
            format!("rank {rank} is in operation {seqno} of communicator {communicator}")
        });
        Error::Order { rank, first, second }
    }
}
