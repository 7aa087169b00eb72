//! AVX-512 with its FP16 extension: binary16 and the 8-bit floats without a detour over binary32. Everything else is as
//! in plain AVX-512, bf16 included: the BF16 extension has no sum, and its conversion flushes subnormal numbers.
//!
//! The results are those of the other paths to the bit: an instruction on binary16 rounds once, as the binary32
//! operation rounded again does.

use std::arch::x86_64::*;

use half::f16;

use super::{low_bits, memory};
use crate::dtype::DType;
use crate::fp8::{F8E4M3, F8E5M2, NAN_CODE};
use crate::kernel::{Call, Kernel, fold_all};
use crate::line::{Line, Max, Min, Op, Prod, ScaledSum, Sum};
use crate::op::ReduceOp;

/// The memory of a line that is held as its 64 bytes.
macro_rules! image {
    ($elem:ty, $mask:ty, $load:ident, $load_part:ident, $store:ident, $store_part:ident) => {
        memory!($elem, $mask, __m512i, $load, $load_part, $store, $store_part);

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
            unsafe { _mm512_stream_si512(to.cast(), self.0) }
        }
    };
}

/// Operations of a line in terms of those on 32 binary16 numbers.
macro_rules! by_halves {
    ($($method:ident => $operation:path),*) => {$(
        #[inline(always)]
        unsafe fn $method(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe {
                let ([a, b], [c, d]) = (self.widen(), other.widen());
                Self::narrow([$operation(a, c), $operation(b, d)])
            }
        }
    )*};
}

/// The smaller numbers. The instruction gives its second operand when either is a NaN, which is right for a NaN in the
/// first.
#[inline(always)]
unsafe fn min_ph(a: __m512h, b: __m512h) -> __m512h {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { _mm512_mask_min_ph(a, _mm512_cmp_ph_mask::<_CMP_ORD_Q>(b, b), a, b) }
}

/// The larger numbers, as [`min_ph`].
#[inline(always)]
unsafe fn max_ph(a: __m512h, b: __m512h) -> __m512h {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { _mm512_mask_max_ph(a, _mm512_cmp_ph_mask::<_CMP_ORD_Q>(b, b), a, b) }
}

/// 32 binary16 numbers.
#[derive(Clone, Copy)]
struct F16x32(__m512i);

impl F16x32 {
    #[inline(always)]
    unsafe fn halves(self) -> __m512h {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { _mm512_castsi512_ph(self.0) }
    }
}

macro_rules! halves {
    ($($method:ident => $operation:path),*) => {$(
        #[inline(always)]
        unsafe fn $method(self, other: Self) -> Self {
            // SAFETY: the caller vouches for the instruction set.
            unsafe { Self(_mm512_castph_si512($operation(self.halves(), other.halves()))) }
        }
    )*};
}

impl Line for F16x32 {
    image!(
        f16,
        u32,
        _mm512_loadu_epi16,
        _mm512_maskz_loadu_epi16,
        _mm512_storeu_epi16,
        _mm512_mask_storeu_epi16
    );
    halves!(sum => _mm512_add_ph, prod => _mm512_mul_ph, min => min_ph, max => max_ph);
}

/// The codes of 64 8-bit floats as two lines of binary16, in the order of UNPCKL and UNPCKH: each in an upper byte.
#[inline(always)]
unsafe fn upper_bytes(image: __m512i) -> [__m512i; 2] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let zero = _mm512_setzero_si512();
        [_mm512_unpacklo_epi8(zero, image), _mm512_unpackhi_epi8(zero, image)]
    }
}

/// Rounds binary16 magnitudes to codes by dropping the lowest bits, ties to even; neither saturated nor for NaNs.
#[inline(always)]
unsafe fn round<const DROPPED: u32>(halves: __m512h) -> __m512i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let magnitude = _mm512_and_si512(_mm512_castph_si512(halves), _mm512_set1_epi16(0x7fff));
        let even = _mm512_andnot_si512(_mm512_srli_epi16::<DROPPED>(magnitude), _mm512_set1_epi16(1));
        // The instruction multiplies, divides by 2^15 and rounds halves up: one less where halves go down.
        let shift = _mm512_set1_epi16(1 << (15 - DROPPED));
        _mm512_mulhrs_epi16(_mm512_sub_epi16(magnitude, even), shift)
    }
}

/// The same, saturated; a NaN becomes its code.
#[inline(always)]
unsafe fn encode<const DROPPED: u32>(halves: __m512h, largest: u8) -> __m512i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let is_number = _mm512_cmp_ph_mask::<_CMP_ORD_Q>(halves, halves);
        let nan = _mm512_set1_epi16(i16::from(NAN_CODE));
        let largest = _mm512_set1_epi16(i16::from(largest));
        _mm512_mask_min_epu16(nan, is_number, round::<DROPPED>(halves), largest)
    }
}

/// The upper bytes of signs and the lower bits of `codes`.
#[inline(always)]
unsafe fn with_signs(signs: __m512i, codes: __m512i) -> __m512i {
    const SELECT: i32 = 0xea; // (signs & 0x80) | codes
    // SAFETY: the caller vouches for the instruction set.
    unsafe { _mm512_ternarylogic_epi32::<SELECT>(signs, _mm512_set1_epi8(-0x80), codes) }
}

/// The 64 bytes of two lines of codes, with the signs of the numbers from which they come; a NaN has none.
#[inline(always)]
unsafe fn signed(codes: [__m512i; 2], halves: [__m512h; 2]) -> __m512i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let codes = _mm512_packus_epi16(codes[0], codes[1]);
        let is_number = _mm512_cmpneq_epi8_mask(codes, _mm512_set1_epi8(NAN_CODE as i8));
        let [low, high] = [_mm512_castph_si512(halves[0]), _mm512_castph_si512(halves[1])];
        // Saturation to bytes keeps the sign.
        with_signs(_mm512_maskz_packs_epi16(is_number, low, high), codes)
    }
}

/// 64 numbers of E4M3.
#[derive(Clone, Copy)]
struct F8E4M3x64(__m512i);

impl F8E4M3x64 {
    /// The binary16 numbers of 2^-8 times the values.
    #[inline(always)]
    unsafe fn widen(self) -> [__m512h; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let [low, high] = upper_bytes(self.0);
            [Self::widen_half(low), Self::widen_half(high)]
        }
    }

    /// The same, but that codes of NaNs give numbers, too.
    #[inline(always)]
    unsafe fn widen_numbers(self) -> [__m512h; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let [low, high] = upper_bytes(self.0);
            [_mm512_castsi512_ph(Self::widen_number(low)), _mm512_castsi512_ph(Self::widen_number(high))]
        }
    }

    #[inline(always)]
    unsafe fn widen_half(upper: __m512i) -> __m512h {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let half = Self::widen_number(upper);
            let magnitude = _mm512_and_si512(half, _mm512_set1_epi16(0x7fff));
            let is_nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x3f80));
            _mm512_castsi512_ph(_mm512_mask_blend_epi16(is_nan, half, _mm512_set1_epi16(0x7e00)))
        }
    }

    #[inline(always)]
    unsafe fn widen_number(upper: __m512i) -> __m512i {
        // The exponent is a bit shorter than that of binary16: the shift doubles the sign, and the mask drops one.
        // SAFETY: the caller vouches for the instruction set.
        unsafe { _mm512_and_si512(_mm512_srai_epi16::<1>(upper), _mm512_set1_epi16(!0x4000)) }
    }

    /// Which of the 64 are NaNs.
    #[inline(always)]
    unsafe fn nans(self) -> __mmask64 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let negative = _mm512_or_si512(self.0, _mm512_set1_epi8(-0x80));
            _mm512_cmpeq_epi8_mask(negative, _mm512_set1_epi8(-1))
        }
    }

    /// Sums and products of numbers are numbers: NaNs are seen before, which is quicker.
    #[inline(always)]
    unsafe fn narrow_numbers(halves: [__m512h; 2], nans: __mmask64) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let codes = _mm512_packus_epi16(round::<7>(halves[0]), round::<7>(halves[1]));
            let codes = _mm512_min_epu8(codes, _mm512_set1_epi8(F8E4M3::MAX.to_bits() as i8));
            let [low, high] = [_mm512_castph_si512(halves[0]), _mm512_castph_si512(halves[1])];
            let numbers = with_signs(_mm512_packs_epi16(low, high), codes);
            Self(_mm512_mask_blend_epi8(nans, numbers, _mm512_set1_epi8(NAN_CODE as i8)))
        }
    }

    #[inline(always)]
    unsafe fn narrow(halves: [__m512h; 2]) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let largest = F8E4M3::MAX.to_bits();
            Self(signed([encode::<7>(halves[0], largest), encode::<7>(halves[1], largest)], halves))
        }
    }
}

impl Line for F8E4M3x64 {
    image!(
        F8E4M3,
        u64,
        _mm512_loadu_epi8,
        _mm512_maskz_loadu_epi8,
        _mm512_storeu_epi8,
        _mm512_mask_storeu_epi8
    );
    by_halves!(min => min_ph, max => max_ph);

    #[inline(always)]
    unsafe fn sum(self, other: Self) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let ([a, b], [c, d]) = (self.widen_numbers(), other.widen_numbers());
            Self::narrow_numbers([_mm512_add_ph(a, c), _mm512_add_ph(b, d)], self.nans() | other.nans())
        }
    }

    #[inline(always)]
    unsafe fn prod(self, other: Self) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let ([a, b], [c, d]) = (self.widen_numbers(), other.widen_numbers());
            let scale = _mm512_castsi512_ph(_mm512_set1_epi16(0x5c00)); // 2^8: one factor has its true size.
            let [c, d] = [_mm512_mul_ph(c, scale), _mm512_mul_ph(d, scale)];
            Self::narrow_numbers([_mm512_mul_ph(a, c), _mm512_mul_ph(b, d)], self.nans() | other.nans())
        }
    }
}

/// 64 numbers of E5M2.
#[derive(Clone, Copy)]
struct F8E5M2x64(__m512i);

impl F8E5M2x64 {
    #[inline(always)]
    unsafe fn widen(self) -> [__m512h; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let [low, high] = upper_bytes(self.0);
            [_mm512_castsi512_ph(low), _mm512_castsi512_ph(high)]
        }
    }

    #[inline(always)]
    unsafe fn narrow(halves: [__m512h; 2]) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let largest = F8E5M2::MAX.to_bits();
            Self(signed([encode::<8>(halves[0], largest), encode::<8>(halves[1], largest)], halves))
        }
    }
}

impl Line for F8E5M2x64 {
    image!(
        F8E5M2,
        u64,
        _mm512_loadu_epi8,
        _mm512_maskz_loadu_epi8,
        _mm512_storeu_epi8,
        _mm512_mask_storeu_epi8
    );
    by_halves!(sum => _mm512_add_ph, prod => _mm512_mul_ph, min => min_ph, max => max_ph);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512fp16,f16c")]
unsafe fn entry<L: Line, O: Op<L>, const U: usize>(call: &Call<'_>) {
    // SAFETY: the features are enabled here; the pointers are the caller's promise.
    unsafe { fold_all::<L, O, U>(call) }
}

fn of_lines<L: Line, const U: usize>(op: ReduceOp) -> Option<Kernel> {
    Some(match op {
        ReduceOp::Sum => entry::<L, Sum, U>,
        ReduceOp::Prod => entry::<L, Prod, U>,
        ReduceOp::Min => entry::<L, Min, U>,
        ReduceOp::Max => entry::<L, Max, U>,
        ReduceOp::Avg | ReduceOp::PreMulSum(_) => entry::<L, ScaledSum, U>,
        ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => return None,
    })
}

/// The kernel for one element type and operation.
pub(in crate::arch) fn kernel(dtype: DType, op: ReduceOp) -> Kernel {
    let narrow = match dtype {
        DType::F16 => of_lines::<F16x32, 4>(op),
        DType::F8E4M3 => of_lines::<F8E4M3x64, 2>(op),
        DType::F8E5M2 => of_lines::<F8E5M2x64, 2>(op),
        _ => None,
    };
    narrow.unwrap_or_else(|| super::kernel(dtype, op))
}
