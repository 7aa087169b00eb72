//! Arguments of communication calls, in the order in which NCCL looks at them.

use crate::comm::{Comm, find};
use crate::failure::{Failure, Outcome};
use crate::redop::{self, Reduction};
use crate::types::CommHandle;
use ringccl::DType;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// The communicator: alive, not revoked, nothing in progress, nothing failed.
#[inline]
pub(super) fn comm(handle: CommHandle, call: &str) -> Result<Arc<Comm>, Failure> {
    let comm = find(handle, call)?;
    if !comm.is_quiet() {
        unusual(&comm, call)?;
    }
    Ok(comm)
}

#[cold]
fn unusual(comm: &Comm, call: &str) -> Outcome {
    if comm.is_revoked() {
        return Err(Failure::usage(format!("{call}: communicator was revoked")));
    }
    comm.check_ready()?;
    if comm.is_finalized() {
        return Err(Failure::argument(format!("{call}: the communicator was finalized")));
    }
    Ok(())
}

/// A root or peer.
#[inline]
pub(super) fn rank(comm: &Comm, rank: c_int, what: &str, call: &str) -> Result<usize, Failure> {
    match u32::try_from(rank) {
        Ok(number) if number < comm.about.nranks => Ok(number as usize),
        _ => Err(bad_rank(comm, rank, what, call)),
    }
}

#[cold]
fn bad_rank(comm: &Comm, rank: c_int, what: &str, call: &str) -> Failure {
    let last = comm.about.nranks - 1;
    Failure::argument(format!("{call} : invalid {what} {rank} (it is in the range 0..{last})"))
}

/// A data type.
#[inline]
pub(super) fn dtype(number: c_int, call: &str) -> Result<DType, Failure> {
    let dtype = u32::try_from(number).ok().and_then(DType::from_nccl_code);
    dtype.ok_or_else(|| bad_type(number, call))
}

#[cold]
fn bad_type(number: c_int, call: &str) -> Failure {
    Failure::argument(format!("{call} : invalid type {number} (it is in the range 0..11)"))
}

/// A reduction of elements of `dtype`.
#[inline]
pub(super) fn reduction(comm: &Comm, op: c_int, dtype: DType, call: &str) -> Result<Reduction, Failure> {
    match redop::builtin(op) {
        Some(builtin) => Ok(Reduction::Known(builtin)),
        None => own_reduction(comm, op, dtype, call),
    }
}

#[cold]
fn own_reduction(comm: &Comm, op: c_int, dtype: DType, call: &str) -> Result<Reduction, Failure> {
    if op < 0 {
        return Err(Failure::argument(format!("{call} : invalid reduction operation {op}")));
    }
    crate::comm::lock(&comm.redops).find(call, op, dtype)
}

/// A buffer that this rank needs for `count` elements.
#[inline]
pub(super) fn buffer(buffer: *const c_void, count: usize, name: &str, call: &str) -> Outcome {
    if buffer.is_null() && count > 0 {
        return Err(no_buffer(count, name, call));
    }
    Ok(())
}

#[cold]
fn no_buffer(count: usize, name: &str, call: &str) -> Failure {
    Failure::argument(format!("{call} : {name} is NULL, but it has {count} elements"))
}
