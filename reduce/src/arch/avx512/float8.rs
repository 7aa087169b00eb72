//! The 8-bit floats: 64 of them are four registers of binary32, by way of binary16.
//!
//! An E5M2 number is the upper half of a binary16, and an E4M3 number shifted into place is a binary16 of 2^-8 times
//! its value, subnormals included. Rounding twice on the way back, to binary16 and then to 8 bits, is what NCCL does;
//! tests show for all pairs of numbers that it never differs from rounding once.

use std::arch::x86_64::*;

use super::narrow::{from_halves, narrow_line, to_halves};
use super::{F32x16, low_bits};
use crate::fp8::{F8E4M3, F8E5M2, NAN_CODE};
use crate::line::Line;

/// Rounds binary16 to codes, ties to even and saturated, by dropping the lowest bits.
#[inline(always)]
unsafe fn encode<const DROPPED: u32>(halves: __m512i, largest: u8) -> __m512i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let magnitude = _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff));
        let sign = _mm512_and_si512(_mm512_srli_epi16::<8>(halves), _mm512_set1_epi16(0x80));
        let odd = _mm512_and_si512(_mm512_srli_epi16::<DROPPED>(magnitude), _mm512_set1_epi16(1));
        let below_half = _mm512_set1_epi16((1 << (DROPPED - 1)) - 1);
        let near = _mm512_add_epi16(magnitude, _mm512_add_epi16(odd, below_half));
        let largest = _mm512_set1_epi16(i16::from(largest));
        let code = _mm512_min_epu16(_mm512_srli_epi16::<DROPPED>(near), largest);
        let is_nan = _mm512_cmpgt_epu16_mask(magnitude, _mm512_set1_epi16(0x7c00));
        let nan = _mm512_set1_epi16(i16::from(NAN_CODE));
        _mm512_mask_blend_epi16(is_nan, _mm512_or_si512(code, sign), nan)
    }
}

/// A line of 8-bit floats: `widen` and `narrow` convert 32 codes in the lower bytes of 16-bit lanes.
macro_rules! line {
    ($name:ident, $elem:ty) => {
        /// The lower and upper half of the even elements, then of the odd ones, widened.
        #[derive(Clone, Copy)]
        pub(super) struct $name([__m512; 4]);

        impl $name {
            #[inline(always)]
            unsafe fn unpack(image: __m512i) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe {
                    let even = _mm512_and_si512(image, _mm512_set1_epi16(0xff));
                    let ([a, b], [c, d]) = (Self::widen(even), Self::widen(_mm512_srli_epi16::<8>(image)));
                    Self([a, b, c, d])
                }
            }

            #[inline(always)]
            unsafe fn pack(self) -> __m512i {
                let [a, b, c, d] = self.0;
                // SAFETY: the caller vouches for the instruction set.
                unsafe {
                    let odd = _mm512_slli_epi16::<8>(Self::narrow([c, d]));
                    _mm512_or_si512(Self::narrow([a, b]), odd)
                }
            }

            /// An operation's result is left wide: `pack` rounds it, and `settle` where another hop follows.
            #[inline(always)]
            unsafe fn after(wide: __m512) -> __m512 {
                wide
            }
        }

        impl Line for $name {
            narrow_line!($elem, u64, _mm512_maskz_loadu_epi8, _mm512_mask_storeu_epi8);

            #[inline(always)]
            unsafe fn settle(self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { Self::unpack(self.pack()) }
            }
        }
    };
}

line!(F8E4M3x64, F8E4M3);
line!(F8E5M2x64, F8E5M2);

impl F8E4M3x64 {
    #[inline(always)]
    unsafe fn widen(codes: __m512i) -> [__m512; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let magnitude = _mm512_and_si512(codes, _mm512_set1_epi16(0x7f));
            let sign = _mm512_slli_epi16::<8>(_mm512_xor_si512(codes, magnitude));
            let halves = _mm512_or_si512(_mm512_slli_epi16::<7>(magnitude), sign);
            let is_nan = _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(0x7f));
            let halves = _mm512_mask_blend_epi16(is_nan, halves, _mm512_set1_epi16(0x7e00));
            let ([low, high], scale) = (from_halves(halves), _mm512_set1_ps(256.0));
            [_mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale)]
        }
    }

    #[inline(always)]
    unsafe fn narrow(wide: [__m512; 2]) -> __m512i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let scale = _mm512_set1_ps(1.0 / 256.0);
            let scaled = [_mm512_mul_ps(wide[0], scale), _mm512_mul_ps(wide[1], scale)];
            encode::<7>(to_halves(scaled), F8E4M3::MAX.to_bits())
        }
    }
}

impl F8E5M2x64 {
    #[inline(always)]
    unsafe fn widen(codes: __m512i) -> [__m512; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { from_halves(_mm512_slli_epi16::<8>(codes)) }
    }

    #[inline(always)]
    unsafe fn narrow(wide: [__m512; 2]) -> __m512i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { encode::<8>(to_halves(wide), F8E5M2::MAX.to_bits()) }
    }
}
