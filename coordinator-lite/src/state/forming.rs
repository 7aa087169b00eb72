//! A group on its way to become a communicator: it waits for its ranks.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Answer, ConnId, RANKS_MAX};
use crate::messages::Reply;
use crate::{Hello, Member, Refusal};

/// Largest size of a group's name in bytes.
pub const GROUP_NAME_BYTES_MAX: usize = 128;

/// The ranks of a group that are here.
pub(super) struct Forming {
    pub(super) nranks: u32,
    pub(super) waiting: BTreeMap<u32, Waiting>,
    /// The first deadline and whose it is. Ranks never leave one by one, so it only moves forward.
    pub(super) first: (Instant, u32),
}

pub(super) struct Waiting {
    pub(super) conn: ConnId,
    pub(super) member: Member,
    pub(super) since: Instant,
}

impl Forming {
    pub(super) fn new(nranks: u32, until: Instant, rank: u32) -> Self {
        Self { nranks, waiting: BTreeMap::new(), first: (until, rank) }
    }

    pub(super) fn add(&mut self, now: Instant, wait: Duration, conn: ConnId, rank: u32, member: Member) {
        self.first = self.first.min((now + wait, rank));
        self.waiting.insert(rank, Waiting { conn, member, since: now });
    }

    pub(super) fn is_complete(&self) -> bool {
        self.waiting.len() >= self.nranks as usize
    }

    /// Whether `hello` agrees with what this group has heard before.
    pub(super) fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        let Hello { rank, nranks, member, .. } = hello;
        let (group, rank, nranks) = (hello.group.clone(), *rank, *nranks);
        let Some((&first_rank, first)) = self.waiting.first_key_value() else { return Ok(()) };
        if nranks != self.nranks {
            return Err(Refusal::WorldSize { group, rank, nranks, first_rank, expected: self.nranks });
        }
        if let Some(other) = self.waiting.get(&rank) {
            return Err(Refusal::DuplicateRank { group, rank, first_pid: other.member.pid, pid: member.pid });
        }
        if member.version != first.member.version {
            let (version, expected) = (member.version.clone(), first.member.version.clone());
            return Err(Refusal::Version { group, rank, version, first_rank, expected });
        }
        Ok(())
    }

    /// What the ranks of an overdue group are told.
    pub(super) fn timeout(&self, now: Instant, group: String) -> Refusal {
        let (_, rank) = self.first;
        let waited = self.waiting.get(&rank).map_or(Duration::ZERO, |w| now.duration_since(w.since));
        Refusal::Timeout {
            rank,
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            nranks: self.nranks,
            missing: (0..self.nranks).filter(|rank| !self.waiting.contains_key(rank)).collect(),
            group,
        }
    }

    /// One answer to all that wait, none if nobody does.
    pub(super) fn refuse_all(&self, refusal: Refusal) -> Option<Answer> {
        let to: Vec<ConnId> = self.waiting.values().map(|waiting| waiting.conn).collect();
        (!to.is_empty()).then_some(Answer { to, reply: Reply::Refused { comm: None, refusal } })
    }
}

/// Whether a hello makes sense alone.
pub(super) fn check_alone(hello: &Hello) -> Result<(), Refusal> {
    let Hello { group: name, rank, nranks, .. } = hello;
    if name.is_empty() || name.len() > GROUP_NAME_BYTES_MAX {
        return Err(Refusal::GroupName { found: name.len(), limit: GROUP_NAME_BYTES_MAX });
    }
    if *nranks == 0 || *nranks > RANKS_MAX || rank >= nranks {
        let (group, rank, nranks) = (name.clone(), *rank, *nranks);
        return Err(Refusal::RankRange { group, rank, nranks, limit: RANKS_MAX });
    }
    Ok(())
}
