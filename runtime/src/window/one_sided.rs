//! One-sided operations: a rank writes into another one's memory and says so; the other waits for being told.
//!
//! ```text
//!  rank 0   put x -> window of rank 1     a store into memory that rank 0 has mapped
//!           signal 1                      counts up: signals from 0 to 1, a word of rank 0 alone
//!  rank 1   wait_signal 0, 1              until that word has grown by 1 since the last wait
//! ```
//!
//! Neither put nor signal waits for the other rank. What was put before a signal is there when the wait for it is over.

use super::Window;
use crate::comm::{Communicator, SignalWait, refuse_in_callback};
use crate::error::Error;
use crate::reduce::{self, Dst, Element, Store};
use shmring::sync::Ordering;
use std::sync::Arc;

/// Puts of at least this size are written past the cache, where they would not stay.
const STREAMING_BYTES: usize = 1 << 20;

/// What this rank has made of signals so far.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    /// Signals of each rank that were waited for.
    taken: Vec<u64>,
}

impl Communicator {
    /// Copies `data` into the memory that rank `to` has registered as `window`, from element `at` on, without the other
    /// rank's doing. It is there once a [`signal`](Communicator::signal) that follows has arrived.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such rank, its memory ends before, or the window could not be mapped.
    ///
    /// # Safety
    /// - Rank `to` neither reads nor writes those elements, nor does any other rank or operation, until the signal.
    pub unsafe fn put<T: Element>(
        &mut self,
        data: &[T],
        window: &Window,
        to: usize,
        at: usize,
    ) -> Result<(), Error> {
        const CALL: &str = "put";
        self.refuse_to_wait_and_ended()?;
        let peer = self.peer(to, CALL)?;
        if window.job != self.job() {
            return Err(self.argument(CALL, "the window belongs to another communicator".into()));
        }
        if !window.is_mapped() {
            let what = "the window could not be mapped, see the warning of its registration".into();
            return Err(self.argument(CALL, what));
        }
        let bytes = size_of_val(data);
        let offset = at.checked_mul(size_of::<T>()).and_then(|offset| u64::try_from(offset).ok());
        let address = offset.and_then(|offset| window.mapped.address(peer, offset, bytes));
        let Some(address) = address else {
            let what = format!(
                "{} elements from element {at} on are more than the {} bytes that rank {to} has registered",
                data.len(),
                window.len_of(to)
            );
            return Err(self.argument(CALL, what));
        };
        let store = if bytes >= STREAMING_BYTES { Store::Streaming } else { Store::Cached };
        // SAFETY: the address has `bytes` bytes, see `Mapped::address`; the rest is the caller's contract.
        unsafe { reduce::copy(data.as_ptr().cast(), &[Dst { ptr: address, store }], bytes) };
        Ok(())
    }

    /// Tells rank `to` that everything which this rank has put so far is there; to be waited for by
    /// [`Communicator::wait_signal`]. Does not wait itself. A rank can signal to itself.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such rank; an error of the segment; why the communicator has ended.
    pub fn signal(&mut self, to: usize) -> Result<(), Error> {
        self.refuse_to_wait_and_ended()?;
        let peer = self.peer(to, "signal")?;
        let (shared, rank) = (self.shared(), self.rank());
        let words = shared.segment.signals(peer).map_err(|cause| shared.segment_error(cause))?;
        // ORDERING: Release pairs with the Acquire in `wait_signal`: what was put before is seen after it.
        words[rank].fetch_add(1, Ordering::Release);
        shared.segment.notify();
        if to == rank {
            shared.segment.notify_self();
        }
        Ok(())
    }

    /// Waits for the next `count` signals of rank `from`: those that have arrived since the last wait count.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such rank; [`Error::PeerGone`] and [`Error::Timeout`], as of a receive.
    pub fn wait_signal(&mut self, from: usize, count: u64) -> Result<(), Error> {
        refuse_in_callback(self.shared().rank)?;
        let peer = self.peer(from, "wait_signal")?;
        let nranks = self.nranks();
        let taken = &mut self.signals().taken;
        taken.resize(nranks, 0);
        let wanted = taken[from].saturating_add(count);
        let shared = Arc::clone(self.shared());
        let words = shared.segment.signals(shared.rank).map_err(|cause| shared.segment_error(cause))?;
        let word = &words[from];
        // ORDERING: Acquire pairs with the Release in `signal`.
        let is_here = || word.load(Ordering::Acquire) >= wanted;
        SignalWait::new(&shared, peer).until(is_here)?;
        self.signals().taken[from] = wanted;
        Ok(())
    }
}
