//! Grow: a communicator of the same ranks and newcomers.
//!
//! ```text
//!  one rank          growth_id: hosts a rendezvous, hands the id to the newcomers by any way it likes
//!  existing ranks    grow: an all-reduce brings the id to all; each joins there by its own rank
//!  newcomers         init with the id, a rank from the old number of ranks up, and the new number of ranks
//! ```
//!
//! The grown communicator has a segment of its own. Handing out descriptors of the old one would not do: where
//! everything lies in a segment follows from the number of its members, so a larger one cannot be made of it, and its
//! rings carry the old communicator's messages.

use super::birth::inherit;
use super::init::Bootstrap;
use super::{Communicator, Root};
use crate::config::Config;
use crate::error::Error;
use crate::reduce::ReduceOp;
use coordinator_lite::UniqueId;

const CALL: &str = "grow";
/// An id in words that an all-reduce can carry.
const ID_WORDS: usize = UniqueId::BYTES / 8;

impl Communicator {
    /// Hosts the rendezvous of a growth and gives the id by which newcomers join: one rank calls this, then all ranks
    /// call [`Communicator::grow`].
    ///
    /// Newcomers call [`Communicator::init`] with the id, a rank that is not below this communicator's number of ranks,
    /// the number of ranks that it grows to, and equal settings. The rendezvous ends when the growth is done.
    ///
    /// # Errors
    /// [`Error::Argument`] while an id of this rank has not been used; [`Error::Rendezvous`] when no port can be had.
    pub fn growth_id(&mut self) -> Result<UniqueId, Error> {
        if self.lineage.growth.is_some() {
            return self
                .refuse("this rank has given an id out already; call grow before the next one".into());
        }
        let root = Root::new()?;
        let id = root.unique_id();
        self.lineage.growth = Some(root);
        Ok(id)
    }

    /// Makes a communicator of `nranks` ranks: those of this one, which keep their ranks, and newcomers, which join by
    /// the id that one rank has got from [`Communicator::growth_id`]. Every rank must call this; settings are
    /// inherited, but no report is written. This communicator goes on.
    ///
    /// # Errors
    /// What an all-reduce can end with; [`Error::Argument`] on all ranks if their numbers differ, are not above this
    /// communicator's, or not exactly one rank has made an id; what keeps all ranks from meeting.
    pub fn grow(&mut self, nranks: usize) -> Result<Self, Error> {
        self.grow_with(nranks, None)
    }

    /// As [`Communicator::grow`], with settings that must be equal on all ranks.
    ///
    /// # Errors
    /// As [`Communicator::grow`].
    pub fn grow_with(&mut self, nranks: usize, config: Option<&Config>) -> Result<Self, Error> {
        let id = self.share_id(nranks)?;
        // As many as one of the ranks: the exchange has compared them.
        let to = u32::try_from(nranks).unwrap_or(u32::MAX);
        let config = config.cloned().unwrap_or_else(|| inherit(&self.shared.config, self.shared.nranks, to));
        // Kept until everybody has joined; an id is good for one growth.
        let _root = self.lineage.growth.take();
        let mut comm = Self::join(Bootstrap::from_id(&id, self.shared.rank, to)?, config)?;
        comm.descend(&self.lineage)?;
        Ok(comm)
    }

    /// Brings the id to all ranks, and compares what they want.
    fn share_id(&mut self, nranks: usize) -> Result<UniqueId, Error> {
        let ids = self.nranks();
        let mut words = vec![0i64; 2 * ids + ID_WORDS];
        words[self.rank()] = i64::try_from(nranks).unwrap_or(i64::MAX);
        if let Some(root) = &self.lineage.growth {
            words[ids + self.rank()] = 1;
            let bytes = root.unique_id().to_bytes();
            for (word, bytes) in words[2 * ids..].iter_mut().zip(bytes.as_chunks().0) {
                *word = i64::from_le_bytes(*bytes);
            }
        }
        self.all_reduce_in_place(&mut words, ReduceOp::Sum)?;
        let (sizes, rest) = words.split_at(ids);
        let (hosts, id) = rest.split_at(ids);
        if let Some(rank) = sizes.iter().position(|size| *size != sizes[self.rank()]) {
            let (mine, theirs) = (sizes[self.rank()], sizes[rank]);
            return self.refuse(format!("this rank grows to {mine} ranks, rank {rank} to {theirs}"));
        }
        if nranks <= self.nranks() {
            return self.refuse(format!(
                "{nranks} ranks are not more than the {} that there are",
                self.shared.nranks
            ));
        }
        let hosts: Vec<usize> = (0..ids).filter(|rank| hosts[*rank] != 0).collect();
        if hosts.len() != 1 {
            let who = format!("ranks {hosts:?} have made an id by growth_id; exactly one rank must");
            return self.refuse(who);
        }
        let mut bytes = [0; UniqueId::BYTES];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(id) {
            *bytes = word.to_le_bytes();
        }
        Ok(UniqueId::from_bytes(&bytes)?)
    }

    fn refuse<T>(&self, what: String) -> Result<T, Error> {
        Err(Error::Argument { rank: self.shared.rank, call: CALL, what })
    }
}
