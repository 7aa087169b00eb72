//! How collectives run on one rank: one at a time, in the order of the calls.
//!
//! ```text
//!  begin  count, plan, connect     advance  poll the plan; announce the call     finish  count, tell
//! ```
//!
//! [`Engine::run`] does all three in the calling thread and waits in between; a [`Task`](crate::task::Task) does them
//! on whichever thread drives it. Nothing below `begin` knows which.

use super::alone::alone;
use super::descriptor::{self, Descriptor};
use super::notices::Notices;
use super::shared::Shared;
use super::watch::{Duty, Look, Watch};
use super::{health, registry};
use crate::config::Config;
use crate::error::{Error, Stage};
use crate::executor::{Buffers, Exchange, Executor, Operation, Progress};
use crate::fail::{self, FailPoint};
use crate::model::Meter;
use crate::plan::{Algorithm, Call, Choice, Kind, Limits, Plan, select_as};
use crate::reduce::Reducer;
use crate::report::Tally;
use crate::settings;
use crate::task::Company;
use crate::trace;
use crate::transport::shm::{Lane, Shm};
use crate::window::Mapped;
use shmring::Protocol;
use shmring::Stamp;
use shmring::doorbell::Awaits;
use shmring::layout::MemberRecord;
use shmring::segment::Segment;
use shmring::sync::Ordering;
use shmring::wait::{WaitPolicy, Waiter};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// A call, ready to run.
#[derive(Debug)]
struct Prepared {
    plan: Plan,
    exchange: Option<Exchange>,
    reducer: Reducer,
    descriptor: Descriptor,
    /// The descriptor's part of each message's stamp.
    mixed: u64,
}

/// The operation that runs, besides what `Prepared` says of it.
#[derive(Clone, Copy, Debug)]
struct Running {
    /// Whether there is one.
    on: bool,
    /// Whether its call has been entered in the journal.
    announced: bool,
    part: Part,
    buffers: Buffers,
    stamp: Stamp,
}

/// What of an operation runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The ranks tell each other where their buffers are.
    Notices,
    /// The plan without copies.
    Direct,
    /// The plan in `Prepared`: all of most operations.
    Whole,
}

impl Running {
    const NOTHING: Self = Self {
        on: false,
        announced: false,
        part: Part::Whole,
        buffers: Buffers { input: std::ptr::null(), output: std::ptr::null_mut() },
        stamp: Stamp(0),
    };
}

// SAFETY: what `begin` promises of the buffers holds on whichever thread advances the operation.
unsafe impl Send for Running {}

/// What one rank runs collectives on.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(super) shm: Shm,
    executor: Executor,
    pub(super) waiter: Waiter,
    limits: Limits,
    /// A sum over all calls so far, in their order.
    pub(super) history: u64,
    /// Operations begun; the first is 1.
    pub(super) seqno: u64,
    pub(super) tally: Tally,
    /// Plan and kernel of the last call that moved data between ranks; most calls repeat it.
    prepared: Option<Prepared>,
    running: Running,
    /// The windows, and where the ranks' buffers are.
    pub(super) notices: Notices,
    /// Of what runs, if it is traced.
    traced: Option<trace::Begun>,
    /// The input of what runs, where it is the output and the plan would overwrite what it has not read.
    copy: Option<Box<[u8]>>,
    watch: Watch,
    /// Whether what runs is the barrier of `finalize`.
    pub(super) finalizing: bool,
    /// Whether a call came after the end of the communicator and could not be done.
    refused: bool,
    pub(super) fail: Option<FailPoint>,
    /// What prices operations, if a cluster is modelled.
    pub(super) meter: Option<Box<Meter>>,
}

/// Whether a call is over as soon as it has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// It needs no other rank.
    Done,
    /// Advance it until it is done.
    Running,
}

impl Engine {
    pub(super) fn new(shm: Shm, policy: WaitPolicy, fail: Option<FailPoint>) -> Self {
        let (rank, nranks) = (shm.segment.member(), shm.segment.geometry().members);
        Self {
            executor: Executor::new(rank, nranks),
            waiter: Waiter::new(policy),
            limits: Shm::limits(shm.segment.geometry()),
            shm,
            history: 0,
            seqno: 0,
            tally: Tally::default(),
            prepared: None,
            running: Running::NOTHING,
            notices: Notices::new(rank, nranks),
            traced: None,
            copy: None,
            watch: Watch::default(),
            finalizing: false,
            refused: false,
            fail,
            meter: None,
        }
    }

    /// Runs one operation to its end, waiting in the calling thread.
    ///
    /// # Safety
    /// - `buffers` are as [`Buffers`] says, for the call's bytes.
    #[inline]
    pub(crate) unsafe fn run(&mut self, shared: &Shared, call: Call, buffers: Buffers) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        unsafe {
            if self.begin(shared, &call, buffers)? == Begun::Running {
                let outcome = self.drive(shared);
                if let Err(error) = outcome {
                    return Err(shared.give_up(error, self.seqno));
                }
                self.linger(shared, &call);
            }
        }
        self.finish(shared, &call);
        Ok(())
    }

    /// Counts a call and prepares it; nothing is sent yet.
    ///
    /// # Errors
    /// Why the communicator has ended, or cannot go on.
    ///
    /// # Safety
    /// - `buffers` are as [`Buffers`] says, for the call's bytes, until the operation is done or an error was
    ///   returned, on every thread that advances it.
    #[inline]
    pub(crate) unsafe fn begin(
        &mut self,
        shared: &Shared,
        call: &Call,
        buffers: Buffers,
    ) -> Result<Begun, Error> {
        let word = shared.aborted();
        if word != 0 {
            self.check_late(shared, word, call)?;
        }
        if self.running.on {
            // A panic has left it behind, half-way through its messages.
            let what = "a collective";
            return Err(shared.give_up(Error::Abandoned { rank: shared.rank, what }, self.seqno));
        }
        fail::at(&mut self.fail, fail::OP_BEGIN);
        self.seqno += 1;
        self.traced = trace::begin();
        if let Some(meter) = &mut self.meter {
            meter.begin(shared.record(), self.seqno, call.bytes(shared.nranks));
        }
        // An operation without elements waits for nobody, but the others must be able to compare it with theirs.
        let is_empty = call.count == 0 && call.kind != Kind::Barrier;
        if shared.nranks > 1 && !is_empty {
            let prepared = self.prepare(shared, call);
            let (mixed, in_place) = (prepared.mixed, prepared.plan.works_in_place());
            self.remember(mixed);
            fail::at(&mut self.fail, fail::OP_CALLED);
            let stamp = descriptor::stamp(mixed, self.seqno);
            let part = if self.notices.concern(call, &shared.config) { Part::Notices } else { Part::Whole };
            self.running = Running { on: true, announced: false, part, buffers, stamp };
            self.watch.begin();
            if part == Part::Notices {
                self.notices.write(call, buffers);
            }
            if let Err(error) = self.start() {
                return Err(shared.give_up(error, self.seqno));
            }
            if !in_place && buffers.input == buffers.output.cast_const() {
                // SAFETY: the caller's contract: the input has the call's bytes, and nobody writes to it now.
                let input = unsafe { std::slice::from_raw_parts(buffers.input, call.bytes(shared.nranks)) };
                let input = self.copy.insert(Box::<[u8]>::from(input));
                self.running.buffers.input = input.as_ptr();
            }
            return Ok(Begun::Running);
        }
        if is_empty {
            let descriptor = Descriptor::new(call, false);
            self.remember(descriptor.mix());
            announce(shared.record(), self.seqno, descriptor);
        } else {
            // SAFETY: the caller's contract.
            unsafe { alone(call, buffers) };
        }
        Ok(Begun::Done)
    }

    /// Connects what the part that runs now needs, and begins it.
    #[inline]
    fn start(&mut self) -> Result<(), Error> {
        let Self { prepared, running, notices, shm, executor, .. } = self;
        let Some(Operation { plan, exchange, .. }) = operation(prepared, running, notices) else {
            return Ok(());
        };
        shm.connect(&plan.wires, plan.choice.protocol, plan.channels())?;
        executor.start(plan, exchange.is_some(), plan.line_bytes());
        Ok(())
    }

    /// Goes on with the part that follows the notices.
    #[cold]
    fn settle(&mut self, shared: &Shared) -> Result<(), Error> {
        let Self { prepared: Some(Prepared { plan, .. }), running, notices, .. } = self else {
            return Ok(());
        };
        let direct = notices.settle(&plan.call, &shared.config, running.buffers);
        running.part = if direct { Part::Direct } else { Part::Whole };
        self.start()
    }

    /// Adds a window to those of this rank; its number.
    pub(super) fn add_window(&mut self, window: Arc<Mapped>, config: &Config) -> usize {
        self.notices.add(window, config, &self.limits)
    }

    /// Whether a call can still be done although the communicator has ended by `word`.
    #[cold]
    fn check_late(&mut self, shared: &Shared, word: u64, call: &Call) -> Result<(), Error> {
        let seqno = self.seqno + 1;
        // A chain needs the ranks before this one, too.
        let asked = self.meter.as_mut().and_then(|meter| meter.asked(call));
        let chosen = || select_as(call, &shared.config, &self.limits, asked).algorithm;
        let is_chain = || shared.nranks > 2 && chosen() == Algorithm::Ring;
        let needed = match call.kind {
            Kind::Broadcast { root } if root != shared.rank && !is_chain() => root..root + 1,
            Kind::Scatter { root } if root != shared.rank => root..root + 1,
            _ => 0..shared.nranks,
        };
        if health::was_sent_before(&shared.segment, word, seqno, needed) {
            return Ok(());
        }
        // Only the first late call is one that the others have made under this number.
        let late = (seqno, Descriptor::new(call, self.finalizing));
        let is_first = !std::mem::replace(&mut self.refused, true);
        let clash = is_first.then(|| shared.health().clash_of_late(&shared.segment, word, late)).flatten();
        Err(clash.unwrap_or_else(|| shared.refuse(word, seqno)))
    }

    /// Adds a call to the sum over all calls, for those that nobody waits in and the journal loses.
    #[inline]
    fn remember(&mut self, mixed: u64) {
        self.history = (self.history.rotate_left(5) ^ mixed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    /// What a call needs to run; that of the last call is kept.
    #[inline]
    fn prepare(&mut self, shared: &Shared, call: &Call) -> &Prepared {
        // The barrier of `finalize` is called by another name.
        let again = self.prepared.as_ref().is_some_and(|last| last.plan.call == *call) && !self.finalizing;
        if !again {
            self.prepared = None;
        }
        let Self { prepared, limits, finalizing, meter, .. } = self;
        prepared.get_or_insert_with(|| {
            let asked = meter.as_mut().and_then(|meter| meter.asked(call));
            let choice = select_as(call, &shared.config, limits, asked);
            settings::detail(|| shared.told(call, &choice));
            let descriptor = Descriptor::new(call, *finalizing);
            let plan = Plan::new(call.clone(), choice, shared.rank, shared.nranks);
            let reducer = Reducer::new(call.dtype, call.op, shared.nranks as usize);
            Prepared {
                exchange: Exchange::of(&plan, &reducer, shared.rank, shared.nranks),
                plan,
                reducer,
                descriptor,
                mixed: descriptor.mix(),
            }
        })
    }

    /// Algorithm, protocol, channels and chunk of the last operation that moved data between ranks.
    pub(super) fn last_choice(&self) -> Option<Choice> {
        if self.running.part == Part::Direct {
            return self.notices.choice();
        }
        self.prepared.as_ref().map(|prepared| prepared.plan.choice)
    }

    /// The parts that polling needs; `None` when nothing runs.
    #[inline]
    fn parts(&mut self) -> Option<(&mut Executor, Operation<'_>, &Segment, &mut [Lane])> {
        let Self { executor, prepared, running, notices, shm, .. } = self;
        let operation = operation(prepared, running, notices)?;
        Some((executor, operation, &shm.segment, &mut shm.lanes))
    }

    /// Advances what runs as far as messages and credit allow.
    ///
    /// # Errors
    /// A corrupt ring; see [`Shared::give_up`].
    ///
    /// # Safety
    /// - The contract of `begin` holds still.
    #[inline]
    pub(crate) unsafe fn advance(&mut self, shared: &Shared) -> Result<Progress, Error> {
        if self.meter.as_ref().is_some_and(|meter| meter.due().is_some()) {
            // All is done but the time.
            return Ok(Progress::Done);
        }
        let Some(Prepared { plan, descriptor, .. }) = &self.prepared else { return Ok(Progress::Done) };
        let (descriptor, seqno) = (*descriptor, self.seqno);
        let first = !std::mem::replace(&mut self.running.announced, true);
        // A message in lines goes first, and everything else is done while the peers' messages are under way. The
        // stamp keeps data apart in any case; the journal is for those who wait in vain.
        let early = first && plan.choice.protocol == Protocol::Simple;
        if early {
            announce(shared.record(), seqno, descriptor);
        }
        let Some((executor, operation, segment, lanes)) = self.parts() else { return Ok(Progress::Done) };
        // SAFETY: the caller's contract; connections were made by `begin`.
        let progress = unsafe { executor.poll(&operation, segment, lanes) };
        if first && !early {
            announce(shared.record(), seqno, descriptor);
        }
        let progress = progress.map_err(|cause| shared.segment_error(cause))?;
        if progress == Progress::Done && self.running.part == Part::Notices {
            self.settle(shared)?;
            return Ok(Progress::Advanced);
        }
        if progress == Progress::Done && self.running.part == Part::Direct && shared.aborted() != 0 {
            // Others may have given up before this rank had read what they have, and use their buffers again: they say
            // so first.
            return Err(shared.explain(shared.aborted(), seqno));
        }
        if progress == Progress::Advanced {
            // What is waited for from now on is another wait.
            self.watch.waited();
        }
        Ok(progress)
    }

    /// Number of the last operation begun, from 1.
    pub(crate) fn seqno(&self) -> u64 {
        self.seqno
    }

    /// Whom what runs waits for, or `None` when it can be advanced.
    ///
    /// # Errors
    /// As [`Engine::advance`].
    ///
    /// # Safety
    /// - The contract of `begin` holds still.
    #[inline]
    pub(crate) unsafe fn awaits(&mut self, shared: &Shared) -> Result<Option<Awaits>, Error> {
        if self.meter.as_ref().is_some_and(|meter| meter.due().is_some()) {
            return Ok(None);
        }
        let Some((executor, operation, _, lanes)) = self.parts() else { return Ok(None) };
        // SAFETY: the caller's contract.
        unsafe { executor.awaits(&operation, lanes) }.map_err(|cause| shared.segment_error(cause))
    }

    /// Called before each sleep in what runs, by a thread that may drive others too: an error if it cannot succeed.
    #[cold]
    pub(crate) fn check(
        &mut self,
        shared: &Shared,
        company: Company,
        awaits: Option<Awaits>,
    ) -> Result<(), Error> {
        let duty = self.duty(shared);
        let Self { prepared, watch, fail, .. } = self;
        fail::at(fail, fail::OP_BLOCKED);
        let Some(Prepared { descriptor, .. }) = prepared else { return Ok(()) };
        watch.keep_company(company);
        let look = Look { descriptor: *descriptor, waited: Duration::ZERO, awaits, is_task: true };
        watch.check_collective(shared, duty, look)
    }

    fn duty(&self, shared: &Shared) -> Duty {
        if self.finalizing {
            Duty { stage: Stage::Finalize(self.seqno), limit: shared.config.finalize_limit() }
        } else {
            Duty { stage: Stage::Operation(self.seqno), limit: shared.config.timeout }
        }
    }

    /// Advances the operation to its end, waiting in between.
    #[inline]
    unsafe fn drive(&mut self, shared: &Shared) -> Result<(), Error> {
        // SAFETY: the caller's contract.
        let mut progress = unsafe { self.advance(shared)? };
        while progress != Progress::Done {
            // SAFETY: the caller's contract.
            let waited = unsafe { self.wait(shared) };
            if let Err(error) = waited {
                // SAFETY: the caller's contract.
                return if unsafe { self.is_done_all_the_same(shared, &error) } {
                    Ok(())
                } else {
                    Err(error)
                };
            }
            // SAFETY: the caller's contract.
            progress = unsafe { self.advance(shared)? };
        }
        Ok(())
    }

    /// Whether what runs can be done although its communicator has ended: whoever ended it, or has gone, may have done
    /// its part before.
    #[cold]
    unsafe fn is_done_all_the_same(&mut self, shared: &Shared, error: &Error) -> bool {
        let is_of_others = match error {
            Error::Aborted { .. }
            | Error::Revoked { .. }
            | Error::PeerGone { .. }
            | Error::Order { .. }
            | Error::Deadlock { .. } => true,
            // What ranks called differently is told to all of them.
            Error::Mismatch { seqno, .. } => *seqno == 0 || *seqno > self.seqno,
            _ => false,
        };
        if !is_of_others {
            return false;
        }
        loop {
            // SAFETY: the contract of `drive`.
            match unsafe { self.advance(shared) } {
                Ok(Progress::Done) => return true,
                Ok(Progress::Advanced) => {}
                Ok(Progress::Blocked) | Err(_) => return false,
            }
        }
    }

    /// Waits until what runs can be advanced.
    #[inline]
    unsafe fn wait(&mut self, shared: &Shared) -> Result<(), Error> {
        fail::at(&mut self.fail, fail::OP_SENT);
        let duty = self.duty(shared);
        let seqno = self.seqno;
        let Self { executor, prepared, running, notices, shm, waiter, watch, fail, .. } = self;
        let Some(operation) = operation(prepared, running, notices) else { return Ok(()) };
        let descriptor = prepared.as_ref().map(|prepared| prepared.descriptor);
        let header = shared.segment.header();
        let awaited = Cell::new(None);
        let mut ended = 0;
        waiter.wait(
            &shared.record().bell,
            &header.sleepers,
            || {
                ended = header.aborted();
                if ended != 0 {
                    return Ok(None);
                }
                // SAFETY: the caller's contract.
                let awaits = unsafe { executor.awaits(&operation, &mut shm.lanes) };
                let awaits = awaits.map_err(|cause| shared.segment_error(cause))?;
                awaited.set(awaits);
                Ok(awaits)
            },
            |waited| {
                fail::at(fail, fail::OP_BLOCKED);
                let Some(descriptor) = descriptor else { return Ok(()) };
                let look = Look { descriptor, waited, awaits: awaited.get(), is_task: false };
                // Only a blocking call gets here, and it has the handle.
                registry::holding(|| watch.check_collective(shared, duty, look))
            },
        )?;
        if ended != 0 { Err(shared.explain(ended, seqno)) } else { Ok(()) }
    }

    /// The operation is done: counts it and says so.
    #[inline]
    pub(crate) fn finish(&mut self, shared: &Shared, call: &Call) {
        self.watch.waited();
        fail::at(&mut self.fail, fail::OP_DONE);
        // ORDERING: Release pairs with the Acquire in `health::has_finished`: all messages of this operation came
        // before.
        shared.record().identity.finished.store(self.seqno, Ordering::Release);
        let bytes = call.bytes(shared.nranks);
        if let Some(meter) = &mut self.meter {
            meter.finish(&shared.segment, self.seqno, call);
        }
        // What leaving takes is not what the program has called.
        if !self.finalizing {
            self.tally.count(call.kind, bytes);
            self.publish_tally(shared, bytes);
        }
        self.running.on = false;
        if self.copy.is_some() {
            self.copy = None;
        }
        if let Some(begun) = self.traced.take() {
            trace::end_operation(begun, call.kind, bytes, self.seqno, self.last_choice());
        }
    }

    /// Publishes the counters, for small operations only now and then.
    fn publish_tally(&mut self, shared: &Shared, bytes: usize) {
        if bytes >= 4096 || self.seqno.is_multiple_of(64) {
            self.tally.publish(shared.record(), &self.waiter.stats(), self.shm.sent());
        }
    }

    /// Compares the calls of all ranks, after the last of them.
    pub(super) fn compare_all(&self, shared: &Shared) -> Result<(), Error> {
        shared.health().compare_all(&shared.segment, self.seqno)
    }

    /// Leaves what must be compared at the end in this rank's record.
    pub(super) fn tell_all(&self, shared: &Shared) {
        self.tally.publish(shared.record(), &self.waiter.stats(), self.shm.sent());
        // A root has sent and gone on: this is its last chance to learn that others called something else.
        // ORDERING: Relaxed; the barrier publishes it.
        shared.record().words[health::HISTORY_WORD].store(self.history, Ordering::Relaxed);
    }
}

/// What the executor is to run, if something runs.
#[inline]
fn operation<'a>(
    prepared: &'a Option<Prepared>,
    running: &Running,
    notices: &'a Notices,
) -> Option<Operation<'a>> {
    let Prepared { plan, exchange, reducer, .. } = prepared.as_ref().filter(|_| running.on)?;
    let Running { buffers, stamp, part, .. } = *running;
    let whole = Operation { plan, reducer, exchange: exchange.as_ref(), buffers, stamp, peers: &[] };
    match part {
        Part::Whole => Some(whole),
        Part::Direct => {
            let (plan, peers) = notices.direct()?;
            Some(Operation { plan, exchange: None, peers, ..whole })
        }
        Part::Notices => {
            let (plan, exchange, reducer, buffers) = notices.gathering()?;
            Some(Operation { plan, exchange, reducer, buffers, ..whole })
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
