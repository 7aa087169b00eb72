//! Ranks that wait for each other in a circle, found while everybody waits.
//!
//! ```text
//!  rank 0: a.all_reduce(..)  waits for rank 1, which has not called it
//!  rank 1: b.all_reduce(..)  waits for rank 0, which has not called it
//!
//!  rank 0: send(.., 1)       waits for rank 1, which does not receive
//!  rank 1: send(.., 0)       waits for rank 0, which does not receive
//! ```
//!
//! From its own wait a rank walks along "waits for" through the records of the communicators that it belongs to.
//! If the way leads back to itself, that is a circle. It is *certain* that nobody on it can go on, if
//!
//! 1. each wait keeps its rank from doing what the wait before it is for: both are in one collective; or the call has
//!    the rank's only handle, or no other thread of the process could call anything, and nothing of the rank is under
//!    way, in the same batch or elsewhere, that could be what is waited for;
//! 2. nothing has happened meanwhile: a first walk finds the circle, a second one the same waits, and a later one the
//!    same waits again, each of which has since looked at least twice. So every rank of the circle has looked
//!    after the first walk had seen them all waiting, and found nothing, and a rank that waits does nothing.
//!
//! Who receives from any rank waits for all of them at once: instead of a circle there is a *knot*, of this wait and of
//! all that any wait in it leads to. It is as certain, if each of these leads to a wait that is kept from serving it.
//!
//! Anything less is only *suspected*, and told when a quarter of the time limit has passed, and in the text of the
//! time-out. So it is where the way ends at a rank that is making another communicator, and waits there for the others.

use super::registry;
use super::stuck::{self, Call, MAKING, SEVERAL, Stuck};
use super::tangle::{Tangle, number_of};
use shmring::layout::MemberState;
use shmring::segment::Segment;
use shmring::sync::Ordering;

/// Longest way that is followed.
const STEPS_MAX: usize = 64;
/// Most waits of a knot: as many as ranks.
const KNOT_MAX: usize = 1 << 10;
/// Looks of every wait after the second walk that make it certain that one of them came after the first walk.
const LOOKS: u64 = 2;

/// Looks from one wait to the next.
#[derive(Debug, Default)]
pub(super) struct Walker {
    /// The circle, or knot, that the last walk found.
    last: Vec<Stuck>,
    /// Whether it is certain if nothing changes.
    is_certain: bool,
    /// The looks of its waits when it was found for the second time in a row.
    looks: Option<Vec<u64>>,
}

impl Walker {
    /// Walks from `own`, this thread's wait. When a circle has become certain it says so and ends all communicators on
    /// it by `end`.
    pub(super) fn walk(&mut self, own: Stuck, end: impl Fn(&registry::Entry, &Tangle)) -> Option<Tangle> {
        let (circle, is_certain) = if own.awaits == SEVERAL {
            knot(own).unwrap_or_default()
        } else {
            match follow(own) {
                Way { waits, end: End::Circle(0), is_certain } => (waits, is_certain),
                Way { .. } => Default::default(),
            }
        };
        let looks: Vec<u64> = circle.iter().map(|stuck| stuck.looks).collect();
        let is_same = self.is_certain == is_certain && are_same(&circle, &self.last);
        if !is_same {
            *self = Self { last: circle, is_certain, looks: None };
            return None;
        }
        let Some(before) = &self.looks else {
            self.looks = Some(looks);
            return None;
        };
        let have_looked = looks.iter().zip(before).all(|(now, before)| now.saturating_sub(*before) >= LOOKS);
        if !is_certain || !have_looked {
            return None;
        }
        let tangle = Tangle::new(&circle);
        let mut jobs: Vec<u64> = circle.iter().map(|stuck| stuck.job).collect();
        jobs.sort_unstable();
        jobs.dedup();
        let entries: Vec<_> = jobs.into_iter().flat_map(registry::of_job).collect();
        // All have ended before anybody is woken: who wakes up in one may drop another.
        entries.iter().for_each(|entry| end(entry, &tangle));
        entries.iter().for_each(|entry| entry.view.ring_all());
        Some(tangle)
    }

    /// The circle that the last two walks have found, in words.
    pub(super) fn suspicion(&self) -> Option<String> {
        (self.looks.is_some() && !self.last.is_empty()).then(|| Tangle::new(&self.last).suspicion())
    }
}

fn are_same(one: &[Stuck], other: &[Stuck]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.is_same_wait(other))
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

/// Waits of which each leads to the next, and where they end.
#[derive(Debug)]
struct Way {
    waits: Vec<Stuck>,
    end: End,
    /// Whether each keeps its process from what the one before it is for.
    is_certain: bool,
}

/// The way from this wait on.
fn follow(own: Stuck) -> Way {
    let (mut waits, mut is_certain, mut at) = (vec![own], true, own);
    while waits.len() <= STEPS_MAX {
        let next = match next(at) {
            Ok(next) => next,
            Err(end) => return Way { waits, end, is_certain: false },
        };
        is_certain &= keeps(&at, &next);
        // This wait, or a circle that it is not on, but behind.
        if let Some(known) = waits.iter().position(|known| known.is_same_wait(&next)) {
            return Way { waits, end: End::Circle(known), is_certain };
        }
        waits.push(next);
        at = next;
    }
    Way { waits, end: End::Open, is_certain: false }
}

/// Where the process of the rank that is awaited in `at` waits itself, or how the way ends there.
fn next(at: Stuck) -> Result<Stuck, End> {
    // Only communicators that this process belongs to can be looked into.
    let entries = registry::of_job(at.job);
    let view = &entries.first().ok_or(End::Open)?.view;
    if at.awaits >= view.geometry().members {
        return Err(End::Open);
    }
    let record = view.member_record(at.awaits);
    // ORDERING: Relaxed; what counts is that several walks see the same.
    let started = record.identity.started.load(Ordering::Relaxed);
    let next = stuck::read(record).ok_or(End::Open)?;
    if at.is_collective() && started >= at.seqno && !next.is_in(&at, at.awaits) {
        return Err(End::Open);
    }
    if next.job == MAKING {
        return Err(End::Making(at.awaits, next.seqno));
    }
    Ok(next)
}

/// All waits to which this one leads, which is for any rank, or any of these, and whether it is certain that none of
/// them can end; `None` if one rank at least does not wait.
fn knot(own: Stuck) -> Option<(Vec<Stuck>, bool)> {
    let (mut all, mut is_certain, mut at) = (vec![own], true, 0);
    // Whoever waits for any rank of a communicator waits for the same ones.
    let mut all_of: Vec<u64> = Vec::new();
    while let Some(wait) = all.get(at).copied() {
        at += 1;
        if wait.awaits == SEVERAL {
            if wait.call != Call::Recv {
                // A collective needs all of several ranks, and does not say which.
                return None;
            }
            if all_of.contains(&wait.job) {
                continue;
            }
            all_of.push(wait.job);
        }
        for awaits in awaited(&wait)? {
            let wait = Stuck { awaits, ..wait };
            let next = next(wait).ok()?;
            is_certain &= keeps(&wait, &next);
            if !all.iter().any(|known| known.is_same_wait(&next)) {
                all.push(next);
            }
        }
        if all.len() > KNOT_MAX {
            return None;
        }
    }
    all.sort_by_key(|stuck| (stuck.awaits != SEVERAL, stuck.job, stuck.rank));
    Some((all, is_certain))
}

/// The ranks that a wait is for, but those that have left or died and do nothing any more.
fn awaited(wait: &Stuck) -> Option<Vec<u32>> {
    if wait.awaits != SEVERAL {
        return Some(vec![wait.awaits]);
    }
    let entries = registry::of_job(wait.job);
    let view = &entries.first()?.view;
    // What such a rank sent before is found by the looks that come after.
    let dead = entries.first()?.dead();
    let is_there =
        |rank: &u32| view.member_record(*rank).identity.state() != MemberState::Left && !dead.contains(rank);
    Some((0..view.geometry().members).filter(is_there).collect())
}

/// Whether the process that waits in `next`, as the record of the rank awaited in `wait` says, cannot do what that is
/// for.
fn keeps(wait: &Stuck, next: &Stuck) -> bool {
    if next.is_in(wait, wait.awaits) {
        return true;
    }
    let is_same_rank = (next.job, next.rank) == (wait.job, wait.awaits);
    // A receive takes messages off its source's ring, or those of all, also those that it is not for.
    let is_from_it = next.awaits == wait.rank || next.awaits == SEVERAL;
    let takes = is_same_rank && wait.call == Call::Send && next.call == Call::Recv && is_from_it;
    let has_other = match wait.call {
        Call::Collective | Call::Finalize => next.marks.has_collective,
        Call::Send => next.marks.has_recv,
        Call::Recv => next.marks.has_send,
        // Nothing that is under way sends any.
        Call::Signal => false,
        Call::Unknown => true,
    };
    !takes && !has_other && (next.marks.is_alone || (is_same_rank && next.marks.is_held))
}

/// What a rank whose wait has reached its time limit may have got into, in words, if anything can be seen.
#[cold]
pub(super) fn suspicion(view: &Segment) -> Option<String> {
    let rank = view.member();
    let own = stuck::read(view.member_record(rank)).filter(|own| own.job != MAKING)?;
    if own.awaits == SEVERAL {
        return knot(own).map(|(all, _)| Tangle::new(&all).suspicion());
    }
    let Way { waits, end, .. } = follow(own);
    match end {
        End::Circle(from) => Some(Tangle::new(waits.get(from..)?).suspicion()),
        End::Making(maker, number) => {
            let used = number_of(waits.last()?.job);
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
    let (stuck, used) = registry::awaited_by()?;
    let rank = stuck.rank;
    Some(format!(
        "suspected: communicators made and used in different orders: this rank is making its communicator {number}, and \
         rank {rank} waits for it in {stuck} of communicator {used}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::stuck::Marks;

    fn stuck(rank: u32, call: Call, awaits: u32, marks: Marks) -> Stuck {
        Stuck { epoch: 1, job: 7, rank, call, seqno: 3, tags: Default::default(), awaits, marks, looks: 1 }
    }

    const HELD: Marks =
        Marks { is_alone: false, is_held: true, has_send: false, has_recv: false, has_collective: false };

    /// A wait keeps its rank from serving another one only if the rank can do nothing else meanwhile.
    #[test]
    fn who_can_serve_is_not_kept() {
        let recv = stuck(0, Call::Recv, 1, HELD);
        let send = |marks| stuck(1, Call::Send, 2, marks);
        assert!(keeps(&recv, &send(HELD)));
        assert!(keeps(&recv, &send(Marks { has_collective: true, ..HELD })), "a collective sends no message");
        assert!(keeps(&recv, &send(Marks { has_recv: true, ..HELD })), "nor does a receive");
        assert!(!keeps(&recv, &send(Marks { has_send: true, ..HELD })), "another send may be the one");
        assert!(!keeps(&recv, &send(Marks { is_held: false, ..HELD })), "another thread may send");
        let alone = Marks { is_alone: true, is_held: false, ..HELD };
        assert!(keeps(&recv, &send(alone)));
        assert!(
            !keeps(&recv, &send(Marks { has_send: true, ..alone })),
            "another one of its batch may be the one"
        );
        let other = Stuck { rank: 3, ..send(Marks { has_send: true, ..alone }) };
        assert!(!keeps(&recv, &other), "so it may where the thread is told to wait as another rank");
        assert!(keeps(&recv, &Stuck { marks: alone, ..other }));
        let collective = stuck(0, Call::Collective, 1, HELD);
        let messages = Marks { has_send: true, has_recv: true, ..HELD };
        assert!(keeps(&collective, &send(messages)), "a message is no collective");
        assert!(!keeps(&collective, &send(Marks { has_collective: true, ..HELD })), "it may be queued");
    }

    /// Who receives from a rank takes its messages off the ring, whichever it waits for.
    #[test]
    fn a_receiver_takes_what_its_source_sends() {
        let send = stuck(0, Call::Send, 1, HELD);
        let alone = Marks { is_alone: true, ..HELD };
        assert!(!keeps(&send, &stuck(1, Call::Recv, 0, alone)));
        assert!(!keeps(&send, &stuck(1, Call::Recv, SEVERAL, alone)));
        assert!(keeps(&send, &stuck(1, Call::Recv, 2, alone)));
        let another = Marks { has_recv: true, ..alone };
        assert!(!keeps(&send, &stuck(1, Call::Recv, 2, another)), "another receive takes them too");
        assert!(keeps(&send, &stuck(1, Call::Recv, 2, Marks { has_send: true, ..alone })));
    }

    /// Ranks in one collective wait there whatever else they may do; those of another rank of the process do not.
    #[test]
    fn a_collective_is_one_of_its_rank() {
        let free = Marks { is_held: false, ..HELD };
        let wait = stuck(0, Call::Collective, 1, HELD);
        assert!(keeps(&wait, &stuck(1, Call::Collective, 2, free)));
        assert!(
            !keeps(&wait, &stuck(2, Call::Collective, 0, HELD)),
            "rank 1 is another one, of the same process"
        );
        let earlier = Stuck { seqno: 2, ..stuck(1, Call::Collective, 2, free) };
        assert!(!keeps(&wait, &earlier));
    }
}
