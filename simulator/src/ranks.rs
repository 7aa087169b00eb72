//! What each rank does: the calls of the scenario, each result compared at once.

mod besides;

use crate::model::{self, Exact};
use crate::scenario::{Call, Kind, Scenario};
use besides::Besides;
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

/// What a call came to; the outer error tells of a wrong result.
type Told = Result<Result<(), Error>, String>;

/// Runs the scenario as the rank of both communicators. What is wrong with a result is an `Err`.
pub fn run(
    scenario: &Scenario,
    mut comm: Communicator,
    second: Option<Communicator>,
) -> Result<Ending, String> {
    let calls = scenario.calls_of(comm.rank());
    let mut besides = second.map(Besides::new);
    for (index, call) in calls.iter().enumerate() {
        if let Some(besides) = &mut besides
            && let Err(error) = besides.before(scenario, index, &mut comm)?
        {
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
    let last = match besides {
        Some(besides) => besides.end(scenario, calls.len(), comm)?,
        None => comm.finalize(),
    };
    Ok(match last {
        Ok(()) => Ending::Right,
        Err(error) => Ending::Failed { call: calls.len(), error, stays: true },
    })
}

/// The buffers of one call on one rank.
struct Buffers<T> {
    send: Vec<T>,
    recv: Vec<T>,
}

impl<T: Exact> Buffers<T> {
    fn new(call: &Call, index: usize, nranks: usize, rank: usize) -> Self {
        let (send, recv) = model::lengths(call, nranks, rank);
        // An output that is never written is told from one that is right.
        Self {
            send: (0..send).map(|i| T::exact(model::input(call, index, rank, i) as f64)).collect(),
            recv: vec![T::exact(77.0); recv],
        }
    }

    /// The one buffer of a call in place, before it: the input where it belongs.
    fn in_place(&self, call: &Call, rank: usize) -> Vec<T> {
        if call.kind != Kind::AllGather {
            return self.send.clone();
        }
        let mut all = self.recv.clone();
        all[rank * call.count..][..call.count].copy_from_slice(&self.send);
        all
    }

    /// What it must hold after the call, if `recv` is the result.
    fn after_in_place(&self, call: &Call, rank: usize, recv: &[T]) -> Vec<T> {
        match call.kind {
            Kind::Reduce(_, root) if root != rank => self.send.clone(),
            Kind::ReduceScatter(_) => {
                let mut all = self.send.clone();
                all[rank * call.count..][..call.count].copy_from_slice(recv);
                all
            }
            _ => recv.to_vec(),
        }
    }
}

/// Makes one call and compares every element of every buffer.
fn execute<T: Exact>(comm: &mut Communicator, call: &Call, index: usize) -> Told {
    let (rank, nranks) = (comm.rank(), comm.nranks());
    let before = Buffers::<T>::new(call, index, nranks, rank);
    let wanted: Vec<T> =
        (0..before.recv.len()).map(|i| T::exact(model::output(call, index, nranks, rank, i))).collect();
    let differs = |what: &str, got: &[T], wanted: &[T]| -> Result<(), String> {
        let first = got.iter().zip(wanted).position(|(got, wanted)| got != wanted);
        first.map_or(Ok(()), |at| {
            let (got, wanted) = (&got[at], &wanted[at]);
            Err(format!("rank {rank}, call {index}: {what} {at} is {got:?}, not {wanted:?}"))
        })
    };
    let mut buffer = before.in_place(call, rank);
    if call.in_place
        && let Some(outcome) = in_place(comm, call, &mut buffer)
    {
        if outcome.is_ok() {
            differs("element", &buffer, &before.after_in_place(call, rank, &wanted))?;
        }
        return Ok(outcome);
    }
    let mut recv = before.recv.clone();
    let outcome = apart(comm, call, &before.send, &mut recv);
    if outcome.is_ok() {
        differs("element", &recv, &wanted)?;
    }
    Ok(outcome)
}

/// The call with two buffers.
fn apart<T: Exact>(comm: &mut Communicator, call: &Call, send: &[T], recv: &mut [T]) -> Result<(), Error> {
    let counts = model::counts(call, comm.nranks());
    match call.kind {
        Kind::AllReduce(op) => comm.all_reduce(send, recv, op),
        Kind::Broadcast(root) => comm.broadcast_from(send, recv, root),
        Kind::Barrier => comm.barrier(),
        Kind::Reduce(op, root) => comm.reduce(send, recv, op, root),
        Kind::AllGather => comm.all_gather(send, recv),
        Kind::ReduceScatter(op) => comm.reduce_scatter(send, recv, op),
        Kind::AllToAll => comm.all_to_all(send, recv),
        Kind::Gather(root) => comm.gather(send, recv, root),
        Kind::Scatter(root) => comm.scatter(send, recv, root),
        Kind::AllGatherV => comm.all_gather_v(send, recv, &counts),
        Kind::ReduceScatterV(op) => comm.reduce_scatter_v(send, recv, &counts, op),
    }
}

/// The call with one buffer; `None` for a kind that has no such form with slices.
fn in_place<T: Exact>(comm: &mut Communicator, call: &Call, buffer: &mut [T]) -> Option<Result<(), Error>> {
    match call.kind {
        Kind::AllReduce(op) => Some(comm.all_reduce_in_place(buffer, op)),
        Kind::Broadcast(root) => Some(comm.broadcast(buffer, root)),
        Kind::Reduce(op, root) => Some(comm.reduce_in_place(buffer, op, root)),
        Kind::AllGather => Some(comm.all_gather_in_place(buffer)),
        Kind::ReduceScatter(op) => Some(comm.reduce_scatter_in_place(buffer, op)),
        Kind::AllToAll => Some(comm.all_to_all_in_place(buffer)),
        Kind::Barrier | Kind::Gather(_) | Kind::Scatter(_) | Kind::AllGatherV | Kind::ReduceScatterV(_) => {
            None
        }
    }
}

/// The reduction of what is done besides.
const MOST: ReduceOp = ReduceOp::Max;
