//! The collectives, as their callers see them: arguments are checked here and nothing else happens.
//!
//! Here are those whose buffers every rank has alike; [`blocks`] has those with a block of every rank, [`raw`] all of
//! them for pointers; [`ready`] has the checks.

mod blocks;
mod check;
mod raw;
mod ready;

pub(crate) use ready::Ready;

use super::Communicator;
use crate::error::Error;
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
        let ready = Ready::all_reduce(self, send, recv, op)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }

    /// Reduces `buffer` over all ranks, in place.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    pub fn all_reduce_in_place<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let ready = Ready::all_reduce_in_place(self, buffer, op)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
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
        let ready = Ready::reduce(self, send, recv, op, root)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
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
        let ready = Ready::reduce_in_place(self, buffer, op, root)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }

    /// Sends `buffer` of rank `root` to every rank's `buffer`.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such root; anything else ends the communicator.
    pub fn broadcast<T: Element>(&mut self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        let ready = Ready::broadcast(self, buffer, root)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
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
        let ready = Ready::broadcast_from(self, send, recv, root)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// Anything that ends the communicator.
    pub fn barrier(&mut self) -> Result<(), Error> {
        // SAFETY: the call has no elements.
        unsafe { self.now(Ready::barrier()) }
    }

    /// Runs a collective that is ready.
    ///
    /// # Safety
    /// - Its buffers are still what they were when it was made.
    #[inline]
    unsafe fn now(&mut self, ready: Ready) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        unsafe { self.run(ready.call, ready.buffers.input, ready.buffers.output) }
    }
}
