//! Messages from one rank to another, as their callers see them.

use super::{Communicator, refuse_in_callback, registry};
use crate::error::Error;
use crate::mail::{AtOnce, Letter, RecvTask, SendTask};
use crate::reduce::{DType, Element};
use crate::task::{self, Task, drive, drive_one};
use std::sync::{Arc, OnceLock};

/// The rank that a message of a [`Group`](crate::Group) came from, once it has been received.
#[derive(Clone, Debug)]
pub struct Source(Arc<OnceLock<u32>>);

impl Source {
    /// The rank; `None` before the group has run.
    pub fn rank(&self) -> Option<usize> {
        self.0.get().map(|rank| *rank as usize)
    }
}

/// Drives the tasks of a blocking call, which has the handle until it returns.
fn drive_held(tasks: Vec<Task>) -> Result<(), Error> {
    registry::holding(|| drive(tasks))
}

fn drive_one_held(task: Task) -> Result<(), Error> {
    registry::holding(|| drive_one(task))
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
    /// [`Error::Argument`] when there is no such rank, [`Error::Mismatch`] when something else was sent; all but the
    /// first end the communicator.
    pub fn recv<T: Element>(&mut self, buffer: &mut [T], from: usize) -> Result<(), Error> {
        let letter = Letter { count: buffer.len(), dtype: T::DTYPE, tag: 0 };
        let to = buffer.as_mut_ptr().cast();
        // SAFETY: the slice is borrowed until the call is over.
        unsafe {
            if self.recv_at_once(to, letter, from)? {
                return Ok(());
            }
            drive_one_held(self.recv_task(to, letter, Some(from))?)
        }
    }

    /// As [`Communicator::send`], for a receive with the same `tag`.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn send_tagged<T: Element>(&mut self, buffer: &[T], to: usize, tag: u32) -> Result<(), Error> {
        let letter = Letter { count: buffer.len(), dtype: T::DTYPE, tag };
        let from = buffer.as_ptr().cast();
        // SAFETY: the slice is borrowed until the call is over.
        unsafe {
            if self.send_at_once(from, letter, to)? {
                return Ok(());
            }
            drive_one_held(self.send_task(from, letter, to)?)
        }
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
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: the slice is borrowed for the call.
        unsafe { self.recv_tagged_raw(at, buffer.len(), T::DTYPE, from, tag) }
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
        self.check_parts((send.len(), send_counts), (recv.len(), recv_counts))?;
        let (send, recv) = (send.as_ptr().cast(), recv.as_mut_ptr().cast());
        // SAFETY: both slices have the parts that the counts say and are borrowed until the tasks are over.
        unsafe { self.exchange_now((send, send_counts), (recv, recv_counts), T::DTYPE) }
    }

    /// The same for elements of `dtype` at `send` and `recv`.
    ///
    /// # Errors
    /// As [`Communicator::all_to_all_v`], for counts that are not one for each rank or more than memory can have.
    ///
    /// # Safety
    /// - During the call `send` is readable for the sum of `send_counts` and `recv` writable for that of `recv_counts`.
    /// - They do not overlap.
    pub unsafe fn all_to_all_v_raw(
        &mut self,
        send: *const u8,
        send_counts: &[usize],
        recv: *mut u8,
        recv_counts: &[usize],
        dtype: DType,
    ) -> Result<(), Error> {
        self.check_raw_parts(send_counts, recv_counts, dtype)?;
        // SAFETY: the caller's contract.
        unsafe { self.exchange_now((send, send_counts), (recv, recv_counts), dtype) }
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
        drive_one_held(task)
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
        drive_one_held(task)
    }

    /// Receives `count` elements of `dtype` into `buffer`, sent with this `tag` by rank `from`, or by any. Returns the
    /// rank that sent them.
    ///
    /// # Errors
    /// As [`Communicator::recv`].
    ///
    /// # Safety
    /// - `buffer` is writable for `count` elements during the call.
    pub unsafe fn recv_tagged_raw(
        &mut self,
        buffer: *mut u8,
        count: usize,
        dtype: DType,
        from: Option<usize>,
        tag: u32,
    ) -> Result<usize, Error> {
        // SAFETY: the caller's contract.
        let (task, source) = unsafe { self.recv_told(buffer, Letter { count, dtype, tag }, from)? };
        drive_one_held(Task::Recv(task))?;
        Ok(source.rank().unwrap_or_else(|| unreachable!("who has received knows from whom")))
    }

    /// Sends a short message without a task, if nothing is in its way.
    ///
    /// # Safety
    /// - `buffer` is readable for the letter's bytes during the call.
    #[inline]
    unsafe fn send_at_once(&mut self, buffer: *const u8, letter: Letter, to: usize) -> Result<bool, Error> {
        let to = self.peer(to, "send")?;
        refuse_in_callback(self.shared.rank)?;
        self.take();
        // SAFETY: the caller's contract.
        unsafe { self.shared.mail.send_at_once(&self.shared, to, letter, buffer) }
    }

    /// Receives a short message without a task, if it comes soon and nothing else is under way.
    ///
    /// # Safety
    /// - `buffer` is writable for the letter's bytes during the call.
    #[inline]
    unsafe fn recv_at_once(&mut self, buffer: *mut u8, letter: Letter, from: usize) -> Result<bool, Error> {
        let from = self.peer(from, "recv")?;
        refuse_in_callback(self.shared.rank)?;
        self.take();
        let shared = &*self.shared;
        let mut found = AtOnce::NotHere;
        task::briefly(shared.nranks as usize, || {
            // SAFETY: the caller's contract.
            found = unsafe { shared.mail.take_at_once(shared, from, letter, buffer)? };
            Ok(found != AtOnce::NotHere)
        })?;
        Ok(found == AtOnce::Taken)
    }

    /// A message for somebody to drive; it has its place behind those to the same rank when that begins.
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
        let shared = Arc::clone(&self.shared);
        // SAFETY: the caller's contract.
        Ok(Task::Send(unsafe { SendTask::new(shared, to, letter, buffer) }))
    }

    /// A receive for somebody to drive; it is posted when that begins.
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

    /// The same from rank `from`, or from any, that tells where its message came from.
    ///
    /// # Safety
    /// - As [`Communicator::recv_task`].
    pub(crate) unsafe fn recv_told(
        &mut self,
        buffer: *mut u8,
        letter: Letter,
        from: Option<usize>,
    ) -> Result<(RecvTask, Source), Error> {
        // SAFETY: the caller's contract.
        let mut task = unsafe { self.receive(buffer, letter, from)? };
        let source = Source(task.told_source());
        Ok((task, source))
    }

    /// # Safety
    /// - As [`Communicator::recv_task`].
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

    pub(crate) fn peer(&self, rank: usize, call: &'static str) -> Result<u32, Error> {
        if rank >= self.nranks() {
            let what = format!("there is no rank {rank}: there are {}", self.nranks());
            return Err(self.argument(call, what));
        }
        Ok(rank as u32)
    }
}
