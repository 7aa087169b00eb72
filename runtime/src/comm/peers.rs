//! The processes of a communicator's ranks, and which of them have ended.

use super::processes::{self, Opened, Process};
use coordinator_lite::Member;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shmring::clock;
use shmring::segment::process_start_time;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// A watch on one peer's process.
#[derive(Debug)]
enum Watch {
    /// Not looked at yet.
    Unknown,
    /// It is this process: its end is nobody's concern any more.
    Own,
    /// Its descriptor is readable when the process has ended; all communicators of this process share it.
    Process(Arc<Process>),
    /// No descriptor could be had: the process table is asked instead.
    Table,
    /// It lives in another pid namespace, where this one cannot look: the coordinator tells when it is gone.
    Elsewhere,
    /// Known to be gone.
    Gone,
}

/// Watches the processes of all peers; opened when a wait first gets long.
#[derive(Debug)]
pub(crate) struct Peers {
    members: Vec<Member>,
    watches: Vec<Watch>,
    rank: u32,
}

impl Peers {
    /// The peers of `rank`, itself among them.
    pub(crate) fn new(members: Vec<Member>, rank: u32) -> Self {
        let watches = members.iter().map(|_| Watch::Unknown).collect();
        Self { members, watches, rank }
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The process id of a rank.
    pub(crate) fn pid(&self, rank: u32) -> u32 {
        self.members[rank as usize].pid
    }

    /// Whether a rank lives in the calling process.
    pub(crate) fn is_own(&self, rank: u32) -> bool {
        #[cfg(ringccl_sim)]
        if let Some(running) = shmring::sim::with(|world| world.running()) {
            return running == rank;
        }
        let (own, other) = (self.own(), &self.members[rank as usize]);
        (own.pid, own.start_time, own.pid_namespace) == (other.pid, other.start_time, other.pid_namespace)
    }

    fn own(&self) -> &Member {
        &self.members[self.rank as usize]
    }

    fn look(&mut self, rank: u32) -> &mut Watch {
        if matches!(self.watches[rank as usize], Watch::Unknown) {
            let member = &self.members[rank as usize];
            self.watches[rank as usize] = if self.is_own(rank) {
                Watch::Own
            } else if member.pid_namespace != self.own().pid_namespace {
                Watch::Elsewhere
            } else {
                open(member)
            };
        }
        &mut self.watches[rank as usize]
    }

    /// Takes the coordinator's word that a rank is gone, where this process cannot see for itself.
    pub(crate) fn told_gone(&mut self, rank: u32) {
        let watch = self.look(rank);
        if matches!(watch, Watch::Elsewhere) {
            *watch = Watch::Gone;
        }
    }

    /// The ranks whose processes have ended, in order.
    pub(crate) fn gone(&mut self) -> Vec<u32> {
        #[cfg(ringccl_sim)]
        if let Some(ended) = shmring::sim::with(|world| world.ended()) {
            return ended;
        }
        for rank in 0..self.members.len() as u32 {
            self.look(rank);
        }
        let mut ended = Vec::new();
        let (mut descriptors, mut watched) = (Vec::new(), Vec::new());
        for (rank, watch) in self.watches.iter().enumerate() {
            match watch {
                Watch::Process(process) => {
                    descriptors.push(PollFd::new(process.as_fd(), PollFlags::POLLIN));
                    watched.push(rank);
                }
                Watch::Gone => ended.push(rank),
                Watch::Table if !is_running(&self.members[rank]) => ended.push(rank),
                Watch::Own | Watch::Table | Watch::Elsewhere | Watch::Unknown => {}
            }
        }
        // An interrupted poll is repeated by the next check.
        if poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            let ready = descriptors.iter().zip(&watched).filter(|(fd, _)| fd.any().unwrap_or(false));
            ended.extend(ready.map(|(_, rank)| *rank));
        }
        drop(descriptors);
        ended.sort_unstable();
        for rank in &ended {
            self.watches[*rank] = Watch::Gone;
        }
        ended.into_iter().map(|rank| rank as u32).collect()
    }

    /// Waits until a rank's process has ended, for `limit` at most.
    pub(crate) fn wait_gone(&mut self, rank: u32, limit: Duration) {
        #[cfg(ringccl_sim)]
        if shmring::sim::with(|world| simulated_wait(world, rank, limit)).is_some() {
            return;
        }
        match self.look(rank) {
            Watch::Process(process) => {
                let timeout = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
                // Ended, still there, or interrupted: the caller goes on in each case.
                let _ = poll(&mut [PollFd::new(process.as_fd(), PollFlags::POLLIN)], timeout);
            }
            Watch::Own | Watch::Gone => {}
            Watch::Table | Watch::Elsewhere | Watch::Unknown => clock::sleep(limit),
        }
    }

    /// Whether a rank's process has been stopped by a signal or a debugger.
    pub(crate) fn is_stopped(&self, rank: u32) -> bool {
        #[cfg(ringccl_sim)]
        if let Some(stopped) = shmring::sim::with(|world| world.is_stopped(rank)) {
            return stopped;
        }
        if self.members[rank as usize].pid_namespace != self.own().pid_namespace {
            return false;
        }
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid(rank))).unwrap_or_default();
        // The state follows the command's name, which may hold any bytes but ends with the last parenthesis.
        let state = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
        is_running(&self.members[rank as usize]) && matches!(state, Some(b'T' | b't'))
    }
}

/// Ranks of a simulation share a process, so the simulation says whose life has ended.
#[cfg(ringccl_sim)]
fn simulated_wait(world: &dyn shmring::sim::World, rank: u32, limit: Duration) {
    let end = world.now() + limit;
    while world.now() < end && !world.ended().contains(&rank) {
        world.sleep(limit / 20);
    }
}

/// Whether the process table has this very process, not a later one with the same id.
fn is_running(member: &Member) -> bool {
    process_start_time(member.pid) == Some(member.start_time)
}

/// Opens a descriptor of a process and makes sure that it is not a later one with the same id.
fn open(member: &Member) -> Watch {
    match processes::open(member.pid, member.start_time) {
        Opened::Process(process) if is_running(member) => Watch::Process(process),
        Opened::Process(_) | Opened::Gone => Watch::Gone,
        Opened::Nothing => Watch::Table,
    }
}
