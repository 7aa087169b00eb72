//! Whether the peers of a waiting rank are alive, and what ends a job.

use super::peers::Peers;
use crate::error::Error;
use coordinator_lite::Member;
use shmring::clock;
use shmring::layout::MemberState;
use shmring::segment::Segment;
use shmring::sync::Ordering;
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
    /// A rank's program asked for the end.
    Aborted(u32),
}

impl Verdict {
    pub(crate) fn to_word(self) -> u64 {
        let (kind, rank) = match self {
            Self::Dead(rank) => (1, rank),
            Self::Left(rank) => (2, rank),
            Self::Timeout(rank) => (3, rank),
            Self::Failed(rank) => (4, rank),
            Self::Aborted(rank) => (5, rank),
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
            5 => Self::Aborted(rank),
            _ => Self::Failed(rank),
        }
    }
}

/// What a waiting rank finds out about its peers, and how it says so.
#[derive(Debug)]
pub(crate) struct Health {
    peers: Peers,
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
        Self { peers: Peers::new(members), rank, held_back: false }
    }

    pub(crate) fn members(&self) -> &[Member] {
        self.peers.members()
    }

    fn nranks(&self) -> u32 {
        self.members().len() as u32
    }

    /// Called now and then by a rank that waits in operation `seqno`: ends the job if a peer that it still
    /// needs is gone.
    ///
    /// A peer that has finished this operation may be gone: nothing of it is missing.
    #[cold]
    pub(crate) fn check(&mut self, segment: &Segment, seqno: u64) -> Result<(), Error> {
        for rank in self.peers.gone() {
            // ORDERING: Relaxed; a stale value can only delay the verdict to the next check.
            let finished = segment.member_record(rank).identity.finished.load(Ordering::Relaxed);
            if finished < seqno {
                // One that said good-bye and ended has not died.
                let left = segment.member_record(rank).identity.state() == MemberState::Left;
                let verdict = if left { Verdict::Left(rank) } else { Verdict::Dead(rank) };
                return Err(end(segment, verdict, self, seqno));
            }
        }
        for rank in 0..self.nranks() {
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
        match self.peers.gone().first() {
            Some(&dead) => {
                Err(Error::PeerGone { dead, how: self.describe(dead, "it died"), rank: self.rank, seqno: 0 })
            }
            None => Ok(()),
        }
    }

    /// Holds back an error that another rank has caused, once, until that rank's process has had the time to say what
    /// is wrong and end: a launcher takes the first to end for the cause.
    #[cold]
    pub(crate) fn let_cause_go_first(&mut self, error: &Error) {
        let (Error::PeerGone { dead: cause, .. } | Error::Aborted { by: cause, .. }) = *error else { return };
        if self.peers.is_own(cause) || std::mem::replace(&mut self.held_back, true) {
            return;
        }
        self.peers.wait_gone(cause, CAUSE_ENDS);
        clock::sleep(CAUSE_IS_SEEN);
    }

    fn describe(&self, rank: u32, how: &str) -> String {
        format!("process {}, {how}", self.peers.pid(rank))
    }
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
    match Verdict::from_word(word, health.nranks()) {
        Verdict::Dead(dead) => Error::PeerGone { dead, how: health.describe(dead, "it died"), rank, seqno },
        Verdict::Left(dead) => {
            Error::PeerGone { dead, how: health.describe(dead, "it left the communicator"), rank, seqno }
        }
        Verdict::Timeout(by) => Error::Aborted { by, reason: "after a time-out", rank, seqno },
        Verdict::Failed(by) => {
            Error::Aborted { by, reason: "after an error of its own, see its message", rank, seqno }
        }
        Verdict::Aborted(by) => {
            Error::Aborted { by, reason: "because its program called abort", rank, seqno }
        }
    }
}

/// The error of a rank whose operation takes longer than `limit`: who is behind, and where.
pub(crate) fn timeout(segment: &Segment, health: &Health, seqno: u64, limit: Duration) -> Error {
    let standing: Vec<String> = (0..health.nranks())
        .filter(|rank| *rank != health.rank)
        .filter_map(|rank| {
            let identity = &segment.member_record(rank).identity;
            // ORDERING: Relaxed; the numbers are only printed.
            let started = identity.started.load(Ordering::Relaxed);
            let finished = identity.finished.load(Ordering::Relaxed);
            let pid = health.peers.pid(rank);
            let stopped = if health.peers.is_stopped(rank) {
                format!(" and its process {pid} is stopped: send it SIGCONT, or look who stopped it")
            } else {
                String::new()
            };
            (finished < seqno).then(|| match started {
                s if s >= seqno => format!("rank {rank} is in operation {seqno} too{stopped}"),
                s if s > finished => format!("rank {rank} is in operation {s}{stopped}"),
                _ => format!("rank {rank} has not called operation {}{stopped}", finished + 1),
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
