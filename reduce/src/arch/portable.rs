//! The portable path: arrays of elements, plain Rust arithmetic.

use crate::dtype::DType;
use crate::fp8::{F8E4M3, F8E5M2};
use crate::kernel::{Call, Kernel, fold_all};
use crate::line::{Arith, BitAnd, BitOr, BitXor, Bits, LINE, Line, Max, Min, Op, Prod, ScaledSum, Sum};
use crate::op::ReduceOp;

/// One line as an array of its elements; `N * size_of::<T>()` is 64.
#[derive(Clone, Copy)]
struct Lanes<T, const N: usize>([T; N]);

impl<T: Arith, const N: usize> Lanes<T, N> {
    const FILLS_A_LINE: () = assert!(N * size_of::<T>() == LINE);

    #[inline(always)]
    fn zip(mut self, other: Self, combine: impl Fn(T, T) -> T) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a = combine(*a, b);
        }
        self
    }
}

impl<T: Arith, const N: usize> Line for Lanes<T, N> {
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

impl Bits for Lanes<u8, 64> {
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        self.zip(other, |a, b| a ^ b)
    }
}

unsafe fn entry<L: Line, O: Op<L>, const U: usize>(call: &Call<'_>) {
    // SAFETY: no instruction beyond the build's own; the pointers are the caller's promise.
    unsafe { fold_all::<L, O, U>(call) }
}

kernels! {
    entry, bits Lanes<u8, 64>, 1;
    I8: Lanes<i8, 64>, Lanes<i8, 64>, 1;
    U8: Lanes<u8, 64>, Lanes<i8, 64>, 1;
    I32: Lanes<i32, 16>, Lanes<i32, 16>, 1;
    U32: Lanes<u32, 16>, Lanes<i32, 16>, 1;
    I64: Lanes<i64, 8>, Lanes<i64, 8>, 1;
    U64: Lanes<u64, 8>, Lanes<i64, 8>, 1;
    F16: Lanes<half::f16, 32>, Lanes<half::f16, 32>, 1;
    F32: Lanes<f32, 16>, Lanes<f32, 16>, 1;
    F64: Lanes<f64, 8>, Lanes<f64, 8>, 1;
    Bf16: Lanes<half::bf16, 32>, Lanes<half::bf16, 32>, 1;
    F8E4M3: Lanes<F8E4M3, 64>, Lanes<F8E4M3, 64>, 1;
    F8E5M2: Lanes<F8E5M2, 64>, Lanes<F8E5M2, 64>, 1;
}
