//! What a group has collected, and how it is run while the caller waits.

use super::background;
use crate::comm::Comm;
use crate::create;
use crate::failure::{Failure, Outcome, panicked};
use crate::op::{Op, Turn, pair_own_messages};
use crate::roots::Hosted;
use crate::streams;
use crate::types::{CommHandle, UNIQUE_ID_BYTES};
use ringccl::{Communicator, Group, Stream, UniqueId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Where a caller wants a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out(pub *mut CommHandle);

// SAFETY: NCCL's guide has the caller keep the place until the group has ended, or the communicator is ready.
unsafe impl Send for Out {}

impl Out {
    /// Writes the handle.
    pub(crate) fn write(self, handle: CommHandle) {
        // SAFETY: checked for null when it was passed; the caller keeps it, see above.
        unsafe { self.0.write(handle) };
    }
}

/// A rank that joins others by an id.
#[derive(Debug)]
pub(crate) struct Join {
    /// What it becomes.
    pub comm: Arc<Comm>,
    /// Where to meet.
    pub id: UniqueId,
    /// The same as bytes.
    pub bytes: [u8; UNIQUE_ID_BYTES],
    /// The rendezvous, if this process has to host it.
    pub hosted: Option<Hosted>,
    /// Where the handle goes; it is there already if the communicator does not block.
    pub out: Out,
    /// What was called.
    pub call: &'static str,
}

/// Work that waits for other ranks.
pub(crate) type Work = Box<dyn FnOnce() -> Outcome + Send>;

/// Something that makes a communicator or a window.
pub(crate) enum Job {
    /// Joins.
    Join(Box<Join>),
    /// Makes a communicator from another one.
    Make(Arc<Comm>, Work),
    /// Registers a window.
    Register(Arc<Comm>, Work),
}

/// What a group has collected.
#[derive(Default)]
pub(crate) struct Batch {
    pub(super) joins: Vec<Join>,
    pub(super) makes: Vec<(Arc<Comm>, Work)>,
    pub(super) registers: Vec<(Arc<Comm>, Work)>,
    pub(super) ops: Vec<Op>,
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let jobs = self.makes.len() + self.registers.len();
        f.debug_struct("Batch")
            .field("joins", &self.joins)
            .field("jobs", &jobs)
            .field("ops", &self.ops)
            .finish()
    }
}

// SAFETY: the addresses in operations are the callers', who keep the memory for any thread until the work is done.
unsafe impl Send for Batch {}

impl Batch {
    /// One operation.
    pub(super) fn of(op: Op) -> Self {
        Self { ops: vec![op], ..Self::default() }
    }

    pub(super) fn add(&mut self, job: Job) {
        match job {
            Job::Join(join) => self.joins.push(*join),
            Job::Make(comm, work) => self.makes.push((comm, work)),
            Job::Register(comm, work) => self.registers.push((comm, work)),
        }
    }

    /// The operations.
    pub(crate) fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// Every communicator that has something in it; those that are in more than one thing more than once.
    pub(super) fn comms(&self) -> impl Iterator<Item = &Arc<Comm>> {
        let made = self.makes.iter().chain(&self.registers).map(|(comm, _)| comm);
        self.joins.iter().map(|join| &join.comm).chain(made).chain(self.ops.iter().map(|op| &op.comm))
    }

    /// Whether its communicators block.
    pub(crate) fn is_blocking(&self) -> Result<bool, Failure> {
        let mut modes = self.comms().map(|comm| comm.about.settings.blocking);
        let first = modes.next().unwrap_or(true);
        if modes.any(|mode| mode != first) {
            return Err(Failure::argument(
                "a group must not have both blocking and nonblocking communicators",
            ));
        }
        Ok(first)
    }

    /// Runs it, or has it run in the background.
    pub(crate) fn run(mut self) -> Outcome {
        pair_own_messages(&mut self.ops)?;
        if self.is_blocking()? { self.run_now() } else { background::begin(self) }
    }

    /// Runs it to its end.
    pub(super) fn run_now(self) -> Outcome {
        let Self { joins, makes, registers, ops } = self;
        make(joins, makes)?;
        make(Vec::new(), registers)?;
        run_ops(ops)
    }
}

/// Joins, and does all work at the same time.
fn make(joins: Vec<Join>, works: Vec<(Arc<Comm>, Work)>) -> Outcome {
    let is_alone = joins.len() + works.len() == 1;
    if is_alone {
        let joined = joins.into_iter().map(join);
        return joined.chain(works.into_iter().map(|(_, work)| guarded(work))).collect();
    }
    std::thread::scope(|scope| {
        let works: Vec<_> = works.into_iter().map(|(_, work)| scope.spawn(|| guarded(work))).collect();
        let joined = join_all(joins);
        let done = works
            .into_iter()
            .map(|work| work.join().unwrap_or_else(|panic| Err(panicked("a group", &*panic))));
        // All have ended before the first failure is told.
        let outcomes: Vec<Outcome> = std::iter::once(joined).chain(done).collect();
        outcomes.into_iter().collect()
    })
}

fn guarded(work: Work) -> Outcome {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked("a group", &*panic)))
}

/// Joins in this thread.
fn join(join: Join) -> Outcome {
    let Join { comm, id, bytes, hosted, out, call } = join;
    let about = &comm.about;
    let joined = Communicator::init(&id, about.rank, about.nranks, about.config.clone());
    drop(hosted);
    complete(&comm, joined, &bytes, out, call)
}

/// Joins all at the same time, each on a thread of its own that ends with it.
fn join_all(joins: Vec<Join>) -> Outcome {
    let begun = joins.into_iter().map(|join| {
        let about = &join.comm.about;
        let joining =
            Communicator::init_nonblocking(&join.id, about.rank, about.nranks, about.config.clone());
        (join, joining)
    });
    let begun: Vec<_> = begun.collect();
    let ended = begun.into_iter().map(|(join, joining)| {
        let joined = joining.and_then(|mut joining| {
            // A join has a deadline of its own.
            std::iter::repeat_with(|| joining.wait(Duration::from_secs(3600)))
                .find_map(|joined| joined)
                .unwrap_or_else(|| unreachable!("the search has no end but a result"))
        });
        let outcome = complete(&join.comm, joined, &join.bytes, join.out, join.call);
        drop(join.hosted);
        outcome
    });
    let outcomes: Vec<Outcome> = ended.collect();
    outcomes.into_iter().collect()
}

fn complete(
    comm: &Arc<Comm>,
    joined: Result<Communicator, ringccl::Error>,
    id: &[u8; UNIQUE_ID_BYTES],
    out: Out,
    call: &'static str,
) -> Outcome {
    crate::roots::used(id);
    comm.install(joined?);
    out.write(comm.publish()?);
    create::tell_complete(comm, call);
    Ok(())
}

/// Runs operations to their end, or queues them where their stream can be waited for.
fn run_ops(ops: Vec<Op>) -> Outcome {
    if ops.is_empty() {
        return Ok(());
    }
    count_launches(&ops);
    one_sided(&ops)?;
    let group = together(&ops)?;
    match stream_of(&ops) {
        // SAFETY: whoever queues on a stream that can be waited for keeps the memory until that has got there.
        Some(stream) => unsafe { stream.launch(group) }?.on_done(|result| {
            if let Err(error) = result {
                crate::failure::record(&error.into());
            }
        }),
        None => group.run()?,
    }
    for op in ops.iter().filter(|op| op.turn() == Turn::Waits) {
        // SAFETY: the operation has no memory.
        unsafe { op.run()? };
    }
    Ok(())
}

/// A group counts as one launch of each of its communicators.
pub(super) fn count_launches(ops: &[Op]) {
    for (at, op) in ops.iter().enumerate() {
        let is_first = at == 0 || !Arc::ptr_eq(&ops[at - 1].comm, &op.comm);
        if is_first && !ops[..at].iter().any(|earlier| Arc::ptr_eq(&earlier.comm, &op.comm)) {
            op.comm.next_launch();
        }
    }
}

fn stream_of(ops: &[Op]) -> Option<Arc<Stream>> {
    ops.iter().find_map(|op| streams::find(op.stream))
}

/// Puts and signals.
pub(super) fn one_sided(ops: &[Op]) -> Outcome {
    for op in ops.iter().filter(|op| op.turn() == Turn::OneSided) {
        // SAFETY: who has submitted the operation keeps its memory.
        unsafe { op.run()? };
    }
    Ok(())
}

/// Everything that runs at the same time.
pub(super) fn together(ops: &[Op]) -> Result<Group<'static>, Failure> {
    let mut group = Group::new();
    for op in ops.iter().filter(|op| op.turn() == Turn::Together) {
        // SAFETY: who has submitted the operation keeps its memory.
        unsafe { op.add_to(&mut group)? };
    }
    Ok(group)
}
