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
}

impl Roll {
    /// Says that this rank makes the call of `word`, its latest, together with `group`.
    pub(super) fn begin(
        parent: Segment,
        call: &'static str,
        word: u64,
        group: Vec<u32>,
        calls: Calls,
    ) -> Self {
        let roll = Self { parent, call, group, word, calls };
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
            } else if word & FLAGS != 0 && !self.calls.has(word) {
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

/// Says that this rank is at nothing: before an exchange, after which old words must not count.
pub(super) fn clear(parent: &Segment) {
    say(parent, 0);
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
