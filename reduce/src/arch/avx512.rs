//! AVX-512: a line is one register, or several of binary32 for the narrow floats.

use std::arch::x86_64::*;

use crate::copy::{CopyJob, copy_all};
use crate::dtype::DType;
use crate::kernel::{Call, Kernel, fold_all};
use crate::line::{BitAnd, BitOr, BitXor, Bits, Line, Max, Min, Op, Prod, ScaledSum, Sum};
use crate::op::ReduceOp;

mod float8;
pub(super) mod fp16;
mod narrow;

use float8::{F8E4M3x64, F8E5M2x64};
use narrow::{Bf16x32, F16x32};

/// The lowest `elems` bits, one per lane to be touched.
#[inline(always)]
fn low_bits(elems: usize) -> u64 {
    debug_assert!(elems < 64);
    (1u64 << elems) - 1
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

use memory;

macro_rules! combine {
    ($($method:ident => $intrinsic:path),*) => {$(
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

macro_rules! integer {
    ($name:ident, $elem:ty, $mask:ty, $load:ident, $load_part:ident, $store:ident, $store_part:ident;
     $($method:ident => $operation:path),*) => {
        #[derive(Clone, Copy)]
        struct $name(__m512i);

        impl Line for $name {
            memory!($elem, $mask, __m512i, $load, $load_part, $store, $store_part);
            combine!($($method => $operation),*);

            #[inline(always)]
            unsafe fn stream(self, to: *mut u8) {
                // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
                unsafe { _mm512_stream_si512(to.cast(), self.0) }
            }
        }
    };
}

/// The low 8 bits of products: those of the odd bytes are computed where they belong.
#[inline(always)]
unsafe fn mullo_epi8(a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let upper = _mm512_set1_epi16(!0xff);
        let even = _mm512_mullo_epi16(a, b);
        let odd = _mm512_mullo_epi16(_mm512_srli_epi16::<8>(a), _mm512_and_si512(b, upper));
        _mm512_or_si512(_mm512_andnot_si512(upper, even), odd)
    }
}

integer! {
    I8x64, i8, u64, _mm512_loadu_epi8, _mm512_maskz_loadu_epi8, _mm512_storeu_epi8, _mm512_mask_storeu_epi8;
    sum => _mm512_add_epi8, prod => mullo_epi8, min => _mm512_min_epi8, max => _mm512_max_epi8
}
integer! {
    U8x64, u8, u64, _mm512_loadu_epi8, _mm512_maskz_loadu_epi8, _mm512_storeu_epi8, _mm512_mask_storeu_epi8;
    sum => _mm512_add_epi8, prod => mullo_epi8, min => _mm512_min_epu8, max => _mm512_max_epu8
}
integer! {
    I32x16, i32, u16, _mm512_loadu_epi32, _mm512_maskz_loadu_epi32, _mm512_storeu_epi32, _mm512_mask_storeu_epi32;
    sum => _mm512_add_epi32, prod => _mm512_mullo_epi32, min => _mm512_min_epi32, max => _mm512_max_epi32
}
integer! {
    U32x16, u32, u16, _mm512_loadu_epi32, _mm512_maskz_loadu_epi32, _mm512_storeu_epi32, _mm512_mask_storeu_epi32;
    sum => _mm512_add_epi32, prod => _mm512_mullo_epi32, min => _mm512_min_epu32, max => _mm512_max_epu32
}
integer! {
    I64x8, i64, u8, _mm512_loadu_epi64, _mm512_maskz_loadu_epi64, _mm512_storeu_epi64, _mm512_mask_storeu_epi64;
    sum => _mm512_add_epi64, prod => _mm512_mullo_epi64, min => _mm512_min_epi64, max => _mm512_max_epi64
}
integer! {
    U64x8, u64, u8, _mm512_loadu_epi64, _mm512_maskz_loadu_epi64, _mm512_storeu_epi64, _mm512_mask_storeu_epi64;
    sum => _mm512_add_epi64, prod => _mm512_mullo_epi64, min => _mm512_min_epu64, max => _mm512_max_epu64
}

impl Bits for U8x64 {
    combine!(and => _mm512_and_si512, or => _mm512_or_si512, xor => _mm512_xor_si512);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn entry<L: Line, O: Op<L>, const U: usize>(call: &Call<'_>) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { fold_all::<L, O, U>(call) }
}

/// Copies as `job` says; the caller vouches for its pointers and for the instruction set.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
pub(super) unsafe fn copy_lines(job: &CopyJob) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { copy_all::<I64x8, 8>(job) }
}

kernels! {
    entry, bits U8x64, 4;
    I8: I8x64, I8x64, 4;
    U8: U8x64, I8x64, 4;
    I32: I32x16, I32x16, 4;
    U32: U32x16, I32x16, 4;
    I64: I64x8, I64x8, 4;
    U64: U64x8, I64x8, 4;
    F16: F16x32, F16x32, 4;
    F32: F32x16, F32x16, 4;
    F64: F64x8, F64x8, 4;
    Bf16: Bf16x32, Bf16x32, 4;
    F8E4M3: F8E4M3x64, F8E4M3x64, 2;
    F8E5M2: F8E5M2x64, F8E5M2x64, 2;
}
