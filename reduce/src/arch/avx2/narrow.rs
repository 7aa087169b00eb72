//! The 16-bit floats, and what they have in common with the 8-bit ones.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::{image_of, load_bits, max_ps, min_ps, store_bits, store_image, stream_bits};
use crate::line::Line;

/// The narrow floats: `unpack` and `pack` say how one register becomes `$n` of binary32, `after` what an operation
/// leaves of a binary32, and `settled` what the next one receives.
macro_rules! narrow_line {
    ($name:ident, $elem:ty, $n:literal) => {
        impl Line for $name {
            type Elem = $elem;
            const STREAMS: bool = true;
            const MASKS: bool = true;

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: the caller vouches for 64 readable bytes.
                unsafe {
                    let [low, high] = load_bits(from);
                    Self([Self::unpack(low), Self::unpack(high)])
                }
            }

            // AVX2 has no masked access to narrow lanes; the detour over the stack is shorter than
            // converting elements one by one.
            #[inline(always)]
            unsafe fn load_part(from: *const u8, elems: usize) -> Self {
                // SAFETY: the caller vouches for `elems` readable elements.
                unsafe { Self::load(image_of(from, elems * size_of::<$elem>()).as_ptr()) }
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: the caller vouches for 64 writable bytes.
                unsafe { store_bits([Self::pack(self.0[0]), Self::pack(self.0[1])], to) }
            }

            #[inline(always)]
            unsafe fn store_part(self, to: *mut u8, elems: usize) {
                // SAFETY: the caller vouches for `elems` writable elements.
                unsafe { store_image(self, to, elems * size_of::<$elem>()) }
            }

            #[inline(always)]
            unsafe fn stream(self, to: *mut u8) {
                // SAFETY: the caller vouches for 64 writable bytes at a multiple of 64.
                unsafe { stream_bits([Self::pack(self.0[0]), Self::pack(self.0[1])], to) }
            }

            #[inline(always)]
            unsafe fn settle(self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { Self([Self::settled(self.0[0]), Self::settled(self.0[1])]) }
            }

            #[inline(always)]
            unsafe fn sum(mut self, other: Self) -> Self {
                let mut i = 0;
                while i < 2 * $n {
                    // SAFETY: the caller vouches for the instruction set.
                    self.0[i / $n][i % $n] = unsafe {
                        Self::after(_mm256_add_ps(self.0[i / $n][i % $n], other.0[i / $n][i % $n]))
                    };
                    i += 1;
                }
                self
            }

            #[inline(always)]
            unsafe fn prod(mut self, other: Self) -> Self {
                let mut i = 0;
                while i < 2 * $n {
                    // SAFETY: the caller vouches for the instruction set.
                    self.0[i / $n][i % $n] = unsafe {
                        Self::after(_mm256_mul_ps(self.0[i / $n][i % $n], other.0[i / $n][i % $n]))
                    };
                    i += 1;
                }
                self
            }

            // The smaller of two representable numbers is representable: nothing to round.
            #[inline(always)]
            unsafe fn min(mut self, other: Self) -> Self {
                let mut i = 0;
                while i < 2 * $n {
                    let (a, b) = (self.0[i / $n][i % $n], other.0[i / $n][i % $n]);
                    // SAFETY: the caller vouches for the instruction set.
                    self.0[i / $n][i % $n] = unsafe { min_ps(a, b) };
                    i += 1;
                }
                self
            }

            #[inline(always)]
            unsafe fn max(mut self, other: Self) -> Self {
                let mut i = 0;
                while i < 2 * $n {
                    let (a, b) = (self.0[i / $n][i % $n], other.0[i / $n][i % $n]);
                    // SAFETY: the caller vouches for the instruction set.
                    self.0[i / $n][i % $n] = unsafe { max_ps(a, b) };
                    i += 1;
                }
                self
            }
        }
    };
}

pub(super) use narrow_line;

/// Per register of memory: its lower and its upper eight elements, widened.
#[derive(Clone, Copy)]
pub(super) struct F16x32([[__m256; 2]; 2]);

impl F16x32 {
    #[inline(always)]
    pub(super) unsafe fn unpack(image: __m256i) -> [__m256; 2] {
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
    pub(super) unsafe fn pack(pair: [__m256; 2]) -> __m256i {
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
    unsafe fn settled(pair: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { [_mm256_cvtph_ps(Self::narrow(pair[0])), _mm256_cvtph_ps(Self::narrow(pair[1]))] }
    }
}

narrow_line!(F16x32, f16, 2);

/// Per register of memory: its even and its odd elements, widened by a shift and a mask.
#[derive(Clone, Copy)]
pub(super) struct Bf16x32([[__m256; 2]; 2]);

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
    unsafe fn settled(pair: [__m256; 2]) -> [__m256; 2] {
        pair
    }

    /// The nearest bf16 value, ties to even.
    ///
    /// A NaN stays one: that of an operation on bf16 values has a zero lower half, from which nothing is carried.
    #[inline(always)]
    unsafe fn after(wide: __m256) -> __m256 {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let bits = _mm256_castps_si256(wide);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            _mm256_castsi256_ps(_mm256_and_si256(near, _mm256_set1_epi32(!0xffff)))
        }
    }
}

narrow_line!(Bf16x32, bf16, 2);
