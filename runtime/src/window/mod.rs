//! Memory that all ranks of a communicator can reach: what collectives use without copies, and one-sided operations
//! write to.
//!
//! ```text
//!  SharedMemory::new     memory of this process, of no communicator; used like any other
//!  Communicator::register     collective: every rank maps every rank's memory; a Window
//!  large collectives whose buffers are all in windows              read where they are
//!  Communicator::put, signal, wait_signal    write to another rank's memory, and tell it
//!  Communicator::deregister   collective: no operation uses it any more
//! ```
//!
//! Any part of a window can be a buffer, at another offset or in another window on each rank. Where one buffer of an
//! operation is in no window, on any rank, the operation runs as it does on private memory: never wrong, only slower.
//!
//! Memory goes when its owner has freed it and nobody has it registered any more: a rank may free it, end or die at
//! any time while others still read it.

mod memory;
mod one_sided;

pub use memory::SharedMemory;
pub(crate) use one_sided::Signals;

use crate::comm::Communicator;
use crate::error::Error;
use crate::reduce::ReduceOp;
use crate::settings;
use shmring::region::{Address, Foreign, Region};
use std::sync::Arc;

/// Memory of every rank that is registered with one communicator.
#[derive(Debug)]
pub struct Window {
    pub(crate) mapped: Arc<Mapped>,
    pub(crate) number: usize,
    /// Of the communicator that it belongs to.
    pub(crate) job: u64,
}

/// The memory of every rank, as it is mapped in this process.
#[derive(Debug)]
pub(crate) struct Mapped {
    own: Arc<Region>,
    rank: u32,
    /// `None` for this rank, and for all if one of them could not map one.
    peers: Vec<Option<Foreign>>,
    lens: Vec<usize>,
    /// Whether every rank has mapped every other's.
    complete: bool,
}

impl Mapped {
    /// How far into this rank's memory `bytes` at `address` are, if they are in it.
    pub(crate) fn offset_of(&self, address: *const u8, bytes: usize) -> Option<usize> {
        if !self.complete {
            return None;
        }
        let offset = address.addr().checked_sub(self.own.as_ptr().addr())?;
        (offset < self.own.len() && bytes <= self.own.len() - offset).then_some(offset)
    }

    /// The address here of `bytes` bytes at `offset` of the memory of `rank`; `None` where it has not as many.
    pub(crate) fn address(&self, rank: u32, offset: u64, bytes: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        let len = *self.lens.get(rank as usize)?;
        if !self.complete || offset > len || bytes > len - offset {
            return None;
        }
        let start = if rank == self.rank {
            self.own.as_ptr()
        } else {
            self.peers.get(rank as usize)?.as_ref()?.as_ptr()
        };
        Some(start.wrapping_add(offset))
    }
}

impl Window {
    /// Bytes that `rank` has registered.
    ///
    /// # Panics
    /// If the communicator has no such rank.
    pub fn len_of(&self, rank: usize) -> usize {
        self.mapped.lens[rank]
    }

    /// Where `bytes` bytes at `offset` of the memory of `rank` are mapped in this process; `None` where there are not
    /// as many, and for other ranks' if not all could be mapped. Valid as long as the window is registered.
    ///
    /// Who reads or writes there keeps to what [`Communicator::put`] asks of its callers.
    pub fn address_of(&self, rank: usize, offset: usize, bytes: usize) -> Option<*mut u8> {
        self.mapped.address(u32::try_from(rank).ok()?, u64::try_from(offset).ok()?, bytes)
    }

    /// Whether every rank could map every other rank's memory. If not, a warning has said why, collectives copy as they
    /// do on private memory, and [`Communicator::put`] is refused.
    pub fn is_mapped(&self) -> bool {
        self.mapped.complete
    }
}

impl Communicator {
    /// Registers `memory` with this communicator. Every rank must call this, with memory of its own, of any length.
    ///
    /// Counts as two operations of the communicator, an all-gather and an all-reduce. The window lasts until it is
    /// taken back by [`Communicator::deregister`] or the communicator ends, and keeps the memory for as long;
    /// dropping the handle changes nothing.
    ///
    /// # Errors
    /// What an all-gather can end with. That memory cannot be mapped is no error: see [`Window::is_mapped`].
    pub fn register(&mut self, memory: &SharedMemory) -> Result<Window, Error> {
        const WORDS: usize = Address::WORDS + 1;
        let own = memory.region();
        let (rank, nranks) = (self.rank(), self.nranks());
        let mut notice = [0u64; WORDS];
        notice[..Address::WORDS].copy_from_slice(&own.address().to_words());
        notice[Address::WORDS] = memory.len() as u64;
        let mut words = vec![0u64; nranks * WORDS];
        self.all_gather(&notice, &mut words)?;
        let (mut peers, mut lens, mut failed) =
            (Vec::with_capacity(nranks), Vec::with_capacity(nranks), None);
        for (peer, words) in words.chunks_exact(WORDS).enumerate() {
            let (address, len) = words.split_at(Address::WORDS);
            let address = <[u64; Address::WORDS]>::try_from(address).ok().and_then(Address::from_words);
            let room = address.map_or(0, Address::bytes);
            lens.push(usize::try_from(len[0].min(room)).unwrap_or(0));
            let mapped = match address {
                _ if peer == rank => None,
                Some(address) => Foreign::map(address).map_err(|cause| failed = Some((peer, cause))).ok(),
                None => {
                    failed = Some((peer, shmring::region::MapError::Malformed));
                    None
                }
            };
            peers.push(mapped);
        }
        // Every rank must have them all, or none uses them.
        let mut complete = [u8::from(failed.is_none())];
        self.all_reduce_in_place(&mut complete, ReduceOp::Min)?;
        if let Some((peer, cause)) = failed {
            settings::warn(&format!(
                "rank {rank} cannot map memory of rank {peer}: {cause}; collectives on it will copy"
            ));
        }
        let complete = complete == [1];
        if !complete {
            peers.fill_with(|| None);
        }
        let mapped = Arc::new(Mapped { own, rank: rank as u32, peers, lens, complete });
        let number = self.add_window(Arc::clone(&mapped))?;
        Ok(Window { mapped, number, job: self.job() })
    }

    /// Takes a window back. Every rank must call this for the same one; it waits for the others, as an all-reduce, so
    /// that nobody reads the memory any more when it returns. Memory whose owner has dropped it is freed then.
    ///
    /// # Errors
    /// [`Error::Argument`] for a window of another communicator, which stays registered there, and where the ranks take
    /// different ones back, which all stay; what an all-reduce can end with.
    pub fn deregister(&mut self, window: Window) -> Result<(), Error> {
        if window.job != self.job() {
            let what = "the window belongs to another communicator".to_owned();
            return Err(self.argument("deregister", what));
        }
        let own = window.number as i64;
        let mut range = [own, -own];
        self.all_reduce_in_place(&mut range, ReduceOp::Max)?;
        if range[0] != -range[1] {
            let what = format!(
                "the ranks take different windows back: this one number {own}, others {} and {}",
                -range[1], range[0]
            );
            return Err(self.argument("deregister", what));
        }
        self.remove_window(window.number)
    }
}
