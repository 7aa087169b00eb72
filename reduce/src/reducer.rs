//! The reducer: a kernel chosen once, and the factor and divisor of sums that have them.

use std::fmt;

use super::arch;
use super::copy::copy_with;
use super::divide::Divider;
use super::dtype::DType;
use super::kernel::{Call, Kernel};
use super::op::ReduceOp;
use super::{Dst, Scalar, Tuning};

/// Folds buffers of one element type with one operation.
///
/// Choosing the kernel takes place in [`Reducer::new`]; a reducer is cheap to copy and to keep.
#[derive(Clone, Copy)]
pub struct Reducer {
    dtype: DType,
    op: ReduceOp,
    nranks: usize,
    kernel: Kernel,
    /// What own input is multiplied by, repeated to fill 8 bytes.
    factor: Option<u64>,
    divider: Option<Divider>,
    tuning: Tuning,
}

impl Reducer {
    /// A reducer for a communicator of `nranks` ranks, which only an average looks at.
    ///
    /// # Panics
    ///
    /// When `nranks` is 0 or [`ReduceOp::check`] refuses the operation for these elements.
    #[must_use]
    pub fn new(dtype: DType, op: ReduceOp, nranks: usize) -> Self {
        Self::with_tuning(dtype, op, nranks, Tuning::host())
    }

    /// [`Reducer::new`] with an explicit instruction set and explicit thresholds.
    ///
    /// # Panics
    ///
    /// As [`Reducer::new`], and when this CPU lacks `tuning.isa`.
    #[must_use]
    pub fn with_tuning(dtype: DType, op: ReduceOp, nranks: usize, tuning: Tuning) -> Self {
        assert!(nranks > 0, "a communicator has at least one rank");
        assert!(tuning.isa.is_available(), "this CPU has no {}", tuning.isa);
        if let Err(error) = op.check(dtype) {
            panic!("{error}");
        }
        let averages = op == ReduceOp::Avg && nranks > 1;
        let factor = match op {
            ReduceOp::PreMulSum(scalar) => Some(scalar),
            // *Source*: NCCL 2.30 src/enqueue.cc, hostToDevRedOp: 1/nranks as a binary32, then narrowed.
            _ if averages && dtype.is_float() => Some(Scalar::from_f64(dtype, 1.0 / nranks as f64)),
            _ => None,
        };
        Reducer {
            dtype,
            op,
            nranks,
            kernel: arch::kernel(tuning.isa, dtype, op),
            factor: factor.map(Scalar::pattern),
            divider: (averages && !dtype.is_float()).then(|| Divider::new(nranks as u64)),
            tuning,
        }
    }

    /// The element type.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The operation.
    #[must_use]
    pub const fn op(&self) -> ReduceOp {
        self.op
    }

    /// The number of ranks that an average divides by.
    #[must_use]
    pub const fn nranks(&self) -> usize {
        self.nranks
    }

    /// The instruction set and thresholds in use.
    #[must_use]
    pub const fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Whether each rank's own input must pass through a fold with `own` set, even if it is alone.
    #[must_use]
    pub const fn needs_pre_op(&self) -> bool {
        self.factor.is_some()
    }

    /// Whether the finished value must come out of a fold with `last` set.
    #[must_use]
    pub const fn needs_post_op(&self) -> bool {
        self.divider.is_some()
    }

    /// Folds `count` elements of every source, in source order, into one or two destinations.
    ///
    /// `srcs[own]` is multiplied by the scalar, or by 1/nranks, first when [`Self::needs_pre_op`]; the result is
    /// divided by nranks when `last` and [`Self::needs_post_op`]. Narrow floats are rounded after every hop. Two
    /// destinations receive the same bits. Non-temporal stores are fenced before this returns.
    ///
    /// # Panics
    ///
    /// When `srcs` is empty, `dsts` has not 1 or 2 entries, or `own` is no index of `srcs`.
    ///
    /// # Safety
    ///
    /// - Every source is readable and every destination writable for `count` elements during the call, at
    ///   any alignment, and nobody else writes them or reads the destinations meanwhile.
    /// - A destination is exactly one of the sources or overlaps nothing.
    #[inline]
    pub unsafe fn fold(
        &self,
        srcs: &[*const u8],
        own: Option<usize>,
        dsts: &[Dst],
        count: usize,
        last: bool,
    ) {
        assert!(
            !srcs.is_empty() && matches!(dsts.len(), 1 | 2),
            "a fold has sources and 1 or 2 destinations"
        );
        let (scaled, factor) = match (own, self.factor) {
            (Some(own), Some(factor)) => {
                assert!(own < srcs.len(), "source {own} of {} does not exist", srcs.len());
                (own, factor)
            }
            _ => (usize::MAX, 0),
        };
        let divider = if last { self.divider } else { None };
        // SAFETY: the kernel's CPU features were checked when it was chosen, and the caller vouches for
        // `count` elements of every buffer.
        unsafe {
            if srcs.len() == 1 && scaled == usize::MAX && divider.is_none() {
                copy_with(&self.tuning, srcs[0], dsts, count * self.dtype.size_bytes());
            } else if count > 0 {
                // Bits are combined byte by byte.
                let count = if self.op.is_bitwise() { count * self.dtype.size_bytes() } else { count };
                let tuning = &self.tuning;
                (self.kernel)(&Call { srcs, dsts, count, scaled, factor, divider, tuning });
            }
        }
    }
}

impl fmt::Debug for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reducer")
            .field("dtype", &self.dtype)
            .field("op", &self.op)
            .field("nranks", &self.nranks)
            .field("tuning", &self.tuning)
            .finish_non_exhaustive()
    }
}
