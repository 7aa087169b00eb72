//! Element types: their names, their numbers, their sizes and the Rust types that stand for them.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

use super::fp8::{F8E4M3, F8E5M2};
use super::{ParseNameError, Scalar};

/// The type of the elements of a buffer.
///
/// *Source*: names, numbers and order as in NCCL 2.30 src/nccl.h.in, `ncclDataType_t`.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// Signed 8-bit integer.
    I8 = 0,
    /// Unsigned 8-bit integer.
    U8 = 1,
    /// Signed 32-bit integer.
    I32 = 2,
    /// Unsigned 32-bit integer.
    U32 = 3,
    /// Signed 64-bit integer.
    I64 = 4,
    /// Unsigned 64-bit integer.
    U64 = 5,
    /// IEEE 754 binary16.
    F16 = 6,
    /// IEEE 754 binary32.
    F32 = 7,
    /// IEEE 754 binary64.
    F64 = 8,
    /// The upper half of a binary32.
    Bf16 = 9,
    /// 8-bit float with 4 exponent and 3 fraction bits, [`F8E4M3`].
    F8E4M3 = 10,
    /// 8-bit float with 5 exponent and 2 fraction bits, [`F8E5M2`].
    F8E5M2 = 11,
}

impl DType {
    /// Every element type, in the order of NCCL's numbers.
    pub const ALL: [DType; 12] = [
        DType::I8,
        DType::U8,
        DType::I32,
        DType::U32,
        DType::I64,
        DType::U64,
        DType::F16,
        DType::F32,
        DType::F64,
        DType::Bf16,
        DType::F8E4M3,
        DType::F8E5M2,
    ];

    /// Bytes of one element.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::I8 | DType::U8 | DType::F8E4M3 | DType::F8E5M2 => 1,
            DType::F16 | DType::Bf16 => 2,
            DType::I32 | DType::U32 | DType::F32 => 4,
            DType::I64 | DType::U64 | DType::F64 => 8,
        }
    }

    /// The number of this type in NCCL's `ncclDataType_t`.
    #[must_use]
    pub const fn nccl_code(self) -> u32 {
        self as u32
    }

    /// The type with this number in NCCL's `ncclDataType_t`, if there is one.
    #[must_use]
    pub const fn from_nccl_code(code: u32) -> Option<Self> {
        if (code as usize) < Self::ALL.len() { Some(Self::ALL[code as usize]) } else { None }
    }

    /// The name nccl-tests uses for this type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.names()[0]
    }

    /// All names, the one of nccl-tests first; then those of Rust, of C and of PyTorch, and NCCL's other ones.
    const fn names(self) -> &'static [&'static str] {
        match self {
            DType::I8 => &["int8", "i8", "char"],
            DType::U8 => &["uint8", "u8", "byte"],
            DType::I32 => &["int32", "i32", "int"],
            DType::U32 => &["uint32", "u32", "uint"],
            DType::I64 => &["int64", "i64", "long"],
            DType::U64 => &["uint64", "u64", "ulong"],
            DType::F16 => &["half", "f16", "float16", "fp16"],
            DType::F32 => &["float", "f32", "float32", "fp32"],
            DType::F64 => &["double", "f64", "float64", "fp64"],
            DType::Bf16 => &["bfloat16", "bf16"],
            DType::F8E4M3 => &["fp8_e4m3", "f8e4m3", "float8_e4m3fn", "f8e4m3fn", "float8e4m3", "e4m3"],
            DType::F8E5M2 => &["fp8_e5m2", "f8e5m2", "float8_e5m2", "float8e5m2", "e5m2"],
        }
    }

    /// Whether the elements are floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        use DType::{Bf16, F8E4M3, F8E5M2, F16, F32, F64};
        matches!(self, F16 | F32 | F64 | Bf16 | F8E4M3 | F8E5M2)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        DType::ALL
            .into_iter()
            .find(|dtype| dtype.names().contains(&text))
            .ok_or_else(|| ParseNameError::new("data type", text, &DType::ALL.map(DType::name)))
    }
}

/// A Rust type that stands for one [`DType`]; implemented for exactly those twelve.
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// The element type that buffers of `Self` have.
    const DTYPE: DType;

    /// This value as the factor of a [`super::ReduceOp::PreMulSum`].
    #[must_use]
    fn scalar(self) -> Scalar {
        Scalar::new(self)
    }
}

mod sealed {
    /// Keeps [`super::Element`] closed: kernels exist for these types only.
    pub trait Sealed {}
}

macro_rules! element {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
        const _: () = assert!(size_of::<$rust>() == DType::$dtype.size_bytes());
    )*};
}

element! {
    i8 => I8, u8 => U8, i32 => I32, u32 => U32, i64 => I64, u64 => U64,
    f16 => F16, f32 => F32, f64 => F64, bf16 => Bf16, F8E4M3 => F8E4M3, F8E5M2 => F8E5M2,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_are_unique() {
        // Proves that the printed name and the aliases name the same type and no other.
        let mut seen = std::collections::HashSet::new();
        for dtype in DType::ALL {
            for name in dtype.names() {
                assert_eq!(name.parse(), Ok(dtype));
                assert!(seen.insert(*name), "{name}");
            }
        }
    }

    #[test]
    fn numbers_and_sizes_are_those_of_nccl() {
        // Proves the numbers, names and sizes against a list written by hand from the header of NCCL 2.30.
        let header = [
            ("int8", 1),
            ("uint8", 1),
            ("int32", 4),
            ("uint32", 4),
            ("int64", 8),
            ("uint64", 8),
            ("half", 2),
            ("float", 4),
            ("double", 8),
            ("bfloat16", 2),
            ("fp8_e4m3", 1),
            ("fp8_e5m2", 1),
        ];
        for (code, (name, size)) in (0..).zip(header) {
            let dtype = DType::from_nccl_code(code).unwrap();
            assert_eq!((dtype.name(), dtype.size_bytes(), dtype.nccl_code()), (name, size, code));
            assert_eq!(dtype.is_float(), code >= 6);
        }
        assert_eq!(DType::from_nccl_code(12), None);
        assert_eq!(DType::from_nccl_code(u32::MAX), None);
    }

    #[test]
    fn unknown_name_lists_the_good_ones() {
        // Proves that a typo is answered with what was given and what would do.
        let text = "flaot".parse::<DType>().unwrap_err().to_string();
        assert_eq!(
            text,
            "unknown data type `flaot`; use one of int8, uint8, int32, uint32, int64, uint64, half, float, \
             double, bfloat16, fp8_e4m3, fp8_e5m2"
        );
    }
}
