//! Calls written as text, so that a test can let each rank make others.
//!
//! `all_reduce/TYPE/OP/COUNT`, `broadcast/TYPE/ROOT/COUNT`, `barrier`; with `2:` before it, of the second communicator.

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
    let mut buffer = vec![T::default(); count];
    match kind {
        "all_reduce" => {
            let op: ReduceOp = by.parse().with_context(|| format!("{by}: no reduction"))?;
            Ok(comm.all_reduce_in_place(&mut buffer, op)?)
        }
        "broadcast" => {
            Ok(comm.broadcast(&mut buffer, by.parse().with_context(|| format!("{by}: no root"))?)?)
        }
        _ => bail!("{kind}: not a collective"),
    }
}
