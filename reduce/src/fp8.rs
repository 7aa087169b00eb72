//! The 8-bit floats of the OCP specification: E4M3 and E5M2.
//!
//! ```text
//!         sign  exponent  fraction   bias  smallest         largest   infinity   NaN
//! E4M3       1     4         3         7   2^-9             448       none       0x7f, 0xff
//! E5M2       1     5         2        15   2^-16            57344     0x7c       0x7d..=0x7f, 0xfd..=0xff
//! ```
//!
//! *Source*: the formats are those of "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0, section 5. The
//! conversion is CUDA's `__nv_cvt_float_to_fp8` with `__NV_SATFINITE` (cuda_fp8.hpp), which the constructors of
//! `__nv_fp8_e4m3` and `__nv_fp8_e5m2` use and with them NCCL (src/device/reduce_kernel.h): to nearest, ties to even,
//! subnormals kept; what is too large, infinities included, becomes the largest finite number; a NaN becomes 0x7f.

use std::cmp::Ordering;
use std::fmt;

/// The code that every NaN is converted to.
pub(super) const NAN_CODE: u8 = 0x7f;

/// What tells one format from the other.
struct Format {
    fraction_bits: u32,
    bias: u32,
    /// The code of the largest finite number.
    largest: u8,
    /// The code of infinity, if there is one.
    infinity: Option<u8>,
}

const E4M3: Format = Format { fraction_bits: 3, bias: 7, largest: 0x7e, infinity: None };
const E5M2: Format = Format { fraction_bits: 2, bias: 15, largest: 0x7b, infinity: Some(0x7c) };

/// The bias of binary32.
const WIDE_BIAS: u32 = 127;
/// Fraction bits of binary32.
const WIDE_FRACTION_BITS: u32 = 23;

impl Format {
    /// The smallest number above zero, of which all numbers are multiples.
    const fn quantum(&self) -> f32 {
        f32::from_bits((WIDE_BIAS + 1 - self.bias - self.fraction_bits) << WIDE_FRACTION_BITS)
    }

    /// The value of a code; exact.
    const fn decode(&self, code: u8) -> f32 {
        let magnitude = (code & 0x7f) as u32;
        let value = if magnitude > self.largest as u32 {
            match self.infinity {
                Some(infinity) if infinity as u32 == magnitude => f32::INFINITY,
                _ => f32::NAN,
            }
        } else if magnitude < 1 << self.fraction_bits {
            magnitude as f32 * self.quantum()
        } else {
            let exponents = (WIDE_BIAS - self.bias) << WIDE_FRACTION_BITS;
            f32::from_bits((magnitude << (WIDE_FRACTION_BITS - self.fraction_bits)) + exponents)
        };
        f32::from_bits(value.to_bits() | ((code & 0x80) as u32) << 24)
    }

    /// The code nearest to `value`, ties to even, saturated.
    const fn encode(&self, value: f32) -> u8 {
        if value.is_nan() {
            return NAN_CODE;
        }
        let sign = (value.to_bits() >> 24) as u8 & 0x80;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        let dropped = WIDE_FRACTION_BITS - self.fraction_bits;
        let exponents = (WIDE_BIAS - self.bias) << self.fraction_bits;
        let code = if magnitude >> dropped >= exponents + (1 << self.fraction_bits) {
            // A carry out of the fraction goes into the exponent, where it belongs.
            let odd = magnitude >> dropped & 1;
            ((magnitude + (1 << (dropped - 1)) - 1 + odd) >> dropped) - exponents
        } else {
            // Next to this number, neighbours are one quantum apart: the addition rounds to a multiple of it.
            let anchor = self.quantum() * (1u32 << WIDE_FRACTION_BITS) as f32;
            (f32::from_bits(magnitude) + anchor).to_bits() - anchor.to_bits()
        };
        let largest = self.largest as u32;
        sign | if code < largest { code } else { largest } as u8
    }
}

/// The values of all codes: a look-up is quicker than the arithmetic.
const fn values(format: &Format) -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < values.len() {
        values[code] = format.decode(code as u8);
        code += 1;
    }
    values
}

macro_rules! float8 {
    ($(#[$doc:meta])* $name:ident, $format:ident, $values:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u8);

        // SAFETY: the only field is a `u8`, for which all bits zero are a value.
        unsafe impl bytemuck::Zeroable for $name {}
        // SAFETY: transparent over `u8`, which is Pod.
        unsafe impl bytemuck::Pod for $name {}

        static $values: [f32; 256] = values(&$format);

        impl $name {
            /// The largest finite number.
            pub const MAX: Self = Self($format.largest);
            /// The smallest number above zero.
            pub const MIN_POSITIVE: Self = Self(1);
            /// The NaN that conversions give.
            pub const NAN: Self = Self(NAN_CODE);

            /// The number with this code.
            #[must_use]
            pub const fn from_bits(code: u8) -> Self {
                Self(code)
            }

            /// The number's code.
            #[must_use]
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest number, ties to even; beyond the largest, infinities included, the largest; a NaN is
            /// 0x7f.
            #[must_use]
            pub const fn from_f32(value: f32) -> Self {
                Self($format.encode(value))
            }

            /// The exact value.
            #[must_use]
            #[inline]
            pub fn to_f32(self) -> f32 {
                $values[usize::from(self.0)]
            }

            /// Whether this is no number.
            #[must_use]
            #[inline]
            pub const fn is_nan(self) -> bool {
                let beyond = match $format.infinity {
                    Some(infinity) => infinity,
                    None => $format.largest,
                };
                self.0 & 0x7f > beyond
            }
        }

        impl From<$name> for f32 {
            fn from(value: $name) -> f32 {
                value.to_f32()
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    };
}

float8! {
    /// An 8-bit float with 4 exponent and 3 fraction bits, without infinities; compares as numbers do.
    F8E4M3, E4M3, E4M3_VALUES
}
float8! {
    /// An 8-bit float with 5 exponent and 2 fraction bits: the upper half of a binary16; compares as numbers do.
    F8E5M2, E5M2, E5M2_VALUES
}

#[cfg(test)]
mod tests;
