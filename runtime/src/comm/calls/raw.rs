//! The collectives for buffers that are known by their addresses, as NCCL's interface has them.
//!
//! Each of these functions takes `count` elements of `dtype`: of the buffer, or of each rank's block. A buffer that
//! only the root has may be null on the other ranks. In place means what it means in NCCL:
//!
//! | call | in place when |
//! | --- | --- |
//! | all-reduce, broadcast, reduce, all-to-all | `send == recv` |
//! | all-gather, gather on the root | `send == recv + rank * count` |
//! | reduce-scatter, scatter on the root | `recv == send + rank * count` |

use super::super::Communicator;
use super::Ready;
use crate::error::Error;
use crate::reduce::{DType, ReduceOp};

impl Communicator {
    /// All-reduce of raw buffers of `count` elements of `dtype`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`], and [`Error::Argument`] for more bytes than memory can have.
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
        let ready = Ready::all_reduce_raw(self, send, recv, count, dtype, op)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// Broadcast of raw buffers of `count` elements of `dtype`.
    ///
    /// # Errors
    /// As [`Communicator::broadcast_from`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - `recv` is writable for `count` elements during the call, and on the root `send` readable.
    /// - They are equal or do not overlap.
    pub unsafe fn broadcast_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        root: usize,
    ) -> Result<(), Error> {
        let ready = Ready::broadcast_raw(self, send, recv, count, dtype, root)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// Reduce of raw buffers of `count` elements of `dtype`.
    ///
    /// # Errors
    /// As [`Communicator::reduce`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - `send` is readable for `count` elements during the call, and on the root `recv` writable.
    /// - They are equal or do not overlap.
    pub unsafe fn reduce_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), Error> {
        let ready = Ready::reduce_raw(self, send, recv, count, dtype, op, root)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// All-gather of raw buffers, `count` elements of `dtype` from each rank.
    ///
    /// # Errors
    /// As [`Communicator::all_gather`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - During the call `send` is readable for `count` and `recv` writable for `nranks * count` elements.
    /// - They do not overlap, or `send` is the own block of `recv`.
    pub unsafe fn all_gather_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        let ready = Ready::all_gather_raw(self, send, recv, count, dtype)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// Reduce-scatter of raw buffers, `count` elements of `dtype` to each rank.
    ///
    /// # Errors
    /// As [`Communicator::reduce_scatter`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - During the call `send` is readable for `nranks * count` and `recv` writable for `count` elements.
    /// - They do not overlap, or `recv` is the own block of `send`.
    pub unsafe fn reduce_scatter_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let ready = Ready::reduce_scatter_raw(self, send, recv, count, dtype, op)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// All-to-all of raw buffers, `count` elements of `dtype` from each rank to each.
    ///
    /// # Errors
    /// As [`Communicator::all_to_all`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - During the call `send` is readable and `recv` writable for `nranks * count` elements.
    /// - They are equal or do not overlap.
    pub unsafe fn all_to_all_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
    ) -> Result<(), Error> {
        let ready = Ready::all_to_all_raw(self, send, recv, count, dtype)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// Gather of raw buffers, `count` elements of `dtype` from each rank.
    ///
    /// # Errors
    /// As [`Communicator::gather`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - During the call `send` is readable for `count` elements, and on the root `recv` writable for `nranks * count`.
    /// - They do not overlap, or `send` is the own block of `recv`.
    pub unsafe fn gather_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        root: usize,
    ) -> Result<(), Error> {
        let ready = Ready::gather_raw(self, send, recv, count, dtype, root)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// Scatter of raw buffers, `count` elements of `dtype` to each rank.
    ///
    /// # Errors
    /// As [`Communicator::scatter`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - During the call `recv` is writable for `count` elements, and on the root `send` readable for `nranks * count`.
    /// - They do not overlap, or `recv` is the own block of `send`.
    pub unsafe fn scatter_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        root: usize,
    ) -> Result<(), Error> {
        let ready = Ready::scatter_raw(self, send, recv, count, dtype, root)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// All-gather of raw buffers, `counts[i]` elements of `dtype` from rank `i`.
    ///
    /// # Errors
    /// As [`Communicator::all_gather_v`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - During the call `send` is readable for this rank's count and `recv` writable for the sum of all.
    /// - They do not overlap, or `send` is the own block of `recv`.
    pub unsafe fn all_gather_v_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        counts: &[usize],
        dtype: DType,
    ) -> Result<(), Error> {
        let ready = Ready::all_gather_v_raw(self, send, recv, counts, dtype)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }

    /// Reduce-scatter of raw buffers, `counts[i]` elements of `dtype` to rank `i`.
    ///
    /// # Errors
    /// As [`Communicator::reduce_scatter_v`], and [`Error::Argument`] for more bytes than memory can have.
    ///
    /// # Safety
    /// - During the call `send` is readable for the sum of all counts and `recv` writable for this rank's.
    /// - They do not overlap, or `recv` is the own block of `send`.
    pub unsafe fn reduce_scatter_v_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        counts: &[usize],
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let ready = Ready::reduce_scatter_v_raw(self, send, recv, counts, dtype, op)?;
        // SAFETY: the caller's contract.
        unsafe { self.now(ready) }
    }
}
