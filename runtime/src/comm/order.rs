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
//! them may come with the missing call; then nothing is said before the time-out, whose text has it as a suspicion. So
//! it is where the way ends at a rank that is making another communicator, and waits there for the others.

use super::registry::{self, Stuck};
use crate::error::Error;
use shmring::layout::MemberRecord;
use shmring::segment::Segment;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
        let circle = match follow(rank, stuck) {
            (way, End::Circle(0)) if is_certain(&way) => way,
            _ => Vec::new(),
        };
        let other = circle.iter().find(|hop| hop.stuck.job != stuck.job);
        let epochs: Vec<u64> = circle.iter().map(|hop| hop.stuck.epoch).collect();
        let again = !epochs.is_empty() && epochs == self.last;
        self.last = epochs;
        let other = other.filter(|_| again)?;
        let tangle = Tangle::new(&Hop { rank, stuck }, other);
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

/// Where a way of waits ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// At this one of its waits again, the first being 0.
    Circle(usize),
    /// At this rank of the communicator of the last wait, whose process is making its communicator of this number.
    Making(u32, u64),
    /// Anywhere else.
    Open,
}

/// The waits from this one on, this one first, and where they end.
fn follow(rank: u32, own: Stuck) -> (Vec<Hop>, End) {
    let mut way = vec![Hop { rank, stuck: own }];
    let mut at = own;
    while way.len() <= STEPS_MAX {
        match next(own, at) {
            Ok(hop) => {
                // A circle that this wait is not on, but behind.
                if let Some(known) = way.iter().position(|known| *known == hop) {
                    return (way, End::Circle(known));
                }
                way.push(hop);
                at = hop.stuck;
            }
            Err(end) => return (way, end),
        }
    }
    (way, End::Open)
}

/// Where the process of the rank that is awaited in `at` waits itself, or how the way ends there.
fn next(own: Stuck, at: Stuck) -> Result<Hop, End> {
    // Only communicators that this process belongs to can be looked into.
    let entries = registry::of_job(at.job);
    let view = &entries.first().ok_or(End::Open)?.view;
    if at.awaits >= view.geometry().members {
        return Err(End::Open);
    }
    let record = view.member_record(at.awaits);
    // ORDERING: Relaxed; what counts is that two walks see the same.
    let started = record.identity.started.load(Ordering::Relaxed);
    let next = registry::read(record).ok_or(End::Open)?;
    let is_in_it = next.job == at.job && next.seqno == at.seqno;
    if started >= at.seqno && !is_in_it {
        return Err(End::Open);
    }
    if next.job == registry::MAKING {
        return Err(End::Making(at.awaits, next.seqno));
    }
    if next.epoch == own.epoch && next.job == own.job && entries.iter().any(|e| e.view.member() == at.awaits)
    {
        return Err(End::Circle(0));
    }
    Ok(Hop { rank: at.awaits, stuck: next })
}

/// Whether nobody on a circle could be helped by another thread of a process.
fn is_certain(circle: &[Hop]) -> bool {
    // Who waits in the very operation in which it is awaited is there, whatever its other threads do; and the last wait
    // is for the process of the first.
    let next = circle.iter().skip(1).chain(circle.first());
    circle.iter().zip(next).all(|(hop, next)| hop.stuck.job == next.stuck.job || next.stuck.is_alone)
}

/// What a rank whose wait has reached its time limit may have got into, in words, if anything can be seen.
#[cold]
pub(super) fn suspicion(view: &Segment) -> Option<String> {
    let rank = view.member();
    let own = registry::read(view.member_record(rank)).filter(|own| own.job != registry::MAKING)?;
    let (way, end) = follow(rank, own);
    match end {
        End::Circle(from) => {
            let (one, rest) = way.get(from..)?.split_first()?;
            let other = rest.iter().find(|hop| hop.stuck.job != one.stuck.job)?;
            let [first, second] = Tangle::new(one, other).texts();
            Some(format!(
                "suspected: communicators used in different orders: {first}, {second}, and each waits for the other"
            ))
        }
        End::Making(maker, number) => {
            let (_, used, _) = name(way.last()?);
            Some(format!(
                "suspected: communicators made and used in different orders: rank {maker} is making its communicator \
                 {number} and waits for the other ranks to make it, while this one is used: communicator {used}"
            ))
        }
        End::Open => None,
    }
}

/// The same for a rank that waits in vain for others to make its communicator `number`.
#[cold]
pub(super) fn suspicion_in_making(number: u64) -> Option<String> {
    let (rank, seqno, used) = registry::awaited_by()?;
    Some(format!(
        "suspected: communicators made and used in different orders: this rank is making its communicator {number}, and \
         rank {rank} waits for it in operation {seqno} of communicator {used}"
    ))
}

/// Rank, communicator by its number here, and operation of a wait.
fn name(hop: &Hop) -> (u32, u64, u64) {
    let number = registry::of_job(hop.stuck.job).first().map_or(0, |entry| entry.number);
    (hop.rank, number, hop.stuck.seqno)
}

impl Tangle {
    fn new(one: &Hop, other: &Hop) -> Self {
        let mut waits = [name(one), name(other)];
        waits.sort_by_key(|(_, number, _)| *number);
        Self { waits }
    }

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

    /// Both waits in words.
    fn texts(self) -> [String; 2] {
        self.waits.map(|(rank, communicator, seqno)| {
            format!("rank {rank} is in operation {seqno} of communicator {communicator}")
        })
    }

    pub(super) fn into_error(self, rank: u32) -> Error {
        let [first, second] = self.texts();
        Error::Order { rank, first, second }
    }
}
