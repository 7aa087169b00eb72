//! Groups: several operations that are submitted, and run, at the same time.

mod collectives;
mod messages;

use crate::comm::{Communicator, Ready};
use crate::error::Error;
use crate::task::{Task, drive};
use std::marker::PhantomData;

/// A batch of operations, of one communicator or of many, of one rank or of several that live in this process.
///
/// Nothing runs before [`Group::run`] (or [`Stream::launch`](crate::Stream::launch)); then all of it does, driven by
/// one thread. Collectives of one communicator run in the order in which they were added, also after what its streams
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
/// Each method adds what the one of the same name of [`Communicator`] does at once. A call with wrong arguments makes
/// the whole group fail. A group that is dropped has not called anything.
///
/// Sends and receives take their places when the group is run, in the order in which they were added, as NCCL's do at
/// the end of a group; until then messages go to the calls that are made meanwhile. A collective takes its place among
/// those of its communicator when it is added. So a group with collectives that is neither run nor dropped holds later
/// ones up: after a quarter of their time limit they say so to the log, and at its end they fail.
///
/// When an operation fails, [`Group::run`] returns its error at once. Operations of the group that are not done by then
/// will not be, and other ranks would wait for them; so the communicators that they belong to end as well.
///
/// Buffers are borrowed until the group is gone, so nothing can touch them meanwhile:
///
/// ```compile_fail
/// # fn main() -> Result<(), ringccl::Error> {
/// # let mut comm = ringccl::Communicator::from_env()?;
/// let mut sum = vec![0.0f32; 1000];
/// let mut group = ringccl::Group::new();
/// group.all_reduce_in_place(&mut comm, &mut sum, ringccl::ReduceOp::Sum)?;
/// sum[0] = 1.0; // still borrowed by the group
/// group.run()?;
/// # Ok(())
/// # }
/// ```
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

    /// How many operations were added; what sends and receives counts as two.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no operation was added.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
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
    /// [`Error::GroupRefused`] when a call was wrong: nothing was run then. Otherwise the first error of an operation,
    /// after which all communicators with operations in the group that were not done have ended.
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

    /// Adds a collective.
    ///
    /// # Safety
    /// - Its buffers stay what they were when it was made, for any thread, until the group has run or is dropped.
    unsafe fn collective(
        &mut self,
        comm: &mut Communicator,
        ready: Result<Ready, Error>,
    ) -> Result<&mut Self, Error> {
        let bytes = ready.as_ref().map_or(0, |ready| ready.call.bytes(comm.nranks() as u32));
        // SAFETY: the caller's contract.
        let task = ready.and_then(|Ready { call, buffers }| unsafe { comm.task(call, buffers) });
        self.add(task.map(|task| [task]), bytes)
    }

    /// Adds tasks that move so many bytes, or notes why there are none.
    fn add(
        &mut self,
        tasks: Result<impl IntoIterator<Item = Task>, Error>,
        bytes: usize,
    ) -> Result<&mut Self, Error> {
        let tasks = tasks.map_err(|error| self.refuse(error))?;
        self.tasks.extend(tasks);
        self.bytes = self.bytes.saturating_add(bytes);
        Ok(self)
    }

    /// A call was wrong: so is the group.
    fn refuse(&mut self, error: Error) -> Error {
        self.wrong.get_or_insert_with(|| error.to_string());
        error
    }
}
