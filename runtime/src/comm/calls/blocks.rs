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
use super::Ready;
use crate::error::Error;
use crate::reduce::{Element, ReduceOp};

impl Communicator {
    /// Gathers every rank's `send`, `count` elements, into `recv` on every rank: `nranks * count` elements.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths do not fit; anything else ends the communicator.
    pub fn all_gather<T: Element>(&mut self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let ready = Ready::all_gather(self, send, recv)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }

    /// Gathers every rank's block of `buffer`, `nranks * count` elements, into the `buffer` of all: each sends the
    /// block at its own place.
    ///
    /// # Errors
    /// [`Error::Argument`] when the length is no multiple of the number of ranks; anything else ends the communicator.
    pub fn all_gather_in_place<T: Element>(&mut self, buffer: &mut [T]) -> Result<(), Error> {
        let ready = Ready::all_gather_in_place(self, buffer)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
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
        let ready = Ready::reduce_scatter(self, send, recv, op)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
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
        let ready = Ready::reduce_scatter_in_place(self, buffer, op)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }

    /// Sends block `i` of `send` to rank `i`, where it becomes block `rank` of `recv`; both have `nranks * count`
    /// elements.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths differ or are no multiple of the number of ranks; anything else ends the
    /// communicator.
    pub fn all_to_all<T: Element>(&mut self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let ready = Ready::all_to_all(self, send, recv)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }

    /// The same with one buffer, which NCCL does not offer: block `i` is sent to rank `i` and replaced by what comes
    /// from there.
    ///
    /// # Errors
    /// As [`Communicator::all_to_all`].
    pub fn all_to_all_in_place<T: Element>(&mut self, buffer: &mut [T]) -> Result<(), Error> {
        let ready = Ready::all_to_all_in_place(self, buffer)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }

    /// Gathers every rank's `send`, `count` elements, into `recv` of rank `root`: `nranks * count` elements. On other
    /// ranks `recv` is not looked at and may be empty.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths do not fit on the root or there is no such root; anything else ends the
    /// communicator.
    pub fn gather<T: Element>(&mut self, send: &[T], recv: &mut [T], root: usize) -> Result<(), Error> {
        let ready = Ready::gather(self, send, recv, root)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }

    /// Sends block `i` of `send` of rank `root`, `nranks * count` elements, to `recv` of rank `i`: `count` elements.
    /// On other ranks `send` is not looked at and may be empty.
    ///
    /// # Errors
    /// As [`Communicator::gather`].
    pub fn scatter<T: Element>(&mut self, send: &[T], recv: &mut [T], root: usize) -> Result<(), Error> {
        let ready = Ready::scatter(self, send, recv, root)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
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
        let ready = Ready::all_gather_v(self, send, recv, counts)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
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
        let ready = Ready::reduce_scatter_v(self, send, recv, counts, op)?;
        // SAFETY: the slices that the buffers are parts of are borrowed for the call.
        unsafe { self.now(ready) }
    }
}
