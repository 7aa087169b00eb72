//! Operations of a stream whose buffers move into it and come back with the result.

use super::outcome::Payload;
use super::{Pending, Stream, unpack};
use crate::comm::{Communicator, Ready, Source};
use crate::error::Error;
use crate::mail::Letter;
use crate::reduce::{Element, ReduceOp};
use crate::task::Task;

impl Stream {
    /// Queues an all-reduce of `buffer`, in place.
    ///
    /// # Errors
    /// [`Error::Argument`] as [`Communicator`]'s call of the same name; [`Error::StreamEnded`] when no thread can be
    /// had. Errors of the operation come from the result.
    pub fn all_reduce<T: Element>(
        &self,
        comm: &mut Communicator,
        mut buffer: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<Vec<T>>, Error> {
        let ready = Ready::all_reduce_in_place(comm, &mut buffer, op)?;
        // SAFETY: the buffers are the vector's, whose memory stays where it is when it is moved.
        unsafe { self.collective(comm, ready, buffer) }
    }

    /// Queues a broadcast of `buffer` from `root`.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn broadcast<T: Element>(
        &self,
        comm: &mut Communicator,
        mut buffer: Vec<T>,
        root: usize,
    ) -> Result<Pending<Vec<T>>, Error> {
        let ready = Ready::broadcast(comm, &mut buffer, root)?;
        // SAFETY: as in `all_reduce`.
        unsafe { self.collective(comm, ready, buffer) }
    }

    /// Queues a reduce of `buffer` to `root`, in place there; other ranks get theirs back as it was.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn reduce<T: Element>(
        &self,
        comm: &mut Communicator,
        mut buffer: Vec<T>,
        op: ReduceOp,
        root: usize,
    ) -> Result<Pending<Vec<T>>, Error> {
        let ready = Ready::reduce_in_place(comm, &mut buffer, op, root)?;
        // SAFETY: as in `all_reduce`.
        unsafe { self.collective(comm, ready, buffer) }
    }

    /// Queues an all-gather of `send`; the result has a block of every rank, `nranks` times its length.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn all_gather<T: Element>(
        &self,
        comm: &mut Communicator,
        send: Vec<T>,
    ) -> Result<Pending<Vec<T>>, Error> {
        // The own block is at its place, and all memory has a value.
        let mut buffer = send.repeat(comm.nranks());
        let ready = Ready::all_gather_in_place(comm, &mut buffer)?;
        // SAFETY: as in `all_reduce`.
        unsafe { self.collective(comm, ready, buffer) }
    }

    /// Queues a reduce-scatter of `send`, a block for each rank; the result is the own block, reduced.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn reduce_scatter<T: Element>(
        &self,
        comm: &mut Communicator,
        send: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<Vec<T>>, Error> {
        let mut recv = send[..send.len() / comm.nranks()].to_vec();
        let Ready { call, buffers } = Ready::reduce_scatter(comm, &send, &mut recv, op)?;
        let bytes = call.bytes(comm.nranks() as u32);
        // SAFETY: as in `all_reduce`, with two vectors; the driver keeps them until the task is over.
        let task = unsafe { comm.task(call, buffers)? };
        self.queue_for(vec![task], bytes, Box::new((send, recv)), |both| unpack::<(Vec<T>, Vec<T>)>(both).1)
    }

    /// Queues an all-to-all of `send`, in place: block `i` goes to rank `i`, and what comes from there replaces it.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn all_to_all<T: Element>(
        &self,
        comm: &mut Communicator,
        mut send: Vec<T>,
    ) -> Result<Pending<Vec<T>>, Error> {
        let ready = Ready::all_to_all_in_place(comm, &mut send)?;
        // SAFETY: as in `all_reduce`.
        unsafe { self.collective(comm, ready, send) }
    }

    /// Queues a barrier.
    ///
    /// # Errors
    /// [`Error::StreamEnded`] when no thread can be had. Errors of the operation come from the result.
    pub fn barrier(&self, comm: &mut Communicator) -> Result<Pending<()>, Error> {
        // SAFETY: the call has no elements.
        unsafe { self.collective(comm, Ready::barrier(), ()) }
    }

    /// Queues a send of `buffer` to rank `to`.
    ///
    /// A stream does one thing after the other, so a receive that is queued before a send holds it up: put both in a
    /// group, or in two streams, where ranks wait for each other.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn send<T: Element>(
        &self,
        comm: &mut Communicator,
        buffer: Vec<T>,
        to: usize,
    ) -> Result<Pending<Vec<T>>, Error> {
        self.send_tagged(comm, buffer, to, 0)
    }

    /// Queues a receive into `buffer` from rank `from`.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn recv<T: Element>(
        &self,
        comm: &mut Communicator,
        mut buffer: Vec<T>,
        from: usize,
    ) -> Result<Pending<Vec<T>>, Error> {
        let letter = Letter { count: buffer.len(), dtype: T::DTYPE, tag: 0 };
        // SAFETY: as in `all_reduce`; the driver keeps the vector until the task is over.
        let task = unsafe { comm.recv_task(buffer.as_mut_ptr().cast(), letter, Some(from))? };
        self.queue(vec![task], letter.bytes(), buffer)
    }

    /// Queues a send of `buffer` with a tag to rank `to`.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn send_tagged<T: Element>(
        &self,
        comm: &mut Communicator,
        buffer: Vec<T>,
        to: usize,
        tag: u32,
    ) -> Result<Pending<Vec<T>>, Error> {
        let letter = Letter { count: buffer.len(), dtype: T::DTYPE, tag };
        // SAFETY: as in `all_reduce`; the driver keeps the vector until the task is over.
        let task = unsafe { comm.send_task(buffer.as_ptr().cast(), letter, to)? };
        self.queue(vec![task], letter.bytes(), buffer)
    }

    /// Queues a receive into `buffer` of what rank `from`, or any rank, sends with a tag. The result says which it was.
    ///
    /// # Errors
    /// As [`Stream::all_reduce`].
    pub fn recv_tagged<T: Element>(
        &self,
        comm: &mut Communicator,
        mut buffer: Vec<T>,
        from: Option<usize>,
        tag: u32,
    ) -> Result<Pending<(Vec<T>, usize)>, Error> {
        let letter = Letter { count: buffer.len(), dtype: T::DTYPE, tag };
        // SAFETY: as in `all_reduce`; the driver keeps the vector until the task is over.
        let (task, source) = unsafe { comm.recv_told(buffer.as_mut_ptr().cast(), letter, from)? };
        let received = |payload: Payload| {
            let (buffer, source) = unpack::<(Vec<T>, Source)>(payload);
            (buffer, source.rank().unwrap_or_else(|| unreachable!("who has received knows from whom")))
        };
        self.queue_for(vec![Task::Recv(task)], letter.bytes(), Box::new((buffer, source)), received)
    }

    /// Queues a collective whose buffers move along.
    ///
    /// # Safety
    /// - Its buffers are memory of `payload`, which stays where it is when that is moved.
    unsafe fn collective<T: Send + 'static>(
        &self,
        comm: &mut Communicator,
        Ready { call, buffers }: Ready,
        payload: T,
    ) -> Result<Pending<T>, Error> {
        let bytes = call.bytes(comm.nranks() as u32);
        // SAFETY: the caller's contract; the driver keeps the payload until the task is over.
        let task = unsafe { comm.task(call, buffers)? };
        self.queue(vec![task], bytes, payload)
    }
}
