//! Communicators: a rank's handle on its group, with blocking collectives.

mod abort;
mod birth;
mod calls;
mod clash;
mod descriptor;
mod grow;
mod health;
mod init;
mod joining;
mod order;
mod peers;
mod processes;
mod registry;
mod roll;
mod run;
mod seats;
mod shrink;
mod split;
mod standing;
mod vigil;

pub use abort::AbortHandle;
pub use joining::Joining;
pub use shrink::Shrink;

use crate::config::{Bind, Config};
use crate::error::{Error, Stage};
use crate::executor::Executor;
use crate::fail::{self, FailPoint};
use crate::plan::{Choice, Limits};
use crate::report::{self, Tally};
use crate::transport::shm::Shm;
use crate::{sched, trace};
use birth::Lineage;
use coordinator_lite::{Cancel, Secret, Server, UniqueId};
use health::Health;
use init::{Bootstrap, Joined};
use registry::Entry;
use run::Prepared;
use shmring::Protocol;
use shmring::doorbell::Awaits;
use shmring::layout::{MemberRecord, MemberState};
use shmring::sync::Ordering;
use shmring::wait::{WaitPolicy, WaitStats, Waiter, usable_cores};
use std::sync::Arc;
use std::time::Duration;

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
    /// How the coordinator was reached.
    transport: &'static str,
    /// A sum over all calls so far, in their order.
    history: u64,
    /// Communicators that this process had made when this one was done, itself included.
    number: u64,
    /// Operations begun; the first is 1.
    seqno: u64,
    tally: Tally,
    /// Plan and kernel of the last call that moved data between ranks.
    last: Option<Prepared>,
    finalized: bool,
    fail: Option<FailPoint>,
    /// Among the communicators of this process.
    entry: Arc<Entry>,
    /// The thread that used this communicator last.
    thread: u64,
    /// For communicators that are made from this one.
    lineage: Lineage,
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

    fn join(bootstrap: Bootstrap, config: Config) -> Result<Self, Error> {
        let comm = Self::join_unless(bootstrap, config, None)?;
        comm.claim_core(comm.lineage.cores);
        Ok(comm)
    }

    /// Joins, unless that is cancelled meanwhile; on whatever thread.
    fn join_unless(mut bootstrap: Bootstrap, config: Config, cancel: Option<&Cancel>) -> Result<Self, Error> {
        let server = bootstrap.server.take();
        let (rank, nranks) = (bootstrap.rank, bootstrap.nranks);
        let joined = bootstrap.join(&config, cancel)?;
        let cores = usable_cores(); // before binding, which leaves one
        let mut comm = Self::assemble(joined, config, rank, nranks, cores);
        fail::at(&mut comm.fail, fail::INIT_BARRIER);
        if let Err(error) = comm.wait_for_all() {
            comm.health.let_cause_go_first(&error);
            return Err(error);
        }
        comm.health.has_met();
        fail::at(&mut comm.fail, fail::INIT_DONE);
        drop(server);
        comm.tally.publish(comm.shm.segment.member_record(rank), &WaitStats::default(), [0; 3]);
        Ok(comm)
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
        let limits = Shm::limits(joined.shm.segment.geometry());
        let policy = WaitPolicy::for_cores(nranks as usize, cores);
        let number = init::count();
        let entry = registry::enter(joined.job, number, joined.shm.segment.view());
        Self {
            executor: Executor::new(rank, nranks),
            waiter: Waiter::new(policy),
            health: joined.health,
            shm: joined.shm,
            job: joined.job,
            transport: joined.transport,
            history: 0,
            number,
            config,
            limits,
            rank,
            nranks,
            seqno: 0,
            tally: Tally::default(),
            last: None,
            finalized: false,
            fail: joined.fail,
            entry,
            thread: registry::thread(),
            lineage: Lineage::new(cores, nranks),
        }
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
                    return Err(health::timeout(segment, health, Stage::Join, config.join_timeout));
                }
                health.check_attached(segment)
            },
        )?;
        match header.aborted() {
            0 => Ok(()),
            word => Err(health::explain(segment, word, health, 0)),
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
        self.last.map(|prepared| prepared.plan.choice)
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

    /// Leaves: writes this rank's part of report and trace. The lowest rank waits for the others' parts.
    ///
    /// # Errors
    /// [`Error::Output`] when report or trace cannot be written; an error of the barrier before it.
    pub fn finalize(mut self) -> Result<(), Error> {
        fail::at(&mut self.fail, fail::FINALIZE_BEGIN);
        self.finalized = true;
        self.tally.publish(self.record(), &self.waiter.stats(), self.shm.sent());
        // A root has sent and gone on: this is its last chance to learn that others called something else.
        // ORDERING: Relaxed; the barrier publishes it.
        self.record().words[health::HISTORY_WORD].store(self.history, Ordering::Relaxed);
        // Nobody comes to a barrier of a communicator that was revoked, and its operations have told why.
        let together = match self.async_error() {
            Some(Error::Revoked { .. }) => Ok(()),
            _ => self.barrier().and_then(|()| self.health.compare_all(&self.shm.segment, self.seqno)),
        };
        fail::at(&mut self.fail, fail::FINALIZE_MET);
        let about = report::About { job: self.job, communicators: self.number, transport: self.transport };
        let report = match &self.config.report {
            Some(path) if self.rank == 0 => {
                report::write(path, &self.shm.segment, self.health.members(), about)
            }
            _ => Ok(()),
        };
        fail::at(&mut self.fail, fail::FINALIZE_REPORTED);
        self.leave();
        self.health.say_goodbye();
        fail::at(&mut self.fail, fail::FINALIZE_LEFT);
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

    /// A handle by which any thread can end this communicator on every rank, also while this one waits in it.
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle::new(self.shm.segment.view())
    }

    /// Why this communicator has ended, if it has: without waiting for the next operation to say so.
    pub fn async_error(&self) -> Option<Error> {
        let word = self.shm.segment.header().aborted();
        (word != 0).then(|| health::explain(&self.shm.segment, word, &self.health, self.seqno))
    }

    /// The largest time an operation may take.
    pub fn timeout(&self) -> Duration {
        self.config.timeout
    }
}

impl Drop for Communicator {
    /// A rank that leaves without [`Communicator::finalize`] says so, for the others not to wait.
    fn drop(&mut self) {
        registry::leave(&self.entry);
        if !self.finalized {
            self.leave();
        }
    }
}
