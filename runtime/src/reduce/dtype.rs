//! Element types: their names, their sizes and the Rust types that stand for them.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};

use super::ParseNameError;

/// The type of the elements of a buffer.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
}

impl DType {
    /// Every element type, in declaration order.
    pub const ALL: [DType; 6] = [DType::F32, DType::F64, DType::I32, DType::I64, DType::F16, DType::Bf16];

    /// Bytes of one element.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F64 | DType::I64 => 8,
            DType::F16 | DType::Bf16 => 2,
        }
    }

    /// The name nccl-tests uses for this type.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "float",
            DType::F64 => "double",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::F16 => "half",
            DType::Bf16 => "bfloat16",
        }
    }

    /// Whether the elements are floating-point numbers.
    #[must_use]
    pub const fn is_float(self) -> bool {
        !matches!(self, DType::I32 | DType::I64)
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
        match text {
            "float" | "f32" | "float32" => Ok(DType::F32),
            "double" | "f64" | "float64" => Ok(DType::F64),
            "int32" | "i32" | "int" => Ok(DType::I32),
            "int64" | "i64" => Ok(DType::I64),
            "half" | "f16" | "float16" => Ok(DType::F16),
            "bfloat16" | "bf16" => Ok(DType::Bf16),
            _ => Err(ParseNameError::new("data type", text, &DType::ALL.map(DType::name))),
        }
    }
}

/// A Rust type that stands for one [`DType`]; implemented for exactly those six.
pub trait Element: bytemuck::Pod + Send + Sync + sealed::Sealed {
    /// The element type that buffers of `Self` have.
    const DTYPE: DType;
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

element!(f32 => F32, f64 => F64, i32 => I32, i64 => I64, f16 => F16, bf16 => Bf16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        // Proves that the printed name and the aliases name the same type.
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
        }
        let aliases = ["f32", "f64", "i32", "i64", "f16", "bf16"];
        for (alias, dtype) in aliases.into_iter().zip(DType::ALL) {
            assert_eq!(alias.parse(), Ok(dtype));
        }
        assert_eq!("float32".parse(), Ok(DType::F32));
        assert_eq!("float64".parse(), Ok(DType::F64));
        assert_eq!("float16".parse(), Ok(DType::F16));
    }

    #[test]
    fn unknown_name_lists_the_good_ones() {
        // Proves that a typo is answered with what was given and what would do.
        let text = "flaot".parse::<DType>().unwrap_err().to_string();
        assert_eq!(text, "unknown data type `flaot`; use one of float, double, int32, int64, half, bfloat16");
    }
}
