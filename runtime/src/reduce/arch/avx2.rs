//! AVX2 with F16C: a line is two registers, or four (two pairs) of binary32 for the 16-bit floats.

use std::arch::x86_64::*;

use half::{bf16, f16};

use crate::reduce::copy::{CopyJob, copy_all};
use crate::reduce::dtype::DType;
use crate::reduce::kernel::{Call, Kernel, fold_all};
use crate::reduce::line::{Avg, LINE, Line, Max, Min, Op, Prod, Sum};
use crate::reduce::op::ReduceOp;

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

/// The memory side of the 32- and 64-bit types; `into` and `from` reinterpret a register's bits.
macro_rules! memory {
    ($elem:ty, $into:path, $from:path) => {
        type Elem = $elem;
        const STREAMS: bool = true;
        const MASKS: bool = false;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for 64 readable bytes.
            unsafe { Self(load_bits(from).map(|bits| $from(bits))) }
        }

        // VPMASKMOV takes 50 ns where lanes are masked out here, far more than a few scalar elements:
        // `MASKS` is off, and the kernels do not come here.
        #[inline(always)]
        unsafe fn load_part(from: *const u8, elems: usize) -> Self {
            // SAFETY: the caller vouches for `elems` readable elements.
            unsafe { Self::load(image_of(from, elems * size_of::<$elem>()).as_ptr()) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes.
            unsafe { store_bits(self.0.map(|half| $into(half)), to) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut u8, elems: usize) {
            // SAFETY: the caller vouches for `elems` writable elements.
            unsafe { store_image(self, to, elems * size_of::<$elem>()) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
            unsafe { stream_bits(self.0.map(|half| $into(half)), to) }
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

#[derive(Clone, Copy)]
struct I32x16([__m256i; 2]);

impl Line for I32x16 {
    memory!(i32, same, same);
    combine!(sum => _mm256_add_epi32, prod => _mm256_mullo_epi32, min => _mm256_min_epi32, max => _mm256_max_epi32);
}

#[derive(Clone, Copy)]
struct I64x8([__m256i; 2]);

impl Line for I64x8 {
    memory!(i64, same, same);
    combine!(sum => _mm256_add_epi64, prod => mullo_epi64, min => min_epi64, max => max_epi64);
}

/// The 16-bit floats: `unpack` and `pack` say how one register becomes a pair of binary32, `after`
/// what an operation leaves of a binary32, and `settled` what the next one receives.
macro_rules! narrow_line {
    ($name:ident, $elem:ty) => {
        impl $name {
            #[inline(always)]
            unsafe fn each(self, other: Self, combine: impl Fn(__m256, __m256) -> __m256) -> Self {
                let ([[a, b], [c, d]], [[e, f], [g, h]]) = (self.0, other.0);
                Self([[combine(a, e), combine(b, f)], [combine(c, g), combine(d, h)]])
            }
        }

        impl Line for $name {
            type Elem = $elem;
            const STREAMS: bool = true;
            const MASKS: bool = true;

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: the caller vouches for 64 readable bytes.
                unsafe { Self(load_bits(from).map(|bits| Self::unpack(bits))) }
            }

            // AVX2 has no masked access to 16-bit lanes; the detour over the stack is shorter than
            // converting elements one by one.
            #[inline(always)]
            unsafe fn load_part(from: *const u8, elems: usize) -> Self {
                // SAFETY: the caller vouches for `elems` readable elements.
                unsafe { Self::load(image_of(from, elems * 2).as_ptr()) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: the caller vouches for 64 writable bytes.
                unsafe { store_bits(self.0.map(|pair| Self::pack(pair)), to) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut u8, elems: usize) {
                // SAFETY: the caller vouches for `elems` writable elements.
                unsafe { store_image(self, to, elems * 2) }
            }

            #[inline(always)]
            unsafe fn stream(self, to: *mut u8) {
                // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
                unsafe { stream_bits(self.0.map(|pair| Self::pack(pair)), to) }
            }

            #[inline(always)]
            unsafe fn settle(self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { Self(self.0.map(|pair| pair.map(|wide| Self::settled(wide)))) }
            }

            #[inline(always)]
            unsafe fn sum(self, other: Self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { self.each(other, |a, b| Self::after(_mm256_add_ps(a, b))) }
            }

            #[inline(always)]
            unsafe fn prod(self, other: Self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { self.each(other, |a, b| Self::after(_mm256_mul_ps(a, b))) }
            }

            // The smaller of two representable numbers is representable: nothing to round.
            #[inline(always)]
            unsafe fn min(self, other: Self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { self.each(other, |a, b| min_ps(a, b)) }
            }

            #[inline(always)]
            unsafe fn max(self, other: Self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { self.each(other, |a, b| max_ps(a, b)) }
            }
        }
    };
}

/// Per register of memory: its lower and its upper eight elements, widened.
#[derive(Clone, Copy)]
struct F16x32([[__m256; 2]; 2]);

impl F16x32 {
    #[inline(always)]
    unsafe fn unpack(image: __m256i) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let upper = _mm256_extracti128_si256::<1>(image);
            [_mm256_cvtph_ps(_mm256_castsi256_si128(image)), _mm256_cvtph_ps(upper)]
        }
    }

    #[inline(always)]
    unsafe fn narrow(wide: __m256) -> __m128i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(wide) }
    }

    #[inline(always)]
    unsafe fn pack(pair: [__m256; 2]) -> __m256i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let lower = _mm256_castsi128_si256(Self::narrow(pair[0]));
            _mm256_inserti128_si256::<1>(lower, Self::narrow(pair[1]))
        }
    }

    /// An operation's result is left wide: `pack` rounds it, and `settle` where another hop follows.
    #[inline(always)]
    unsafe fn after(wide: __m256) -> __m256 {
        wide
    }

    #[inline(always)]
    unsafe fn settled(wide: __m256) -> __m256 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { _mm256_cvtph_ps(Self::narrow(wide)) }
    }
}

narrow_line!(F16x32, f16);

/// Per register of memory: its even and its odd elements, widened by a shift and a mask.
#[derive(Clone, Copy)]
struct Bf16x32([[__m256; 2]; 2]);

impl Bf16x32 {
    #[inline(always)]
    unsafe fn unpack(image: __m256i) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let odd = _mm256_and_si256(image, _mm256_set1_epi32(!0xffff));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(image)), _mm256_castsi256_ps(odd)]
        }
    }

    #[inline(always)]
    unsafe fn pack(pair: [__m256; 2]) -> __m256i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let even = _mm256_srli_epi32::<16>(_mm256_castps_si256(pair[0]));
            _mm256_or_si256(even, _mm256_castps_si256(pair[1]))
        }
    }

    #[inline(always)]
    unsafe fn settled(wide: __m256) -> __m256 {
        wide
    }

    /// The nearest bf16 value, ties to even; a NaN stays one.
    #[inline(always)]
    unsafe fn after(wide: __m256) -> __m256 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let bits = _mm256_castps_si256(wide);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(wide, wide);
            let kept = _mm256_blendv_ps(_mm256_castsi256_ps(near), _mm256_castsi256_ps(quiet), is_nan);
            _mm256_and_ps(kept, _mm256_castsi256_ps(_mm256_set1_epi32(!0xffff)))
        }
    }
}

narrow_line!(Bf16x32, bf16);

#[target_feature(enable = "avx2,f16c")]
unsafe fn entry<L: Line, O: Op, const U: usize>(call: &Call<'_>) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { fold_all::<L, O, U>(call) }
}

/// Copies as `job` says; the caller vouches for its pointers and for the instruction set.
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn copy_lines(job: &CopyJob) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { copy_all::<I64x8, 4>(job) }
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

/// The kernel for one element type and operation; the 16-bit floats keep two lines in 8 registers.
pub(in crate::reduce) fn kernel(dtype: DType, op: ReduceOp) -> Kernel {
    match dtype {
        DType::F32 => by_op::<F32x16, 4>(op),
        DType::F64 => by_op::<F64x8, 4>(op),
        DType::I32 => by_op::<I32x16, 4>(op),
        DType::I64 => by_op::<I64x8, 4>(op),
        DType::F16 => by_op::<F16x32, 2>(op),
        DType::Bf16 => by_op::<Bf16x32, 2>(op),
    }
}
