//! Mixed operations on communicators that come and go, by a script that every rank draws from one seed.
//!
//! ```text
//!  world --+-- split --+-- ...      every step is one of: a collective, messages, a group over all communicators,
//!          +-- twin                 operations and groups in streams, a communicator made, one dropped or finalized
//!          +-- shrunk, grown        one revoked, aborted, shrunk or grown by ranks that were not in it
//! ```
//!
//! All ranks draw all numbers, also for steps of communicators to which they do not belong, so that they agree on the
//! whole script without talking. A rank that is alone in a step goes on; what is queued in streams is checked later.

mod collective;
mod data;
mod family;
mod leak;
mod messages;
mod queued;

use super::draw::{Draw, hash};
use super::held::held;
use super::work::done;
use super::{Args, say};
use anyhow::{Context, anyhow, ensure};
use collective::{KINDS, Spec};
pub(super) use leak::Leak;
use queued::Queued;
use ringccl::Communicator;

/// Most communicators at a time, the world included.
const MOST: usize = 10;
/// Largest buffers, in elements over all ranks.
const ELEMENTS: usize = 300_000;

/// A communicator of the script; on ranks that do not belong to it without a handle.
struct Entry {
    /// Its ranks in order, as the world numbers them.
    members: Vec<usize>,
    handle: Option<Communicator>,
}

struct Soak {
    rank: u32,
    draw: Draw,
    /// The first is the world, which stays.
    comms: Vec<Entry>,
    queued: Queued,
    /// Operations of the script so far, of all ranks.
    operations: u64,
    made: u64,
}

pub(super) fn run(args: &Args, rank: u32, world: Communicator) -> anyhow::Result<()> {
    let mut soak = Soak {
        rank,
        draw: Draw::new(args.seed),
        comms: vec![Entry { members: (0..world.nranks()).collect(), handle: Some(world) }],
        queued: Queued::new(),
        operations: 0,
        made: 0,
    };
    let every = args.every.max(1);
    let mut step = 0u64;
    while soak.operations < args.ops {
        let sample = soak.operations / every;
        step += 1;
        let about = |soak: &Soak| format!("seed {}, step {step}, operation {}", args.seed, soak.operations);
        let at = about(&soak);
        // With all causes: what a rank reports is the outermost text alone.
        if let Some(leak) = args.leak {
            leak.one();
        }
        soak.step().map_err(|error| anyhow!("{at}: {error:#}"))?;
        if soak.operations / every > sample {
            soak.sample(soak.operations / every).with_context(|| about(&soak))?;
        }
    }
    soak.rest()?;
    let mut world = soak.comms.remove(0).handle.context("the world is always there")?;
    let done = done(&mut world, 0.0, (0, 0));
    world.finalize()?;
    say(rank, done)
}

impl Soak {
    fn step(&mut self) -> anyhow::Result<()> {
        match self.draw.below(100) {
            0..50 => self.collective(),
            50..62 => self.message(),
            62..72 => self.group(),
            72..92 => self.stream(),
            92..95 => self.make(),
            95 => self.rarely(),
            _ => self.leave(),
        }
    }

    /// Draws a communicator; its place.
    fn any(&mut self) -> usize {
        self.draw.below(self.comms.len())
    }

    fn collective(&mut self) -> anyhow::Result<()> {
        let at = self.any();
        let n = self.comms[at].members.len();
        let kind = self.draw.next() % KINDS;
        let (key, dtype, op) = (self.draw.next(), self.draw.next(), self.draw.next());
        let count = self.draw.count(if kind < 6 { ELEMENTS } else { ELEMENTS / n / 2 });
        let root = self.draw.below(n);
        self.operations += 1;
        let Some(comm) = &mut self.comms[at].handle else { return Ok(()) };
        let spec = Spec { kind, key, count, root, op };
        typed!(dtype, collective::run, comm, spec).with_context(|| format!("{spec:?} of type {}", dtype % 12))
    }

    fn message(&mut self) -> anyhow::Result<()> {
        let at = self.any();
        let (tags, dtype, seed) = (self.draw.below(2) == 0, self.draw.next(), self.draw.next());
        let mut draw = Draw::new(seed);
        let members = self.comms[at].members.len();
        match &mut self.comms[at].handle {
            Some(comm) if tags => typed!(dtype, messages::tagged, comm, &mut draw, ELEMENTS)?,
            Some(comm) => typed!(dtype, messages::any_source, comm, &mut draw, ELEMENTS / members)?,
            None => {}
        }
        self.operations += if tags { 2 } else { members as u64 - 1 };
        Ok(())
    }

    fn group(&mut self) -> anyhow::Result<()> {
        let (dtype, seed) = (self.draw.next(), self.draw.next());
        let mut parts: Vec<_> = (0..)
            .zip(&mut self.comms)
            .map(|(at, entry): (u64, _)| (hash(seed, at, 3), entry.handle.as_mut(), entry.members.len()))
            .collect();
        self.operations += typed!(dtype, messages::grouped, &mut parts, self.rank, ELEMENTS / 10)?;
        Ok(())
    }

    fn stream(&mut self) -> anyhow::Result<()> {
        for _ in 0..1 + self.draw.below(5) {
            let at = self.any();
            let (dtype, seed) = (self.draw.next(), self.draw.next());
            let Entry { members, handle } = &mut self.comms[at];
            self.operations += 1;
            let mut draw = Draw::new(seed);
            typed!(dtype, Queued::add, &mut self.queued, handle.as_mut(), members.len(), &mut draw)?;
        }
        let keep = self.draw.below(12);
        self.queued.check_all_but(keep)
    }

    /// Splits a communicator, by colours and keys that all ranks know.
    fn make(&mut self) -> anyhow::Result<()> {
        let at = self.any();
        let n = self.comms[at].members.len();
        let colours = 1 + self.draw.below(3);
        let drawn: Vec<(usize, i32)> =
            (0..n).map(|_| (self.draw.below(colours + 1), self.draw.below(5) as i32)).collect();
        let twin = self.draw.below(4) == 0;
        if self.comms.len() + colours > MOST {
            return self.leave();
        }
        self.operations += 1;
        let own = self.comms[at].handle.as_ref().map(Communicator::rank);
        let mut made = match &mut self.comms[at].handle {
            Some(comm) if twin => Some(comm.duplicate()?),
            Some(comm) => {
                let (colour, key) = drawn[comm.rank()];
                // The last one is none.
                comm.split((colour < colours).then_some(colour as u32), key)?
            }
            None => None,
        };
        for colour in 0..if twin { 1 } else { colours } {
            let mut group: Vec<(i32, usize)> = (0..n)
                .filter(|rank| twin || drawn[*rank].0 == colour)
                .map(|rank| (if twin { 0 } else { drawn[rank].1 }, rank))
                .collect();
            group.sort_unstable();
            if group.is_empty() {
                continue;
            }
            let is_in = own.is_some_and(|own| group.iter().any(|(_, rank)| *rank == own));
            let handle = if is_in { made.take() } else { None };
            let members = group.iter().map(|(_, rank)| self.comms[at].members[*rank]).collect();
            self.enter(members, handle)?;
        }
        ensure!(made.is_none(), "a communicator without a colour");
        Ok(())
    }

    /// Notes a communicator that was made of these ranks of the world, with this rank's handle if it is one of them.
    fn enter(&mut self, members: Vec<usize>, handle: Option<Communicator>) -> anyhow::Result<()> {
        let place = members.iter().position(|rank| *rank == self.rank as usize);
        let found = handle.as_ref().map(|comm| (comm.rank(), comm.nranks()));
        ensure!(
            found == place.map(|place| (place, members.len())),
            "a communicator with rank and size {found:?} of ranks {members:?}"
        );
        self.made += 1;
        self.comms.push(Entry { members, handle });
        Ok(())
    }

    /// Drops or finalizes a communicator, also with operations of streams under way.
    fn leave(&mut self) -> anyhow::Result<()> {
        let at = self.any();
        let finalize = self.draw.below(2) == 0;
        if at > 0 {
            let Entry { handle, .. } = self.comms.swap_remove(at);
            if let Some(comm) = handle
                && finalize
            {
                comm.finalize()?;
            }
        }
        self.operations += 1;
        Ok(())
    }

    /// Ends all but the world.
    fn rest(&mut self) -> anyhow::Result<()> {
        self.comms.truncate(1);
        self.queued.check_all_but(0)
    }

    /// Says what the process holds when it has nothing but the world, like all others.
    fn sample(&mut self, number: u64) -> anyhow::Result<()> {
        self.rest()?;
        let world = self.comms[0].handle.as_mut().context("the world is always there")?;
        world.barrier()?;
        say(
            self.rank,
            held(format!("{number}: {} operations, {} communicators", self.operations, self.made))?,
        )?;
        world.barrier()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::data::{Small, op, part, reduced};

    /// The numbers of each reduction stay where every type is exact.
    #[test]
    fn results_are_small() {
        for n in 1..=8 {
            for number in 0..9 {
                let op = op::<u8>(number, n);
                for at in 0..200 {
                    assert!((0..n).all(|rank| part(op, 7, rank, at, n) <= 8));
                    assert!(reduced(op, 7, at, n) <= 8, "{op:?}");
                    assert_eq!(f32::from(u8::small(reduced(op, 7, at, n))), reduced(op, 7, at, n) as f32);
                }
            }
        }
    }
}
