//! How one operation runs: plan, poll, wait, and what happens when it cannot go on.

use super::Communicator;
use super::descriptor::{self, Descriptor};
use super::health::{self, Verdict};
use super::registry;
use super::vigil::{Task, Vigil};
use crate::error::{Error, Stage};
use crate::executor::{Buffers, Operation, Progress};
use crate::fail;
use crate::plan::{Call, Kind, Plan, select};
use crate::reduce::{self, Dst, ReduceOp, Reducer, Store};
use crate::trace;
use crate::transport::shm::Shm;
use shmring::Protocol;
use shmring::layout::MemberRecord;
use shmring::sync::Ordering;
use std::cell::Cell;

/// A call, ready to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prepared {
    pub(super) plan: Plan,
    reducer: Reducer,
    descriptor: Descriptor,
    /// The descriptor's part of each message's stamp.
    mixed: u64,
}

impl Communicator {
    /// Runs one operation to its end.
    ///
    /// # Safety
    /// - `input` is readable and `output` writable for the call's bytes; they are equal or do not overlap.
    pub(super) unsafe fn run(&mut self, call: Call, input: *const u8, output: *mut u8) -> Result<(), Error> {
        let word = self.shm.segment.header().aborted();
        if word != 0 {
            let error = health::explain(&self.shm.segment, word, &self.health, self.seqno + 1);
            self.health.let_cause_go_first(&error);
            return Err(error);
        }
        call.op.check(call.dtype).map_err(|invalid| Error::Argument {
            rank: self.rank,
            kind: call.kind,
            what: invalid.to_string(),
        })?;
        fail::at(&mut self.fail, fail::OP_BEGIN);
        if self.thread != registry::thread() {
            self.thread = registry::thread();
            self.entry.take();
        }
        self.seqno += 1;
        let seqno = self.seqno;
        let begun = trace::begin();
        // An operation without elements waits for nobody, but the others must be able to compare it with theirs.
        let is_empty = call.count == 0 && call.kind != Kind::Barrier;
        if self.nranks > 1 && !is_empty {
            let prepared = self.prepare(call);
            self.remember(prepared.mixed);
            fail::at(&mut self.fail, fail::OP_CALLED);
            // SAFETY: the caller's contract.
            unsafe { self.run_plan(&prepared, Buffers { input, output })? };
        } else if is_empty {
            let descriptor = Descriptor::new(&call, false);
            self.remember(descriptor.mix());
            announce(self.record(), seqno, descriptor);
        } else {
            // SAFETY: the caller's contract.
            unsafe { alone(&call, input, output) };
        }
        fail::at(&mut self.fail, fail::OP_DONE);
        // ORDERING: Release pairs with the Acquire in `health::has_finished`: all messages of this operation came
        // before.
        self.record().identity.finished.store(seqno, Ordering::Release);
        self.tally.count(&call);
        self.publish_tally(call.bytes());
        trace::end_operation(begun, &call, seqno, self.last_choice());
        Ok(())
    }

    /// Adds a call to the sum over all calls, for those that nobody waits in and the journal loses.
    #[inline]
    fn remember(&mut self, mixed: u64) {
        self.history = (self.history.rotate_left(5) ^ mixed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// What a call needs to run; that of the last call is kept, since most repeat it.
    #[inline]
    fn prepare(&mut self, call: Call) -> Prepared {
        match self.last {
            // The barrier of `finalize` is called by another name.
            Some(prepared) if prepared.plan.call == call && !self.finalized => prepared,
            _ => {
                let choice = select(&call, &self.config, &self.limits);
                let descriptor = Descriptor::new(&call, self.finalized);
                let prepared = Prepared {
                    plan: Plan::new(call, choice, self.rank, self.nranks),
                    reducer: Reducer::new(call.dtype, call.op, self.nranks as usize),
                    descriptor,
                    mixed: descriptor.mix(),
                };
                self.last = Some(prepared);
                prepared
            }
        }
    }

    unsafe fn run_plan(&mut self, prepared: &Prepared, buffers: Buffers) -> Result<(), Error> {
        let Prepared { plan, reducer, descriptor, mixed } = *prepared;
        let choice = plan.choice;
        let lines = if choice.protocol == Protocol::Simple { 0 } else { choice.chunk_bytes };
        let connected = self.shm.connect(choice.algorithm, choice.protocol, plan.channels());
        self.settle(connected)?;
        self.executor.start(&plan, lines);
        let stamp = descriptor::stamp(mixed, self.seqno);
        let operation = Operation { plan, reducer, buffers, stamp };
        // SAFETY: the caller's contract; connections were made above.
        let outcome = unsafe { self.drive(&operation, descriptor) };
        self.settle(outcome)?;
        Ok(())
    }

    /// Polls the operation to its end, waiting in between.
    unsafe fn drive(&mut self, operation: &Operation, descriptor: Descriptor) -> Result<(), Error> {
        let Self { shm, executor, waiter, health, config, seqno, rank, fail, finalized, job, .. } = self;
        let (stage, limit) = if *finalized {
            (Stage::Finalize(*seqno), config.finalize_timeout.unwrap_or(config.timeout))
        } else {
            (Stage::Operation(*seqno), config.timeout)
        };
        let Shm { segment, lanes, .. } = shm;
        let (segment, header) = (&*segment, segment.header());
        let corrupt = |cause| Error::Segment { rank: *rank, cause };
        let record = segment.member_record(*rank);
        // A message in lines goes first, and everything else is done while the peers' messages are under way. The
        // stamp keeps data apart in any case; the journal is for those who wait in vain.
        let small = operation.plan.choice.protocol != Protocol::Simple;
        if !small {
            announce(record, *seqno, descriptor);
        }
        // SAFETY: the caller's contract.
        let mut progress = unsafe { executor.poll(operation, segment, lanes) }.map_err(corrupt)?;
        if small {
            announce(record, *seqno, descriptor);
        }
        let mut vigil = Vigil::new(segment, health, fail, Task { stage, limit, descriptor, job: *job });
        let awaited = Cell::new(None);
        while progress != Progress::Done {
            vigil.blocked();
            let mut ended = 0;
            waiter.wait(
                &record.bell,
                &header.sleepers,
                || {
                    ended = header.aborted();
                    if ended != 0 {
                        return Ok(None);
                    }
                    // SAFETY: as above.
                    let awaits = unsafe { executor.awaits(operation, lanes) }.map_err(corrupt)?;
                    awaited.set(awaits);
                    Ok(awaits)
                },
                |waited| vigil.check(waited, awaited.get()),
            )?;
            if ended != 0 {
                return Err(vigil.explain(ended));
            }
            vigil.waited();
            // SAFETY: the caller's contract.
            progress = unsafe { executor.poll(operation, segment, lanes) }.map_err(corrupt)?;
        }
        Ok(())
    }

    /// Ends the communicator on every rank if this rank cannot go on. Where several ranks fail at once, as on a full
    /// file system, the first tells what is wrong and the others refer to it.
    fn settle(&mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        let Err(own) = outcome else { return Ok(()) };
        let verdict = Verdict::Failed(self.rank);
        let standing = health::end(&self.shm.segment, verdict, &self.health, self.seqno);
        let first = self.shm.segment.header().aborted() == verdict.to_word();
        if first {
            self.health.report_abort(&own);
        }
        let own_stands = first || matches!(own, Error::PeerGone { .. } | Error::Timeout { .. });
        let error = if own_stands { own } else { standing };
        self.health.let_cause_go_first(&error);
        Err(error)
    }

    /// Publishes the counters, for small operations only now and then.
    fn publish_tally(&mut self, bytes: usize) {
        if bytes >= 4096 || self.seqno.is_multiple_of(64) {
            self.tally.publish(self.record(), &self.waiter.stats(), self.shm.sent());
        }
    }
}

/// What a call does with one rank: every reduction is a copy but that with a factor.
///
/// # Safety
/// As for [`Communicator::run`].
unsafe fn alone(call: &Call, input: *const u8, output: *mut u8) {
    let to = [Dst { ptr: output, store: Store::Streaming }];
    // SAFETY: the caller's contract.
    unsafe {
        if let (Kind::AllReduce, ReduceOp::PreMulSum(_)) = (call.kind, call.op) {
            Reducer::new(call.dtype, call.op, 1).fold(&[input], Some(0), &to, call.count, true);
        } else if input != output.cast_const() {
            reduce::copy(input, &to, call.bytes());
        }
    }
}

/// Tells the other ranks what this one calls as operation `seqno`.
#[inline]
fn announce(record: &MemberRecord, seqno: u64, descriptor: Descriptor) {
    record.journal.write(seqno, descriptor.to_words());
    // ORDERING: Relaxed; progress is read by whoever explains a wait, never to order data.
    record.identity.started.store(seqno, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::super::Communicator;
    use crate::config::Config;
    use crate::error::Error;
    use crate::reduce::ReduceOp;

    /// A rank that fails by itself tells its own error; the others are told who it was and to look there.
    #[test]
    fn an_error_of_one_rank_ends_all() {
        let comms = Communicator::init_all(3, &Config::new(3)).unwrap();
        let _role = comms[1].shm.segment.fan_sender(0).unwrap();
        std::thread::scope(|scope| {
            for mut comm in comms {
                scope.spawn(move || {
                    let error = comm.all_reduce_in_place(&mut [1.0f32], ReduceOp::Sum).unwrap_err();
                    match comm.rank() {
                        1 => {
                            let cause = shmring::Error::RoleTaken { role: "sender" };
                            assert_eq!(error.to_string(), format!("rank 1: {cause}"));
                        }
                        _ => {
                            assert!(matches!(error, Error::Aborted { by: 1, .. }), "{error}");
                            assert!(
                                error.to_string().contains("an error of its own, see its message"),
                                "{error}"
                            );
                        }
                    }
                });
            }
        });
    }
}
