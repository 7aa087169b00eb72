//! Calls written as text, so that a test can let each rank make others.
//!
//! `barrier`, or `KIND/TYPE/BY/COUNT`; with `2:` before it, of the second communicator. What `BY` says:
//!
//! | kinds | by |
//! | --- | --- |
//! | all_reduce, reduce_scatter | the reduction |
//! | broadcast, gather, scatter | the root |
//! | reduce | both: `sum:0` |
//! | all_gather, all_to_all | nothing: `-` |
//! | send, recv | the other rank, and a tag if there is one: `1:5`; `any` to receive from any |
//! | all_gather_v | the rank whose block is one element longer than the count |
//! | reduce_scatter_v | reduction and that rank: `sum:0` |

use anyhow::{Context, bail};
use half::{bf16, f16};
use ringccl::{Communicator, DType, F8E4M3, F8E5M2, ReduceOp};

/// Makes the calls of a list, separated by blanks, on the communicator that each names.
pub(super) fn make(list: &str, comms: &mut [Communicator]) -> anyhow::Result<()> {
    for text in list.split_whitespace() {
        let (at, call) = match text.strip_prefix("2:") {
            Some(call) => (1, call),
            None => (0, text),
        };
        let comm = comms.get_mut(at).with_context(|| format!("{text}: there is no second communicator"))?;
        one(call, comm)?;
    }
    Ok(())
}

fn one(call: &str, comm: &mut Communicator) -> anyhow::Result<()> {
    let parts: Vec<&str> = call.split('/').collect();
    match parts[..] {
        ["barrier"] => Ok(comm.barrier()?),
        [kind, dtype, by, count] => {
            let count = count.parse().with_context(|| format!("{call}: no count"))?;
            match dtype.parse().with_context(|| format!("{call}: no type"))? {
                DType::I8 => typed::<i8>(kind, by, count, comm),
                DType::U8 => typed::<u8>(kind, by, count, comm),
                DType::I32 => typed::<i32>(kind, by, count, comm),
                DType::U32 => typed::<u32>(kind, by, count, comm),
                DType::I64 => typed::<i64>(kind, by, count, comm),
                DType::U64 => typed::<u64>(kind, by, count, comm),
                DType::F16 => typed::<f16>(kind, by, count, comm),
                DType::F32 => typed::<f32>(kind, by, count, comm),
                DType::F64 => typed::<f64>(kind, by, count, comm),
                DType::Bf16 => typed::<bf16>(kind, by, count, comm),
                DType::F8E4M3 => typed::<F8E4M3>(kind, by, count, comm),
                DType::F8E5M2 => typed::<F8E5M2>(kind, by, count, comm),
            }
        }
        _ => bail!("{call}: not a call"),
    }
}

fn typed<T: ringccl::Element + Default + Clone>(
    kind: &str,
    by: &str,
    count: usize,
    comm: &mut Communicator,
) -> anyhow::Result<()> {
    let n = comm.nranks();
    let mut buffer = vec![T::default(); count];
    let mut all = vec![T::default(); n * count];
    let (op, place) = by.split_once(':').unwrap_or((by, by));
    let op = || op.parse::<ReduceOp>().with_context(|| format!("{by}: no reduction"));
    let place = || place.parse::<usize>().with_context(|| format!("{by}: no rank"));
    match kind {
        "all_reduce" => comm.all_reduce_in_place(&mut buffer, op()?)?,
        "broadcast" => comm.broadcast(&mut buffer, place()?)?,
        "reduce" => comm.reduce_in_place(&mut buffer, op()?, place()?)?,
        "all_gather" => comm.all_gather_in_place(&mut all)?,
        "reduce_scatter" => comm.reduce_scatter_in_place(&mut all, op()?)?,
        "all_to_all" => comm.all_to_all_in_place(&mut all)?,
        "gather" => comm.gather(&buffer, &mut all, place()?)?,
        "scatter" => comm.scatter(&all, &mut buffer, place()?)?,
        "all_gather_v" | "reduce_scatter_v" => {
            let (longer, rank) = (place()?, comm.rank());
            let counts: Vec<usize> = (0..n).map(|r| count + usize::from(r == longer)).collect();
            let mut one = vec![T::default(); counts[rank]];
            let mut all = vec![T::default(); counts.iter().sum()];
            if kind == "all_gather_v" {
                comm.all_gather_v(&one, &mut all, &counts)?;
            } else {
                comm.reduce_scatter_v(&all, &mut one, &counts, op()?)?;
            }
        }
        "send" | "recv" => {
            let (peer, tag) = by.split_once(':').unwrap_or((by, "0"));
            let tag = tag.parse().context("no tag")?;
            let peer = if peer == "any" { None } else { Some(peer.parse().context("no rank")?) };
            match (kind, peer) {
                ("send", peer) => comm.send_tagged(&buffer, peer.context("no rank")?, tag)?,
                (_, peer) => drop(comm.recv_tagged(&mut buffer, peer, tag)?),
            }
        }
        _ => bail!("{kind}: not a call"),
    }
    Ok(())
}
