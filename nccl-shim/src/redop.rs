//! Reduction operators: NCCL's five, and those that a program makes for a communicator.

use crate::failure::Failure;
use ringccl::{DType, ReduceOp, Scalar};
use std::ffi::c_int;
// ATOMICS: a counter of this process.
use std::sync::atomic::{AtomicU32, Ordering};

/// The number of operators that NCCL has itself.
const BUILTIN: c_int = 5;

/// What a reduction does, as far as it is known before it runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reduction {
    /// Known.
    Known(ReduceOp),
    /// The scalar lies in memory and is read when the operation runs.
    Deferred {
        /// Where.
        scalar: *const u8,
        /// Its type.
        dtype: DType,
    },
}

impl Reduction {
    /// What it does, now that it runs.
    ///
    /// # Safety
    /// - A deferred scalar is readable.
    #[inline]
    pub(crate) unsafe fn now(self) -> ReduceOp {
        match self {
            Self::Known(op) => op,
            // SAFETY: the caller's contract.
            Self::Deferred { scalar, dtype } => ReduceOp::PreMulSum(unsafe { Scalar::read(dtype, scalar) }),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Made {
    handle: c_int,
    dtype: DType,
    reduction: Reduction,
}

// SAFETY: the address of a deferred scalar is only followed by who runs an operation with it, under that contract.
unsafe impl Send for Made {}

/// The operators of one communicator.
#[derive(Debug, Default)]
pub(crate) struct RedOps {
    made: Vec<Made>,
}

/// Handles are numbers that no other communicator of the process gives out, for about two thousand million operators.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl RedOps {
    /// Makes an operator that multiplies by a scalar before it sums up.
    pub(crate) fn make(&mut self, dtype: DType, reduction: Reduction) -> c_int {
        // ORDERING: Relaxed; only the number matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Scattered, so that a handle is no small number that a program has by accident; odd factors lose none.
        let scattered = number.wrapping_mul(0x9e37_79b1) & 0x7fff_ffff;
        let handle = (scattered % (c_int::MAX as u32 - 64)) as c_int + 64;
        self.made.push(Made { handle, dtype, reduction });
        handle
    }

    /// Forgets an operator.
    pub(crate) fn destroy(&mut self, op: c_int) -> Result<(), Failure> {
        if (0..BUILTIN).contains(&op) {
            return Err(Failure::argument(format!(
                "ncclRedOpDestroy : operator {op} is builtin and is not destroyed"
            )));
        }
        let place = self.made.iter().position(|made| made.handle == op);
        let place = place.ok_or_else(|| unknown("ncclRedOpDestroy", op))?;
        self.made.swap_remove(place);
        Ok(())
    }

    /// The operator with this handle, for elements of `dtype`.
    pub(crate) fn find(&self, call: &str, op: c_int, dtype: DType) -> Result<Reduction, Failure> {
        let made = self.made.iter().find(|made| made.handle == op).ok_or_else(|| unknown(call, op))?;
        if made.dtype != dtype {
            return Err(Failure::argument(format!(
                "{call} : the operator was made for {}, not for {dtype}",
                made.dtype
            )));
        }
        Ok(made.reduction)
    }
}

/// One of NCCL's own.
#[inline]
pub(crate) fn builtin(op: c_int) -> Option<ReduceOp> {
    ReduceOp::from_nccl_code(u32::try_from(op).ok()?)
}

#[cold]
fn unknown(call: &str, op: c_int) -> Failure {
    Failure::argument(format!("{call} : operator {op} is unknown to this communicator"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An operator belongs to its communicator and type, until it is destroyed.
    #[test]
    fn operators_belong_to_one_communicator() {
        let (mut ours, mut theirs) = (RedOps::default(), RedOps::default());
        let known = Reduction::Known(ReduceOp::PreMulSum(Scalar::new(2.0f32)));
        let op = ours.make(DType::F32, known);
        let other = theirs.make(DType::F32, known);
        assert!(op >= BUILTIN && op != other);
        assert!(ours.find("x", op, DType::F32).is_ok());
        assert!(ours.find("x", op, DType::F64).is_err() && theirs.find("x", op, DType::F32).is_err());
        assert!(ours.destroy(2).is_err() && ours.destroy(-1).is_err() && ours.destroy(other).is_err());
        assert!(
            ours.destroy(op).is_ok() && ours.destroy(op).is_err() && ours.find("x", op, DType::F32).is_err()
        );
    }
}
