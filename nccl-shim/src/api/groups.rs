//! Groups, and the reduction operators of a program.

use super::check;
use crate::comm::{find, lock};
use crate::export::export;
use crate::failure::Failure;
use crate::group;
use crate::redop::Reduction;
use crate::types::{CommHandle, SIM_MAGIC, SimInfo};
use ringccl::{ReduceOp, Scalar};
use std::ffi::{c_int, c_void};

/// `ncclScalarDevice`: the scalar is read when the operation runs.
const SCALAR_DEVICE: c_int = 0;
/// `ncclScalarHostImmediate`: it is read now.
const SCALAR_HOST: c_int = 1;

export! {
    /// Begins a group.
    ncclGroupStart = pncclGroupStart() {
        group::start();
        Ok(())
    }

    /// Ends a group; the outermost runs.
    ncclGroupEnd = pncclGroupEnd() {
        group::end(None)
    }

    /// Ends a group without running it: how long its last operation would take, in microseconds.
    ncclGroupSimulateEnd = pncclGroupSimulateEnd(info: *mut SimInfo) {
        if info.is_null() {
            return group::end(None);
        }
        // SAFETY: not null; the caller's contract: the structure has a head of 16 bytes, and as many as that says.
        unsafe {
            let (size, magic) = ((&raw const (*info).size).read(), (&raw const (*info).magic).read());
            if magic != SIM_MAGIC {
                return Err(Failure::argument(
                    "ncclGroupSimulateEnd : simInfo does not begin as NCCL_SIM_INFO_INITIALIZER does",
                ));
            }
            let has_time = size >= std::mem::offset_of!(SimInfo, estimated_time) + size_of::<f32>();
            let place = &raw mut (*info).estimated_time;
            let mut time = if has_time { place.read() } else { -1.0 };
            let ended = group::end(Some(&mut time));
            if has_time {
                place.write(time);
            }
            ended
        }
    }

    /// Makes an operator that multiplies each rank's elements by a scalar before it sums up.
    ncclRedOpCreatePreMulSum = pncclRedOpCreatePreMulSum(
        op: *mut c_int, scalar: *mut c_void, dtype: c_int, residence: c_int, comm: CommHandle,
    ) {
        const CALL: &str = "ncclRedOpCreatePreMulSum";
        let comm = find(comm, CALL)?;
        comm.check_ready()?;
        if op.is_null() || scalar.is_null() {
            return Err(Failure::argument(format!("{CALL} : op at {op:p}, scalar at {scalar:p}: neither may be NULL")));
        }
        let dtype = check::dtype(dtype, CALL)?;
        let reduction = match residence {
            // SAFETY: not null; the caller's contract.
            SCALAR_HOST => Reduction::Known(ReduceOp::PreMulSum(unsafe { Scalar::read(dtype, scalar.cast()) })),
            SCALAR_DEVICE => Reduction::Deferred { scalar: scalar.cast(), dtype },
            _ => return Err(Failure::argument(format!("{CALL} : residence {residence} (it is 0 or 1)"))),
        };
        let handle = lock(&comm.redops).make(dtype, reduction);
        // SAFETY: not null; the caller's contract.
        unsafe { op.write(handle) };
        Ok(())
    }

    /// Forgets an operator.
    ncclRedOpDestroy = pncclRedOpDestroy(op: c_int, comm: CommHandle) {
        const CALL: &str = "ncclRedOpDestroy";
        if op < 0 {
            return Err(Failure::argument(format!("{CALL} : operator {op} is none")));
        }
        let comm = find(comm, CALL)?;
        lock(&comm.redops).destroy(op)
    }
}
