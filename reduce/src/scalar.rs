//! One element as data: the factor of a [`super::ReduceOp::PreMulSum`].

use std::fmt;

use half::{bf16, f16};

use super::dtype::{DType, Element};
use super::fp8::{F8E4M3, F8E5M2};

/// One element of some type; two are equal when type and bits are, so -0 and 0 differ and a NaN equals itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Scalar {
    dtype: DType,
    /// The element's bytes in memory order, then zeros.
    bytes: [u8; 8],
}

impl Scalar {
    /// The scalar with this value.
    #[must_use]
    pub fn new<T: Element>(value: T) -> Self {
        Self::from_slice(T::DTYPE, bytemuck::bytes_of(&value))
    }

    /// The scalar in the first element of `bytes`; `None` when they are too few.
    #[must_use]
    pub fn from_bytes(dtype: DType, bytes: &[u8]) -> Option<Self> {
        bytes.get(..dtype.size_bytes()).map(|bytes| Self::from_slice(dtype, bytes))
    }

    /// The scalar in memory at `from`, at any alignment.
    ///
    /// # Safety
    ///
    /// - `dtype.size_bytes()` bytes at `from` are readable, and nobody writes them during the call.
    #[must_use]
    pub unsafe fn read(dtype: DType, from: *const u8) -> Self {
        let mut bytes = [0; 8];
        // SAFETY: no type has more than 8 bytes; the caller vouches for the source.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), dtype.size_bytes()) };
        Self { dtype, bytes }
    }

    /// The scalar nearest to `value`: floats narrower than binary32 are rounded from binary32, as C++ and CUDA
    /// convert; integers are truncated toward zero and end at the type's limits; a NaN is 0 there.
    #[must_use]
    pub fn from_f64(dtype: DType, value: f64) -> Self {
        let single = value as f32;
        match dtype {
            DType::I8 => Self::new(value as i8),
            DType::U8 => Self::new(value as u8),
            DType::I32 => Self::new(value as i32),
            DType::U32 => Self::new(value as u32),
            DType::I64 => Self::new(value as i64),
            DType::U64 => Self::new(value as u64),
            DType::F16 => Self::new(f16::from_f32(single)),
            DType::F32 => Self::new(single),
            DType::F64 => Self::new(value),
            DType::Bf16 => Self::new(bf16::from_f32(single)),
            DType::F8E4M3 => Self::new(F8E4M3::from_f32(single)),
            DType::F8E5M2 => Self::new(F8E5M2::from_f32(single)),
        }
    }

    fn from_slice(dtype: DType, element: &[u8]) -> Self {
        let mut bytes = [0; 8];
        bytes[..element.len()].copy_from_slice(element);
        Self { dtype, bytes }
    }

    /// The type of the element.
    #[must_use]
    pub const fn dtype(self) -> DType {
        self.dtype
    }

    /// The element, if it is of type `T`.
    #[must_use]
    pub fn get<T: Element>(self) -> Option<T> {
        (self.dtype == T::DTYPE).then(|| bytemuck::pod_read_unaligned(&self.bytes[..size_of::<T>()]))
    }

    /// The element repeated to fill 8 bytes, as kernels take it.
    pub(super) fn pattern(self) -> u64 {
        let size = self.dtype.size_bytes();
        u64::from_ne_bytes(std::array::from_fn(|i| self.bytes[i % size]))
    }

    fn value(&self) -> f64 {
        let wide = |value: Option<f32>| value.map(f64::from);
        let value = match self.dtype {
            DType::I8 => self.get::<i8>().map(f64::from),
            DType::U8 => self.get::<u8>().map(f64::from),
            DType::I32 => self.get::<i32>().map(f64::from),
            DType::U32 => self.get::<u32>().map(f64::from),
            DType::I64 => self.get::<i64>().map(|value| value as f64),
            DType::U64 => self.get::<u64>().map(|value| value as f64),
            DType::F16 => wide(self.get::<f16>().map(f16::to_f32)),
            DType::F32 => wide(self.get::<f32>()),
            DType::F64 => self.get::<f64>(),
            DType::Bf16 => wide(self.get::<bf16>().map(bf16::to_f32)),
            DType::F8E4M3 => wide(self.get::<F8E4M3>().map(F8E4M3::to_f32)),
            DType::F8E5M2 => wide(self.get::<F8E5M2>().map(F8E5M2::to_f32)),
        };
        value.unwrap_or(f64::NAN)
    }
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.value(), self.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_back_and_fill_a_word() {
        // Proves that each way in gives the same scalar, that it comes out again, as its own type only, and that the
        // pattern repeats it.
        for dtype in DType::ALL {
            let scalar = Scalar::from_f64(dtype, 3.0);
            let size = dtype.size_bytes();
            let pattern = scalar.pattern().to_ne_bytes();
            assert!(pattern.chunks(size).all(|element| *element == scalar.bytes[..size]), "{dtype}");
            assert_eq!(Scalar::from_bytes(dtype, &pattern), Some(scalar));
            assert_eq!(Scalar::from_bytes(dtype, &pattern[..size - 1]), None);
            // SAFETY: the pattern holds 8 bytes.
            assert_eq!(unsafe { Scalar::read(dtype, pattern.as_ptr()) }, scalar);
            assert_eq!((scalar.value(), scalar.dtype()), (3.0, dtype));
            assert_eq!(format!("{scalar:?}"), format!("3.0 {dtype}"));
        }
        assert_eq!(Scalar::new(-5i8).get(), Some(-5i8));
        assert_eq!(Scalar::new(-5i8).get::<u8>(), None);
        assert_eq!(Scalar::new(u64::MAX).get(), Some(u64::MAX));
    }

    #[test]
    fn what_does_not_fit_ends_at_the_limits() {
        // Proves the conversion of values that the type does not have.
        assert_eq!(Scalar::from_f64(DType::U8, -3.7), Scalar::new(0u8));
        assert_eq!(Scalar::from_f64(DType::I8, -3.7), Scalar::new(-3i8));
        assert_eq!(Scalar::from_f64(DType::I64, 1e30), Scalar::new(i64::MAX));
        assert_eq!(Scalar::from_f64(DType::F8E4M3, 1e30), Scalar::new(F8E4M3::MAX));
        assert_eq!(Scalar::from_f64(DType::F16, 1.0 / 3.0), Scalar::new(f16::from_f32(1.0 / 3.0)));
        assert_ne!(Scalar::new(0.0f32), Scalar::new(-0.0f32));
        assert_eq!(Scalar::new(f32::NAN), Scalar::new(f32::NAN));
    }
}
