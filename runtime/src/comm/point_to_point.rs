//! Messages from one rank to another, as their callers see them.

use super::{Communicator, registry};
use crate::error::Error;
use crate::mail::{Letter, RecvTask, SendTask};
use crate::reduce::{DType, Element};
use crate::task::{Task, drive};
use std::sync::Arc;

/// Drives the tasks of a blocking call, which has the handle until it returns.
fn drive_held(tasks: Vec<Task>) -> Result<(), Error> {
    registry::holding(|| drive(tasks))
}

impl Communicator {
    /// Sends `buffer` to rank `to`, whose receive must have the same count and type. Returns when the buffer may be
    /// changed, which may be before it was received.
    ///
    /// Only the two ranks take part. Two ranks that send to each other before they receive may wait for each other:
    /// use [`Communicator::send_recv`] or a [`Group`](crate::Group).
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such rank; anything else ends the communicator.
    pub fn send<T: Element>(&mut self, buffer: &[T], to: usize) -> Result<(), Error> {
        self.send_tagged(buffer, to, 0)
    }

    /// Receives into `buffer` what rank `from` sends.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such rank, [`Error::Mismatch`] when something else was sent; all but the first
    /// end the communicator.
    pub fn recv<T: Element>(&mut self, buffer: &mut [T], from: usize) -> Result<(), Error> {
        self.recv_tagged(buffer, Some(from), 0).map(|_| ())
    }

    /// As [`Communicator::send`], for a receive with the same `tag`.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn send_tagged<T: Element>(&mut self, buffer: &[T], to: usize, tag: u32) -> Result<(), Error> {
        let letter = Letter { count: buffer.len(), dtype: T::DTYPE, tag };
        // SAFETY: the slice is borrowed until the task is over.
        let task = unsafe { self.send_task(buffer.as_ptr().cast(), letter, to)? };
        drive_held(vec![task])
    }

    /// As [`Communicator::recv`], of the next message with this `tag` from rank `from`, or from any rank. Returns the
    /// rank that sent it.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    pub fn recv_tagged<T: Element>(
        &mut self,
        buffer: &mut [T],
        from: Option<usize>,
        tag: u32,
    ) -> Result<usize, Error> {
        let letter = Letter { count: buffer.len(), dtype: T::DTYPE, tag };
        // SAFETY: the slice is borrowed until the task is over.
        let mut task = unsafe { self.receive(buffer.as_mut_ptr().cast(), letter, from)? };
        let source = task.told_source();
        drive_held(vec![Task::Recv(task)])?;
        Ok(source.get().map_or(0, |rank| *rank as usize))
    }

    /// Sends `send` to rank `to` and receives `recv` from rank `from`, both at the same time.
    ///
    /// # Errors
    /// As [`Communicator::send`] and [`Communicator::recv`].
    pub fn send_recv<T: Element>(
        &mut self,
        send: &[T],
        to: usize,
        recv: &mut [T],
        from: usize,
    ) -> Result<(), Error> {
        let letter = |count| Letter { count, dtype: T::DTYPE, tag: 0 };
        self.peer(from, "recv")?;
        // SAFETY: both slices are borrowed until the tasks are over.
        let tasks = unsafe {
            let sent = self.send_task(send.as_ptr().cast(), letter(send.len()), to)?;
            vec![sent, self.recv_task(recv.as_mut_ptr().cast(), letter(recv.len()), Some(from))?]
        };
        drive_held(tasks)
    }

    /// Sends part i of `send` to rank i and receives part i of `recv` from rank i; parts follow each other without
    /// gaps, part i has `send_counts[i]` and `recv_counts[i]` elements. Part `rank` is copied.
    ///
    /// # Errors
    /// [`Error::Argument`] when the counts do not fit the buffers or the ranks; otherwise as [`Communicator::send`].
    pub fn all_to_all_v<T: Element>(
        &mut self,
        send: &[T],
        send_counts: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
    ) -> Result<(), Error> {
        let n = self.nranks();
        for (what, counts, len) in [("send", send_counts, send.len()), ("receive", recv_counts, recv.len())] {
            let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
            if counts.len() != n || total != Some(len) {
                let what = format!(
                    "the {} {what} counts must be one for each of {n} ranks and add up to the {len} elements of the buffer",
                    counts.len()
                );
                return Err(self.argument("all_to_all_v", what));
            }
        }
        let letter = |count| Letter { count, dtype: T::DTYPE, tag: 0 };
        let mut tasks = Vec::with_capacity(2 * n);
        let mut rest = recv;
        let mut at = 0;
        for rank in 0..n {
            let (part, behind) = rest.split_at_mut(recv_counts[rank]);
            rest = behind;
            let sent = &send[at..at + send_counts[rank]];
            at += send_counts[rank];
            if rank == self.rank() && sent.len() == part.len() {
                part.copy_from_slice(sent);
                continue;
            }
            // SAFETY: the slices are borrowed until the tasks are over.
            unsafe {
                tasks.push(self.recv_task(part.as_mut_ptr().cast(), letter(part.len()), Some(rank))?);
                tasks.push(self.send_task(sent.as_ptr().cast(), letter(sent.len()), rank)?);
            }
        }
        drive_held(tasks)
    }

    /// Sends `count` elements of `dtype` at `buffer` to rank `to`, for a receive with this `tag`.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    ///
    /// # Safety
    /// - `buffer` is readable for `count` elements during the call.
    pub unsafe fn send_raw(
        &mut self,
        buffer: *const u8,
        count: usize,
        dtype: DType,
        to: usize,
        tag: u32,
    ) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        let task = unsafe { self.send_task(buffer, Letter { count, dtype, tag }, to)? };
        drive_held(vec![task])
    }

    /// Receives `count` elements of `dtype` into `buffer` from rank `from`, sent with this `tag`.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    ///
    /// # Safety
    /// - `buffer` is writable for `count` elements during the call.
    pub unsafe fn recv_raw(
        &mut self,
        buffer: *mut u8,
        count: usize,
        dtype: DType,
        from: usize,
        tag: u32,
    ) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        let task = unsafe { self.recv_task(buffer, Letter { count, dtype, tag }, Some(from))? };
        drive_held(vec![task])
    }

    /// Queues a message behind those to the same rank, for somebody to drive.
    ///
    /// # Safety
    /// - `buffer` is readable for the letter's bytes, from any thread, until the task is over or dropped.
    pub(crate) unsafe fn send_task(
        &mut self,
        buffer: *const u8,
        letter: Letter,
        to: usize,
    ) -> Result<Task, Error> {
        let to = self.peer(to, "send")?;
        self.take();
        let ticket = self.posts.issue(to);
        let shared = Arc::clone(&self.shared);
        // SAFETY: the ticket is one to send to `to`; the rest is the caller's contract.
        Ok(Task::Send(unsafe { SendTask::new(shared, to, ticket, letter, buffer) }))
    }

    /// Posts a receive, for somebody to drive.
    ///
    /// # Safety
    /// - `buffer` is writable for the letter's bytes, from any thread, until the task is over or dropped.
    pub(crate) unsafe fn recv_task(
        &mut self,
        buffer: *mut u8,
        letter: Letter,
        from: Option<usize>,
    ) -> Result<Task, Error> {
        // SAFETY: the caller's contract.
        Ok(Task::Recv(unsafe { self.receive(buffer, letter, from)? }))
    }

    /// As [`Communicator::recv_task`], for who wants to know the source.
    unsafe fn receive(
        &mut self,
        buffer: *mut u8,
        letter: Letter,
        from: Option<usize>,
    ) -> Result<RecvTask, Error> {
        let from = from.map(|rank| self.peer(rank, "recv")).transpose()?;
        self.take();
        // SAFETY: the caller's contract.
        Ok(unsafe { RecvTask::new(Arc::clone(&self.shared), from, letter, buffer) })
    }

    fn peer(&self, rank: usize, call: &'static str) -> Result<u32, Error> {
        if rank >= self.nranks() {
            let what = format!("there is no rank {rank}: there are {}", self.nranks());
            return Err(self.argument(call, what));
        }
        Ok(rank as u32)
    }
}
