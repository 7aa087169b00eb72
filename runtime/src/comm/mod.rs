//! Communicators: a rank's handle on its group, with blocking collectives.

mod abort;
mod alone;
mod birth;
mod calls;
mod clash;
mod descriptor;
mod engine;
mod exchange;
mod grow;
mod health;
mod init;
mod joining;
mod misfit;
mod modelled;
mod notices;
mod order;
mod overdue;
mod peers;
mod point_to_point;
mod processes;
mod registry;
mod roll;
mod seats;
mod shared;
mod shrink;
mod signal;
mod split;
mod standing;
mod stuck;
mod tags;
mod tangle;
mod watch;

pub use abort::AbortHandle;
pub(crate) use calls::Ready;
pub(crate) use engine::Begun;
pub use joining::Joining;
pub(crate) use misfit::Misfit;
pub use point_to_point::Source;
pub(crate) use registry::UnderWay;
pub(crate) use shared::Shared;
pub use shrink::Shrink;
pub(crate) use signal::SignalWait;
pub(crate) use tags::Tags;
pub(crate) use watch::{Duty, Mailing, SUSPECTED_AFTER, Watch};

use crate::config::{Bind, Config};
use crate::error::{Error, Stage};
use crate::executor::Buffers;
use crate::fail;
use crate::mail::Mail;
use crate::model::Meter;
use crate::plan::{Call, Choice};
use crate::report;
use crate::settings;
use crate::stream;
use crate::task::{CollectiveTask, Task, TurnWatch, drive};
use crate::window::{Mapped, Signals};
use crate::{sched, trace};
use birth::Lineage;
use coordinator_lite::{Cancel, Secret, Server, UniqueId};
use engine::Engine;
use init::{Bootstrap, Joined};
use shmring::Protocol;
use shmring::doorbell::Awaits;
use shmring::sync::Ordering;
use shmring::turns::{Issuer, Turns};
use shmring::wait::{WaitPolicy, WaitStats, Waiter, usable_cores};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// One rank of a group of ranks.
///
/// Operations are collective: every rank calls the same ones, in the same order, with the same counts, types
/// and reductions. They block until the result is there. After an error of class `Remote`, `Timeout`,
/// `System` or `Internal` the communicator has ended on every rank.
///
/// A [`Stream`](crate::Stream) runs operations behind the caller's back, a [`Group`](crate::Group) several at a time.
#[derive(Debug)]
pub struct Communicator {
    pub(crate) shared: Arc<Shared>,
    /// Turns to use the engine.
    calls: Issuer,
    /// How the coordinator was reached.
    transport: &'static str,
    /// The thread that used this communicator last.
    thread: u64,
    /// For communicators that are made from this one.
    lineage: Lineage,
    signals: Signals,
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

    /// Starts a rendezvous at an address that all ranks have been told, and for which they make the id themselves by
    /// [`Root::id_at`]. Whoever reaches the port may join, as with `MASTER_PORT`.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] when the address cannot be had.
    pub fn at(addr: SocketAddr) -> Result<Self, Error> {
        Ok(Self { server: Server::bind(addr, Secret::from_bytes([0; Secret::BYTES]))? })
    }

    /// The id of the rendezvous that somebody starts at `addr` by [`Root::at`].
    pub fn id_at(addr: SocketAddr) -> UniqueId {
        UniqueId::new(addr, Secret::from_bytes([0; Secret::BYTES]))
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

    fn join(bootstrap: Bootstrap, config: Config) -> Result<Self, Error> {
        Self::join_unless(bootstrap, config, None)
    }

    /// Joins, unless that is cancelled meanwhile. What can be cancelled runs on a thread that will not communicate.
    fn join_unless(mut bootstrap: Bootstrap, config: Config, cancel: Option<&Cancel>) -> Result<Self, Error> {
        let server = bootstrap.server.take();
        let (rank, nranks) = (bootstrap.rank, bootstrap.nranks);
        let joined = bootstrap.join(&config, cancel)?;
        let cores = usable_cores(); // before binding, which leaves one
        let mut comm = Self::assemble(joined, config, rank, nranks, cores);
        if cancel.is_none() {
            comm.claim_core(cores);
        }
        comm.meet()?;
        drop(server);
        Ok(comm)
    }

    /// Waits for the others to attach, as the last step of joining them.
    fn meet(&mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let engine = self.engine()?;
        fail::at(&mut engine.fail, fail::INIT_BARRIER);
        if let Err(error) = wait_for_all(&shared, &mut engine.waiter) {
            shared.health().let_cause_go_first(&error);
            return Err(error);
        }
        shared.health().has_met();
        fail::at(&mut engine.fail, fail::INIT_DONE);
        engine.tally.publish(shared.record(), &WaitStats::default(), [0; 3]);
        Ok(())
    }

    /// The communicators of `nranks` ranks that all live in this process, in rank order: each is meant for a
    /// thread of its own, since an operation waits for the other ranks.
    ///
    /// # Errors
    /// [`Error::Setting`] for an impossible number of ranks, [`Error::Segment`] without memory,
    /// [`Error::Rendezvous`] when the process cannot be described.
    pub fn init_all(nranks: u32, config: &Config) -> Result<Vec<Self>, Error> {
        let cores = usable_cores();
        let all = init::join_in_process(nranks, config)?;
        let comms =
            (0..).zip(all).map(|(rank, joined)| Self::assemble(joined, config.clone(), rank, nranks, cores));
        Ok(comms.collect())
    }

    fn assemble(joined: Joined, config: Config, rank: u32, nranks: u32, cores: usize) -> Self {
        let policy = WaitPolicy::for_cores(nranks as usize, cores);
        init::count(rank);
        let Joined { shm, health, job, transport, fail } = joined;
        let segment = shm.segment.view();
        let entry = registry::enter(job, segment.view());
        let mut engine = Engine::new(shm, policy, fail);
        engine.meter = Meter::of(&config, health.members(), rank);
        let (engine, calls) = Turns::new(engine);
        let mail = Mail::new(rank, nranks);
        let health = Mutex::new(health);
        let cause = OnceLock::new();
        let shared = Shared { segment, rank, nranks, job, config, engine, mail, health, entry, cause };
        let thread = registry::thread();
        let lineage = Lineage::new(cores, rank, nranks);
        let signals = Signals::default();
        Self { shared: Arc::new(shared), calls, transport, thread, lineage, signals }
    }

    /// Tells the scheduler what the calling thread is: the one that communicates.
    pub(crate) fn claim_core(&self, cores: usize) {
        if !self.shared.config.scheduling {
            return;
        }
        if self.shared.config.bind == Bind::Even {
            sched::bind_evenly(self.rank(), self.nranks());
        }
        if self.nranks() > cores {
            sched::ask_for_short_slice();
        }
    }

    /// This rank's number, from 0.
    pub fn rank(&self) -> usize {
        self.shared.rank as usize
    }

    /// Number of ranks.
    pub fn nranks(&self) -> usize {
        self.shared.nranks as usize
    }

    /// The engine, once every operation before has finished on whatever thread runs it.
    #[inline]
    fn engine(&mut self) -> Result<&mut Engine, Error> {
        // SAFETY: `calls` was made with this engine.
        if unsafe { self.shared.engine.idle(&mut self.calls) }.is_none() {
            self.drain()?;
        }
        // SAFETY: as above.
        let engine = unsafe { self.shared.engine.idle(&mut self.calls) };
        Ok(engine.unwrap_or_else(|| unreachable!("only this handle issues turns, and all were passed")))
    }

    /// Waits for the operations that streams still run.
    #[cold]
    fn drain(&mut self) -> Result<(), Error> {
        let Self { shared, calls, .. } = self;
        refuse_in_callback(shared.rank)?;
        let (record, header) = (shared.record(), shared.segment.header());
        let policy = WaitPolicy::for_cores(2 * shared.nranks as usize, usable_cores());
        let mut turn = TurnWatch::default();
        // Own doings ring the own bell.
        Waiter::new(policy).wait(
            &record.bell,
            &header.sleepers,
            || {
                // SAFETY: `calls` was made with this engine.
                let idle = unsafe { shared.engine.idle(calls) }.is_some();
                Ok((!idle).then_some(Awaits::Member(shared.rank)))
            },
            |_| match shared.aborted() {
                0 => {
                    let checked = turn.check(shared, shared.turn_state(), shared.config.timeout);
                    checked.map_err(|error| shared.give_up(error, 0))
                }
                // Whatever runs ends now; what is left then is in a group that may never be run.
                word => {
                    let checked = turn.check(shared, shared.turn_state(), DRAIN_AFTER_END);
                    checked.map_err(|_| shared.explain(word, 0))
                }
            },
        )
    }

    /// Waits for the messages that streams still send or receive, once all ranks finalize: nobody waits for a rank that
    /// has left. What is left at the limit is in a group that may never be run, or nobody sends it.
    fn wait_for_mail(shared: &Shared) {
        let limit = MAIL_AT_END.min(shared.config.finalize_limit());
        let is_under_way = || {
            let [sends, receives, _] = shared.entry.under_way();
            sends + receives > 0 && shared.aborted() == 0
        };
        let policy = WaitPolicy::for_cores(2 * shared.nranks as usize, usable_cores());
        // Own doings ring the own bell.
        let waited = Waiter::new(policy).wait(
            &shared.record().bell,
            &shared.segment.header().sleepers,
            || Ok(is_under_way().then_some(Awaits::Member(shared.rank))),
            |waited| if waited < limit { Ok(()) } else { Err(()) },
        );
        if waited.is_err() {
            let rank = shared.rank;
            settings::warn(&format!("rank {rank} finalizes while messages of it are still under way"));
        }
    }

    /// Runs one collective to its end.
    ///
    /// # Safety
    /// - `input` is readable and `output` writable for the elements that `Call::buffers` says.
    /// - They do not overlap, or the call is in place: both are equal, for a kind whose buffers are alike; or the
    ///   buffer that holds one block is that block of the one that holds all, at this rank's place.
    #[inline]
    unsafe fn run(&mut self, call: Call, input: *const u8, output: *mut u8) -> Result<(), Error> {
        refuse_in_callback(self.shared.rank)?;
        self.check(&call)?;
        self.take();
        let Self { shared, calls, .. } = self;
        let buffers = Buffers { input, output };
        // SAFETY: `calls` was made with this engine; the rest is the caller's contract.
        unsafe {
            if let Some(engine) = shared.engine.idle(calls) {
                return engine.run(shared, call, buffers);
            }
            let task = CollectiveTask::new(Arc::clone(shared), calls.issue(), call, buffers);
            registry::holding(|| drive(vec![Task::Collective(task)]))
        }
    }

    /// Queues one collective behind those before it, for somebody to drive.
    ///
    /// # Errors
    /// [`Error::Argument`] for a reduction that the type does not have.
    ///
    /// # Safety
    /// - As [`Communicator::run`], until the task is done or dropped.
    pub(crate) unsafe fn task(&mut self, call: Call, buffers: Buffers) -> Result<Task, Error> {
        self.check(&call)?;
        self.take();
        let ticket = self.calls.issue();
        // SAFETY: the caller's contract.
        let task = unsafe { CollectiveTask::new(Arc::clone(&self.shared), ticket, call, buffers) };
        Ok(Task::Collective(task))
    }

    /// Whether the call's type has its reduction.
    #[inline]
    fn check(&self, call: &Call) -> Result<(), Error> {
        call.op.check(call.dtype).map_err(|invalid| self.argument(call.kind.name(), invalid.to_string()))
    }

    /// Notes which thread has the communicator in its hands.
    #[inline]
    fn take(&mut self) {
        let thread = registry::thread();
        if self.thread != thread {
            self.thread = thread;
            self.shared.entry.take();
        }
    }

    /// The random number that names this communicator, the same on all ranks.
    pub(crate) fn job(&self) -> u64 {
        self.shared.job
    }

    /// Adds a window that every rank adds now; its number.
    pub(crate) fn add_window(&mut self, window: Arc<Mapped>) -> Result<usize, Error> {
        let shared = Arc::clone(&self.shared);
        Ok(self.engine()?.add_window(window, &shared.config))
    }

    /// Takes a window back, as every rank does now.
    pub(crate) fn remove_window(&mut self, number: usize) -> Result<(), Error> {
        self.engine()?.notices.remove(number);
        Ok(())
    }

    /// The engine for a call that has no error to return: when queued operations do not end in time, which ends the
    /// communicator, or it is called where it must not wait, the log says why there is none.
    fn idle_engine(&mut self, call: &'static str) -> Option<&mut Engine> {
        let rank = self.shared.rank;
        let engine = self.engine();
        engine.map_err(|error| settings::warn(&format!("{call} on rank {rank} is not known: {error}"))).ok()
    }

    /// Operations that this rank has begun; 0 when those that are queued do not end within the time limit, of which the
    /// log says why. Waits for queued operations.
    pub fn seqno(&mut self) -> u64 {
        self.idle_engine("seqno").map_or(0, |engine| engine.seqno)
    }

    /// Algorithm, protocol, channels and chunk of the last operation that moved data between ranks. Waits for queued
    /// operations, as [`Communicator::seqno`] does.
    pub fn last_choice(&mut self) -> Option<Choice> {
        self.idle_engine("last_choice").and_then(|engine| engine.last_choice())
    }

    /// Messages of collectives that this rank has sent in each protocol, indexed by `Protocol as usize`. Waits for
    /// queued operations, as [`Communicator::seqno`] does.
    pub fn messages_sent(&mut self) -> [u64; Protocol::ALL.len()] {
        self.idle_engine("messages_sent").map_or([0; 3], |engine| engine.shm.sent())
    }

    /// What this rank has spent on waiting in blocking calls. Waits for queued operations, as [`Communicator::seqno`]
    /// does.
    pub fn wait_stats(&mut self) -> WaitStats {
        self.idle_engine("wait_stats").map_or_else(WaitStats::default, |engine| engine.waiter.stats())
    }

    /// Bytes of shared memory that all ranks have in use together.
    ///
    /// # Errors
    /// [`Error::Segment`] when the system does not tell.
    pub fn shared_bytes(&self) -> Result<u64, Error> {
        self.shared.segment.committed_bytes().map_err(|cause| self.shared.segment_error(cause))
    }

    /// Leaves, after all queued operations: writes this rank's part of report and trace. The lowest rank waits for the
    /// others' parts.
    ///
    /// # Errors
    /// [`Error::Output`] when report or trace cannot be written; an error of the barrier before it.
    pub fn finalize(mut self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        let engine = self.engine()?;
        fail::at(&mut engine.fail, fail::FINALIZE_BEGIN);
        engine.finalizing = true;
        engine.tell_all(&shared);
        if let Some(meter) = &mut engine.meter {
            meter.settle(shared.record());
        }
        shared.mail.traffic.publish(shared.record());
        report::publish_communicators(shared.record(), init::made_first());
        // Nobody comes to a barrier of a communicator that was revoked, and its operations have told why.
        let is_revoked = matches!(self.async_error(), Some(Error::Revoked { .. }));
        let met = if is_revoked { Ok(()) } else { self.barrier() };
        let about = report::About { job: shared.job, transport: self.transport };
        let origin = self.lineage.origin;
        let engine = self.engine()?;
        let together = met.and_then(|()| if is_revoked { Ok(()) } else { engine.compare_all(&shared) });
        fail::at(&mut engine.fail, fail::FINALIZE_MET);
        if together.is_ok()
            && report::any_unread((0..shared.nranks).map(|rank| shared.segment.member_record(rank)))
        {
            shared.tell_unread(|rank| report::has_sent(shared.segment.member_record(rank)));
        }
        let modelled = self.modelled(together.is_ok() && !is_revoked);
        let engine = self.engine()?;
        let report = match &shared.config.report {
            Some(path) if shared.rank == 0 => {
                report::write(path, &shared.segment, shared.health().members(), about, modelled.as_ref())
            }
            _ => Ok(()),
        };
        fail::at(&mut engine.fail, fail::FINALIZE_REPORTED);
        Self::wait_for_mail(&shared);
        shared.say_goodbye();
        fail::at(&mut engine.fail, fail::FINALIZE_LEFT);
        let trace = trace::write(origin);
        together.and(report).and(trace)
    }

    /// A handle by which any thread can end this communicator on every rank, also while this one waits in it.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(&self.shared)
    }

    /// Why this communicator has ended, if it has: without waiting for the next operation to say so.
    pub fn async_error(&self) -> Option<Error> {
        let word = self.shared.aborted();
        // ORDERING: Relaxed; the number is only told.
        let started = self.shared.record().identity.started.load(Ordering::Relaxed);
        (word != 0).then(|| self.shared.explain(word, started))
    }

    /// The largest time an operation may take.
    pub fn timeout(&self) -> Duration {
        self.shared.config.timeout
    }
}

/// How long messages may take after all ranks have called `finalize`.
const MAIL_AT_END: Duration = Duration::from_secs(5);

/// How long the operations of a communicator that has ended may take to notice.
const DRAIN_AFTER_END: Duration = Duration::from_secs(1);

/// A callback of a stream must not wait for other ranks, nor for operations that are queued: its thread may be the one
/// that these need, and it has all streams to drive.
#[inline]
pub(crate) fn refuse_in_callback(rank: u32) -> Result<(), Error> {
    #[cold]
    fn refuse(rank: u32) -> Result<(), Error> {
        let what = "a callback of a stream must not wait for other operations or ranks: queue it in a stream";
        Err(Error::Argument { rank, call: "a blocking operation", what: what.into() })
    }
    if stream::is_in_callback() { refuse(rank) } else { Ok(()) }
}

/// Waits until every rank has attached to the segment.
fn wait_for_all(shared: &Shared, waiter: &mut Waiter) -> Result<(), Error> {
    let segment = &shared.segment;
    if segment.is_complete() {
        // The last to come wakes the others.
        segment.ring_all();
        return Ok(());
    }
    let header = segment.header();
    let limit = shared.config.join_timeout;
    waiter.wait(
        &shared.record().bell,
        &header.sleepers,
        || {
            let over = segment.is_complete() || header.aborted() != 0;
            Ok((!over).then_some(Awaits::Anyone))
        },
        |waited| {
            if waited >= limit && !segment.is_complete() {
                return Err(health::timeout(segment, &shared.health(), Stage::Join, limit, None));
            }
            shared.health().check_attached(segment)
        },
    )?;
    // Once all have attached they have met, whatever one of them does next.
    match header.aborted() {
        word if word != 0 && !segment.is_complete() => Err(shared.explain(word, 0)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
