//! AVX-512: a line is one register, or two of binary32 for the 16-bit floats.

use std::arch::x86_64::*;

use half::{bf16, f16};

use crate::reduce::copy::{CopyJob, copy_all};
use crate::reduce::dtype::DType;
use crate::reduce::kernel::{Call, Kernel, fold_all};
use crate::reduce::line::{Avg, Line, Max, Min, Op, Prod, Sum};
use crate::reduce::op::ReduceOp;

/// The lowest `elems` bits, one per lane to be touched.
#[inline(always)]
fn low_bits(elems: usize) -> u32 {
    debug_assert!(elems < 32);
    (1u32 << elems) - 1
}

macro_rules! memory {
    ($elem:ty, $mask:ty, $vector:ty, $load:ident, $load_part:ident, $store:ident, $store_part:ident) => {
        type Elem = $elem;
        const STREAMS: bool = true;
        const MASKS: bool = true;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for 64 readable bytes.
            unsafe { Self($load(from.cast())) }
        }

        #[inline(always)]
        unsafe fn load_part(from: *const u8, elems: usize) -> Self {
            // SAFETY: masked-out lanes are not accessed; the caller vouches for the others.
            unsafe { Self($load_part(low_bits(elems) as $mask, from.cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes.
            unsafe { $store(to.cast(), self.0) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut u8, elems: usize) {
            // SAFETY: masked-out lanes are not accessed; the caller vouches for the others.
            unsafe { $store_part(to.cast(), low_bits(elems) as $mask, self.0) }
        }
    };
}

macro_rules! combine {
    ($($method:ident => $intrinsic:ident),*) => {$(
        #[inline(always)]
        unsafe fn $method(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { Self($intrinsic(self.0, other.0)) }
        }
    )*};
}

/// The x86 minimum gives its second operand when either is a NaN. That is right for a NaN in the
/// first, so a mask only has to keep the first where the second is a NaN.
macro_rules! number_wins {
    ($($method:ident => $masked:ident, $cmp:ident);*) => {$(
        #[inline(always)]
        unsafe fn $method(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe {
                let is_number = $cmp::<_CMP_ORD_Q>(other.0, other.0);
                Self($masked(self.0, is_number, self.0, other.0))
            }
        }
    )*};
}

#[derive(Clone, Copy)]
struct F32x16(__m512);

impl Line for F32x16 {
    memory!(
        f32,
        u16,
        __m512,
        _mm512_loadu_ps,
        _mm512_maskz_loadu_ps,
        _mm512_storeu_ps,
        _mm512_mask_storeu_ps
    );
    combine!(sum => _mm512_add_ps, prod => _mm512_mul_ps);
    number_wins!(min => _mm512_mask_min_ps, _mm512_cmp_ps_mask; max => _mm512_mask_max_ps, _mm512_cmp_ps_mask);

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
        unsafe { _mm512_stream_ps(to.cast(), self.0) }
    }
}

#[derive(Clone, Copy)]
struct F64x8(__m512d);

impl Line for F64x8 {
    memory!(
        f64,
        u8,
        __m512d,
        _mm512_loadu_pd,
        _mm512_maskz_loadu_pd,
        _mm512_storeu_pd,
        _mm512_mask_storeu_pd
    );
    combine!(sum => _mm512_add_pd, prod => _mm512_mul_pd);
    number_wins!(min => _mm512_mask_min_pd, _mm512_cmp_pd_mask; max => _mm512_mask_max_pd, _mm512_cmp_pd_mask);

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
        unsafe { _mm512_stream_pd(to.cast(), self.0) }
    }
}

#[derive(Clone, Copy)]
struct I32x16(__m512i);

impl Line for I32x16 {
    memory!(
        i32,
        u16,
        __m512i,
        _mm512_loadu_epi32,
        _mm512_maskz_loadu_epi32,
        _mm512_storeu_epi32,
        _mm512_mask_storeu_epi32
    );
    combine!(sum => _mm512_add_epi32, prod => _mm512_mullo_epi32, min => _mm512_min_epi32, max => _mm512_max_epi32);

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
        unsafe { _mm512_stream_si512(to.cast(), self.0) }
    }
}

#[derive(Clone, Copy)]
struct I64x8(__m512i);

impl Line for I64x8 {
    memory!(
        i64,
        u8,
        __m512i,
        _mm512_loadu_epi64,
        _mm512_maskz_loadu_epi64,
        _mm512_storeu_epi64,
        _mm512_mask_storeu_epi64
    );
    combine!(sum => _mm512_add_epi64, prod => _mm512_mullo_epi64, min => _mm512_min_epi64, max => _mm512_max_epi64);

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
        unsafe { _mm512_stream_si512(to.cast(), self.0) }
    }
}

/// The memory side of the 16-bit floats: `unpack` and `pack` say how 64 bytes become two registers.
macro_rules! narrow_memory {
    ($elem:ty) => {
        type Elem = $elem;
        const STREAMS: bool = true;
        const MASKS: bool = true;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for 64 readable bytes.
            unsafe { Self::unpack(_mm512_loadu_epi16(from.cast())) }
        }

        #[inline(always)]
        unsafe fn load_part(from: *const u8, elems: usize) -> Self {
            // SAFETY: masked-out lanes are not accessed; the caller vouches for the others.
            unsafe { Self::unpack(_mm512_maskz_loadu_epi16(low_bits(elems), from.cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes.
            unsafe { _mm512_storeu_epi16(to.cast(), self.pack()) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut u8, elems: usize) {
            // SAFETY: masked-out lanes are not accessed; the caller vouches for the others.
            unsafe { _mm512_mask_storeu_epi16(to.cast(), low_bits(elems), self.pack()) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
            unsafe { _mm512_stream_si512(to.cast(), self.pack()) }
        }

        #[inline(always)]
        unsafe fn sum(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe {
                Self([
                    Self::after(_mm512_add_ps(self.0[0], other.0[0])),
                    Self::after(_mm512_add_ps(self.0[1], other.0[1])),
                ])
            }
        }

        #[inline(always)]
        unsafe fn prod(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe {
                Self([
                    Self::after(_mm512_mul_ps(self.0[0], other.0[0])),
                    Self::after(_mm512_mul_ps(self.0[1], other.0[1])),
                ])
            }
        }

        // The smaller of two representable numbers is representable: nothing to round.
        #[inline(always)]
        unsafe fn min(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe {
                Self([
                    F32x16(self.0[0]).min(F32x16(other.0[0])).0,
                    F32x16(self.0[1]).min(F32x16(other.0[1])).0,
                ])
            }
        }

        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe {
                Self([
                    F32x16(self.0[0]).max(F32x16(other.0[0])).0,
                    F32x16(self.0[1]).max(F32x16(other.0[1])).0,
                ])
            }
        }
    };
}

/// Elements 0 to 15 and 16 to 31, widened.
#[derive(Clone, Copy)]
struct F16x32([__m512; 2]);

impl F16x32 {
    #[inline(always)]
    unsafe fn unpack(image: __m512i) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let low = _mm512_castsi512_si256(image);
            let high = _mm512_extracti64x4_epi64::<1>(image);
            Self([_mm512_cvtph_ps(low), _mm512_cvtph_ps(high)])
        }
    }

    #[inline(always)]
    unsafe fn narrow(wide: __m512) -> __m256i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(wide) }
    }

    #[inline(always)]
    unsafe fn pack(self) -> __m512i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let low = _mm512_castsi256_si512(Self::narrow(self.0[0]));
            _mm512_inserti64x4::<1>(low, Self::narrow(self.0[1]))
        }
    }

    /// An operation's result is left wide: `pack` rounds it, and `settle` where another hop follows.
    #[inline(always)]
    unsafe fn after(wide: __m512) -> __m512 {
        wide
    }

    /// The nearest binary16 value, ties to even. Rounding the binary32 sum again is exact rounding,
    /// since 24 bits are at least twice 11 plus two.
    #[inline(always)]
    unsafe fn round(wide: __m512) -> __m512 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { _mm512_cvtph_ps(Self::narrow(wide)) }
    }
}

impl Line for F16x32 {
    narrow_memory!(f16);

    #[inline(always)]
    unsafe fn settle(self) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self([Self::round(self.0[0]), Self::round(self.0[1])]) }
    }
}

/// Even and odd elements, widened: a shift and a mask instead of shuffles.
#[derive(Clone, Copy)]
struct Bf16x32([__m512; 2]);

impl Bf16x32 {
    #[inline(always)]
    unsafe fn unpack(image: __m512i) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let odd = _mm512_and_si512(image, _mm512_set1_epi32(!0xffff));
            let even = _mm512_slli_epi32::<16>(image);
            Self([_mm512_castsi512_ps(even), _mm512_castsi512_ps(odd)])
        }
    }

    #[inline(always)]
    unsafe fn pack(self) -> __m512i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let even = _mm512_srli_epi32::<16>(_mm512_castps_si512(self.0[0]));
            _mm512_or_si512(even, _mm512_castps_si512(self.0[1]))
        }
    }

    /// The nearest bf16 value, ties to even, subnormals kept (VCVTNEPS2BF16 would flush them).
    #[inline(always)]
    unsafe fn after(wide: __m512) -> __m512 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let bits = _mm512_castps_si512(wide);
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(wide, wide);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let kept = _mm512_mask_or_epi32(near, is_nan, bits, _mm512_set1_epi32(0x0040_0000));
            _mm512_castsi512_ps(_mm512_and_si512(kept, _mm512_set1_epi32(!0xffff)))
        }
    }
}

impl Line for Bf16x32 {
    narrow_memory!(bf16);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn entry<L: Line, O: Op, const U: usize>(call: &Call<'_>) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { fold_all::<L, O, U>(call) }
}

/// Copies as `job` says; the caller vouches for its pointers and for the instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
pub(super) unsafe fn copy_lines(job: &CopyJob) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { copy_all::<I64x8, 8>(job) }
}

fn by_op<L: Line, const U: usize>(op: ReduceOp) -> Kernel {
    match op {
        ReduceOp::Sum => entry::<L, Sum, U>,
        ReduceOp::Prod => entry::<L, Prod, U>,
        ReduceOp::Min => entry::<L, Min, U>,
        ReduceOp::Max => entry::<L, Max, U>,
        ReduceOp::Avg => entry::<L, Avg, U>,
    }
}

/// The kernel for one element type and operation.
pub(in crate::reduce) fn kernel(dtype: DType, op: ReduceOp) -> Kernel {
    match dtype {
        DType::F32 => by_op::<F32x16, 4>(op),
        DType::F64 => by_op::<F64x8, 4>(op),
        DType::I32 => by_op::<I32x16, 4>(op),
        DType::I64 => by_op::<I64x8, 4>(op),
        DType::F16 => by_op::<F16x32, 4>(op),
        DType::Bf16 => by_op::<Bf16x32, 4>(op),
    }
}
