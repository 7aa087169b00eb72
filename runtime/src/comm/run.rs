//! How one operation runs: plan, poll, wait, and what happens when it cannot go on.

use super::Communicator;
use super::health::{self, Verdict};
use crate::error::Error;
use crate::executor::{Buffers, Operation, Progress};
use crate::plan::{Call, Kind, Plan, select};
use crate::reduce::{self, Dst, Reducer, Store};
use crate::trace;
use crate::transport::shm::Shm;
use shmring::Protocol;
use shmring::clock::now;
use shmring::sync::Ordering;

impl Communicator {
    /// Runs one operation to its end.
    ///
    /// # Safety
    /// - `input` is readable and `output` writable for the call's bytes; they are equal or do not overlap.
    pub(super) unsafe fn run(&mut self, call: Call, input: *const u8, output: *mut u8) -> Result<(), Error> {
        let word = self.shm.segment.header().aborted();
        if word != 0 {
            let error = health::explain(word, &self.health, self.seqno);
            self.health.let_cause_go_first(&error);
            return Err(error);
        }
        if call.count == 0 && call.kind != Kind::Barrier {
            return Ok(());
        }
        self.seqno += 1;
        let seqno = self.seqno;
        // ORDERING: Relaxed; progress is read by whoever explains a wait, never to order data.
        self.record().identity.started.store(seqno, Ordering::Relaxed);
        let begun = trace::begin();
        if self.nranks > 1 {
            // SAFETY: the caller's contract.
            unsafe { self.run_plan(call, Buffers { input, output })? };
        } else if input != output.cast_const() {
            // SAFETY: the caller's contract; with one rank every reduction is a copy.
            unsafe { reduce::copy(input, &[Dst { ptr: output, store: Store::Streaming }], call.bytes()) };
        }
        // ORDERING: Relaxed, as above.
        self.record().identity.finished.store(seqno, Ordering::Relaxed);
        self.tally.count(&call);
        self.publish_tally(call.bytes());
        trace::end_operation(begun, &call, seqno, self.last_choice());
        Ok(())
    }

    /// The plan and kernel of a call; those of the last call are kept, since most repeat it.
    #[inline]
    fn prepare(&mut self, call: Call) -> (Plan, Reducer) {
        match self.last {
            Some((plan, reducer)) if plan.call == call => (plan, reducer),
            _ => {
                let choice = select(&call, &self.config, &self.limits);
                let plan = Plan::new(call, choice, self.rank, self.nranks);
                let reducer = Reducer::new(call.dtype, call.op, self.nranks as usize);
                self.last = Some((plan, reducer));
                (plan, reducer)
            }
        }
    }

    unsafe fn run_plan(&mut self, call: Call, buffers: Buffers) -> Result<(), Error> {
        let (plan, reducer) = self.prepare(call);
        let choice = plan.choice;
        let lines = if choice.protocol == Protocol::Simple { 0 } else { choice.chunk_bytes };
        let connected = self.shm.connect(choice.algorithm, choice.protocol, plan.channels());
        self.settle(connected)?;
        self.executor.start(&plan, lines);
        let operation = Operation { plan, reducer, buffers };
        // SAFETY: the caller's contract; connections were made above.
        let outcome = unsafe { self.drive(&operation) };
        self.settle(outcome)?;
        Ok(())
    }

    /// Polls the operation to its end, waiting in between.
    unsafe fn drive(&mut self, operation: &Operation) -> Result<(), Error> {
        let Self { shm, executor, waiter, health, config, seqno, rank, .. } = self;
        let Shm { segment, lanes, .. } = shm;
        let header = segment.header();
        let corrupt = |cause| Error::Segment { rank: *rank, cause };
        // The clock is first read by a wait that is long anyhow; from then on it counts for the whole operation.
        let mut begun = None;
        // SAFETY: the caller's contract.
        while unsafe { executor.poll(operation, segment, lanes) }.map_err(corrupt)? != Progress::Done {
            let mut ended = 0;
            waiter.wait(
                &segment.member_record(*rank).bell,
                &header.sleepers,
                || {
                    ended = header.aborted();
                    if ended != 0 {
                        return Ok(None);
                    }
                    // SAFETY: as above.
                    unsafe { executor.awaits(operation, lanes) }.map_err(corrupt)
                },
                |waited| {
                    let spent = now() - *begun.get_or_insert_with(|| now() - waited);
                    if spent >= config.timeout {
                        return Err(health::timeout(segment, health, *seqno, config.timeout));
                    }
                    health.check(segment, *seqno)
                },
            )?;
            if ended != 0 {
                return Err(health::explain(ended, health, *seqno));
            }
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
