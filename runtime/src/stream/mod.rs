//! Operations that run behind the caller's back, in order.
//!
//! ```text
//!  stream 1:  all_reduce(a)  all_reduce(b)  event ----+        in order within a stream,
//!  stream 2:  send(c)                      wait_for --+- ...   independent between streams
//! ```

mod driver;
mod event;
mod outcome;
mod owned;

pub(crate) use driver::{any_work, threads};
pub use event::Event;

use crate::error::Error;
use crate::group::Group;
use crate::task::{Batch, Task};
use driver::{Driver, Item};
use event::Mark;
use outcome::{Outcome, Payload};
use shmring::clock::now;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Operations of at most so many bytes are begun in the calling thread.
const INLINE_BYTES: usize = 64 << 10;
/// Largest time that is waited without an end in sight: operations have deadlines of their own.
const FOREVER: Duration = Duration::from_secs(1 << 32);

thread_local! {
    /// Whether this thread runs a callback of a stream.
    static IS_IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

/// A queue of operations, of one communicator or of many.
///
/// Operations of one stream run in order; those of different streams run side by side. All that use one communicator
/// keep the order in which they were queued there, whatever the stream, so every rank must queue them in the same
/// order.
/// The calling thread is not held up: small operations are begun in it, everything else takes place on a thread of
/// this library, or in the calling thread while it waits for a result.
///
/// Buffers move into the stream and come back with the result, so nothing can touch them meanwhile:
///
/// ```no_run
/// # fn backward(_: usize) -> Vec<f32> { vec![] }
/// # fn main() -> Result<(), ringccl::Error> {
/// let mut comm = ringccl::Communicator::from_env()?;
/// let stream = ringccl::Stream::new();
/// let last = stream.all_reduce(&mut comm, backward(2), ringccl::ReduceOp::Avg)?; // runs during the next line
/// let first = stream.all_reduce(&mut comm, backward(1), ringccl::ReduceOp::Avg)?;
/// let gradients = [first.wait()?, last.wait()?];
/// # Ok(())
/// # }
/// ```
///
/// What was queued runs to its end also if the stream is dropped.
#[derive(Debug)]
pub struct Stream {
    id: u64,
    driver: Arc<Driver>,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.driver.forget(self.id);
    }
}

/// The result of what was queued, once it is there.
#[derive(Debug)]
#[must_use = "the result tells whether the operation has failed"]
pub struct Pending<T> {
    outcome: Arc<Outcome>,
    driver: Arc<Driver>,
    /// Makes the result of what comes out of the stream.
    unpack: fn(Payload) -> T,
}

impl<T: Send + 'static> Pending<T> {
    /// Whether the operation has ended.
    pub fn is_done(&self) -> bool {
        self.outcome.is_over()
    }

    /// Waits for the operation and gives its buffer back.
    ///
    /// # Errors
    /// The operation's own error; [`Error::StreamEnded`] when a callback or an operation before it has panicked, or
    /// when a callback of a stream waits. The wait is bounded by the communicator's time-out for each operation queued
    /// before this one.
    pub fn wait(self) -> Result<T, Error> {
        match self.wait_for(FOREVER) {
            Ok(result) => result,
            // Only a callback gets here.
            Err(_) => Err(Error::StreamEnded { why: "a callback of a stream must not wait for one".into() }),
        }
    }

    /// Waits for `limit` at most.
    ///
    /// # Errors
    /// This value, if the operation has not ended by then; at once in a callback of a stream, which must not wait.
    pub fn wait_for(self, limit: Duration) -> Result<Result<T, Error>, Self> {
        let begun = now();
        loop {
            if let Some(result) = self.outcome.take() {
                return Ok(result.map(self.unpack));
            }
            let left = limit.saturating_sub(now() - begun);
            if left.is_zero() || is_in_callback() {
                return Err(self);
            }
            self.driver.help(&self.outcome, left);
        }
    }

    /// Calls `callback` with the result when the operation has ended: on the thread that drives the stream, or at once
    /// if it has. The callback must not wait for a stream.
    pub fn on_done(self, callback: impl FnOnce(Result<T, Error>) + Send + 'static) {
        let unpack = self.unpack;
        self.outcome.call(Box::new(move |result| in_callback(|| callback(result.map(unpack)))));
    }
}

/// What came out of the stream, which is what went in.
fn unpack<T: 'static>(payload: Payload) -> T {
    *payload.downcast::<T>().unwrap_or_else(|_| unreachable!("a stream gives back what it was given"))
}

/// Whether this thread runs a callback of a stream, which must not wait for operations of streams: it may be the one
/// that they need.
pub(crate) fn is_in_callback() -> bool {
    IS_IN_CALLBACK.get()
}

fn in_callback(callback: impl FnOnce()) {
    /// Restores the mark also after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_IN_CALLBACK.set(self.0);
        }
    }
    let _restore = Restore(IS_IN_CALLBACK.replace(true));
    callback();
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// A stream with nothing in it. Its thread, which it may share with other streams, starts with the first operation.
    pub fn new() -> Self {
        let (id, driver) = driver::assign();
        Self { id, driver }
    }

    /// Queues a group: all its operations start together when those before have ended.
    ///
    /// # Errors
    /// [`Error::GroupRefused`] when a call in it was wrong; otherwise as [`Stream::barrier`].
    ///
    /// # Safety
    /// - The buffers of the group stay borrowed, as its methods borrow them, until the result is there, also if it is
    ///   never asked for.
    pub unsafe fn launch(&self, group: Group<'_>) -> Result<Pending<()>, Error> {
        // SAFETY: the caller's contract.
        unsafe { self.launch_with(group, ()) }
    }

    /// As [`Stream::launch`], with something that is kept until the group is over and comes back with the result: what
    /// keeps its buffers alive, where that is not borrowing. If nobody takes the result, it is dropped then, on
    /// whatever thread has driven the group.
    ///
    /// # Errors
    /// As [`Stream::launch`]; `payload` is dropped.
    ///
    /// # Safety
    /// - As [`Stream::launch`], but the buffers only have to stay as long as `payload` is not dropped or given back.
    pub unsafe fn launch_with<T: Send + 'static>(
        &self,
        group: Group<'_>,
        payload: T,
    ) -> Result<Pending<T>, Error> {
        let (tasks, bytes) = group.into_tasks()?;
        self.queue(tasks, bytes, payload)
    }

    /// Queues a call of `function`, when everything before has ended. It runs on the thread that drives the stream, and
    /// must neither wait for a stream nor call an operation that waits for other ranks.
    ///
    /// # Errors
    /// As [`Stream::barrier`].
    pub fn call(&self, function: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        self.submit(Item::Call(Box::new(|| in_callback(function))), false)
    }

    /// A mark behind everything that was queued so far.
    ///
    /// # Errors
    /// As [`Stream::barrier`].
    pub fn record(&self) -> Result<Event, Error> {
        let mark = Arc::<Mark>::default();
        self.submit(Item::Record(Arc::clone(&mark)), true)?;
        Ok(Event { mark })
    }

    /// What is queued from now on waits for an event of another stream.
    ///
    /// # Errors
    /// As [`Stream::barrier`].
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        self.submit(Item::Await(Arc::clone(&event.mark)), false)
    }

    /// Waits for `limit` at most until everything that was queued has ended; whether it has.
    ///
    /// # Errors
    /// As [`Stream::barrier`]. Errors of operations come from their results.
    pub fn synchronize(&self, limit: Duration) -> Result<bool, Error> {
        let pending: Pending<()> = self.queue(Vec::new(), 0, ())?;
        Ok(pending.wait_for(limit).is_ok())
    }

    /// Queues tasks that use the memory of `payload`, which comes back with the result.
    fn queue<T: Send + 'static>(
        &self,
        tasks: Vec<Task>,
        bytes: usize,
        payload: T,
    ) -> Result<Pending<T>, Error> {
        self.queue_for(tasks, bytes, Box::new(payload), unpack)
    }

    /// The same where `unpack` makes the result of the payload.
    fn queue_for<T>(
        &self,
        tasks: Vec<Task>,
        bytes: usize,
        payload: Payload,
        unpack: fn(Payload) -> T,
    ) -> Result<Pending<T>, Error> {
        let outcome = Arc::<Outcome>::default();
        let item =
            Item::Batch { batch: Batch::new(tasks), payload: Some(payload), outcome: Arc::clone(&outcome) };
        self.submit(item, bytes <= INLINE_BYTES)?;
        Ok(Pending { outcome, driver: Arc::clone(&self.driver), unpack })
    }

    fn submit(&self, item: Item, inline: bool) -> Result<(), Error> {
        self.driver
            .submit(self.id, item, inline)
            .map_err(|cause| Error::StreamEnded { why: format!("no thread could be started: {cause}") })
    }
}

#[cfg(test)]
mod tests;
