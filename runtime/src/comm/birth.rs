//! How a communicator comes to be from another one whose members know each other already: no rendezvous, no new
//! connection, no thread.
//!
//! ```text
//!  every member      the group in the order of its new ranks, and a job number: a hash of the old one's and the call
//!  new rank 0        creates the segment; its name is made of the job number and this rank's process
//!  the others        attach to that name within the join time-out
//!  ranks of one process, whose memory has no name, take their seats from a table of the process (`seats.rs`)
//! ```
//!
//! While they wait the members look at each other's words in the old segment (`roll.rs`), which works whatever has
//! become of the old communicator. The new one shares nothing with it but the descriptions of its processes.

use super::health::{Health, Meeting};
use super::init::{Joined, attach, fail_point};
use super::roll::{Calls, Roll, hash};
use super::{Communicator, Root, seats};
use crate::config::{Bind, Config, default_chunk};
use crate::error::{Error, Stage};
use crate::transport::shm::Shm;
use shmring::layout::MemberState;
use shmring::segment::{Segment, SegmentName, SegmentSpec};
use shmring::wait::{WaitPolicy, Waiter};
use std::sync::Arc;

/// What a communicator keeps for those that are made from it.
#[derive(Debug)]
pub(super) struct Lineage {
    /// The calls that have made communicators from it.
    pub(super) calls: Calls,
    /// Processor cores that the ranks share.
    pub(super) cores: usize,
    /// Ranks that share them: those of the largest communicator that this one descends from.
    pub(super) crowd: u32,
    /// This rank's number in the communicator that all began with: the name of its process's trace.
    pub(super) origin: u32,
    /// The rendezvous of a growth that this rank hosts.
    pub(super) growth: Option<Root>,
}

impl Lineage {
    /// Of rank `rank` in a communicator of `nranks` that was made from no other one.
    pub(super) fn new(cores: usize, rank: u32, nranks: u32) -> Self {
        Self { calls: Calls::default(), cores, crowd: nranks, origin: rank, growth: None }
    }
}

/// A communicator to be.
#[derive(Debug)]
pub(super) struct Birth<'a> {
    /// What was called, for messages.
    pub(super) call: &'static str,
    /// The number of the call, the same on all members.
    pub(super) word: u64,
    /// Which of the groups of that call this is.
    pub(super) colour: u64,
    /// The members by their ranks here, in the order of their new ranks.
    pub(super) group: Vec<u32>,
    /// Whether an exchange has shown that all members make this call.
    pub(super) is_agreed: bool,
    /// Settings, unless they are inherited.
    pub(super) config: Option<&'a Config>,
}

impl Communicator {
    /// Makes the communicator of a group that this rank belongs to.
    pub(super) fn bear(&mut self, birth: Birth<'_>) -> Result<Self, Error> {
        let Birth { call, word, colour, group, is_agreed, config } = birth;
        let nranks = group.len() as u32;
        let config =
            config.cloned().unwrap_or_else(|| inherit(&self.shared.config, self.shared.nranks, nranks));
        let job = hash([self.shared.job, word, colour]);
        let calls = self.lineage.calls.clone();
        let roll = Arc::new(Roll::begin(self.shared.segment.view(), call, word, group, calls, is_agreed));
        let made = self.join_group(&roll, job, config);
        roll.end(made.is_ok());
        made
    }

    fn join_group(&self, roll: &Arc<Roll>, job: u64, config: Config) -> Result<Self, Error> {
        let nranks = roll.group().len() as u32;
        let rank = roll.group().iter().position(|member| *member == self.shared.rank).unwrap_or(0) as u32;
        let member = |of: &u32| self.shared.health().members()[*of as usize].clone();
        let members: Vec<_> = roll.group().iter().map(member).collect();
        let fail = fail_point(&config)?;
        let mut health = Health::new(members, rank, None).with(Meeting::Called(Arc::clone(roll)));
        let segment = self.find_segment(job, rank, nranks, &config, &mut health);
        let segment = segment.map_err(|error| in_parents_words(error, roll, &health, |_| false))?;
        let is_private = segment.is_private();
        let joined = Joined { shm: Shm::new(segment), health, job, transport: self.transport, fail };
        let mut comm = Self::assemble(joined, config, rank, nranks, self.lineage.cores);
        comm.descend(&self.lineage)?;
        if let Err(error) = comm.meet() {
            if is_private {
                seats::close(job);
            }
            let segment = &comm.shared.segment;
            let has_left = |member| segment.member_record(member).identity.state() == MemberState::Left;
            let error = in_parents_words(error, roll, &comm.shared.health(), has_left);
            // Before the others see that this rank has left what was to be: they shall be told why.
            roll.end(false);
            return Err(error);
        }
        Ok(comm)
    }

    /// Notes which communicator this one was made from: its members compete for the cores, whether or not they are in
    /// this one.
    pub(super) fn descend(&mut self, parent: &Lineage) -> Result<(), Error> {
        self.lineage.origin = parent.origin;
        self.lineage.crowd = self.lineage.crowd.max(parent.crowd);
        self.lineage.cores = parent.cores;
        let policy = WaitPolicy::for_cores(self.lineage.crowd as usize, self.lineage.cores);
        self.engine()?.waiter = Waiter::new(policy);
        Ok(())
    }

    fn find_segment(
        &self,
        job: u64,
        rank: u32,
        nranks: u32,
        config: &Config,
        health: &mut Health,
    ) -> Result<Segment, Error> {
        let failed = |cause| Error::Segment { rank, cause };
        let geometry = config.geometry(nranks)?;
        geometry.validate().map_err(failed)?;
        if nranks == 1 || self.shared.segment.is_private() {
            return seats::take(job, &geometry, config.agreement(nranks), rank);
        }
        let first = &health.members()[0];
        let name = SegmentName {
            job,
            pid: first.pid,
            start_time: first.start_time,
            pid_namespace: first.pid_namespace,
        };
        let (dir, settings) = (config.shm_dir.clone(), config.agreement(nranks));
        let spec = SegmentSpec { dir, name, generation: job, settings, geometry };
        match rank {
            0 => Segment::create(&spec).map_err(failed),
            _ => attach(&spec, rank, config.join_timeout, health),
        }
    }
}

/// The settings of a communicator of `nranks` made from one of `parent` ranks.
///
/// What is not passed on: the report, which is the old one's; a fail point, which is meant for one communicator; the
/// binding of threads to cores, which a thread has already. A chunk that was chosen for the number of ranks is chosen
/// anew.
pub(super) fn inherit(config: &Config, parent: u32, nranks: u32) -> Config {
    let mut config = Config { report: None, fail_point: None, bind: Bind::None, ..config.clone() };
    if config.chunk_bytes == default_chunk(parent, &config.tuning) {
        config.chunk_bytes = default_chunk(nranks, &config.tuning);
    }
    config
}

/// An error of making a communicator, as the caller of the old one understands it: by its ranks, and with the members
/// that have not come.
fn in_parents_words(error: Error, roll: &Roll, health: &Health, has_left: impl Fn(u32) -> bool) -> Error {
    // A member that has given up leaves next; that it did so on purpose is the better explanation.
    if let Err(told) = roll.check() {
        return told;
    }
    let of = |rank: u32| roll.group().get(rank as usize).copied().unwrap_or(rank);
    let missing = || roll.missing(health.peers());
    match error {
        // It has left what was to be made, and said so already before it went on to something else.
        Error::PeerGone { dead, rank, .. } if has_left(dead) => {
            Error::GivenUp { rank: of(rank), call: roll.call(), other: of(dead) }
        }
        Error::PeerGone { dead, how, rank, seqno } => {
            Error::PeerGone { dead: of(dead), how, rank: of(rank), seqno }
        }
        Error::Aborted { by, reason, rank, seqno } => {
            let reason = missing().map_or(reason, |missing| format!("while it was made: {missing}"));
            Error::Aborted { by: of(by), reason, rank: of(rank), seqno }
        }
        Error::Timeout { rank, stage, limit, standing } => {
            Error::Timeout { rank: of(rank), stage, limit, standing: missing().unwrap_or(standing) }
        }
        Error::Segment { rank, cause: shmring::Error::NotReady { path, state, waited } } => match missing() {
            Some(standing) => Error::Timeout { rank: of(rank), stage: Stage::Join, limit: waited, standing },
            None => {
                let cause = shmring::Error::NotReady { path, state, waited };
                Error::Segment { rank: of(rank), cause }
            }
        },
        Error::Segment { rank, cause } => Error::Segment { rank: of(rank), cause },
        Error::Argument { rank, what, .. } => Error::Argument { rank: of(rank), call: roll.call(), what },
        other => other,
    }
}
