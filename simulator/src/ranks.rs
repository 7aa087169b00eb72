//! What each rank does: the calls of the scenario, each result compared at once.

use crate::model::{self, Exact};
use crate::rng::scramble;
use crate::scenario::{Call, Kind, Other, Scenario};
use half::{bf16, f16};
use ringccl::{Communicator, DType, Error, F8E4M3, F8E5M2, ReduceOp};

/// How a rank's life ended.
#[derive(Debug)]
pub enum Ending {
    /// It has not ended: it died.
    Open,
    /// Everything was right.
    Right,
    /// A call, or the finalize behind the last one, returned an error.
    Failed {
        /// The call's number; as many as there are calls for finalize.
        call: usize,
        /// The error.
        error: Error,
        /// Whether the next call after it failed, too.
        stays: bool,
    },
}

/// Runs the scenario as the rank of both communicators. What is wrong with a result is an `Err`.
pub fn run(
    scenario: &Scenario,
    mut comm: Communicator,
    mut second: Option<Communicator>,
) -> Result<Ending, String> {
    let calls = scenario.calls_of(comm.rank());
    for (index, call) in calls.iter().enumerate() {
        if let Err(error) = besides(scenario, index, &mut comm, second.as_mut())? {
            return Ok(Ending::Failed { call: index, error, stays: true });
        }
        let outcome = match call.dtype {
            DType::I8 => execute::<i8>(&mut comm, call, index),
            DType::U8 => execute::<u8>(&mut comm, call, index),
            DType::I32 => execute::<i32>(&mut comm, call, index),
            DType::U32 => execute::<u32>(&mut comm, call, index),
            DType::I64 => execute::<i64>(&mut comm, call, index),
            DType::U64 => execute::<u64>(&mut comm, call, index),
            DType::F16 => execute::<f16>(&mut comm, call, index),
            DType::F32 => execute::<f32>(&mut comm, call, index),
            DType::F64 => execute::<f64>(&mut comm, call, index),
            DType::Bf16 => execute::<bf16>(&mut comm, call, index),
            DType::F8E4M3 => execute::<F8E4M3>(&mut comm, call, index),
            DType::F8E5M2 => execute::<F8E5M2>(&mut comm, call, index),
        }?;
        if let Err(error) = outcome {
            let stays = comm.barrier().is_err();
            return Ok(Ending::Failed { call: index, error, stays });
        }
    }
    let last = besides(scenario, calls.len(), &mut comm, second.as_mut())?;
    let left =
        last.and_then(|()| comm.finalize()).and_then(|()| second.map_or(Ok(()), Communicator::finalize));
    Ok(match left {
        Ok(()) => Ending::Right,
        Err(error) => Ending::Failed { call: calls.len(), error, stays: true },
    })
}

/// Makes one call; the outer error tells of a wrong result.
fn execute<T: Exact>(
    comm: &mut Communicator,
    call: &Call,
    index: usize,
) -> Result<Result<(), Error>, String> {
    let (rank, nranks) = (comm.rank(), comm.nranks());
    let mine: Vec<T> = (0..call.count).map(|i| T::exact(model::input(call, index, rank, i) as f64)).collect();
    let mut send = mine.clone();
    // An output that is never written is told from one that is right.
    let mut recv = vec![T::exact(77.0); call.count];
    let outcome = match (call.kind, call.in_place) {
        (Kind::AllReduce(op), false) => comm.all_reduce(&send, &mut recv, op),
        (Kind::AllReduce(op), true) => comm.all_reduce_in_place(&mut send, op),
        (Kind::Broadcast(root), false) => comm.broadcast_from(&send, &mut recv, root),
        (Kind::Broadcast(root), true) => comm.broadcast(&mut send, root),
        (Kind::Barrier, _) => return Ok(comm.barrier()),
    };
    if outcome.is_err() {
        return Ok(outcome);
    }
    let got = if call.in_place { &send } else { &recv };
    for (i, got) in got.iter().enumerate() {
        let want = T::exact(model::output(call, index, nranks, i));
        if *got != want {
            return Err(format!("rank {rank}, call {index}: element {i} is {got:?}, not {want:?}"));
        }
    }
    if !call.in_place && send != mine {
        return Err(format!("rank {rank}, call {index}: the input has changed"));
    }
    Ok(outcome)
}

/// Does what the scenario has before call number `index` besides; the outer error tells of a wrong result.
fn besides(
    scenario: &Scenario,
    index: usize,
    comm: &mut Communicator,
    mut second: Option<&mut Communicator>,
) -> Result<Result<(), Error>, String> {
    let others = scenario.others.get(index).map_or(&[][..], Vec::as_slice);
    for (at, other) in others.iter().enumerate() {
        let Some(second) = second.as_deref_mut() else { return Ok(Ok(())) };
        if let Err(error) = one_besides(*other, index << 8 | at, comm, second)? {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}

/// Element `i` of what a rank sends in what is done besides as number `number`.
fn letter(number: usize, rank: usize, i: usize) -> u64 {
    scramble((number as u64) << 40 | (rank as u64) << 32 | i as u64)
}

fn one_besides(
    other: Other,
    number: usize,
    comm: &mut Communicator,
    second: &mut Communicator,
) -> Result<Result<(), Error>, String> {
    let (rank, nranks) = (comm.rank(), comm.nranks());
    let sent = |by: usize, count: usize| -> Vec<u64> { (0..count).map(|i| letter(number, by, i)).collect() };
    let (outcome, got, want) = match other {
        Other::Barrier => return Ok(second.barrier()),
        Other::Sum(count) => {
            let mut buffer = sent(rank, count);
            let outcome = second.all_reduce_in_place(&mut buffer, ReduceOp::Max);
            let most = |i: usize| (0..nranks).map(|by| letter(number, by, i)).max().unwrap_or(0);
            (outcome, buffer, (0..count).map(most).collect())
        }
        Other::Message { second: over, from, to, count, tag } => {
            let comm = if over { second } else { comm };
            if rank == from {
                return Ok(comm.send_tagged(&sent(from, count), to, tag));
            }
            if rank != to {
                return Ok(Ok(()));
            }
            let mut buffer = vec![77; count];
            let outcome = comm.recv_tagged(&mut buffer, Some(from), tag).map(|_| ());
            (outcome, buffer, sent(from, count))
        }
        Other::Around(count) => {
            let before = (rank + nranks - 1) % nranks;
            let mut buffer = vec![77; count];
            let outcome = comm.send_recv(&sent(rank, count), (rank + 1) % nranks, &mut buffer, before);
            (outcome, buffer, sent(before, count))
        }
    };
    if outcome.is_ok() && got != want {
        return Err(format!("rank {rank}: {other:?}, number {number}: what was received is wrong"));
    }
    Ok(outcome)
}
