//! Communicators made from communicators.

use super::held::held;
use super::work::{ROUNDS, all_reduces, check, done};
use super::{Args, say};
use anyhow::{Context, bail, ensure};
use ringccl::comm::Shrink;
use ringccl::{Communicator, Config, Error, ReduceOp};
use verification::report::Event;

/// Rounds of [`many`].
const ROUNDS_OF_MANY: u32 = 5;

fn made(comm: &Communicator) -> Event {
    Event::Made { new_rank: comm.rank() as u32, nranks: comm.nranks() as u32 }
}

fn sum(comm: &mut Communicator, mine: i64) -> anyhow::Result<i64> {
    let mut values = [mine];
    comm.all_reduce_in_place(&mut values, ReduceOp::Sum)?;
    Ok(values[0])
}

pub(super) fn split(rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    let n = world.nranks() as i64;
    // Two halves in reversed order.
    let half = world.split(Some(rank * 2 / n as u32), -(rank as i32))?;
    let mut half = half.context("a rank with a colour is in no communicator")?;
    let size = n / 2;
    ensure!(half.rank() as i64 == size - 1 - i64::from(rank) % size, "rank {rank} is {}", half.rank());
    say(rank, made(&half))?;
    // All but rank 0, whose keys are equal: the order stays.
    let rest = world.split((rank != 0).then_some(7), 3)?;
    ensure!(rest.is_none() == (rank == 0), "rank {rank}: a communicator without a colour, or none with one");
    let mut quarter = half.split(Some(half.rank() as u32 / 2), 0)?.context("no quarter")?;
    let mut twin = world.duplicate()?;
    for round in 0..10 {
        ensure!(sum(&mut half, round)? == round * size, "round {round}: the half is wrong");
        check(&mut world)?;
        ensure!(sum(&mut quarter, 1)? == 2, "round {round}: the quarter is wrong");
        check(&mut twin)?;
        check(&mut half)?;
    }
    if let Some(mut rest) = rest {
        ensure!(
            rest.rank() as u32 == rank - 1 && rest.nranks() as i64 == n - 1,
            "the rest is {}",
            rest.rank()
        );
        check(&mut rest)?;
        rest.finalize()?;
    }
    let done = done(&mut world, 0.0, (0, 0));
    quarter.finalize()?;
    half.finalize()?;
    // The parent goes first.
    world.finalize()?;
    check(&mut twin)?;
    twin.finalize()?;
    say(rank, done)
}

/// Uses a communicator for a while and leaves it.
fn use_up(rank: u32, mut comm: Communicator) -> anyhow::Result<()> {
    for _ in 0..ROUNDS {
        check(&mut comm)?;
    }
    let done = done(&mut comm, 0.0, (0, 0));
    comm.finalize()?;
    say(rank, done)
}

pub(super) fn shrink(args: &Args, rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    let outcome = all_reduces(args, rank, &mut world);
    if rank == 1 {
        return outcome;
    }
    ensure!(outcome.is_err(), "the loop went on without rank 1");
    let child = world.shrink(&[1], Shrink::Keep)?;
    say(rank, made(&child))?;
    // The old communicator stays mapped while the new one is used.
    use_up(rank, child)?;
    drop(world);
    Ok(())
}

/// A barrier of which a rank that is slow to come out may learn that the communicator has ended meanwhile.
fn last_barrier(world: &mut Communicator) -> anyhow::Result<()> {
    match world.barrier() {
        Ok(()) | Err(Error::Aborted { .. } | Error::Revoked { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn shrink_abort(rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    last_barrier(&mut world)?;
    if rank == 1 {
        // Nobody comes to this one; it ends by what the others do.
        return Ok(world.barrier()?);
    }
    let mut child = world.shrink(&[1], Shrink::Abort)?;
    check(&mut child)?;
    let error = world.barrier().err().context("a barrier of a communicator that was aborted")?;
    ensure!(matches!(error, Error::Aborted { .. }), "{error}");
    use_up(rank, child)
}

pub(super) fn shrink_unlike(rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    world.barrier()?;
    match rank {
        1 => Ok(()),
        2 => Err(world.shrink(&[1, 3], Shrink::Keep).err().context("a communicator of other ranks")?.into()),
        _ => Err(world.shrink(&[1], Shrink::Keep).err().context("a communicator with rank 2")?.into()),
    }
}

pub(super) fn split_late(rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    world.barrier()?;
    say(rank, Event::Running)?;
    // By shrink, since it exchanges nothing: the rank that does not come is missed while the others meet.
    match rank {
        1 => {
            // Until the test has seen enough.
            std::thread::park_timeout(std::time::Duration::from_secs(30));
            Ok(())
        }
        _ => Err(world.shrink(&[], Shrink::Keep).err().context("a communicator without rank 1")?.into()),
    }
}

pub(super) fn grow(rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    let n = world.nranks();
    check(&mut world)?;
    if rank == 0 {
        let id = world.growth_id()?.to_string();
        say(rank, Event::GrowthId { id })?;
    }
    let mut grown = world.grow(2 * n)?;
    ensure!((grown.rank(), grown.nranks()) == (rank as usize, 2 * n), "rank {}", grown.rank());
    say(rank, made(&grown))?;
    check(&mut grown)?;
    check(&mut world)?;
    world.finalize()?;
    // What a newcomer does: a check, and finalize.
    let done = done(&mut grown, 0.0, (0, 0));
    grown.finalize()?;
    say(rank, done)
}

pub(super) fn revoke(rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    last_barrier(&mut world)?;
    if rank == 1 {
        world.revoke();
    }
    for _ in 0..2 {
        let error = world.barrier().err().context("a barrier of a communicator that was revoked")?;
        ensure!(matches!(error, Error::Revoked { by: 1, .. }), "{error}");
    }
    ensure!(world.split(Some(0), 0).is_err(), "a split of a communicator that was revoked");
    let child = world.shrink(&[], Shrink::Keep)?;
    say(rank, made(&child))?;
    world.finalize()?;
    use_up(rank, child)
}

pub(super) fn many(args: &Args, rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    let n = world.nranks() as i64;
    let config = Config::from_env(world.nranks() as u32)?;
    ensure!(config.report.is_none(), "a report would be the parent's");
    for round in 0..ROUNDS_OF_MANY {
        for op in 0..args.ops {
            // Halves, then everybody, then those without a colour.
            let colour = match op % 3 {
                0 => Some(rank % 2),
                1 => Some(0),
                _ => (!rank.is_multiple_of(4)).then_some(1),
            };
            let Some(mut child) = world.split(colour, 0)? else { continue };
            let size = child.nranks() as i64;
            ensure!(sum(&mut child, 1)? == size, "communicator {op} of round {round} is wrong");
        }
        world.barrier()?;
        say(rank, held(format!("round {round}"))?)?;
        world.barrier()?;
    }
    for time in 1..=2 {
        let mut all = Vec::new();
        for _ in 0..args.ops {
            all.push(world.duplicate()?);
        }
        for (op, comm) in all.iter_mut().enumerate() {
            ensure!(sum(comm, op as i64)? == op as i64 * n, "communicator {op} is wrong");
        }
        world.barrier()?;
        say(rank, held(format!("all {time}"))?)?;
        world.barrier()?;
        for comm in all {
            comm.finalize()?;
        }
        world.barrier()?;
        say(rank, held(format!("none {time}"))?)?;
    }
    let done = done(&mut world, 0.0, (0, 0));
    world.finalize()?;
    say(rank, done)?;
    if args.ops == 0 {
        bail!("no communicators were made");
    }
    Ok(())
}
