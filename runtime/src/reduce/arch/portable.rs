//! The portable path: arrays of elements, plain Rust arithmetic.

use crate::reduce::dtype::DType;
use crate::reduce::kernel::{Call, Kernel, fold_all};
use crate::reduce::line::{Avg, LINE, Line, Max, Min, Op, Prod, Scalar, Sum};
use crate::reduce::op::ReduceOp;

/// One line as an array of its elements; `N * size_of::<T>()` is 64.
#[derive(Clone, Copy)]
struct Lanes<T, const N: usize>([T; N]);

impl<T: Scalar, const N: usize> Lanes<T, N> {
    const FILLS_A_LINE: () = assert!(N * size_of::<T>() == LINE);

    #[inline(always)]
    fn zip(mut self, other: Self, combine: impl Fn(T, T) -> T) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a = combine(*a, b);
        }
        self
    }
}

impl<T: Scalar, const N: usize> Line for Lanes<T, N> {
    type Elem = T;
    const STREAMS: bool = false;
    const MASKS: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        let () = Self::FILLS_A_LINE;
        // SAFETY: the caller vouches for 64 readable bytes, which are this array.
        Lanes(unsafe { from.cast::<[T; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, elems: usize) -> Self {
        let mut lanes = [T::zeroed(); N];
        for (i, lane) in lanes.iter_mut().enumerate().take(elems) {
            // SAFETY: `i < elems`, and the caller vouches for `elems` readable elements.
            *lane = unsafe { from.cast::<T>().add(i).read_unaligned() };
        }
        Lanes(lanes)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the caller vouches for 64 writable bytes, which are this array.
        unsafe { to.cast::<[T; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, elems: usize) {
        for (i, lane) in self.0.into_iter().enumerate().take(elems) {
            // SAFETY: `i < elems`, and the caller vouches for `elems` writable elements.
            unsafe { to.cast::<T>().add(i).write_unaligned(lane) }
        }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller's promise is that of `store`, with an alignment that is not needed.
        unsafe { self.store(to) }
    }

    #[inline(always)]
    unsafe fn sum(self, other: Self) -> Self {
        self.zip(other, T::sum)
    }

    #[inline(always)]
    unsafe fn prod(self, other: Self) -> Self {
        self.zip(other, T::prod)
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        self.zip(other, T::min)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, T::max)
    }
}

unsafe fn entry<L: Line, O: Op>(call: &Call<'_>) {
    // SAFETY: no instruction beyond the build's own; the pointers are the caller's promise.
    unsafe { fold_all::<L, O, 1>(call) }
}

fn by_op<L: Line>(op: ReduceOp) -> Kernel {
    match op {
        ReduceOp::Sum => entry::<L, Sum>,
        ReduceOp::Prod => entry::<L, Prod>,
        ReduceOp::Min => entry::<L, Min>,
        ReduceOp::Max => entry::<L, Max>,
        ReduceOp::Avg => entry::<L, Avg>,
    }
}

/// The kernel for one element type and operation.
pub(in crate::reduce) fn kernel(dtype: DType, op: ReduceOp) -> Kernel {
    match dtype {
        DType::F32 => by_op::<Lanes<f32, 16>>(op),
        DType::F64 => by_op::<Lanes<f64, 8>>(op),
        DType::I32 => by_op::<Lanes<i32, 16>>(op),
        DType::I64 => by_op::<Lanes<i64, 8>>(op),
        DType::F16 => by_op::<Lanes<half::f16, 32>>(op),
        DType::Bf16 => by_op::<Lanes<half::bf16, 32>>(op),
    }
}
