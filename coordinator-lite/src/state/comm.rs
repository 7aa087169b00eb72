//! One communicator: who sits in it, and the split that its members are in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ConnId;
use crate::messages::CommStatus;
use crate::{CommId, Member, RankList, Refusal};

/// A rank's place in a communicator.
pub(super) struct Seat {
    pub(super) conn: ConnId,
    pub(super) member: Arc<Member>,
    pub(super) phase: Phase,
}

/// How far a member is; each phase is final but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Active,
    Destroyed,
    Gone,
}

/// A complete communicator, until no member is active any more.
pub(super) struct Comm {
    pub(super) group: String,
    /// Name of the group that this communicator descends from.
    pub(super) root: String,
    pub(super) job: String,
    pub(super) seats: Vec<Seat>,
    pub(super) active: usize,
    pub(super) aborted: Option<(u32, String)>,
    pub(super) round: Option<Round>,
}

/// What one member asked of a split.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    pub(super) colour: Option<u32>,
    pub(super) key: i32,
    pub(super) since: Instant,
}

/// A split that waits for members.
pub(super) struct Round {
    pub(super) asked: BTreeMap<u32, Ask>,
    /// The first deadline and whose it is.
    pub(super) first: (Instant, u32),
}

impl Comm {
    pub(super) fn new(group: String, root: String, job: String, seats: Vec<(ConnId, Arc<Member>)>) -> Self {
        let seats: Vec<Seat> =
            seats.into_iter().map(|(conn, member)| Seat { conn, member, phase: Phase::Active }).collect();
        let active = seats.len();
        Self { group, root, job, seats, active, aborted: None, round: None }
    }

    pub(super) fn nranks(&self) -> u32 {
        self.seats.len() as u32 // RANKS_MAX at most
    }

    pub(super) fn seat(&self, rank: u32) -> &Seat {
        &self.seats[rank as usize]
    }

    /// Ends the part of `rank`, which must be active.
    pub(super) fn retire(&mut self, rank: u32, phase: Phase) {
        debug_assert!(self.seat(rank).phase == Phase::Active && phase != Phase::Active);
        self.seats[rank as usize].phase = phase;
        self.active -= 1;
    }

    /// Connections of the active members, without that of `rank`.
    pub(super) fn others(&self, rank: Option<u32>) -> Vec<ConnId> {
        let active = self.seats.iter().enumerate().filter(|(_, seat)| seat.phase == Phase::Active);
        active.filter(|&(i, _)| Some(i as u32) != rank).map(|(_, seat)| seat.conn).collect()
    }

    /// Why no split can become complete, if that is so.
    pub(super) fn split_obstacle(&self) -> Option<Refusal> {
        let group = self.group.clone();
        if let Some((by, reason)) = &self.aborted {
            return Some(Refusal::Aborted { group, by: *by, reason: reason.clone() });
        }
        // The dead first: they are why the others leave.
        let find = |phase| self.seats.iter().position(|seat| seat.phase == phase).map(|rank| rank as u32);
        if let Some(rank) = find(Phase::Gone) {
            return Some(Refusal::PeerGone { group, rank, pid: self.seat(rank).member.pid });
        }
        find(Phase::Destroyed).map(|rank| Refusal::PeerLeft { group, rank })
    }

    /// Notes what `rank` asks for; `true` once every member has asked.
    pub(super) fn ask(&mut self, now: Instant, rank: u32, ask: Ask, wait: Duration) -> bool {
        let until = now + wait;
        let round = self.round.get_or_insert(Round { asked: BTreeMap::new(), first: (until, rank) });
        round.first = round.first.min((until, rank));
        round.asked.insert(rank, ask);
        round.asked.len() == self.seats.len()
    }

    /// Ends the split and names those that waited in it; nobody if there is none.
    pub(super) fn end_round(&mut self) -> Vec<ConnId> {
        let Some(round) = self.round.take() else { return Vec::new() };
        let waiting = round.asked.into_keys().filter(|&rank| self.seat(rank).phase == Phase::Active);
        waiting.map(|rank| self.seat(rank).conn).collect()
    }

    /// What the members of an overdue split are told.
    pub(super) fn split_timeout(&self, now: Instant) -> Option<Refusal> {
        let round = self.round.as_ref()?;
        let (until, rank) = round.first;
        if until > now {
            return None;
        }
        let since = round.asked.get(&rank).map_or(now, |ask| ask.since);
        Some(Refusal::SplitTimeout {
            group: self.group.clone(),
            rank,
            waited_ms: u64::try_from(now.duration_since(since).as_millis()).unwrap_or(u64::MAX),
            nranks: self.nranks(),
            missing: (0..self.nranks()).filter(|rank| !round.asked.contains_key(rank)).collect::<RankList>(),
        })
    }

    pub(super) fn status(&self, comm: CommId) -> CommStatus {
        let count = |phase| self.seats.iter().filter(|seat| seat.phase == phase).count() as u32;
        CommStatus {
            comm,
            group: self.group.clone(),
            job: self.job.clone(),
            nranks: self.nranks(),
            active: count(Phase::Active),
            destroyed: count(Phase::Destroyed),
            gone: count(Phase::Gone),
            aborted_by: self.aborted.as_ref().map(|&(by, _)| by),
            splitting: self.round.as_ref().map_or(0, |round| round.asked.len() as u32),
        }
    }
}

/// The children of a complete split: per colour, the parent's ranks in the order of (key, rank).
pub(super) fn children(asked: &BTreeMap<u32, Ask>) -> Vec<Vec<u32>> {
    let mut by_colour: BTreeMap<u32, Vec<(i32, u32)>> = BTreeMap::new();
    for (&rank, ask) in asked {
        if let Some(colour) = ask.colour {
            by_colour.entry(colour).or_default().push((ask.key, rank));
        }
    }
    let ranks = |mut members: Vec<(i32, u32)>| {
        members.sort_unstable();
        members.into_iter().map(|(_, rank)| rank).collect()
    };
    by_colour.into_values().map(ranks).collect()
}
