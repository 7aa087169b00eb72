//! The collectives, as their callers see them: arguments are checked here and nothing else happens.

use super::Communicator;
use crate::error::Error;
use crate::plan::{Call, Kind};
use crate::reduce::{DType, Element, ReduceOp};

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
        let call = Call { kind: Kind::AllReduce, count: buffer.len(), dtype: T::DTYPE, op };
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: the slice holds `count` elements and is borrowed for the call; input and output are equal.
        unsafe { self.run(call, at, at) }
    }

    /// All-reduce of raw buffers of `count` elements of `dtype`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    ///
    /// # Safety
    /// - `send` is readable and `recv` writable for `count` elements during the call.
    /// - They are equal or do not overlap.
    pub unsafe fn all_reduce_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        unsafe { self.run(Call { kind: Kind::AllReduce, count, dtype, op }, send, recv) }
    }

    /// Sends `buffer` of rank `root` to every rank's `buffer`.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such root; anything else ends the communicator.
    pub fn broadcast<T: Element>(&mut self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        let call = self.broadcast_call::<T>(buffer.len(), root)?;
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

    pub(crate) fn all_reduce_call<T: Element>(
        &self,
        send: usize,
        recv: usize,
        op: ReduceOp,
    ) -> Result<Call, Error> {
        self.same_length(Kind::AllReduce, send, recv)?;
        Ok(Call { kind: Kind::AllReduce, count: recv, dtype: T::DTYPE, op })
    }

    pub(crate) fn broadcast_call<T: Element>(&self, count: usize, root: usize) -> Result<Call, Error> {
        if root >= self.nranks() {
            let kind = Kind::Broadcast { root: u32::try_from(root).unwrap_or(u32::MAX) };
            let what = format!("root {root} is not a rank: there are {}", self.nranks());
            return Err(Error::Argument { rank: self.shared.rank, kind, what });
        }
        let kind = Kind::Broadcast { root: root as u32 };
        Ok(Call { kind, count, dtype: T::DTYPE, op: ReduceOp::Sum })
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

    fn same_length(&self, kind: Kind, send: usize, recv: usize) -> Result<(), Error> {
        if send == recv {
            return Ok(());
        }
        let what =
            format!("the send buffer has {send} elements, the receive buffer {recv}; they must be equal");
        Err(Error::Argument { rank: self.shared.rank, kind, what })
    }
}
