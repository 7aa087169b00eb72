//! Who waits for whom: the rendezvous as a state machine without I/O and without a clock.
//!
//! ```text
//!             hello                 last hello
//!   (none) ----------> waiting -----------------> welcome to all, group forgotten
//!                        |  a member's deadline passes: timeout to all, group forgotten
//!                        |  a member's connection ends: vanished to all others, group forgotten
//! ```
//!
//! A hello that contradicts what a group has heard before is refused alone: the ranks that agree
//! go on waiting. A name is free again as soon as its group is forgotten.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant};

use crate::wire::Reply;
use crate::{Hello, Member, Refusal, Welcome};

/// Largest number of ranks of a group.
pub const RANKS_MAX: u32 = 8192;
/// Largest size of a group's name in bytes.
pub const GROUP_NAME_BYTES_MAX: usize = 128;
/// Largest number of groups that wait for ranks at the same time.
pub const GROUPS_MAX: usize = 1024;
/// Longest time that a rank may ask to wait.
pub const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// A connection as the server numbers them; numbers are not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// An answer to be sent to some connections, each of which has then been served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Who gets it.
    pub to: Vec<ConnId>,
    /// What they get.
    pub reply: Reply,
}

/// All groups that wait for ranks.
pub struct State {
    groups: HashMap<String, Group>,
    group_of: HashMap<ConnId, String>,
    next_job: Box<dyn FnMut() -> String + Send>,
}

struct Group {
    nranks: u32,
    waiting: BTreeMap<u32, Waiting>,
}

struct Waiting {
    conn: ConnId,
    member: Member,
    since: Instant,
    until: Instant,
}

impl State {
    /// A state without groups; `next_job` names each group that becomes complete.
    pub fn new(next_job: impl FnMut() -> String + Send + 'static) -> Self {
        Self { groups: HashMap::new(), group_of: HashMap::new(), next_job: Box::new(next_job) }
    }

    /// Takes the hello of `conn`, which waits for at most `wait`.
    pub fn hello(&mut self, now: Instant, conn: ConnId, hello: Hello, wait: Duration) -> Vec<Answer> {
        if let Err(refusal) = self.check(&hello) {
            return vec![Answer { to: vec![conn], reply: Reply::Refused(refusal) }];
        }
        let Hello { group: name, rank, nranks, member } = hello;
        let group =
            self.groups.entry(name.clone()).or_insert_with(|| Group { nranks, waiting: BTreeMap::new() });
        let until = now + wait.min(WAIT_MAX);
        group.waiting.insert(rank, Waiting { conn, member, since: now, until });
        self.group_of.insert(conn, name.clone());
        if group.waiting.len() < nranks as usize {
            return Vec::new();
        }
        let job = (self.next_job)();
        let group = self.forget(&name);
        let to = group.waiting.values().map(|waiting| waiting.conn).collect();
        let members = group.waiting.into_values().map(|waiting| waiting.member).collect();
        vec![Answer { to, reply: Reply::Welcome(Welcome { group: name, job, members }) }]
    }

    /// Learns that `conn` is gone; connections that wait for nothing may be named too.
    pub fn closed(&mut self, conn: ConnId) -> Vec<Answer> {
        let Some(name) = self.group_of.remove(&conn) else { return Vec::new() };
        let mut group = self.forget(&name);
        let Some(rank) = group.waiting.iter().find(|(_, w)| w.conn == conn).map(|(&rank, _)| rank) else {
            return Vec::new();
        };
        let pid = group.waiting.remove(&rank).map_or(0, |waiting| waiting.member.pid);
        group.refuse_all(Refusal::Vanished { group: name, rank, pid })
    }

    /// Ends the groups in which a member has waited long enough.
    pub fn tick(&mut self, now: Instant) -> Vec<Answer> {
        let late: Vec<(String, u32)> = self
            .groups
            .iter()
            .filter_map(|(name, group)| {
                let (&rank, first) = group.waiting.iter().min_by_key(|(_, waiting)| waiting.until)?;
                (first.until <= now).then(|| (name.clone(), rank))
            })
            .collect();
        late.into_iter().flat_map(|(name, rank)| self.time_out(now, name, rank)).collect()
    }

    /// When [`State::tick`] has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.groups.values().flat_map(|group| group.waiting.values().map(|waiting| waiting.until)).min()
    }

    /// Number of groups that wait for ranks.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    fn time_out(&mut self, now: Instant, name: String, rank: u32) -> Vec<Answer> {
        let group = self.forget(&name);
        let waited = group.waiting.get(&rank).map_or(Duration::ZERO, |w| now.duration_since(w.since));
        group.refuse_all(Refusal::Timeout {
            rank,
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
            nranks: group.nranks,
            missing: (0..group.nranks).filter(|rank| !group.waiting.contains_key(rank)).collect(),
            group: name,
        })
    }

    /// Whether `hello` makes sense alone and beside what its group has heard.
    fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        let Hello { group: name, rank, nranks, member } = hello;
        let (rank, nranks) = (*rank, *nranks);
        if name.is_empty() || name.len() > GROUP_NAME_BYTES_MAX {
            return Err(Refusal::GroupName { found: name.len(), limit: GROUP_NAME_BYTES_MAX });
        }
        let group = name.clone();
        if nranks == 0 || nranks > RANKS_MAX || rank >= nranks {
            return Err(Refusal::RankRange { group, rank, nranks, limit: RANKS_MAX });
        }
        let Some(known) = self.groups.get(name) else {
            let full = self.groups.len() >= GROUPS_MAX;
            return if full { Err(Refusal::TooManyGroups { limit: GROUPS_MAX }) } else { Ok(()) };
        };
        let Some((&first_rank, first)) = known.waiting.first_key_value() else { return Ok(()) };
        if nranks != known.nranks {
            return Err(Refusal::WorldSize { group, rank, nranks, first_rank, expected: known.nranks });
        }
        if let Some(other) = known.waiting.get(&rank) {
            return Err(Refusal::DuplicateRank { group, rank, first_pid: other.member.pid, pid: member.pid });
        }
        if member.version != first.member.version {
            let (version, expected) = (member.version.clone(), first.member.version.clone());
            return Err(Refusal::Version { group, rank, version, first_rank, expected });
        }
        Ok(())
    }

    /// Takes a group out of all tables.
    fn forget(&mut self, name: &str) -> Group {
        let group = self.groups.remove(name).unwrap_or(Group { nranks: 0, waiting: BTreeMap::new() });
        for waiting in group.waiting.values() {
            self.group_of.remove(&waiting.conn);
        }
        group
    }
}

impl Group {
    /// One answer to all that wait, none if nobody does.
    fn refuse_all(&self, refusal: Refusal) -> Vec<Answer> {
        let to: Vec<ConnId> = self.waiting.values().map(|waiting| waiting.conn).collect();
        if to.is_empty() { Vec::new() } else { vec![Answer { to, reply: Reply::Refused(refusal) }] }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups: BTreeMap<_, _> =
            self.groups.iter().map(|(n, g)| (n, (g.waiting.len(), g.nranks))).collect();
        f.debug_struct("State").field("joined_of_nranks", &groups).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
