//! Groups: several operations that are submitted, and run, at the same time.

use crate::comm::Communicator;
use crate::error::Error;
use crate::executor::Buffers;
use crate::mail::Letter;
use crate::plan::Call;
use crate::reduce::{DType, Element, ReduceOp};
use crate::task::{Task, drive};
use std::marker::PhantomData;

/// A batch of operations, of one communicator or of many, of one rank or of several that live in this process.
///
/// Nothing runs before [`Group::run`] (or [`Stream::launch`](crate::Stream::launch)); then all of it does, driven by one
/// thread. Collectives of one communicator run in the order in which they were added, also after what its streams
/// still run; sends and receives run beside them, so any order of matched sends and receives completes:
///
/// ```no_run
/// # fn main() -> Result<(), ringccl::Error> {
/// let mut comm = ringccl::Communicator::from_env()?;
/// let (n, rank) = (comm.nranks(), comm.rank());
/// let (mine, mut theirs) = (vec![rank as f32; 1000], vec![0.0; 1000]);
/// let mut group = ringccl::Group::new();
/// group.send(&mut comm, &mine, (rank + 1) % n)?;
/// group.recv(&mut comm, &mut theirs, (rank + n - 1) % n)?;
/// group.run()?;
/// # Ok(())
/// # }
/// ```
///
/// A call with wrong arguments makes the whole group fail. A group that is dropped has not called anything.
#[derive(Debug, Default)]
#[must_use = "a group does nothing until it is run"]
pub struct Group<'a> {
    tasks: Vec<Task>,
    /// Bytes that the operations move.
    bytes: usize,
    /// What was wrong with the first wrong call.
    wrong: Option<String>,
    /// The callers' buffers.
    buffers: PhantomData<&'a mut u8>,
}

impl<'a> Group<'a> {
    /// A group of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many operations were added.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no operation was added.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Adds an all-reduce, as [`Communicator::all_reduce`].
    ///
    /// # Errors
    /// As there, for wrong arguments.
    pub fn all_reduce<T: Element>(
        &mut self,
        comm: &mut Communicator,
        send: &'a [T],
        recv: &'a mut [T],
        op: ReduceOp,
    ) -> Result<&mut Self, Error> {
        let call = comm.all_reduce_call::<T>(send.len(), recv.len(), op);
        // SAFETY: both slices hold the call's elements and are borrowed until the group is gone.
        unsafe { self.collective(comm, call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// Adds an all-reduce in place, as [`Communicator::all_reduce_in_place`].
    ///
    /// # Errors
    /// As there, for wrong arguments.
    pub fn all_reduce_in_place<T: Element>(
        &mut self,
        comm: &mut Communicator,
        buffer: &'a mut [T],
        op: ReduceOp,
    ) -> Result<&mut Self, Error> {
        let call = comm.all_reduce_call::<T>(buffer.len(), buffer.len(), op);
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: as in `all_reduce`; input and output are equal.
        unsafe { self.collective(comm, call, at, at) }
    }

    /// Adds a broadcast, as [`Communicator::broadcast`].
    ///
    /// # Errors
    /// As there, for wrong arguments.
    pub fn broadcast<T: Element>(
        &mut self,
        comm: &mut Communicator,
        buffer: &'a mut [T],
        root: usize,
    ) -> Result<&mut Self, Error> {
        let call = comm.broadcast_call::<T>(buffer.len(), root);
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: as in `all_reduce`; input and output are equal.
        unsafe { self.collective(comm, call, at, at) }
    }

    /// Adds a barrier, as [`Communicator::barrier`].
    ///
    /// # Errors
    /// None today.
    pub fn barrier(&mut self, comm: &mut Communicator) -> Result<&mut Self, Error> {
        let nowhere = std::ptr::dangling_mut::<u64>().cast();
        // SAFETY: the call has no elements.
        unsafe { self.collective(comm, Ok(Call::BARRIER), nowhere, nowhere) }
    }

    /// Adds a send, as [`Communicator::send`].
    ///
    /// # Errors
    /// As there, for wrong arguments.
    pub fn send<T: Element>(
        &mut self,
        comm: &mut Communicator,
        buffer: &'a [T],
        to: usize,
    ) -> Result<&mut Self, Error> {
        // SAFETY: the slice is borrowed until the group is gone.
        unsafe { self.send_raw(comm, buffer.as_ptr().cast(), buffer.len(), T::DTYPE, to, 0) }
    }

    /// Adds a receive, as [`Communicator::recv`].
    ///
    /// # Errors
    /// As there, for wrong arguments.
    pub fn recv<T: Element>(
        &mut self,
        comm: &mut Communicator,
        buffer: &'a mut [T],
        from: usize,
    ) -> Result<&mut Self, Error> {
        // SAFETY: the slice is borrowed until the group is gone.
        unsafe { self.recv_raw(comm, buffer.as_mut_ptr().cast(), buffer.len(), T::DTYPE, from, 0) }
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
        self.add(task, letter.bytes())
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
        self.add(task, letter.bytes())
    }

    /// Adds a collective.
    ///
    /// # Safety
    /// - The buffers are as [`Buffers`] says for the call, from any thread, until the group has run or is dropped.
    unsafe fn collective(
        &mut self,
        comm: &mut Communicator,
        call: Result<Call, Error>,
        input: *const u8,
        output: *mut u8,
    ) -> Result<&mut Self, Error> {
        let bytes = call.as_ref().map_or(0, |call| call.bytes(comm.nranks() as u32));
        // SAFETY: the caller's contract.
        let task = call.and_then(|call| unsafe { comm.task(call, Buffers { input, output }) });
        self.add(task, bytes)
    }

    fn add(&mut self, task: Result<Task, Error>, bytes: usize) -> Result<&mut Self, Error> {
        match task {
            Ok(task) => {
                self.tasks.push(task);
                self.bytes = self.bytes.saturating_add(bytes);
                Ok(self)
            }
            Err(error) => {
                self.wrong.get_or_insert_with(|| error.to_string());
                Err(error)
            }
        }
    }

    /// Takes the operations of another group in: a group inside a group runs with it.
    pub fn append(&mut self, inner: Group<'a>) {
        self.tasks.extend(inner.tasks);
        self.bytes = self.bytes.saturating_add(inner.bytes);
        self.wrong = self.wrong.take().or(inner.wrong);
    }

    /// Runs all operations, in the calling thread, and returns when all are over.
    ///
    /// # Errors
    /// [`Error::GroupRefused`] when a call was wrong: nothing was run then. Otherwise the first error of an operation.
    pub fn run(self) -> Result<(), Error> {
        let (tasks, _) = self.into_tasks()?;
        drive(tasks)
    }

    /// The operations and the bytes that they move, if every call was right.
    pub(crate) fn into_tasks(self) -> Result<(Vec<Task>, usize), Error> {
        match self.wrong {
            Some(wrong) => Err(Error::GroupRefused { wrong }),
            None => Ok((self.tasks, self.bytes)),
        }
    }
}
