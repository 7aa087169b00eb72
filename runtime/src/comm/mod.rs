//! Communicators: a rank's handle on its group, with blocking collectives.

mod health;
mod init;

use crate::config::{Bind, Config};
use crate::error::Error;
use crate::executor::{Buffers, Executor, Operation, Progress};
use crate::plan::{Call, Choice, Kind, Limits, Plan, select};
use crate::reduce::{self, DType, Dst, Element, ReduceOp, Reducer, Store};
use crate::report::{self, Tally};
use crate::transport::shm::Shm;
use crate::{sched, trace};
use coordinator_lite::{Secret, Server, UniqueId};
use health::{Health, Verdict};
use init::Bootstrap;
use shmring::Protocol;
use shmring::doorbell::Awaits;
use shmring::layout::{MemberRecord, MemberState};
use shmring::sync::Ordering;
use shmring::wait::{WaitPolicy, WaitStats, Waiter, usable_cores};
use std::time::{Duration, Instant};

/// One rank of a group of ranks.
///
/// Operations are collective: every rank calls the same ones, in the same order, with the same counts, types
/// and reductions. They block until the result is there. After an error of class `Remote`, `Timeout`,
/// `System` or `Internal` the communicator has ended on every rank.
#[derive(Debug)]
pub struct Communicator {
    shm: Shm,
    executor: Executor,
    waiter: Waiter,
    health: Health,
    config: Config,
    limits: Limits,
    rank: u32,
    nranks: u32,
    job: u64,
    /// Communicators that this process had made when this one was done, itself included.
    number: u64,
    /// Operations begun; the first is 1.
    seqno: u64,
    tally: Tally,
    /// Plan and kernel of the last call that moved data between ranks.
    last: Option<(Plan, Reducer)>,
    finalized: bool,
}

/// A rendezvous hosted by this process, and the id by which others join it.
#[derive(Debug)]
pub struct Root {
    server: Server,
}

impl Root {
    /// Starts a rendezvous on a free loopback port. Keep the value until every rank has joined.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] when no port can be had.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { server: Server::bind(([127, 0, 0, 1], 0).into(), Secret::random()?)? })
    }

    /// The id to hand to the other ranks: 128 bytes by [`UniqueId::to_bytes`].
    pub fn unique_id(&self) -> UniqueId {
        self.server.unique_id()
    }
}

impl Communicator {
    /// Joins by `RANK`, `WORLD_SIZE` and either what `ringccl run` sets or `MASTER_ADDR` and `MASTER_PORT`.
    ///
    /// # Errors
    /// Anything that keeps the ranks from meeting, within the join time-out.
    pub fn from_env() -> Result<Self, Error> {
        let bootstrap = Bootstrap::from_env()?;
        let config = Config::from_env(bootstrap.nranks)?;
        if let Some(path) = &config.report {
            report::check_path(path)?;
        }
        Self::join(bootstrap, config)
    }

    /// Joins as `rank` of `nranks` at the rendezvous that `id` names. The settings must be equal on all ranks.
    ///
    /// # Errors
    /// As [`Communicator::from_env`].
    pub fn init(id: &UniqueId, rank: u32, nranks: u32, config: Config) -> Result<Self, Error> {
        Self::join(Bootstrap::from_id(id, rank, nranks)?, config)
    }

    fn join(mut bootstrap: Bootstrap, config: Config) -> Result<Self, Error> {
        let (rank, nranks) = (bootstrap.rank, bootstrap.nranks);
        let server = bootstrap.server.take();
        let joined = bootstrap.join(&config)?;
        let limits = Shm::limits(joined.shm.segment.geometry());
        let cores = usable_cores(); // before binding, which leaves one
        let policy = WaitPolicy::for_cores(nranks as usize, cores);
        let mut comm = Self {
            executor: Executor::new(rank, nranks),
            waiter: Waiter::new(policy),
            health: joined.health,
            shm: joined.shm,
            job: joined.job,
            number: init::count(),
            config,
            limits,
            rank,
            nranks,
            seqno: 0,
            tally: Tally::default(),
            last: None,
            finalized: false,
        };
        comm.claim_core(cores);
        comm.wait_for_all()?;
        drop(server);
        comm.tally.publish(comm.shm.segment.member_record(rank), &WaitStats::default(), [0; 3]);
        Ok(comm)
    }

    /// Tells the scheduler what the calling thread is: the one that communicates.
    pub(crate) fn claim_core(&self, cores: usize) {
        if self.config.bind == Bind::Even {
            sched::bind_evenly(self.rank as usize, self.nranks as usize);
        }
        if self.nranks as usize > cores {
            sched::ask_for_short_slice();
        }
    }

    /// Waits until every rank has attached to the segment.
    fn wait_for_all(&mut self) -> Result<(), Error> {
        let Self { shm, waiter, health, config, rank, .. } = self;
        let segment = &shm.segment;
        if segment.is_complete() {
            // The last to come wakes the others.
            segment.ring_all();
            return Ok(());
        }
        let header = segment.header();
        waiter.wait(
            &segment.member_record(*rank).bell,
            &header.sleepers,
            || {
                let over = segment.is_complete() || header.aborted() != 0;
                Ok((!over).then_some(Awaits::Anyone))
            },
            |waited| {
                if waited >= config.join_timeout {
                    return Err(health::timeout(segment, health, 1, config.join_timeout));
                }
                health.check(segment, 1)
            },
        )?;
        match header.aborted() {
            0 => Ok(()),
            word => Err(health::explain(word, health, 0)),
        }
    }

    /// This rank's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Number of ranks.
    pub fn nranks(&self) -> usize {
        self.nranks as usize
    }

    /// Operations that this rank has begun.
    pub fn seqno(&self) -> u64 {
        self.seqno
    }

    /// Algorithm, protocol, channels and chunk of the last operation that moved data between ranks.
    pub fn last_choice(&self) -> Option<Choice> {
        self.last.map(|(plan, _)| plan.choice)
    }

    /// Messages that this rank has sent in each protocol, indexed by `Protocol as usize`.
    pub fn messages_sent(&self) -> [u64; Protocol::ALL.len()] {
        self.shm.sent()
    }

    /// What this rank has spent on waiting.
    pub fn wait_stats(&self) -> WaitStats {
        self.waiter.stats()
    }

    /// Bytes of shared memory that all ranks have in use together.
    ///
    /// # Errors
    /// [`Error::Segment`] when the system does not tell.
    pub fn shared_bytes(&self) -> Result<u64, Error> {
        self.shm.segment.committed_bytes().map_err(|cause| Error::Segment { rank: self.rank, cause })
    }

    /// Reduces `send` over all ranks into `recv` on every rank. Both have `count` elements, equal everywhere.
    ///
    /// All ranks get the same bits, on every run. Nothing is done and nobody waited for when `count` is 0.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths differ; anything else ends the communicator.
    pub fn all_reduce<T: Element>(&mut self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.same_length(Kind::AllReduce, send.len(), recv.len())?;
        let call = Call { kind: Kind::AllReduce, count: recv.len(), dtype: T::DTYPE, op };
        // SAFETY: both slices hold `count` elements and are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    /// Reduces `buffer` over all ranks, in place.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    pub fn all_reduce_in_place<T: Element>(&mut self, buffer: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = Call { kind: Kind::AllReduce, count: buffer.len(), dtype: T::DTYPE, op };
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        // SAFETY: the slice holds `count` elements and is borrowed for the call; input and output are equal.
        unsafe { self.run(call, at, at) }
    }

    /// All-reduce of raw buffers of `count` elements of `dtype`.
    ///
    /// # Errors
    /// As [`Communicator::all_reduce`].
    ///
    /// # Safety
    /// - `send` is readable and `recv` writable for `count` elements during the call.
    /// - They are equal or do not overlap.
    pub unsafe fn all_reduce_raw(
        &mut self,
        send: *const u8,
        recv: *mut u8,
        count: usize,
        dtype: DType,
        op: ReduceOp,
    ) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        unsafe { self.run(Call { kind: Kind::AllReduce, count, dtype, op }, send, recv) }
    }

    /// Sends `buffer` of rank `root` to every rank's `buffer`.
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no such root; anything else ends the communicator.
    pub fn broadcast<T: Element>(&mut self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        let at: *mut u8 = buffer.as_mut_ptr().cast();
        let call = self.broadcast_call::<T>(buffer.len(), root)?;
        // SAFETY: the slice holds `count` elements and is borrowed for the call; input and output are equal.
        unsafe { self.run(call, at, at) }
    }

    /// Sends `send` of rank `root` to every rank's `recv`, the root's included. Both have `count` elements.
    ///
    /// # Errors
    /// [`Error::Argument`] when the lengths differ or there is no such root.
    pub fn broadcast_from<T: Element>(
        &mut self,
        send: &[T],
        recv: &mut [T],
        root: usize,
    ) -> Result<(), Error> {
        let call = self.broadcast_call::<T>(recv.len(), root)?;
        self.same_length(call.kind, send.len(), recv.len())?;
        // SAFETY: both slices hold `count` elements and are borrowed for the call.
        unsafe { self.run(call, send.as_ptr().cast(), recv.as_mut_ptr().cast()) }
    }

    fn broadcast_call<T: Element>(&self, count: usize, root: usize) -> Result<Call, Error> {
        if root >= self.nranks() {
            let kind = Kind::Broadcast { root: u32::try_from(root).unwrap_or(u32::MAX) };
            let what = format!("root {root} is not a rank: there are {}", self.nranks);
            return Err(Error::Argument { rank: self.rank, kind, what });
        }
        let kind = Kind::Broadcast { root: root as u32 };
        Ok(Call { kind, count, dtype: T::DTYPE, op: ReduceOp::Sum })
    }

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// Anything that ends the communicator.
    pub fn barrier(&mut self) -> Result<(), Error> {
        let call = Call { kind: Kind::Barrier, count: 0, dtype: DType::F32, op: ReduceOp::Sum };
        let nowhere = std::ptr::dangling_mut::<u64>().cast();
        // SAFETY: the call has no elements.
        unsafe { self.run(call, nowhere, nowhere) }
    }

    fn same_length(&self, kind: Kind, send: usize, recv: usize) -> Result<(), Error> {
        if send == recv {
            return Ok(());
        }
        let what =
            format!("the send buffer has {send} elements, the receive buffer {recv}; they must be equal");
        Err(Error::Argument { rank: self.rank, kind, what })
    }

    /// Runs one operation to its end.
    ///
    /// # Safety
    /// - `input` is readable and `output` writable for the call's bytes; they are equal or do not overlap.
    unsafe fn run(&mut self, call: Call, input: *const u8, output: *mut u8) -> Result<(), Error> {
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
                    let spent = Instant::now() - *begun.get_or_insert_with(|| Instant::now() - waited);
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

    /// Leaves: writes this rank's part of report and trace. The lowest rank waits for the others' parts.
    ///
    /// # Errors
    /// [`Error::Output`] when report or trace cannot be written; an error of the barrier before it.
    pub fn finalize(mut self) -> Result<(), Error> {
        self.finalized = true;
        self.tally.publish(self.record(), &self.waiter.stats(), self.shm.sent());
        let together = self.barrier();
        let report = match &self.config.report {
            Some(path) if self.rank == 0 => {
                report::write(path, &self.shm.segment, self.health.members(), self.job, self.number)
            }
            _ => Ok(()),
        };
        self.leave();
        let trace = trace::write(self.rank);
        together.and(report).and(trace)
    }

    fn leave(&mut self) {
        self.record().identity.set_state(MemberState::Left);
        if self.shm.segment.header().sleepers.any() {
            self.shm.segment.ring_all();
        }
    }

    fn record(&self) -> &MemberRecord {
        self.shm.segment.member_record(self.rank)
    }

    /// The largest time an operation may take.
    pub fn timeout(&self) -> Duration {
        self.config.timeout
    }
}

impl Drop for Communicator {
    /// A rank that leaves without [`Communicator::finalize`] says so, for the others not to wait.
    fn drop(&mut self) {
        if !self.finalized {
            self.leave();
        }
    }
}
