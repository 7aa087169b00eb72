//! Whether the peers of a waiting rank are alive, and what ends a job.

use crate::error::Error;
use coordinator_lite::Member;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use shmring::layout::MemberState;
use shmring::segment::{Segment, process_start_time};
use shmring::sync::Ordering;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Why a communicator has ended, packed into the segment's abort word: kind above, rank + 1 below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A process is gone.
    Dead(u32),
    /// A rank left on purpose although others still needed it.
    Left(u32),
    /// A rank's operation timed out.
    Timeout(u32),
    /// A rank gave up for another reason.
    Failed(u32),
}

impl Verdict {
    pub(crate) fn to_word(self) -> u64 {
        let (kind, rank) = match self {
            Self::Dead(rank) => (1, rank),
            Self::Left(rank) => (2, rank),
            Self::Timeout(rank) => (3, rank),
            Self::Failed(rank) => (4, rank),
        };
        (kind << 32) | u64::from(rank + 1)
    }

    /// Reads the word back, whatever it holds: a rank that cannot be reads as the last one, a kind that does not
    /// exist as a failure.
    pub(crate) fn from_word(word: u64, nranks: u32) -> Self {
        let rank = (word as u32).wrapping_sub(1).min(nranks - 1);
        match word >> 32 {
            1 => Self::Dead(rank),
            2 => Self::Left(rank),
            3 => Self::Timeout(rank),
            _ => Self::Failed(rank),
        }
    }
}

/// A watch on one peer's process.
#[derive(Debug)]
enum Watch {
    /// Not looked at yet.
    Unknown,
    /// Readable when the process has ended.
    Process(OwnedFd),
    /// No descriptor could be had: the process table is asked instead.
    Table,
    /// Known to be gone.
    Gone,
}

/// Watches the processes of all peers; opened when a wait first gets long.
#[derive(Debug)]
pub(crate) struct Health {
    members: Vec<Member>,
    watches: Vec<Watch>,
    rank: u32,
    /// Whether this rank has held back an error for its cause already.
    held_back: bool,
}

/// How long an error about another rank is held back for that rank to end by itself.
const CAUSE_ENDS: Duration = Duration::from_millis(200);
/// How long after that, so that whoever watches the processes sees them end in this order.
const CAUSE_IS_SEEN: Duration = Duration::from_millis(20);

impl Health {
    pub(crate) fn new(members: Vec<Member>, rank: u32) -> Self {
        let watches = members.iter().map(|_| Watch::Unknown).collect();
        Self { members, watches, rank, held_back: false }
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    /// Called now and then by a rank that waits in operation `seqno`: ends the job if a peer that it still
    /// needs is gone.
    ///
    /// A peer that has finished this operation may be gone: nothing of it is missing.
    #[cold]
    pub(crate) fn check(&mut self, segment: &Segment, seqno: u64) -> Result<(), Error> {
        for rank in self.gone() {
            // ORDERING: Relaxed; a stale value can only delay the verdict to the next check.
            let finished = segment.member_record(rank).identity.finished.load(Ordering::Relaxed);
            if finished < seqno {
                // One that said good-bye and ended has not died.
                let left = segment.member_record(rank).identity.state() == MemberState::Left;
                let verdict = if left { Verdict::Left(rank) } else { Verdict::Dead(rank) };
                return Err(end(segment, verdict, self, seqno));
            }
        }
        for rank in 0..self.members.len() as u32 {
            let identity = &segment.member_record(rank).identity;
            // ORDERING: the state's Acquire comes first; a member that has left changes nothing after it.
            let left = identity.state() == MemberState::Left;
            if rank != self.rank && left && identity.finished.load(Ordering::Relaxed) < seqno {
                return Err(end(segment, Verdict::Left(rank), self, seqno));
            }
        }
        Ok(())
    }

    /// The error for a peer that has died before there was a segment in which to say so.
    pub(super) fn check_processes(&mut self) -> Result<(), Error> {
        match self.gone().first() {
            Some(&dead) => {
                Err(Error::PeerGone { dead, how: self.describe(dead, "it died"), rank: self.rank, seqno: 0 })
            }
            None => Ok(()),
        }
    }

    /// The peers whose processes have ended.
    fn gone(&mut self) -> Vec<u32> {
        for (rank, member) in self.members.iter().enumerate() {
            if matches!(self.watches[rank], Watch::Unknown) && rank as u32 != self.rank {
                self.watches[rank] = open(member);
            }
        }
        let mut ended = Vec::new();
        let (mut descriptors, mut watched) = (Vec::new(), Vec::new());
        for (rank, watch) in self.watches.iter().enumerate() {
            match watch {
                Watch::Process(fd) => {
                    descriptors.push(PollFd::new(fd.as_fd(), PollFlags::POLLIN));
                    watched.push(rank);
                }
                Watch::Gone => ended.push(rank),
                Watch::Table
                    if process_start_time(self.members[rank].pid) != Some(self.members[rank].start_time) =>
                {
                    ended.push(rank);
                }
                Watch::Table | Watch::Unknown => {}
            }
        }
        // An interrupted poll is repeated by the next check.
        if poll(&mut descriptors, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            for (descriptor, rank) in descriptors.iter().zip(&watched) {
                if descriptor.any().unwrap_or(false) {
                    ended.push(*rank);
                }
            }
        }
        drop(descriptors);
        ended.sort_unstable();
        for rank in &ended {
            self.watches[*rank] = Watch::Gone;
        }
        ended.into_iter().map(|rank| rank as u32).collect()
    }

    /// Holds back an error that another rank has caused, once, until that rank's process has had the time to say what
    /// is wrong and end: a launcher takes the first to end for the cause.
    #[cold]
    pub(crate) fn let_cause_go_first(&mut self, error: &Error) {
        let (Error::PeerGone { dead: cause, .. } | Error::Aborted { by: cause, .. }) = *error else { return };
        let in_this_process = self.members[cause as usize].pid == self.members[self.rank as usize].pid;
        if in_this_process || std::mem::replace(&mut self.held_back, true) {
            return;
        }
        let watch = &mut self.watches[cause as usize];
        if matches!(watch, Watch::Unknown) {
            *watch = open(&self.members[cause as usize]);
        }
        match watch {
            Watch::Process(fd) => {
                let timeout = PollTimeout::try_from(CAUSE_ENDS).unwrap_or(PollTimeout::ZERO);
                // Ended, still there, or interrupted: the error is told now in each case.
                let _ = poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], timeout);
            }
            Watch::Gone => {}
            Watch::Table | Watch::Unknown => std::thread::sleep(CAUSE_ENDS),
        }
        std::thread::sleep(CAUSE_IS_SEEN);
    }

    fn describe(&self, rank: u32, how: &str) -> String {
        format!("process {}, {how}", self.members[rank as usize].pid)
    }
}

/// Opens a descriptor of a process and makes sure that it is not a later one with the same id.
fn open(member: &Member) -> Watch {
    // SAFETY: the call takes two integers and returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, member.pid, 0) };
    if fd < 0 {
        return if Errno::last() == Errno::ESRCH { Watch::Gone } else { Watch::Table };
    }
    // SAFETY: the descriptor was made just now and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    if process_start_time(member.pid) == Some(member.start_time) { Watch::Process(fd) } else { Watch::Gone }
}

/// Ends the job, wakes everybody, and says why it has really ended: an earlier verdict stands.
pub(crate) fn end(segment: &Segment, verdict: Verdict, health: &Health, seqno: u64) -> Error {
    let word = segment.header().abort(verdict.to_word());
    segment.ring_all();
    explain(word, health, seqno)
}

/// The error for an abort word that is not 0.
pub(crate) fn explain(word: u64, health: &Health, seqno: u64) -> Error {
    let rank = health.rank;
    match Verdict::from_word(word, health.members.len() as u32) {
        Verdict::Dead(dead) => Error::PeerGone { dead, how: health.describe(dead, "it died"), rank, seqno },
        Verdict::Left(dead) => {
            Error::PeerGone { dead, how: health.describe(dead, "it left the communicator"), rank, seqno }
        }
        Verdict::Timeout(by) => Error::Aborted { by, reason: "a time-out", rank, seqno },
        Verdict::Failed(by) => Error::Aborted { by, reason: "see its own message", rank, seqno },
    }
}

/// The error of a rank whose operation takes longer than `limit`: who is behind, and where.
pub(crate) fn timeout(segment: &Segment, health: &Health, seqno: u64, limit: Duration) -> Error {
    let standing: Vec<String> = (0..health.members.len() as u32)
        .filter(|rank| *rank != health.rank)
        .filter_map(|rank| {
            let identity = &segment.member_record(rank).identity;
            // ORDERING: Relaxed; the numbers are only printed.
            let started = identity.started.load(Ordering::Relaxed);
            let finished = identity.finished.load(Ordering::Relaxed);
            (finished < seqno).then(|| match started {
                s if s >= seqno => format!("rank {rank} is in operation {seqno} too"),
                s if s > finished => format!("rank {rank} is in operation {s}"),
                _ => format!("rank {rank} has not called operation {}", finished + 1),
            })
        })
        .collect();
    let standing =
        if standing.is_empty() { "all other ranks have finished it".into() } else { standing.join(", ") };
    end(segment, Verdict::Timeout(health.rank), health, seqno);
    Error::Timeout { rank: health.rank, seqno, limit, standing }
}

#[cfg(test)]
mod tests;
