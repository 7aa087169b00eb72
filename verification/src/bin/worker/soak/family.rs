//! Communicators that are shrunk, revoked, aborted and grown in the middle of the soak.

use super::{MOST, Soak};
use anyhow::{Context, ensure};
use ringccl::comm::Shrink;
use ringccl::{Communicator, Config, Error, UniqueId};

/// The tag of the id that newcomers get; no other message of the soak has it.
const ID_TAG: u32 = 70_000;

/// How a communicator ends before it is shrunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It goes on.
    Not,
    /// One of its ranks revokes it.
    Revoked,
    /// Those that stay abort it.
    Aborted,
}

impl Soak {
    /// Shrinks a communicator, in one way or another, or grows one.
    pub(super) fn rarely(&mut self) -> anyhow::Result<()> {
        let (at, what) = (self.any(), self.draw.below(5));
        let (seed, world) = (self.draw.next() as usize, self.comms[0].members.len());
        let n = self.comms[at].members.len();
        if self.comms.len() >= MOST {
            return self.leave();
        }
        self.operations += 1;
        match what {
            0 | 1 if n < world => self.grow(at, seed),
            // The world stays.
            2 | 3 if at > 0 && n > 1 => {
                self.shrink(at, seed, if what == 2 { End::Revoked } else { End::Aborted })
            }
            _ if n > 1 => self.shrink(at, seed, End::Not),
            _ => Ok(()),
        }
    }

    /// Shrinks a communicator by one rank.
    fn shrink(&mut self, at: usize, seed: usize, end: End) -> anyhow::Result<()> {
        let n = self.comms[at].members.len();
        let (excluded, culprit) = (seed % n, seed / n % n);
        let members = self.comms[at].members.clone();
        let mut made = None;
        if self.comms[at].handle.is_some() {
            // What is queued must be through on every rank before the communicator ends, or is made another of.
            self.queued.check_all_but(0)?;
            let comm = self.comms[at].handle.as_mut().context("it was there")?;
            last_barrier(comm, end)?;
            if end == End::Revoked && comm.rank() == culprit {
                comm.revoke();
            }
            let mode = if end == End::Aborted { Shrink::Abort } else { Shrink::Keep };
            if comm.rank() != excluded {
                made = Some(comm.shrink(&[excluded], mode)?);
            }
            if end != End::Not {
                assert_ended(comm, end, culprit)?;
            }
        }
        if end != End::Not {
            drop(self.comms.swap_remove(at));
        }
        let stay = (0..n).filter(|rank| *rank != excluded).map(|rank| members[rank]).collect();
        self.enter(stay, made)
    }

    /// Grows a communicator by one or more ranks of the world that are not in it; a rank of it sends them the id.
    fn grow(&mut self, at: usize, seed: usize) -> anyhow::Result<()> {
        let old = self.comms[at].members.clone();
        let others: Vec<usize> =
            self.comms[0].members.iter().copied().filter(|rank| !old.contains(rank)).collect();
        let newcomers = &others[..1 + seed % others.len()];
        let host = old[seed / 8 % old.len()];
        let nranks = old.len() + newcomers.len();
        let rank = self.rank as usize;
        let made = match newcomers.iter().position(|newcomer| *newcomer == rank) {
            Some(place) => {
                let world = self.comms[0].handle.as_mut().context("the world is always there")?;
                let mut bytes = [0u8; UniqueId::BYTES];
                world.recv_tagged(&mut bytes, Some(host), ID_TAG)?;
                let (id, config) = (UniqueId::from_bytes(&bytes)?, Config::from_env(nranks as u32)?);
                Some(Communicator::init(&id, (old.len() + place) as u32, nranks as u32, config)?)
            }
            None if rank == host => {
                let comm = self.comms[at].handle.as_mut().context("a rank without its communicator")?;
                let bytes = comm.growth_id()?.to_bytes();
                let world = self.comms[0].handle.as_mut().context("the world is always there")?;
                for newcomer in newcomers {
                    world.send_tagged(&bytes[..], *newcomer, ID_TAG)?;
                }
                let comm = self.comms[at].handle.as_mut().context("a rank without its communicator")?;
                Some(comm.grow(nranks)?)
            }
            None => self.comms[at].handle.as_mut().map(|comm| comm.grow(nranks)).transpose()?,
        };
        let members = old.iter().chain(newcomers).copied().collect();
        self.enter(members, made)
    }
}

/// A barrier after which a communicator ends as `end` says: a rank that is slow to come out of it may learn of that.
fn last_barrier(comm: &mut Communicator, end: End) -> anyhow::Result<()> {
    match comm.barrier() {
        Err(Error::Aborted { .. } | Error::Revoked { .. }) if end != End::Not => Ok(()),
        other => Ok(other?),
    }
}

/// Whether a communicator has ended as it was to.
fn assert_ended(comm: &mut Communicator, end: End, culprit: usize) -> anyhow::Result<()> {
    let error = comm.barrier().err().context("a barrier of a communicator that has ended")?;
    let is_right = match error {
        Error::Revoked { by, .. } => end == End::Revoked && by as usize == culprit,
        Error::Aborted { .. } => end == End::Aborted,
        _ => false,
    };
    ensure!(is_right, "{end:?} by rank {culprit}: {error}");
    Ok(())
}
