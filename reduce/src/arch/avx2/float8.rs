//! The 8-bit floats: 32 of them are four registers of binary32, by way of binary16.
//!
//! An E5M2 number is the upper half of a binary16, and an E4M3 number shifted into place is a binary16 of 2^-8 times
//! its value, subnormals included. Rounding twice on the way back, to binary16 and then to 8 bits, is what NCCL does;
//! tests show for all pairs of numbers that it never differs from rounding once.

use std::arch::x86_64::*;

use super::narrow::{F16x32, narrow_line};
use super::{image_of, load_bits, max_ps, min_ps, store_bits, store_image, stream_bits};
use crate::fp8::{F8E4M3, F8E5M2, NAN_CODE};
use crate::line::Line;

/// Rounds binary16 to codes, ties to even and saturated, by dropping the lowest bits.
#[inline(always)]
unsafe fn encode<const DROPPED: i32>(halves: __m256i, largest: u8) -> __m256i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let magnitude = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
        let sign = _mm256_and_si256(_mm256_srli_epi16::<8>(halves), _mm256_set1_epi16(0x80));
        let odd = _mm256_and_si256(_mm256_srli_epi16::<DROPPED>(magnitude), _mm256_set1_epi16(1));
        let below_half = _mm256_set1_epi16((1 << (DROPPED - 1)) - 1);
        let near = _mm256_add_epi16(magnitude, _mm256_add_epi16(odd, below_half));
        let largest = _mm256_set1_epi16(i16::from(largest));
        let code = _mm256_min_epu16(_mm256_srli_epi16::<DROPPED>(near), largest);
        let is_nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00));
        let nan = _mm256_set1_epi16(i16::from(NAN_CODE));
        _mm256_blendv_epi8(_mm256_or_si256(code, sign), nan, is_nan)
    }
}

/// A line of 8-bit floats: `widen` and `narrow` convert 16 codes in the lower bytes of 16-bit lanes.
macro_rules! line {
    ($name:ident, $elem:ty) => {
        /// Per register of memory: the lower and upper half of its even elements, then of the odd ones, widened.
        #[derive(Clone, Copy)]
        pub(super) struct $name([[__m256; 4]; 2]);

        impl $name {
            #[inline(always)]
            unsafe fn unpack(image: __m256i) -> [__m256; 4] {
                // SAFETY: the caller vouches for the instruction set.
                unsafe {
                    let even = _mm256_and_si256(image, _mm256_set1_epi16(0xff));
                    let ([a, b], [c, d]) = (Self::widen(even), Self::widen(_mm256_srli_epi16::<8>(image)));
                    [a, b, c, d]
                }
            }

            #[inline(always)]
            unsafe fn pack([a, b, c, d]: [__m256; 4]) -> __m256i {
                // SAFETY: the caller vouches for the instruction set.
                unsafe {
                    let odd = _mm256_slli_epi16::<8>(Self::narrow([c, d]));
                    _mm256_or_si256(Self::narrow([a, b]), odd)
                }
            }

            /// An operation's result is left wide: `pack` rounds it, and `settle` where another hop follows.
            #[inline(always)]
            unsafe fn after(wide: __m256) -> __m256 {
                wide
            }

            #[inline(always)]
            unsafe fn settled(wide: [__m256; 4]) -> [__m256; 4] {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { Self::unpack(Self::pack(wide)) }
            }
        }

        narrow_line!($name, $elem, 4);
    };
}

line!(F8E4M3x64, F8E4M3);
line!(F8E5M2x64, F8E5M2);

impl F8E4M3x64 {
    #[inline(always)]
    unsafe fn widen(codes: __m256i) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let nan = _mm256_set1_epi16(0x7f);
            let magnitude = _mm256_and_si256(codes, nan);
            let sign = _mm256_slli_epi16::<8>(_mm256_xor_si256(codes, magnitude));
            let halves = _mm256_or_si256(_mm256_slli_epi16::<7>(magnitude), sign);
            let exponent = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, nan), _mm256_set1_epi16(0x7c00));
            let [low, high] = F16x32::unpack(_mm256_or_si256(halves, exponent));
            let scale = _mm256_set1_ps(256.0);
            [_mm256_mul_ps(low, scale), _mm256_mul_ps(high, scale)]
        }
    }

    #[inline(always)]
    unsafe fn narrow(wide: [__m256; 2]) -> __m256i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let scale = _mm256_set1_ps(1.0 / 256.0);
            let scaled = [_mm256_mul_ps(wide[0], scale), _mm256_mul_ps(wide[1], scale)];
            encode::<7>(F16x32::pack(scaled), F8E4M3::MAX.to_bits())
        }
    }
}

impl F8E5M2x64 {
    #[inline(always)]
    unsafe fn widen(codes: __m256i) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { F16x32::unpack(_mm256_slli_epi16::<8>(codes)) }
    }

    #[inline(always)]
    unsafe fn narrow(wide: [__m256; 2]) -> __m256i {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { encode::<8>(F16x32::pack(wide), F8E5M2::MAX.to_bits()) }
    }
}
