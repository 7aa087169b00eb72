//! The collectives, as their callers see them: arguments are checked here and nothing else happens.
//!
//! Here are those whose buffers every rank has alike; [`blocks`] has those with a block of every rank, [`raw`] all of
//! them for pointers.

mod blocks;
mod check;
mod make;
mod raw;

use super::Communicator;
use crate::error::Error;
use crate::plan::{Call, Kind};
use crate::reduce::{Element, ReduceOp};

impl Communicator {
    /// Reduces `send` over all ranks into `recv` on every rank. Both have `count` elements, equal everywhere.
    ///
    /// All ranks get the same bits, on every run. With a `count` of 0 nobody is waited for; the call still counts and
    /// must be made by every rank.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths differ; anything else ends the communicator.
    pub fn all_reduce<T: Element>(&mut self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = self.all_reduce_call::<T>(send.len(), recv.len(), op)?;
        // SAFETY: both slices hold `count` elements and are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// Reduces `buffer` over all ranks, in place.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    pub fn all_reduce_in_place<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = Call::new(Kind::AllReduce, buffer.len(), T::DTYPE, op);
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: the slice holds `count` elements and is borrowed for the call; input and output are equal.
        unsafe { self.run(call, at, at) }
    }

    /// Reduces `send` over all ranks into `recv` on rank `root`. Both have `count` elements; on other ranks `recv` is
    /// not looked at and may be empty.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths differ on the root or there is no such root; anything else ends the
    /// communicator.
    pub fn reduce<T: Element>(
        &mut self,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<(), Error> {
        let call = self.reduce_call::<T>(send.len(), recv.len(), op, root)?;
        // SAFETY: `send` holds `count` elements, on the root `recv` does too; both are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// Reduces `buffer` over all ranks, in place on rank `root`; that of every other rank stays as it is.
    ///
    /// # Errors
    /// As [`Communicator::reduce`].
    pub fn reduce_in_place<T: Element>(
        &mut self,
        buffer: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<(), Error> {
        let call = self.reduce_call::<T>(buffer.len(), buffer.len(), op, root)?;
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: the slice holds `count` elements and is borrowed for the call; input and output are equal.
        unsafe { self.run(call, at, at) }
    }

    /// Sends `buffer` of rank `root` to every rank's `buffer`.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such root; anything else ends the communicator.
    pub fn broadcast<T: Element>(&mut self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        let call = self.broadcast_call::<T>(buffer.len(), root)?;
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: the slice holds `count` elements and is borrowed for the call; input and output are equal.
        unsafe { self.run(call, at, at) }
    }

    /// Sends `send` of rank `root` to every rank's `recv`, the root's included. Both have `count` elements.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths differ or there is no such root.
    pub fn broadcast_from<T: Element>(
        &mut self,
        send: &[T],
        recv: &mut [T],
        root: usize,
    ) -> Result<(), Error> {
        let call = self.broadcast_call::<T>(recv.len(), root)?;
        self.same_length(call.kind, send.len(), recv.len())?;
        // SAFETY: both slices hold `count` elements and are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// Anything that ends the communicator.
    pub fn barrier(&mut self) -> Result<(), Error> {
        let nowhere = std::ptr::dangling_mut::<u64>().cast();
        // SAFETY: the call has no elements.
        unsafe { self.run(Call::BARRIER, nowhere, nowhere) }
    }
}
