//! Batches of communicators that do not block: they go on while the caller does something else and asks
//! `ncclCommGetAsyncError` from time to time.

use super::batch::{Batch, Join, count_launches, one_sided, together};
use crate::comm::{Comm, Progress};
use crate::failure::{Failure, Outcome, panicked};
use crate::op::Turn;
use crate::result::Code;
use ringccl::Communicator;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Begins a batch: `ncclInProgress`, or why it could not begin.
pub(super) fn begin(mut batch: Batch) -> Outcome {
    for join in std::mem::take(&mut batch.joins) {
        begin_join(join)?;
    }
    let only_ops = batch.makes.is_empty() && batch.registers.is_empty();
    let waits = batch.ops.iter().any(|op| op.turn() == Turn::Waits);
    match (only_ops, waits) {
        (true, _) if batch.ops.is_empty() => {}
        (true, false) => begin_ops(&batch)?,
        _ => begin_thread(batch)?,
    }
    Err(Failure::in_progress())
}

fn begin_join(join: Join) -> Outcome {
    let about = &join.comm.about;
    let joining = Communicator::init_nonblocking(&join.id, about.rank, about.nranks, about.config.clone());
    match joining {
        Ok(joining) => {
            join.comm.install_joining(joining, join.hosted);
            Ok(())
        }
        Err(error) => {
            let failure = Failure::from(error);
            join.comm.fail(failure.clone());
            Err(failure)
        }
    }
}

/// Each communicator of the batch once.
fn members(batch: &Batch) -> Vec<Arc<Comm>> {
    let mut members: Vec<Arc<Comm>> = Vec::new();
    for comm in batch.comms() {
        if !members.iter().any(|member| Arc::ptr_eq(member, comm)) {
            members.push(Arc::clone(comm));
        }
    }
    members
}

/// Operations run on a stream of this library.
fn begin_ops(batch: &Batch) -> Outcome {
    count_launches(&batch.ops);
    one_sided(&batch.ops)?;
    let group = together(&batch.ops)?;
    let members = members(batch);
    let Some(first) = members.first() else { return Ok(()) };
    // SAFETY: the caller keeps the memory until its communicators are no longer in progress.
    let pending = unsafe { first.stream().launch(group) }?;
    let progress = Arc::<Progress>::default();
    for member in &members {
        member.watch(&progress);
    }
    pending.on_done(move |result| progress.end(result.map_err(Failure::from)));
    Ok(())
}

/// What waits for other ranks runs on a thread that ends with it.
fn begin_thread(batch: Batch) -> Outcome {
    let progress = Arc::<Progress>::default();
    let members = members(&batch);
    let told = Arc::clone(&progress);
    let work = move || {
        let run = catch_unwind(AssertUnwindSafe(|| batch.run_now()));
        told.end(run.unwrap_or_else(|panic| Err(panicked("a group", &*panic))));
    };
    for member in &members {
        member.watch(&progress);
    }
    let spawned = std::thread::Builder::new().name("nccl-group".into()).spawn(work);
    spawned.map(drop).map_err(|cause| {
        let failure = Failure::new(Code::SystemError, format!("no thread could be started: {cause}"));
        progress.end(Err(failure.clone()));
        failure
    })
}
