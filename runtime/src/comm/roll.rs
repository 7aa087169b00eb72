//! What each rank makes of a communicator at the moment: a word in its record, for the other members to look at.
//!
//! Ranks that make a new communicator from an old one wait for each other outside of any operation, and the old one
//! may have ended. The word needs no operation: whoever waits sees who has not come, who has come for something else,
//! and who has given up.
//!
//! ```text
//!  bit 63      this rank is at it
//!  bit 62      this rank has given up
//!  bits 24..62 what it makes: a hash of the call and its arguments
//!  bits 0..24  which of its calls of that kind this is, from 1
//! ```

use super::peers::Peers;
use crate::error::Error;
use shmring::segment::Segment;
use shmring::sync::Ordering;
use std::collections::HashMap;

/// Where the word lies among those of a member's record.
const WORD: usize = 62;
const AT_IT: u64 = 1 << 63;
const GIVEN_UP: u64 = 1 << 62;
const FLAGS: u64 = AT_IT | GIVEN_UP;
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

/// Ranks that one message names; the rest is counted.
const NAMED: usize = 8;

/// The calls by which this rank has made communicators from one: how many of each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls(HashMap<u64, u64>);

impl Calls {
    /// Counts one more call of a kind; its number, from 1, and its word.
    pub(super) fn next(&mut self, kind: u64) -> u64 {
        let kind = kind & (u64::MAX >> COUNT_BITS >> 2);
        let count = self.0.entry(kind).or_default();
        *count = (*count + 1) & COUNT_MASK;
        kind << COUNT_BITS | *count
    }

    /// Goes on from a call of a kind that other members have made without this rank.
    pub(super) fn skip_to(&mut self, word: u64) {
        let word = word & !FLAGS;
        self.0.insert(word >> COUNT_BITS, (word & COUNT_MASK).saturating_sub(1));
    }

    /// Whether this rank has made the call of that word too, now or before.
    fn has(&self, word: u64) -> bool {
        let word = word & !FLAGS;
        self.0.get(&(word >> COUNT_BITS)).is_some_and(|count| *count >= word & COUNT_MASK)
    }
}

/// The members of a communicator to be, who call each other's names until all are here.
#[derive(Debug)]
pub(super) struct Roll {
    /// The old communicator.
    parent: Segment,
    call: &'static str,
    /// The members by their ranks in the old communicator, in the order of the new one.
    group: Vec<u32>,
    word: u64,
    /// The calls of this rank up to this one.
    calls: Calls,
    /// Whether an exchange has shown that all members make this call: then an old word of theirs says nothing.
    is_agreed: bool,
}

impl Roll {
    /// Says that this rank makes the call of `word`, its latest, together with `group`.
    pub(super) fn begin(
        parent: Segment,
        call: &'static str,
        word: u64,
        group: Vec<u32>,
        calls: Calls,
        is_agreed: bool,
    ) -> Self {
        let roll = Self { parent, call, group, word, calls, is_agreed };
        roll.say(AT_IT);
        roll
    }

    /// What was called.
    pub(super) fn call(&self) -> &'static str {
        self.call
    }

    /// The members by their ranks in the old communicator.
    pub(super) fn group(&self) -> &[u32] {
        &self.group
    }

    fn say(&self, flags: u64) {
        say(&self.parent, flags | self.word);
    }

    /// What another member says.
    fn said(&self, rank: u32) -> u64 {
        // ORDERING: Acquire pairs with the Release in `say`; only the word itself counts.
        self.parent.member_record(rank).words[WORD].load(Ordering::Acquire)
    }

    fn others(&self) -> impl Iterator<Item = u32> {
        self.group.iter().copied().filter(|rank| *rank != self.parent.member())
    }

    /// Looks whether another member has given up, or is at something else.
    pub(super) fn check(&self) -> Result<(), Error> {
        let (rank, call) = (self.parent.member(), self.call);
        for other in self.others() {
            let word = self.said(other);
            if word & !FLAGS == self.word {
                if word & GIVEN_UP != 0 {
                    return Err(Error::GivenUp { rank, call, other });
                }
            } else if word & if self.is_agreed { AT_IT } else { FLAGS } != 0 && !self.calls.has(word) {
                return Err(Error::Disagreement { rank, call, other });
            }
        }
        Ok(())
    }

    /// Which members have not come, in words; `None` if all have.
    pub(super) fn missing(&self, peers: &Peers) -> Option<String> {
        let is_here = |rank: &u32| self.said(*rank) & !FLAGS == self.word;
        let missing: Vec<u32> = self.others().filter(|rank| !is_here(rank)).collect();
        let text = |rank: &u32| {
            // The peers have the numbers of the new communicator.
            let at = self.group.iter().position(|member| member == rank).unwrap_or(0) as u32;
            let pid = peers.pid(at);
            let stopped = if peers.is_stopped(at) { ", which is stopped: send it SIGCONT" } else { "" };
            format!("rank {rank} has not called {} (process {pid}{stopped})", self.call)
        };
        let mut texts: Vec<String> = missing.iter().take(NAMED).map(text).collect();
        if missing.len() > NAMED {
            texts.push(format!("neither have {} more", missing.len() - NAMED));
        }
        (!texts.is_empty()).then(|| texts.join(", "))
    }

    /// Says that this rank is through, or has given up.
    pub(super) fn end(&self, is_made: bool) {
        self.say(if is_made { 0 } else { GIVEN_UP });
    }
}

/// The word of the last call that another of `group` is at, if that is of the kind of `word` and behind it: it has
/// called once more than this rank, when this one did not come.
pub(super) fn ahead(parent: &Segment, group: &[u32], word: u64) -> Option<u64> {
    let said = |rank: &u32| {
        // ORDERING: Acquire, as in `Roll::said`.
        parent.member_record(*rank).words[WORD].load(Ordering::Acquire)
    };
    let others = group.iter().filter(|rank| **rank != parent.member());
    let at_it = others.map(said).filter(|said| said & FLAGS == AT_IT).map(|said| said & !FLAGS);
    at_it.filter(|said| said >> COUNT_BITS == word >> COUNT_BITS && *said > word).max()
}

fn say(parent: &Segment, word: u64) {
    // ORDERING: Release pairs with the Acquire in `Roll::said`.
    parent.member_record(parent.member()).words[WORD].store(word, Ordering::Release);
}

/// A hash of numbers, the same on every rank.
pub(super) fn hash(numbers: impl IntoIterator<Item = u64>) -> u64 {
    // splitmix64's mixer over a running sum: every bit of every number reaches every bit.
    numbers.into_iter().fold(0x5249_4e47_4343_4c31, |hash: u64, number| {
        let mut x = (hash ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    /// The views of a communicator of three, and a roll of the first member for the call of `word`.
    fn roll(views: &[Segment], word: u64, calls: &Calls) -> Roll {
        Roll::begin(views[0].view(), "split", word, vec![0, 1, 2], calls.clone(), false)
    }

    /// Members that are at the same call are right, those at another or that gave up are named, and what they were at
    /// before counts for nothing.
    #[test]
    fn words_tell_who_is_at_what() {
        let views = Segment::in_memory(&Config::new(3).geometry(3).unwrap()).unwrap();
        let (mut calls, mut others) = (Calls::default(), Calls::default());
        let old = calls.next(5);
        let word = calls.next(5);
        assert_eq!((others.next(5), others.next(5)), (old, word));
        // Nobody else has come, or comes from the call before.
        let own = roll(&views, word, &calls);
        own.check().unwrap();
        for flags in [0, AT_IT, GIVEN_UP] {
            say(&views[1], flags | old);
            own.check().unwrap();
        }
        say(&views[1], AT_IT | word);
        own.check().unwrap();
        say(&views[2], GIVEN_UP | word);
        assert!(matches!(own.check(), Err(Error::GivenUp { rank: 0, other: 2, .. })));
        // A call that this rank has not made, of another kind or a later one of the same.
        for other in [others.next(6), others.next(5)] {
            say(&views[2], AT_IT | other);
            assert!(matches!(own.check(), Err(Error::Disagreement { rank: 0, other: 2, .. })));
            say(&views[2], other);
            own.check().unwrap();
        }
        // A rank that has called once more is gone on from; its words of before an exchange say nothing.
        let later = others.next(5);
        say(&views[2], AT_IT | later);
        assert_eq!(ahead(&views[0], &[0, 1, 2], word), Some(later));
        calls.skip_to(later);
        assert_eq!(calls.next(5), later);
        say(&views[2], GIVEN_UP | others.next(6));
        assert!(own.check().is_err());
        let agreed = Roll { is_agreed: true, ..own };
        agreed.check().unwrap();
        let own = agreed;
        own.end(false);
        assert_eq!(views[1].member_record(0).words[WORD].load(Ordering::Relaxed), GIVEN_UP | word);
    }

    /// Numbers in another order, or one more, have another hash, so jobs do not meet.
    #[test]
    fn hashes_differ() {
        let mut hashes: Vec<u64> = (0..1000).map(|i| hash([7, i, 0])).collect();
        hashes.extend([hash([7]), hash([0, 7]), hash([7, 0]), hash([])]);
        hashes.sort_unstable();
        let count = hashes.len();
        hashes.dedup();
        assert_eq!(hashes.len(), count);
    }
}
