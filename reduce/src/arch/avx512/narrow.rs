//! The 16-bit floats, and what they have in common with the 8-bit ones.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{F32x16, low_bits};
use crate::line::Line;

/// The memory and the arithmetic of narrow floats: `unpack` and `pack` say how 64 bytes become registers of binary32,
/// `after` what an operation leaves of one.
macro_rules! narrow_line {
    ($elem:ty, $mask:ty, $load_part:ident, $store_part:ident) => {
        type Elem = $elem;
        const STREAMS: bool = true;
        const MASKS: bool = true;

        #[inline(always)]
        unsafe fn load(from: *const u8) -> Self {
            // SAFETY: the caller vouches for 64 readable bytes.
            unsafe { Self::unpack(_mm512_loadu_si512(from.cast())) }
        }

        #[inline(always)]
        unsafe fn load_part(from: *const u8, elems: usize) -> Self {
            // SAFETY: masked-out lanes are not accessed; the caller vouches for the others.
            unsafe { Self::unpack($load_part(low_bits(elems) as $mask, from.cast())) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes.
            unsafe { _mm512_storeu_si512(to.cast(), self.pack()) }
        }

        #[inline(always)]
        unsafe fn store_part(self, to: *mut u8, elems: usize) {
            // SAFETY: masked-out lanes are not accessed; the caller vouches for the others.
            unsafe { $store_part(to.cast(), low_bits(elems) as $mask, self.pack()) }
        }

        #[inline(always)]
        unsafe fn stream(self, to: *mut u8) {
            // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
            unsafe { _mm512_stream_si512(to.cast(), self.pack()) }
        }

        #[inline(always)]
        unsafe fn sum(mut self, other: Self) -> Self {
            let mut i = 0;
            while i < self.0.len() {
                // SAFETY: the caller vouches for the instruction set.
                self.0[i] = unsafe { Self::after(_mm512_add_ps(self.0[i], other.0[i])) };
                i += 1;
            }
            self
        }

        #[inline(always)]
        unsafe fn prod(mut self, other: Self) -> Self {
            let mut i = 0;
            while i < self.0.len() {
                // SAFETY: the caller vouches for the instruction set.
                self.0[i] = unsafe { Self::after(_mm512_mul_ps(self.0[i], other.0[i])) };
                i += 1;
            }
            self
        }

        // The smaller of two representable numbers is representable: nothing to round.
        #[inline(always)]
        unsafe fn min(mut self, other: Self) -> Self {
            let mut i = 0;
            while i < self.0.len() {
                // SAFETY: the caller vouches for the instruction set.
                self.0[i] = unsafe { F32x16(self.0[i]).min(F32x16(other.0[i])).0 };
                i += 1;
            }
            self
        }

        #[inline(always)]
        unsafe fn max(mut self, other: Self) -> Self {
            let mut i = 0;
            while i < self.0.len() {
                // SAFETY: the caller vouches for the instruction set.
                self.0[i] = unsafe { F32x16(self.0[i]).max(F32x16(other.0[i])).0 };
                i += 1;
            }
            self
        }
    };
}
pub(super) use narrow_line;

/// Elements 0 to 15 and 16 to 31, widened.
#[derive(Clone, Copy)]
pub(super) struct F16x32([__m512; 2]);

/// 32 binary16 numbers, widened.
#[inline(always)]
pub(super) unsafe fn from_halves(image: __m512i) -> [__m512; 2] {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let high = _mm512_extracti64x4_epi64::<1>(image);
        [_mm512_cvtph_ps(_mm512_castsi512_si256(image)), _mm512_cvtph_ps(high)]
    }
}

/// 32 binary32 numbers, rounded to binary16, ties to even.
#[inline(always)]
pub(super) unsafe fn to_halves(wide: [__m512; 2]) -> __m512i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let low = _mm512_castsi256_si512(F16x32::narrow(wide[0]));
        _mm512_inserti64x4::<1>(low, F16x32::narrow(wide[1]))
    }
}

impl F16x32 {
    #[inline(always)]
    unsafe fn unpack(image: __m512i) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self(from_halves(image)) }
    }

    #[inline(always)]
    unsafe fn narrow(wide: __m512) -> __m256i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(wide) }
    }

    #[inline(always)]
    unsafe fn pack(self) -> __m512i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { to_halves(self.0) }
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
    narrow_line!(f16, u32, _mm512_maskz_loadu_epi16, _mm512_mask_storeu_epi16);

    #[inline(always)]
    unsafe fn settle(self) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self([Self::round(self.0[0]), Self::round(self.0[1])]) }
    }
}

/// Even and odd elements, widened: a shift and a mask instead of shuffles.
#[derive(Clone, Copy)]
pub(super) struct Bf16x32([__m512; 2]);

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
    ///
    /// A NaN stays one: that of an operation on bf16 values has a zero lower half, from which nothing is carried.
    #[inline(always)]
    unsafe fn after(wide: __m512) -> __m512 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let bits = _mm512_castps_si512(wide);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let near = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            _mm512_castsi512_ps(_mm512_and_si512(near, _mm512_set1_epi32(!0xffff)))
        }
    }
}

impl Line for Bf16x32 {
    narrow_line!(bf16, u32, _mm512_maskz_loadu_epi16, _mm512_mask_storeu_epi16);
}
