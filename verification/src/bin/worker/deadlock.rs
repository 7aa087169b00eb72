//! Programs that get stuck, or could.

use super::work::done;
use super::{Args, calls, say};
use anyhow::{Context, bail};
use ringccl::{Communicator, Config, Group, ReduceOp, Stream};
use std::time::Duration;
use verification::report::Event;

/// Starts a thread that does nothing, but might; it ends with the process.
pub(super) fn idle_thread() {
    std::thread::spawn(|| {
        loop {
            std::thread::park();
        }
    });
}

/// Makes this rank's calls, on as many communicators as any rank's name.
///
/// Besides those of `calls.rs` there are `exit`, `drop`, `finalize` (the first communicator), `sleep/MS`,
/// `held` (a barrier in a group that is never run), `seqno`, with `group:` or `stream:` before it an all-reduce of
/// eight floats that runs in a group or on a stream, and with `group:` before them sends and receives of floats that
/// run in one group, with `+` between them.
pub(super) fn script(args: &Args, rank: u32, first: Communicator) -> anyhow::Result<()> {
    let mut comms = vec![first];
    if args.calls.contains("2:") {
        comms.push(Communicator::from_env()?);
    }
    for comm in &mut comms {
        comm.barrier()?;
    }
    say(rank, Event::Running)?;
    let lists: Vec<&str> = args.calls.split('|').collect();
    let own = lists.get(rank as usize).or(lists.last()).context("no calls")?;
    let mut held = Group::new();
    for call in own.split_whitespace() {
        match call.split_once('/').unwrap_or((call, "")) {
            // No destructor runs.
            ("exit", _) => std::process::exit(0),
            ("drop", _) => drop(comms.remove(0)),
            ("finalize", _) => comms.remove(0).finalize()?,
            ("sleep", time) => std::thread::sleep(Duration::from_millis(time.parse()?)),
            ("held", _) => drop(held.barrier(&mut comms[0])?.len()),
            ("seqno", _) => drop(comms[0].seqno()),
            ("group:all_reduce", _) => {
                let mut buffer = [1f32; 8];
                let mut group = Group::new();
                group.all_reduce_in_place(&mut comms[0], &mut buffer, ReduceOp::Sum)?;
                group.run()?;
            }
            ("group:send" | "group:recv", _) => group(&call["group:".len()..], &mut comms[0])?,
            ("stream:all_reduce", _) => {
                drop(Stream::new().all_reduce(&mut comms[0], vec![1f32; 8], ReduceOp::Sum)?.wait()?);
            }
            _ => calls::make(call, &mut comms)?,
        }
    }
    let Some(last) = comms.last_mut() else { return say(rank, Event::Running) };
    let done = done(last, 0.0, (0, 0));
    for comm in comms {
        comm.finalize()?;
    }
    say(rank, done)
}

/// Runs sends and receives of floats in one group.
fn group(calls: &str, comm: &mut Communicator) -> anyhow::Result<()> {
    let part = |call: &str, at: usize| call.split('/').nth(at).context("a part is missing").map(String::from);
    let mut buffers = Vec::new();
    for call in calls.split('+') {
        buffers.push((call, vec![1f32; part(call, 3)?.parse()?]));
    }
    let mut group = Group::new();
    for (call, buffer) in &mut buffers {
        let by = part(call, 2)?;
        let (peer, tag) = by.split_once(':').unwrap_or((&by, "0"));
        let (peer, tag) = (peer.parse()?, tag.parse()?);
        if call.starts_with("send") {
            group.send_tagged(comm, buffer, peer, tag)?;
        } else {
            group.recv_tagged(comm, buffer, Some(peer), tag)?;
        }
    }
    Ok(group.run()?)
}

/// Ranks in this process, all in the hands of this thread: two, of which it calls for rank 0 alone, or three, of which
/// it calls for ranks 0 and 1 in a group.
pub(super) fn one_thread(args: &Args, rank: u32, world: Communicator) -> anyhow::Result<()> {
    drop(world);
    if args.calls == "group" {
        let mut comms = Communicator::init_all(3, &Config::from_env(3)?)?;
        say(rank, Event::Running)?;
        let (mut one, mut other) = ([1f32; 8], [1f32; 8]);
        let mut group = Group::new();
        group.all_reduce_in_place(&mut comms[0], &mut one, ReduceOp::Sum)?;
        group.all_reduce_in_place(&mut comms[1], &mut other, ReduceOp::Sum)?;
        group.run()?;
        bail!("an all-reduce without rank 2")
    }
    let mut comms = Communicator::init_all(2, &Config::from_env(2)?)?;
    say(rank, Event::Running)?;
    comms[0].all_reduce_in_place(&mut [1f32; 8], ReduceOp::Sum)?;
    bail!("an all-reduce without rank 1")
}
