//! Split: several communicators from one, by colour and key.
//!
//! ```text
//!  1. every rank    all-reduces an array in which only its own place is not zero: colour and key of each rank
//!  2. every rank    sorts the ranks of its colour by key, then by rank: their new ranks
//!  3. each group    joins as `birth.rs` says
//! ```

use super::Communicator;
use super::birth::Birth;
use super::roll::hash;
use crate::config::Config;
use crate::error::Error;
use crate::reduce::ReduceOp;

const CALL: &str = "split";

impl Communicator {
    /// Makes one communicator of the ranks of each colour, ordered by `key` and then by their rank here. Every rank
    /// must call this; one without a colour is in none. Settings are inherited, but no report is written.
    ///
    /// This communicator goes on, as if an all-reduce had been called. One that has ended or was revoked cannot be
    /// split, since the colours travel as its data; shrink can be called on it.
    ///
    /// # Errors
    /// What an all-reduce can end with; what keeps the members of a colour from meeting within the join time-out, by
    /// their ranks here. After the latter this communicator can go on.
    pub fn split(&mut self, colour: Option<u32>, key: i32) -> Result<Option<Self>, Error> {
        self.split_with(colour, key, None)
    }

    /// As [`Communicator::split`], with settings that must be equal on all ranks of a colour.
    ///
    /// # Errors
    /// As [`Communicator::split`].
    pub fn split_with(
        &mut self,
        colour: Option<u32>,
        key: i32,
        config: Option<&Config>,
    ) -> Result<Option<Self>, Error> {
        let all = self.exchange(colour, key)?;
        // Ranks without a colour count too: the next call has the same number on all ranks.
        let word = self.lineage.calls.next(hash(CALL.bytes().map(u64::from)));
        let Some(colour) = colour else { return Ok(None) };
        let mut group: Vec<(i32, u32)> =
            (0..).zip(&all).filter(|(_, of)| of.0 == Some(colour)).map(|(rank, of)| (of.1, rank)).collect();
        group.sort_unstable();
        let group = group.into_iter().map(|(_, rank)| rank).collect();
        let birth = Birth { call: CALL, word, colour: colour.into(), group, is_agreed: true, config };
        self.bear(birth).map(Some)
    }

    /// Makes a communicator of the same ranks with a sequence of operations of its own. Every rank must call this.
    ///
    /// # Errors
    /// As [`Communicator::split`].
    pub fn duplicate(&mut self) -> Result<Self, Error> {
        let twin = self.split(Some(0), 0)?;
        // A rank with a colour is in a group.
        twin.ok_or(Error::Argument { rank: self.shared.rank, call: "duplicate", what: "no group".into() })
    }

    /// Colour and key of every rank.
    fn exchange(&mut self, colour: Option<u32>, key: i32) -> Result<Vec<(Option<u32>, i32)>, Error> {
        let mut words = vec![0i64; 2 * self.nranks()];
        // 0 stands for no colour.
        words[2 * self.rank()] = colour.map_or(0, |colour| i64::from(colour) + 1);
        words[2 * self.rank() + 1] = key.into();
        self.all_reduce_in_place(&mut words, ReduceOp::Sum)?;
        let read = |pair: &[i64]| {
            let colour = if pair[0] == 0 { None } else { Some(u32::try_from(pair[0] - 1).ok()?) };
            Some((colour, i32::try_from(pair[1]).ok()?))
        };
        let all: Vec<Option<_>> = words.chunks_exact(2).map(read).collect();
        let bad = all.iter().position(Option::is_none);
        let what = || format!("rank {} has sent a colour or key that no rank sends", bad.unwrap_or_default());
        all.into_iter().collect::<Option<_>>().ok_or_else(|| Error::Argument {
            rank: self.shared.rank,
            call: CALL,
            what: what(),
        })
    }
}
