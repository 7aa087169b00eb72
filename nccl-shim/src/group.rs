//! Groups: what a thread has begun by `ncclGroupStart` and not yet ended.
//!
//! ```text
//!  end of the outermost group, or a single call outside of one
//!    1. communicators are made, all at the same time
//!    2. windows are registered, all at the same time
//!    3. puts and signals, in order; everything else together; waits for signals, in order
//! ```
//!
//! Of blocking communicators all of it is done when this returns. Of others it goes on in the background.

mod background;
mod batch;

pub(crate) use batch::{Batch, Job, Join, Out};

use crate::failure::{Failure, Outcome};
use crate::op::Op;
use crate::result::Code;
use crate::simulate;
use crate::streams;
use std::cell::RefCell;

#[derive(Debug, Default)]
struct State {
    depth: u32,
    error: Option<Failure>,
    batch: Batch,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// Uses the thread's state. While the thread ends there is none, and no group either.
#[inline]
fn with<R>(work: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(|state| work(&mut state.borrow_mut()))
}

/// Begins a group, or one inside.
pub(crate) fn start() {
    with(|state| state.depth += 1);
}

/// Ends a group. The outermost runs what was collected, unless a call in it has failed; with `simulated` it is given to
/// that instead.
pub(crate) fn end(simulated: Option<&mut f32>) -> Outcome {
    let ended = with(|state| {
        if state.depth == 0 {
            return Err(Failure::usage(
                "ncclGroupEnd: not in a group call: there was no ncclGroupStart before",
            ));
        }
        state.depth -= 1;
        if state.depth > 0 {
            return Ok(None);
        }
        let batch = std::mem::take(&mut state.batch);
        match state.error.take() {
            Some(error) => Err(error),
            None => Ok(Some(batch)),
        }
    })?;
    let Some(batch) = ended else { return Ok(()) };
    match simulated {
        // NCCL forgets that it only simulates where communicators do not block.
        Some(time) if batch.is_blocking()? => simulate::estimate(&batch, time),
        Some(time) => {
            simulate::estimate(&batch, time)?;
            batch.run()
        }
        None => batch.run(),
    }
}

/// Whether the thread is in a group.
#[inline]
pub(crate) fn is_open() -> bool {
    with(|state| state.depth > 0)
}

/// Runs the body of a call that a group takes part in: its failure is that of the group as well.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Outcome) -> Outcome {
    body().inspect_err(note)
}

#[cold]
fn note(failure: &Failure) {
    if failure.code() != Code::InProgress {
        with(|state| {
            if state.depth > 0 {
                state.error.get_or_insert_with(|| failure.clone());
            }
        });
    }
}

/// An operation: collected in a group, run otherwise.
///
/// # Safety
/// - The memory is what NCCL's guide asks for, until the group ends or the call returns; of communicators that do not
///   block until they are no longer in progress, on streams of a CUDA runtime until those have got there.
#[inline]
pub(crate) unsafe fn submit(op: Op) -> Outcome {
    let op = with(|state| {
        if state.depth > 0 {
            state.batch.ops.push(op);
            return None;
        }
        Some(op)
    });
    let Some(op) = op else { return Ok(()) };
    if op.comm.about.settings.blocking && streams::find(op.stream).is_none() {
        if op.is_to_self() {
            // It has no other half outside of a group.
            return crate::op::pair_own_messages(&mut vec![op]);
        }
        op.comm.next_launch();
        // SAFETY: the caller's contract.
        return unsafe { op.run() };
    }
    Batch::of(op).run()
}

/// The making of a communicator or a window: collected in a group, run otherwise.
pub(crate) fn submit_job(job: Job) -> Outcome {
    let batch = with(|state| {
        if state.depth > 0 {
            state.batch.add(job);
            return None;
        }
        let mut batch = Batch::default();
        batch.add(job);
        Some(batch)
    });
    batch.map_or(Ok(()), Batch::run)
}
