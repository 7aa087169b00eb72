//! Collectives with a block of every rank in one of their buffers, in the order of ranks.
//!
//! ```text
//!                   send                      recv, on rank 1 of 3
//! all_gather        |  1  |                   |  0  |  1  |  2  |      block i is rank i's `send`
//! reduce_scatter    |  0  |  1  |  2  |       |  1  |                  block 1 of the sum of all `send`
//! all_to_all        |  0  |  1  |  2  |       |  0  |  1  |  2  |      block i is block 1 of rank i's `send`
//! gather            |  1  |                   |  0  |  1  |  2  |      on the root alone
//! scatter           |  0  |  1  |  2  |       |  1  |                  block 1 of the root's `send`
//! ```

use super::super::Communicator;
use crate::error::Error;
use crate::plan::Kind;
use crate::reduce::{Element, ReduceOp};

impl Communicator {
    /// Gathers every rank's `send`, `count` elements, into `recv` on every rank: `nranks * count` elements.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths do not fit; anything else ends the communicator.
    pub fn all_gather<T: Element>(&mut self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let call = self.all_gather_call::<T>(send.len(), recv.len())?;
        // SAFETY: `send` holds a block and `recv` one of every rank; both are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// Gathers every rank's block of `buffer`, `nranks * count` elements, into the `buffer` of all: each sends the
    /// block at its own place.
    ///
    /// # Errors
    /// [`Error::Argument`] when the length is no multiple of the number of ranks; anything else ends the communicator.
    pub fn all_gather_in_place<T: Element>(&mut self, buffer: &mut [T]) -> Result<(), Error> {
        let count = self.block_of(Kind::AllGather, buffer.len())?;
        let call = self.all_gather_call::<T>(count, buffer.len())?;
        let all = buffer.as_mut_ptr();
        // SAFETY: the slice holds a block of every rank, so the own one begins inside it (at its end if empty).
        let own = unsafe { all.add(self.rank() * count) };
        // SAFETY: the slice is borrowed for the call; the input is the own block.
        unsafe { self.run(call, own.cast(), all.cast()) }
    }

    /// Reduces `send`, `nranks * count` elements, over all ranks; each gets its own block of the result, `count`
    /// elements, in `recv`.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths do not fit; anything else ends the communicator.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = self.reduce_scatter_call::<T>(send.len(), recv.len(), op)?;
        // SAFETY: `send` holds a block of every rank and `recv` one; both are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// Reduces `buffer`, `nranks * count` elements, over all ranks; each gets its own block of the result at its
    /// place in `buffer`, of which the other blocks stay as they are.
    ///
    /// # Errors
    /// [`Error::Argument`] when the length is no multiple of the number of ranks; anything else ends the communicator.
    pub fn reduce_scatter_in_place<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let count = self.block_of(Kind::ReduceScatter, buffer.len())?;
        let call = self.reduce_scatter_call::<T>(buffer.len(), count, op)?;
        let all = buffer.as_mut_ptr();
        // SAFETY: the slice holds a block of every rank, so the own one begins inside it (at its end if empty).
        let own = unsafe { all.add(self.rank() * count) };
        // SAFETY: the slice is borrowed for the call; the output is the own block.
        unsafe { self.run(call, all.cast(), own.cast()) }
    }

    /// Sends block `i` of `send` to rank `i`, where it becomes block `rank` of `recv`; both have `nranks * count`
    /// elements.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths differ or are no multiple of the number of ranks; anything else ends the
    /// communicator.
    pub fn all_to_all<T: Element>(&mut self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let call = self.all_to_all_call::<T>(send.len(), recv.len())?;
        // SAFETY: both slices hold a block of every rank and are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// The same with one buffer, which NCCL does not offer: block `i` is sent to rank `i` and replaced by what comes
    /// from there.
    ///
    /// # Errors
    /// As [`Communicator::all_to_all`].
    pub fn all_to_all_in_place<T: Element>(&mut self, buffer: &mut [T]) -> Result<(), Error> {
        let call = self.all_to_all_call::<T>(buffer.len(), buffer.len())?;
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: the slice holds a block of every rank and is borrowed for the call; input and output are equal.
        unsafe { self.run(call, at, at) }
    }

    /// Gathers every rank's `send`, `count` elements, into `recv` of rank `root`: `nranks * count` elements. On other
    /// ranks `recv` is not looked at and may be empty.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths do not fit on the root or there is no such root; anything else ends the
    /// communicator.
    pub fn gather<T: Element>(&mut self, send: &[T], recv: &mut [T], root: usize) -> Result<(), Error> {
        let call = self.gather_call::<T>(send.len(), recv.len(), root)?;
        // SAFETY: `send` holds a block, on the root `recv` one of every rank; both are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// Sends block `i` of `send` of rank `root`, `nranks * count` elements, to `recv` of rank `i`: `count` elements.
    /// On other ranks `send` is not looked at and may be empty.
    ///
    /// # Errors
    /// As [`Communicator::gather`].
    pub fn scatter<T: Element>(&mut self, send: &[T], recv: &mut [T], root: usize) -> Result<(), Error> {
        let call = self.scatter_call::<T>(send.len(), recv.len(), root)?;
        // SAFETY: `recv` holds a block, on the root `send` one of every rank; both are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// [`Communicator::all_gather`] with blocks of different lengths: `counts[i]` elements come from rank `i`. Every
    /// rank passes the same `counts`, `send` of its own count and `recv` of their sum.
    ///
    /// # Errors
    /// [`Error::Argument`] when lengths and counts do not fit; anything else ends the communicator.
    pub fn all_gather_v<T: Element>(
        &mut self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
    ) -> Result<(), Error> {
        let call = self.all_gather_v_call::<T>(send.len(), recv.len(), counts)?;
        // SAFETY: `send` holds the own block and `recv` one of every rank; both are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// [`Communicator::reduce_scatter`] with blocks of different lengths: rank `i` gets `counts[i]` elements. Every
    /// rank passes the same `counts`, `send` of their sum and `recv` of its own count.
    ///
    /// # Errors
    /// [`Error::Argument`] when lengths and counts do not fit; anything else ends the communicator.
    pub fn reduce_scatter_v<T: Element>(
        &mut self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = self.reduce_scatter_v_call::<T>(send.len(), recv.len(), counts, op)?;
        // SAFETY: `send` holds a block of every rank and `recv` the own one; both are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }
}
