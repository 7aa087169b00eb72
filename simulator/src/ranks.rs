//! What each rank does: the calls of the scenario, each result compared at once.

use crate::model::{self, Exact};
use crate::scenario::{Call, Kind, Scenario};
use half::{bf16, f16};
use ringccl::{Communicator, DType, Error, F8E4M3, F8E5M2};

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

/// Runs the scenario as the rank of `comm`. What is wrong with a result is an `Err`.
pub fn run(scenario: &Scenario, mut comm: Communicator) -> Result<Ending, String> {
    let calls = scenario.calls_of(comm.rank());
    for (index, call) in calls.iter().enumerate() {
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
    Ok(match comm.finalize() {
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
