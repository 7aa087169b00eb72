//! AVX2 with F16C: a line is two registers, or several of binary32 for the narrow floats.

use std::arch::x86_64::*;

use crate::copy::{CopyJob, copy_all};
use crate::dtype::DType;
use crate::kernel::{Call, Kernel, fold_all};
use crate::line::{BitAnd, BitOr, BitXor, Bits, LINE, Line, Max, Min, Op, Prod, ScaledSum, Sum};
use crate::op::ReduceOp;

mod float8;
mod narrow;

use float8::{F8E4M3x64, F8E5M2x64};
use narrow::{Bf16x32, F16x32};

/// Bytes of a register.
const HALF: usize = LINE / 2;

/// The first `bytes` bytes of a line, the rest zero.
#[inline(always)]
unsafe fn image_of(from: *const u8, bytes: usize) -> [u8; LINE] {
    debug_assert!(bytes <= LINE);
    let mut image = [0u8; LINE];
    // SAFETY: at most a line; the caller vouches for `bytes` readable bytes.
    unsafe { std::ptr::copy_nonoverlapping(from, image.as_mut_ptr(), bytes) };
    image
}

/// Stores the first `bytes` bytes of a line.
#[inline(always)]
unsafe fn store_image<L: Line>(line: L, to: *mut u8, bytes: usize) {
    debug_assert!(bytes <= LINE);
    let mut image = [0u8; LINE];
    // SAFETY: the image is a line; the caller vouches for `bytes` writable bytes.
    unsafe {
        line.store(image.as_mut_ptr());
        std::ptr::copy_nonoverlapping(image.as_ptr(), to, bytes);
    }
}

#[inline(always)]
unsafe fn load_bits(from: *const u8) -> [__m256i; 2] {
    // SAFETY: the caller vouches for 64 readable bytes.
    unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(HALF).cast())] }
}

#[inline(always)]
unsafe fn store_bits(value: [__m256i; 2], to: *mut u8) {
    // SAFETY: the caller vouches for 64 writable bytes.
    unsafe {
        _mm256_storeu_si256(to.cast(), value[0]);
        _mm256_storeu_si256(to.add(HALF).cast(), value[1]);
    }
}

#[inline(always)]
unsafe fn stream_bits(value: [__m256i; 2], to: *mut u8) {
    // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
    unsafe {
        _mm256_stream_si256(to.cast(), value[0]);
        _mm256_stream_si256(to.add(HALF).cast(), value[1]);
    }
}

/// The memory side of integers and wide floats; `into` and `from` reinterpret a register's bits.
macro_rules! memory {
    ($elem:ty, $into:path, $from:path) => {
        type Elem = $elem;
        const STREAMS: bool = true;
        // Bytes would be too many to go through one by one.
        const MASKS: bool = size_of::<$elem>() == 1;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for 64 readable bytes.
            unsafe {
                let [low, high] = load_bits(from);
                Self([$from(low), $from(high)])
            }
        }

        // VPMASKMOV takes 50 ns where lanes are masked out here, far more than a few scalar elements or the detour
        // over the stack.
        #[inline(always)]
        unsafe fn load_part(from: *const u8, elems: usize) -> Self {
            // SAFETY: the caller vouches for `elems` readable elements.
            unsafe { Self::load(image_of(from, elems * size_of::<$elem>()).as_ptr()) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes.
            unsafe { store_bits([$into(self.0[0]), $into(self.0[1])], to) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut u8, elems: usize) {
            // SAFETY: the caller vouches for `elems` writable elements.
            unsafe { store_image(self, to, elems * size_of::<$elem>()) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
            unsafe { stream_bits([$into(self.0[0]), $into(self.0[1])], to) }
        }
    };
}

macro_rules! combine {
    ($($method:ident => $intrinsic:ident),*) => {$(
        #[inline(always)]
        unsafe fn $method(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { Self([$intrinsic(self.0[0], other.0[0]), $intrinsic(self.0[1], other.0[1])]) }
        }
    )*};
}

/// A two-register function, from a body for one.
macro_rules! lanewise {
    ($($name:ident($a:ident, $b:ident: $vector:ty) $body:block)*) => {$(
        #[inline(always)]
        unsafe fn $name($a: $vector, $b: $vector) -> $vector {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { $body }
        }
    )*};
}

// The x86 minimum gives its second operand when either is a NaN. That is right for a NaN in the first,
// so a blend only has to keep the first where the second is a NaN.
lanewise! {
    min_ps(a, b: __m256) { _mm256_blendv_ps(_mm256_min_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b)) }
    max_ps(a, b: __m256) { _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, b)) }
    min_pd(a, b: __m256d) { _mm256_blendv_pd(_mm256_min_pd(a, b), a, _mm256_cmp_pd::<_CMP_UNORD_Q>(b, b)) }
    max_pd(a, b: __m256d) { _mm256_blendv_pd(_mm256_max_pd(a, b), a, _mm256_cmp_pd::<_CMP_UNORD_Q>(b, b)) }
    min_epi64(a, b: __m256i) { _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b)) }
    max_epi64(a, b: __m256i) { _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b)) }
    min_epu64(a, b: __m256i) { _mm256_blendv_epi8(a, b, above_epu64(a, b)) }
    max_epu64(a, b: __m256i) { _mm256_blendv_epi8(b, a, above_epu64(a, b)) }
    // Signed and unsigned order are one when the upper half of all numbers changes places with the lower.
    above_epu64(a, b: __m256i) {
        let top = _mm256_set1_epi64x(i64::MIN);
        _mm256_cmpgt_epi64(_mm256_xor_si256(a, top), _mm256_xor_si256(b, top))
    }
    // The low 8 bits of a product: those of the odd bytes are computed where they belong.
    mullo_epi8(a, b: __m256i) {
        let upper = _mm256_set1_epi16(!0xff);
        let even = _mm256_mullo_epi16(a, b);
        let odd = _mm256_mullo_epi16(_mm256_srli_epi16::<8>(a), _mm256_and_si256(b, upper));
        _mm256_or_si256(_mm256_andnot_si256(upper, even), odd)
    }
    // The low 64 bits of a product: low halves in full, plus both cross products shifted up.
    mullo_epi64(a, b: __m256i) {
        let cross = _mm256_add_epi64(
            _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), b),
            _mm256_mul_epu32(a, _mm256_srli_epi64::<32>(b)),
        );
        _mm256_add_epi64(_mm256_mul_epu32(a, b), _mm256_slli_epi64::<32>(cross))
    }
}

/// Bits that need no reinterpretation.
#[inline(always)]
fn same(bits: __m256i) -> __m256i {
    bits
}

#[derive(Clone, Copy)]
struct F32x16([__m256; 2]);

impl Line for F32x16 {
    memory!(f32, _mm256_castps_si256, _mm256_castsi256_ps);
    combine!(sum => _mm256_add_ps, prod => _mm256_mul_ps, min => min_ps, max => max_ps);
}

#[derive(Clone, Copy)]
struct F64x8([__m256d; 2]);

impl Line for F64x8 {
    memory!(f64, _mm256_castpd_si256, _mm256_castsi256_pd);
    combine!(sum => _mm256_add_pd, prod => _mm256_mul_pd, min => min_pd, max => max_pd);
}

macro_rules! integer {
    ($($name:ident, $elem:ty; $($method:ident => $operation:ident),*;)*) => {$(
        #[derive(Clone, Copy)]
        struct $name([__m256i; 2]);

        impl Line for $name {
            memory!($elem, same, same);
            combine!($($method => $operation),*);
        }
    )*};
}

integer! {
    I8x64, i8;
    sum => _mm256_add_epi8, prod => mullo_epi8, min => _mm256_min_epi8, max => _mm256_max_epi8;
    U8x64, u8;
    sum => _mm256_add_epi8, prod => mullo_epi8, min => _mm256_min_epu8, max => _mm256_max_epu8;
    I32x16, i32;
    sum => _mm256_add_epi32, prod => _mm256_mullo_epi32, min => _mm256_min_epi32, max => _mm256_max_epi32;
    U32x16, u32;
    sum => _mm256_add_epi32, prod => _mm256_mullo_epi32, min => _mm256_min_epu32, max => _mm256_max_epu32;
    I64x8, i64;
    sum => _mm256_add_epi64, prod => mullo_epi64, min => min_epi64, max => max_epi64;
    U64x8, u64;
    sum => _mm256_add_epi64, prod => mullo_epi64, min => min_epu64, max => max_epu64;
}

impl Bits for U8x64 {
    combine!(and => _mm256_and_si256, or => _mm256_or_si256, xor => _mm256_xor_si256);
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn entry<L: Line, O: Op<L>, const U: usize>(call: &Call<'_>) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { fold_all::<L, O, U>(call) }
}

/// Copies as `job` says; the caller vouches for its pointers and for the instruction set.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn copy_lines(job: &CopyJob) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { copy_all::<I64x8, 4>(job) }
}

// The narrow floats need 8 or 16 registers for two lines, and there are 16.
kernels! {
    entry, bits U8x64, 4;
    I8: I8x64, I8x64, 4;
    U8: U8x64, I8x64, 4;
    I32: I32x16, I32x16, 4;
    U32: U32x16, I32x16, 4;
    I64: I64x8, I64x8, 4;
    U64: U64x8, I64x8, 4;
    F16: F16x32, F16x32, 2;
    F32: F32x16, F32x16, 4;
    F64: F64x8, F64x8, 4;
    Bf16: Bf16x32, Bf16x32, 2;
    F8E4M3: F8E4M3x64, F8E4M3x64, 1;
    F8E5M2: F8E5M2x64, F8E5M2x64, 1;
}
