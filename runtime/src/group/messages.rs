//! Sends, receives and exchanges of groups.

use super::Group;
use crate::comm::{Communicator, Source};
use crate::error::Error;
use crate::mail::Letter;
use crate::reduce::{DType, Element};
use crate::task::Task;

impl<'a> Group<'a> {
    /// Adds a send, as [`Communicator::send`].
    ///
    /// # Errors
    /// [`Error::Argument`] as there; the group fails then.
    pub fn send<T: Element>(
        &mut self,
        comm: &mut Communicator,
        buffer: &'a [T],
        to: usize,
    ) -> Result<&mut Self, Error> {
        self.send_tagged(comm, buffer, to, 0)
    }

    /// Adds a receive, as [`Communicator::recv`].
    ///
    /// # Errors
    /// [`Error::Argument`] as there; the group fails then.
    pub fn recv<T: Element>(
        &mut self,
        comm: &mut Communicator,
        buffer: &'a mut [T],
        from: usize,
    ) -> Result<&mut Self, Error> {
        // SAFETY: the slice is borrowed until the group is gone.
        unsafe { self.recv_raw(comm, buffer.as_mut_ptr().cast(), buffer.len(), T::DTYPE, from, 0) }
    }

    /// Adds a send with a tag, as [`Communicator::send_tagged`].
    ///
    /// # Errors
    /// [`Error::Argument`] as there; the group fails then.
    pub fn send_tagged<T: Element>(
        &mut self,
        comm: &mut Communicator,
        buffer: &'a [T],
        to: usize,
        tag: u32,
    ) -> Result<&mut Self, Error> {
        // SAFETY: the slice is borrowed until the group is gone.
        unsafe { self.send_raw(comm, buffer.as_ptr().cast(), buffer.len(), T::DTYPE, to, tag) }
    }

    /// Adds a receive with a tag, from rank `from` or from any, as [`Communicator::recv_tagged`]. The result tells
    /// which rank it was, once the group has run.
    ///
    /// # Errors
    /// [`Error::Argument`] as there; the group fails then.
    pub fn recv_tagged<T: Element>(
        &mut self,
        comm: &mut Communicator,
        buffer: &'a mut [T],
        from: Option<usize>,
        tag: u32,
    ) -> Result<Source, Error> {
        // SAFETY: the slice is borrowed until the group is gone.
        unsafe { self.recv_tagged_raw(comm, buffer.as_mut_ptr().cast(), buffer.len(), T::DTYPE, from, tag) }
    }

    /// Adds a send to rank `to` and a receive from rank `from`, as [`Communicator::send_recv`].
    ///
    /// # Errors
    /// [`Error::Argument`] as there; the group fails then.
    pub fn send_recv<T: Element>(
        &mut self,
        comm: &mut Communicator,
        send: &'a [T],
        to: usize,
        recv: &'a mut [T],
        from: usize,
    ) -> Result<&mut Self, Error> {
        self.send(comm, send, to)?.recv(comm, recv, from)
    }

    /// Adds an exchange of parts of any length between all ranks, as [`Communicator::all_to_all_v`].
    ///
    /// # Errors
    /// [`Error::Argument`] as there; the group fails then.
    pub fn all_to_all_v<T: Element>(
        &mut self,
        comm: &mut Communicator,
        send: &'a [T],
        send_counts: &[usize],
        recv: &'a mut [T],
        recv_counts: &[usize],
    ) -> Result<&mut Self, Error> {
        let checked = comm.check_parts((send.len(), send_counts), (recv.len(), recv_counts));
        let (send, recv) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices have the parts that the counts say and are borrowed until the group is gone.
        let tasks = checked.and_then(|()| unsafe {
            comm.exchange_parts((send, send_counts), (recv, recv_counts), T::DTYPE, true)
        });
        self.add(tasks, part_bytes(send_counts, recv_counts, T::DTYPE))
    }

    /// Adds a send of `count` elements of `dtype`, as [`Communicator::send_raw`].
    ///
    /// # Errors
    /// As [`Communicator::send`], for wrong arguments.
    ///
    /// # Safety
    /// - `buffer` is readable for `count` elements, from any thread, until the group has run or is dropped.
    pub unsafe fn send_raw(
        &mut self,
        comm: &mut Communicator,
        buffer: *const u8,
        count: usize,
        dtype: DType,
        to: usize,
        tag: u32,
    ) -> Result<&mut Self, Error> {
        let letter = Letter { count, dtype, tag };
        // SAFETY: the caller's contract.
        let task = unsafe { comm.send_task(buffer, letter, to) };
        self.add(task.map(|task| [task]), letter.bytes())
    }

    /// Adds a receive of `count` elements of `dtype`, as [`Communicator::recv_raw`].
    ///
    /// # Errors
    /// As [`Communicator::recv`], for wrong arguments.
    ///
    /// # Safety
    /// - `buffer` is writable for `count` elements, from any thread, until the group has run or is dropped.
    pub unsafe fn recv_raw(
        &mut self,
        comm: &mut Communicator,
        buffer: *mut u8,
        count: usize,
        dtype: DType,
        from: usize,
        tag: u32,
    ) -> Result<&mut Self, Error> {
        let letter = Letter { count, dtype, tag };
        // SAFETY: the caller's contract.
        let task = unsafe { comm.recv_task(buffer, letter, Some(from)) };
        self.add(task.map(|task| [task]), letter.bytes())
    }

    /// Adds a receive of `count` elements of `dtype` from rank `from` or from any, as [`Communicator::recv_tagged`].
    ///
    /// # Errors
    /// As [`Communicator::recv`], for wrong arguments.
    ///
    /// # Safety
    /// - `buffer` is writable for `count` elements, from any thread, until the group has run or is dropped.
    pub unsafe fn recv_tagged_raw(
        &mut self,
        comm: &mut Communicator,
        buffer: *mut u8,
        count: usize,
        dtype: DType,
        from: Option<usize>,
        tag: u32,
    ) -> Result<Source, Error> {
        let letter = Letter { count, dtype, tag };
        // SAFETY: the caller's contract.
        let told = unsafe { comm.recv_told(buffer, letter, from) };
        let (task, source) = told.map_err(|error| self.refuse(error))?;
        self.add(Ok([Task::Recv(task)]), letter.bytes())?;
        Ok(source)
    }

    /// Adds an exchange of parts of any length between all ranks, as [`Communicator::all_to_all_v_raw`].
    ///
    /// # Errors
    /// As there, for counts that are not one for each rank or more than memory can have.
    ///
    /// # Safety
    /// - From here until the group has run or is dropped, from any thread, `send` is readable for the sum of
    ///   `send_counts` and `recv` writable for that of `recv_counts`; they do not overlap.
    pub unsafe fn all_to_all_v_raw(
        &mut self,
        comm: &mut Communicator,
        send: *const u8,
        send_counts: &[usize],
        recv: *mut u8,
        recv_counts: &[usize],
        dtype: DType,
    ) -> Result<&mut Self, Error> {
        let checked = comm.check_raw_parts(send_counts, recv_counts, dtype);
        // SAFETY: the caller's contract.
        let tasks = checked.and_then(|()| unsafe {
            comm.exchange_parts((send, send_counts), (recv, recv_counts), dtype, true)
        });
        self.add(tasks, part_bytes(send_counts, recv_counts, dtype))
    }
}

/// Bytes of all parts together; wrong if the counts are, but then nothing is added.
fn part_bytes(send_counts: &[usize], recv_counts: &[usize], dtype: DType) -> usize {
    let elements =
        send_counts.iter().chain(recv_counts).fold(0usize, |sum, count| sum.saturating_add(*count));
    elements.saturating_mul(dtype.size_bytes())
}
