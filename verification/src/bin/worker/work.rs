//! What a worker does with its communicator.

use super::{Act, Args, calls, conform, deadlock, family, say, soak};
use anyhow::{Context, bail, ensure};
use coordinator_lite::Secret;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use ringccl::{Communicator, Config, ReduceOp, Stream, UniqueId};
use std::time::{Duration, Instant};
use verification::report::Event;

/// Operations after which a loop says that it runs.
const RUNNING_AFTER: u64 = 3;
/// Bytes of the large operation of [`Act::Memory`].
const LARGE_BYTES: usize = 1 << 20;

pub(super) fn run(args: &Args, rank: u32, mut comm: Communicator) -> anyhow::Result<()> {
    match args.act {
        Act::Check => {
            check(&mut comm)?;
            let done = done(&mut comm, 0.0, (0, 0));
            comm.finalize()?;
            say(rank, done)
        }
        Act::Loop | Act::Exit => {
            all_reduces(args, rank, &mut comm)?;
            say(rank, done(&mut comm, 0.0, (0, 0)))?;
            if args.act == Act::Exit {
                // No destructor runs: the others see a process that is gone.
                std::process::exit(0);
            }
            Ok(comm.finalize()?)
        }
        Act::Late => late(args, rank, comm),
        Act::MailAtEnd => mail_at_end(args, rank, comm),
        Act::Leave => leave(args, rank, comm),
        Act::Panic => fail(rank, comm, || panic!("on purpose")),
        Act::Quit => fail(rank, comm, || std::process::exit(7)),
        Act::Memory => memory(rank, comm),
        Act::Calls => listed(args, rank, comm),
        Act::ThreadedCalls => {
            deadlock::idle_thread();
            listed(args, rank, comm)
        }
        Act::Script => deadlock::script(args, rank, comm),
        Act::ThreadedScript => {
            deadlock::idle_thread();
            deadlock::script(args, rank, comm)
        }
        Act::OneThread => deadlock::one_thread(args, rank, comm),
        Act::OneThreadOfTwo => {
            deadlock::idle_thread();
            deadlock::one_thread(args, rank, comm)
        }
        Act::Remake => remake(rank, comm),
        Act::Regroup => regroup(args, rank, comm),
        Act::Split => family::split(rank, comm),
        Act::Shrink => family::shrink(args, rank, comm),
        Act::ShrinkAbort => family::shrink_abort(rank, comm),
        Act::ShrinkUnlike => family::shrink_unlike(rank, comm),
        Act::SplitLate => family::split_late(rank, comm),
        Act::Grow => family::grow(rank, comm),
        Act::Revoke => family::revoke(rank, comm),
        Act::Many => family::many(args, rank, comm),
        Act::Conform => conform::run(args, rank, comm),
        Act::Soak => soak::run(args, rank, comm),
    }
}

pub(super) fn done(comm: &mut Communicator, cpu_ms: f64, shared: (u64, u64)) -> Event {
    Event::Done { cpu_ms, sleeps: comm.wait_stats().sleeps, shared_small: shared.0, shared_large: shared.1 }
}

/// Rank 1 fails between two operations; nobody gets through the second.
fn fail(rank: u32, mut comm: Communicator, how: impl FnOnce()) -> anyhow::Result<()> {
    comm.barrier()?;
    if rank == 1 {
        how();
    }
    comm.barrier()?;
    bail!("a barrier without rank 1")
}

/// Integers, so that the sum is exact whatever the order of the ranks.
pub(super) fn check(comm: &mut Communicator) -> anyhow::Result<()> {
    let (rank, n) = (comm.rank() as i64, comm.nranks() as i64);
    for count in [0usize, 1, 7, 1000, 100_003] {
        let mine: Vec<i64> = (0..count as i64).map(|i| i * (rank + 1)).collect();
        let mut sum = vec![-1; count];
        comm.all_reduce(&mine, &mut sum, ReduceOp::Sum)?;
        let wrong = (0..count as i64).find(|i| sum[*i as usize] != i * n * (n + 1) / 2);
        ensure!(wrong.is_none(), "all-reduce of {count}: element {wrong:?} is wrong");
        for root in [0, n - 1] {
            let mut buffer: Vec<i64> = (0..count as i64).map(|i| i * 3 + rank).collect();
            comm.broadcast(&mut buffer, root as usize)?;
            let wrong = (0..count as i64).find(|i| buffer[*i as usize] != i * 3 + root);
            ensure!(wrong.is_none(), "broadcast of {count} from {root}: element {wrong:?} is wrong");
        }
        comm.barrier()?;
    }
    Ok(())
}

/// All-reduces `--bytes` until `--ops` are done.
pub(super) fn all_reduces(args: &Args, rank: u32, comm: &mut Communicator) -> anyhow::Result<()> {
    let mut buffer = vec![0i32; args.bytes / size_of::<i32>()];
    for op in 0..args.ops {
        buffer.fill(1);
        comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum)?;
        let n = comm.nranks() as i32;
        ensure!(buffer.iter().all(|x| *x == n), "operation {op}: a sum of {n} ones is wrong");
        if op + 1 == RUNNING_AFTER.min(args.ops) {
            say(rank, Event::Running)?;
        }
    }
    Ok(())
}

/// CPU time of this process so far, in milliseconds.
fn cpu_ms() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot read the CPU time")?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e3)
}

fn late(args: &Args, rank: u32, mut comm: Communicator) -> anyhow::Result<()> {
    let mut one = [1i32];
    comm.all_reduce_in_place(&mut one, ReduceOp::Sum)?;
    let (cpu, start) = (cpu_ms()?, Instant::now());
    let pause = Duration::from_millis(args.late_ms);
    if rank == 1 {
        // The subject of this check: the other ranks wait for a rank that is busy elsewhere.
        std::thread::sleep(pause);
    }
    comm.all_reduce_in_place(&mut one, ReduceOp::Sum)?;
    ensure!(start.elapsed() >= pause / 2, "rank {rank} did not wait for the late rank");
    let done = done(&mut comm, cpu_ms()? - cpu, (0, 0));
    comm.finalize()?;
    say(rank, done)
}

/// Finalizes with messages in streams that are far from over; looks at what has come afterwards.
fn mail_at_end(args: &Args, rank: u32, mut comm: Communicator) -> anyhow::Result<()> {
    let (rank, n) = (rank as usize, comm.nranks());
    let peers = if rank == 0 { 1..n } else { 0..1 };
    let (there, back) = (Stream::new(), Stream::new());
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for peer in peers.clone() {
        sent.push(there.send(&mut comm, vec![rank as u8 + 1; args.bytes], peer)?);
        received.push(back.recv(&mut comm, vec![0u8; args.bytes], peer)?);
    }
    let done = done(&mut comm, 0.0, (0, 0));
    comm.finalize()?;
    for pending in sent {
        pending.wait()?;
    }
    for (peer, pending) in peers.zip(received) {
        let buffer = pending.wait()?;
        ensure!(buffer.iter().all(|byte| *byte == peer as u8 + 1), "the message of rank {peer} is wrong");
    }
    say(rank as u32, done)
}

fn leave(args: &Args, rank: u32, mut comm: Communicator) -> anyhow::Result<()> {
    let mut one = [1i32];
    comm.all_reduce_in_place(&mut one, ReduceOp::Sum)?;
    say(rank, Event::Running)?;
    if rank == 1 {
        // Dropped, not finalized: finalize would wait for the others, who are not done.
        drop(comm);
        std::thread::sleep(Duration::from_millis(args.late_ms));
        return Ok(());
    }
    comm.all_reduce_in_place(&mut one, ReduceOp::Sum)?;
    Ok(())
}

/// Rounds of checks in the second communicator.
pub(super) const ROUNDS: u32 = 30;

/// Survives an error: the ranks but rank 1 meet again and go on without it.
fn regroup(args: &Args, rank: u32, mut comm: Communicator) -> anyhow::Result<()> {
    let outcome = all_reduces(args, rank, &mut comm);
    let nranks = comm.nranks() as u32;
    if rank == 1 {
        return outcome;
    }
    ensure!(outcome.is_err(), "the loop went on without rank 1");
    drop(comm);
    let addr = std::env::var("RINGCCL_RENDEZVOUS")?.parse()?;
    let secret = Secret::from_hex(&std::env::var("RINGCCL_SECRET")?)?;
    let id = UniqueId::new(addr, secret);
    let config = Config::from_env(nranks - 1)?;
    let mut comm = Communicator::init(&id, rank - u32::from(rank > 1), nranks - 1, config)?;
    say(rank, Event::Joined { init_ms: 0.0 })?;
    for _ in 0..ROUNDS {
        check(&mut comm)?;
    }
    let done = done(&mut comm, 0.0, (0, 0));
    comm.finalize()?;
    say(rank, done)
}

/// Rank 1 makes a second communicator while the others wait for it in the first.
fn remake(rank: u32, mut comm: Communicator) -> anyhow::Result<()> {
    comm.barrier()?;
    say(rank, Event::Running)?;
    if rank == 1 {
        Communicator::from_env()?;
        bail!("a communicator without the others");
    }
    comm.barrier()?;
    bail!("a barrier without rank 1")
}

/// Makes the listed calls on two communicators and leaves both.
fn listed(args: &Args, rank: u32, first: Communicator) -> anyhow::Result<()> {
    let mut comms = vec![first, Communicator::from_env()?];
    for comm in &mut comms {
        comm.barrier()?;
    }
    say(rank, Event::Running)?;
    calls::make(if rank == 1 { &args.odd_calls } else { &args.calls }, &mut comms)?;
    let done = done(&mut comms[0], 0.0, (0, 0));
    for comm in comms {
        comm.finalize()?;
    }
    say(rank, done)
}

fn memory(rank: u32, mut comm: Communicator) -> anyhow::Result<()> {
    let mut buffer = vec![1i32; LARGE_BYTES / size_of::<i32>()];
    comm.all_reduce_in_place(&mut buffer[..2], ReduceOp::Sum)?;
    comm.barrier()?;
    let small = comm.shared_bytes()?;
    // Nobody may commit more before everybody has read.
    comm.barrier()?;
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Max)?;
    comm.barrier()?;
    let large = comm.shared_bytes()?;
    let done = done(&mut comm, 0.0, (small, large));
    comm.finalize()?;
    say(rank, done)
}
