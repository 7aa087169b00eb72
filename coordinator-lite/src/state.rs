//! Who waits for whom and who belongs together, as a state machine without I/O and without a clock.
//!
//! ```text
//!             init                 last init                 no member is active
//!   (none) ----------> forming ----------------> communicator -------------------> ended
//!                        |  a deadline passes: timeout to all, group forgotten
//!                        |  a connection ends: vanished to all others, group forgotten
//!
//!   a member:  active --destroy--> destroyed        a split:  all ask    -> a child for each colour
//!                 \---connection ends--> gone                 any leaves -> refused to all that wait
//! ```
//!
//! A request that contradicts what is known is refused alone: the ranks that agree go on. The name of a group
//! is free again for a rank as soon as this rank has left the communicator of that name.

mod comm;
mod forming;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::comm::{Ask, Comm, Phase, children};
use self::forming::{Forming, check_alone};
use crate::messages::{Child, Gone, Reply, Status, WaitingStatus, cut_reason};
use crate::{CommId, Hello, Member, Refusal, Welcome};

pub use self::forming::GROUP_NAME_BYTES_MAX;

/// Largest number of ranks of a group.
pub const RANKS_MAX: u32 = 8192;
/// Largest number of groups that wait for ranks at the same time.
pub const GROUPS_MAX: usize = 1024;
/// Largest number of communicators at the same time.
pub const COMMS_MAX: usize = 16_384;
/// Largest number of members of all communicators together.
pub const SEATS_MAX: usize = 1 << 20;
/// Longest time that a rank may ask to wait.
pub const WAIT_MAX: Duration = Duration::from_secs(24 * 3600);

/// A connection as the server numbers them; numbers are not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

/// An answer to be sent to some connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Who gets it.
    pub to: Vec<ConnId>,
    /// What they get.
    pub reply: Reply,
}

impl Answer {
    fn refuse(conn: ConnId, comm: Option<CommId>, refusal: Refusal) -> Vec<Self> {
        vec![Self { to: vec![conn], reply: Reply::Refused { comm, refusal } }]
    }
}

/// What a member wants of a split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// The communicator to be split.
    pub comm: CommId,
    /// Which child this member is in; none: in no child.
    pub colour: Option<u32>,
    /// Order within the child.
    pub key: i32,
}

/// All groups that wait for ranks, and all communicators.
pub struct State {
    forming: HashMap<String, Forming>,
    forming_of: HashMap<ConnId, String>,
    comms: BTreeMap<CommId, Comm>,
    /// The communicators of a connection, destroyed ones too until they end, with its rank in each.
    seats_of: HashMap<ConnId, BTreeMap<CommId, u32>>,
    by_name: HashMap<String, BTreeSet<CommId>>,
    splitting: BTreeSet<CommId>,
    seats: usize,
    last_comm: u64,
    next_job: Box<dyn FnMut() -> String + Send>,
}

impl State {
    /// A state without groups; `next_job` names each communicator that comes to be.
    pub fn new(next_job: impl FnMut() -> String + Send + 'static) -> Self {
        Self {
            forming: HashMap::new(),
            forming_of: HashMap::new(),
            comms: BTreeMap::new(),
            seats_of: HashMap::new(),
            by_name: HashMap::new(),
            splitting: BTreeSet::new(),
            seats: 0,
            last_comm: 0,
            next_job: Box::new(next_job),
        }
    }

    /// Takes the hello of `conn`, which waits for at most `wait`.
    pub fn init(&mut self, now: Instant, conn: ConnId, hello: Hello, wait: Duration) -> Vec<Answer> {
        if let Err(refusal) = self.check_init(conn, &hello) {
            return Answer::refuse(conn, None, refusal);
        }
        let Hello { group: name, rank, nranks, member } = hello;
        let wait = wait.min(WAIT_MAX);
        let new = || Forming::new(nranks, now + wait, rank);
        let forming = self.forming.entry(name.clone()).or_insert_with(new);
        forming.add(now, wait, conn, rank, member);
        self.forming_of.insert(conn, name.clone());
        if !forming.is_complete() {
            return Vec::new();
        }
        let Some(forming) = self.forget_forming(&name) else { return Vec::new() };
        if let Err(refusal) = self.check_room(1, forming.waiting.len()) {
            return forming.refuse_all(refusal).into_iter().collect();
        }
        let seats: Vec<_> = forming.waiting.into_values().map(|w| (w.conn, Arc::new(w.member))).collect();
        let to = seats.iter().map(|&(conn, _)| conn).collect();
        let welcome = self.found(Some(name.clone()), name, seats);
        vec![Answer { to, reply: Reply::Welcome(welcome) }]
    }

    /// Takes a member's part in a split, for which it waits at most `wait`.
    pub fn split(&mut self, now: Instant, conn: ConnId, split: Split, wait: Duration) -> Vec<Answer> {
        let Split { comm: id, colour, key } = split;
        let refuse = |refusal| Answer::refuse(conn, Some(id), refusal);
        let (comm, rank) = match self.member(conn, id) {
            Ok(found) => found,
            Err(refusal) => return refuse(refusal),
        };
        if let Some(obstacle) = comm.split_obstacle() {
            return refuse(obstacle);
        }
        if comm.round.as_ref().is_some_and(|round| round.asked.contains_key(&rank)) {
            let group = comm.group.clone();
            return refuse(Refusal::SplitTwice { group, rank });
        }
        let complete = comm.ask(now, rank, Ask { colour, key, since: now }, wait.min(WAIT_MAX));
        self.splitting.insert(id);
        if complete { self.complete_split(id) } else { Vec::new() }
    }

    /// Takes a member's word that it is done with a communicator.
    pub fn destroy(&mut self, conn: ConnId, id: CommId) -> Vec<Answer> {
        let (comm, rank) = match self.member(conn, id) {
            Ok(found) => found,
            Err(refusal) => return Answer::refuse(conn, Some(id), refusal),
        };
        comm.retire(rank, Phase::Destroyed);
        let mut answers = vec![Answer { to: vec![conn], reply: Reply::Destroyed { comm: id } }];
        answers.extend(self.end_split(id));
        self.end_if_empty(id);
        answers
    }

    /// Takes a member's word that a communicator has failed; all other members are told, once.
    pub fn abort(&mut self, conn: ConnId, id: CommId, reason: &str) -> Vec<Answer> {
        let (comm, rank) = match self.member(conn, id) {
            Ok(found) => found,
            Err(refusal) => return Answer::refuse(conn, Some(id), refusal),
        };
        if comm.aborted.is_some() {
            return Vec::new();
        }
        let reason = cut_reason(reason).to_owned();
        comm.aborted = Some((rank, reason.clone()));
        let to = comm.others(Some(rank));
        let mut answers = self.end_split(id);
        if !to.is_empty() {
            answers.push(Answer { to, reply: Reply::Aborted { comm: id, by: rank, reason } });
        }
        answers
    }

    /// Takes a member out of one communicator as if its connection had ended.
    pub fn leave(&mut self, conn: ConnId, id: CommId) -> Vec<Answer> {
        match self.member(conn, id) {
            Ok((_, rank)) => self.depart(vec![(id, rank)]),
            Err(refusal) => Answer::refuse(conn, Some(id), refusal),
        }
    }

    /// Learns that connections are gone; those that have no part in anything may be named too.
    pub fn closed(&mut self, conns: &[ConnId]) -> Vec<Answer> {
        let mut answers: Vec<Answer> = conns.iter().filter_map(|&conn| self.vanish(conn)).collect();
        let seats = conns.iter().flat_map(|conn| self.seats_of.remove(conn).unwrap_or_default()).collect();
        answers.extend(self.depart(seats));
        // One that vanished from a group may itself be among those to be told.
        answers.iter_mut().for_each(|answer| answer.to.retain(|conn| !conns.contains(conn)));
        answers.retain(|answer| !answer.to.is_empty());
        answers
    }

    /// Marks seats as gone. Those that leave together are told of together, and not to each other.
    fn depart(&mut self, seats: Vec<(CommId, u32)>) -> Vec<Answer> {
        let mut gone: BTreeMap<CommId, Vec<Gone>> = BTreeMap::new();
        for (id, rank) in seats {
            let Some(comm) = self.comms.get_mut(&id) else { continue };
            if comm.seat(rank).phase == Phase::Active {
                comm.retire(rank, Phase::Gone);
                gone.entry(id).or_default().push(Gone { rank, pid: comm.seat(rank).member.pid });
            }
        }
        let mut answers = Vec::new();
        for (id, mut gone) in gone {
            gone.sort_unstable_by_key(|gone| gone.rank);
            answers.extend(self.end_split(id));
            let to = self.comms.get(&id).map_or_else(Vec::new, |comm| comm.others(None));
            if !to.is_empty() {
                answers.push(Answer { to, reply: Reply::PeersGone { comm: id, gone } });
            }
            self.end_if_empty(id);
        }
        answers
    }

    /// Ends the groups and splits in which a rank has waited long enough.
    pub fn tick(&mut self, now: Instant) -> Vec<Answer> {
        let late = |(name, forming): (&String, &Forming)| (forming.first.0 <= now).then(|| name.clone());
        let late: Vec<String> = self.forming.iter().filter_map(late).collect();
        let mut answers = Vec::new();
        for name in late {
            let Some(forming) = self.forget_forming(&name) else { continue };
            answers.extend(forming.refuse_all(forming.timeout(now, name)));
        }
        for id in self.splitting.clone() {
            let Some(comm) = self.comms.get_mut(&id) else { continue };
            if let Some(refusal) = comm.split_timeout(now) {
                let to = comm.end_round();
                self.splitting.remove(&id);
                answers.push(Answer { to, reply: Reply::Refused { comm: Some(id), refusal } });
            }
        }
        answers
    }

    /// When [`State::tick`] has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        let splits = self.splitting.iter().filter_map(|id| self.comms.get(id)?.round.as_ref());
        let forming = self.forming.values().map(|forming| forming.first.0);
        splits.map(|round| round.first.0).chain(forming).min()
    }

    /// Number of groups that wait for ranks.
    pub fn groups(&self) -> usize {
        self.forming.len()
    }

    /// Number of communicators that have an active member.
    pub fn communicators(&self) -> usize {
        self.comms.len()
    }

    /// Whether `conn` waits in a group or is, or was, a member of a communicator that has not ended.
    pub fn is_bound(&self, conn: ConnId) -> bool {
        self.forming_of.contains_key(&conn) || self.seats_of.contains_key(&conn)
    }

    /// Adds groups and communicators to `status`.
    pub fn describe(&self, status: &mut Status) {
        let waiting = |(name, forming): (&String, &Forming)| WaitingStatus {
            group: name.clone(),
            nranks: forming.nranks,
            here: forming.waiting.len() as u32,
        };
        status.waiting = self.forming.iter().map(waiting).collect();
        status.waiting.sort_unstable_by(|a, b| a.group.cmp(&b.group));
        status.waiting.truncate(Status::LISTED_MAX);
        status.communicators =
            self.comms.iter().take(Status::LISTED_MAX).map(|(&id, comm)| comm.status(id)).collect();
        let listed = status.waiting.len() + status.communicators.len();
        status.omitted = (self.forming.len() + self.comms.len() - listed) as u64;
    }

    /// Whether `hello` makes sense alone and beside what is known of its group.
    fn check_init(&self, conn: ConnId, hello: &Hello) -> Result<(), Refusal> {
        check_alone(hello)?;
        if self.forming_of.contains_key(&conn) {
            return Err(Refusal::AlreadyJoining);
        }
        let Hello { group, rank, member, .. } = hello;
        for comm in self.by_name.get(group).into_iter().flatten().filter_map(|id| self.comms.get(id)) {
            let seat = comm.seats.get(*rank as usize).filter(|seat| seat.phase == Phase::Active);
            if let Some(seat) = seat {
                let (group, rank, first_pid) = (group.clone(), *rank, seat.member.pid);
                return Err(Refusal::DuplicateRank { group, rank, first_pid, pid: member.pid });
            }
        }
        match self.forming.get(group) {
            Some(known) => known.check(hello),
            None if self.forming.len() >= GROUPS_MAX => Err(Refusal::TooManyGroups { limit: GROUPS_MAX }),
            None => self.check_room(1, hello.nranks as usize),
        }
    }

    fn check_room(&self, comms: usize, seats: usize) -> Result<(), Refusal> {
        if self.comms.len() + comms > COMMS_MAX || self.seats + seats > SEATS_MAX {
            let (comms, seats) = (self.comms.len() as u64, self.seats as u64);
            return Err(Refusal::TooManyCommunicators { comms, seats });
        }
        Ok(())
    }

    /// The communicator in which `conn` is an active member, and its rank there.
    fn member(&mut self, conn: ConnId, id: CommId) -> Result<(&mut Comm, u32), Refusal> {
        let rank = self.seats_of.get(&conn).and_then(|seats| seats.get(&id)).copied();
        let Some(comm) = self.comms.get_mut(&id) else {
            let made = (1..=self.last_comm).contains(&id.0);
            return Err(if made {
                Refusal::Ended { comm: id }
            } else {
                Refusal::UnknownCommunicator { comm: id }
            });
        };
        let group = || comm.group.clone();
        match rank {
            None => Err(Refusal::NotMember { comm: id, group: group() }),
            Some(rank) if comm.seat(rank).phase != Phase::Active => {
                Err(Refusal::DoubleDestroy { group: group(), rank })
            }
            Some(rank) => Ok((comm, rank)),
        }
    }

    /// Makes a communicator and seats its members; `group` is none for a child of `root`.
    fn found(&mut self, group: Option<String>, root: String, seats: Vec<(ConnId, Arc<Member>)>) -> Welcome {
        self.last_comm += 1;
        let id = CommId(self.last_comm);
        let group = group.unwrap_or_else(|| format!("{root}#{id}"));
        for (rank, &(conn, _)) in seats.iter().enumerate() {
            self.seats_of.entry(conn).or_default().insert(id, rank as u32);
        }
        self.seats += seats.len();
        let members = seats.iter().map(|(_, member)| Member::clone(member)).collect();
        let job = (self.next_job)();
        self.by_name.entry(group.clone()).or_default().insert(id);
        self.comms.insert(id, Comm::new(group.clone(), root, job.clone(), seats));
        Welcome { comm: id, group, job, members }
    }

    fn complete_split(&mut self, id: CommId) -> Vec<Answer> {
        self.splitting.remove(&id);
        let Some(comm) = self.comms.get_mut(&id) else { return Vec::new() };
        let Some(round) = comm.round.take() else { return Vec::new() };
        let groups = children(&round.asked);
        let seated = groups.iter().map(Vec::len).sum();
        let all = comm.others(None);
        let root = comm.root.clone();
        let seats_of = |ranks: &Vec<u32>| -> Vec<(ConnId, Arc<Member>)> {
            ranks.iter().map(|&r| (comm.seat(r).conn, Arc::clone(&comm.seat(r).member))).collect()
        };
        let seats: Vec<_> = groups.iter().map(seats_of).collect();
        let outside = round.asked.iter().filter(|(_, ask)| ask.colour.is_none());
        let outside: Vec<ConnId> = outside.map(|(&rank, _)| comm.seat(rank).conn).collect();
        if let Err(refusal) = self.check_room(groups.len(), seated) {
            return vec![Answer { to: all, reply: Reply::Refused { comm: Some(id), refusal } }];
        }
        let mut answers = Vec::new();
        for (parent_ranks, seats) in groups.into_iter().zip(seats) {
            let to = seats.iter().map(|&(conn, _)| conn).collect();
            let welcome = self.found(None, root.clone(), seats);
            let child = Some(Child { welcome, parent_ranks });
            answers.push(Answer { to, reply: Reply::Split { parent: id, child } });
        }
        if !outside.is_empty() {
            answers.push(Answer { to: outside, reply: Reply::Split { parent: id, child: None } });
        }
        answers
    }

    /// Refuses a split that has become impossible to all that wait in it.
    fn end_split(&mut self, id: CommId) -> Vec<Answer> {
        let Some(comm) = self.comms.get_mut(&id) else { return Vec::new() };
        let Some(refusal) = comm.split_obstacle() else { return Vec::new() };
        let to = comm.end_round();
        self.splitting.remove(&id);
        if to.is_empty() {
            return Vec::new();
        }
        vec![Answer { to, reply: Reply::Refused { comm: Some(id), refusal } }]
    }

    /// Forgets a communicator in which nobody is active any more.
    fn end_if_empty(&mut self, id: CommId) {
        if self.comms.get(&id).is_none_or(|comm| comm.active > 0) {
            return;
        }
        let Some(comm) = self.comms.remove(&id) else { return };
        self.seats -= comm.seats.len();
        self.splitting.remove(&id);
        if let Some(ids) = self.by_name.get_mut(&comm.group) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_name.remove(&comm.group);
            }
        }
        for seat in &comm.seats {
            if let Some(seats) = self.seats_of.get_mut(&seat.conn) {
                seats.remove(&id);
                if seats.is_empty() {
                    self.seats_of.remove(&seat.conn);
                }
            }
        }
    }

    /// Takes `conn` out of the group in which it waits, which ends that group.
    fn vanish(&mut self, conn: ConnId) -> Option<Answer> {
        let name = self.forming_of.remove(&conn)?;
        let mut forming = self.forget_forming(&name)?;
        let rank = forming.waiting.iter().find(|(_, w)| w.conn == conn).map(|(&rank, _)| rank)?;
        let pid = forming.waiting.remove(&rank)?.member.pid;
        forming.refuse_all(Refusal::Vanished { group: name, rank, pid })
    }

    /// Takes a group that waits out of all tables.
    fn forget_forming(&mut self, name: &str) -> Option<Forming> {
        let forming = self.forming.remove(name)?;
        for waiting in forming.waiting.values() {
            self.forming_of.remove(&waiting.conn);
        }
        Some(forming)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State")
            .field("forming", &self.forming.len())
            .field("communicators", &self.comms.len())
            .field("seats", &self.seats)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
