//! Reduction operations, their names, and which type has which.

use std::fmt;
use std::str::FromStr;

use super::dtype::DType;
use super::{ParseNameError, Scalar};

/// What a reduction does with the elements of all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum; integers wrap, floats narrower than binary32 round after every addition.
    Sum,
    /// Product; wraps and rounds as the sum does.
    Prod,
    /// Maximum; a NaN loses against a number.
    Max,
    /// Minimum; a NaN loses against a number.
    Min,
    /// Mean: floats scale each rank's input before the sum, integers divide the sum at the end.
    Avg,
    /// Sum of the inputs, each multiplied by its rank's scalar before: of the elements' type, and any on each rank.
    PreMulSum(Scalar),
    /// Bitwise and, of integers. Like the next two it is PyTorch's; NCCL has none of them.
    BitAnd,
    /// Bitwise or, of integers; of bytes that are 0 or 1 also the logical one.
    BitOr,
    /// Bitwise exclusive or, of integers.
    BitXor,
}

impl ReduceOp {
    /// NCCL's built-in operations, in the order of NCCL's numbers; every element type has them.
    pub const BUILTIN: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min, ReduceOp::Avg];

    /// The bitwise operations, which only integers have.
    pub const BITWISE: [ReduceOp; 3] = [ReduceOp::BitAnd, ReduceOp::BitOr, ReduceOp::BitXor];

    /// Every operation that a name alone says: all but [`ReduceOp::PreMulSum`].
    pub const NAMED: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Avg,
        ReduceOp::BitAnd,
        ReduceOp::BitOr,
        ReduceOp::BitXor,
    ];

    /// The name of each operation, by [`ReduceOp::code`].
    const NAMES: [&str; 9] = ["sum", "prod", "max", "min", "avg", "premulsum", "band", "bor", "bxor"];

    /// A number for each operation, whatever the scalar: NCCL's own for its five, above them for the others.
    ///
    /// Calls of different ranks match when these numbers do, for each rank may have its own scalar.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            ReduceOp::Sum => 0,
            ReduceOp::Prod => 1,
            ReduceOp::Max => 2,
            ReduceOp::Min => 3,
            ReduceOp::Avg => 4,
            ReduceOp::PreMulSum(_) => 5,
            ReduceOp::BitAnd => 6,
            ReduceOp::BitOr => 7,
            ReduceOp::BitXor => 8,
        }
    }

    /// The built-in operation with this number in NCCL's `ncclRedOp_t`; `None` for those that a program creates.
    ///
    /// *Source*: NCCL 2.30 src/nccl.h.in, where the maximum comes before the minimum.
    #[must_use]
    pub const fn from_nccl_code(code: u32) -> Option<Self> {
        if (code as usize) < Self::BUILTIN.len() { Some(Self::BUILTIN[code as usize]) } else { None }
    }

    /// The name nccl-tests uses for this operation, or PyTorch for those that NCCL has not.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.code() as usize]
    }

    /// The name of the operation with this [`ReduceOp::code`], if there is one.
    #[must_use]
    pub fn name_of_code(code: u8) -> Option<&'static str> {
        Self::NAMES.get(usize::from(code)).copied()
    }

    /// Whether this works on bits, whatever the elements' size.
    #[inline]
    pub(super) const fn is_bitwise(self) -> bool {
        matches!(self, ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor)
    }

    /// Whether elements of `dtype` can be reduced with this operation.
    ///
    /// NCCL's operations are defined for all types; a scalar must have the type of the elements, and bits are
    /// combined of integers only.
    ///
    /// # Errors
    ///
    /// [`InvalidOp`] otherwise, whose text says which operations would do.
    #[inline]
    pub fn check(self, dtype: DType) -> Result<(), InvalidOp> {
        let valid = match self {
            ReduceOp::PreMulSum(scalar) => scalar.dtype() == dtype,
            _ => !(self.is_bitwise() && dtype.is_float()),
        };
        if valid { Ok(()) } else { Err(InvalidOp { op: self, dtype }) }
    }
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReduceOp {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        ReduceOp::NAMED
            .into_iter()
            .find(|op| op.name() == text)
            .ok_or_else(|| ParseNameError::new("reduction", text, &ReduceOp::NAMED.map(ReduceOp::name)))
    }
}

/// An operation that the elements' type does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidOp {
    op: ReduceOp,
    dtype: DType,
}

impl std::error::Error for InvalidOp {}

impl fmt::Display for InvalidOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = self.dtype;
        if let ReduceOp::PreMulSum(scalar) = self.op {
            let given = scalar.dtype();
            return write!(
                f,
                "the scalar of premulsum is {given}, the elements are {dtype}; make it of their type"
            );
        }
        let good = ReduceOp::BUILTIN.map(ReduceOp::name).join(", ");
        write!(f, "{} is for integers, not for {dtype}; use one of {good}, premulsum", self.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pre_mul_sum(dtype: DType) -> ReduceOp {
        ReduceOp::PreMulSum(Scalar::from_f64(dtype, 2.0))
    }

    #[test]
    fn names_parse_back_and_typos_are_answered() {
        // Proves that printed names are accepted and that an unknown one lists the good ones.
        for op in ReduceOp::NAMED {
            assert_eq!(op.name().parse(), Ok(op));
            assert_eq!(ReduceOp::name_of_code(op.code()), Some(op.name()));
        }
        let text = "mean".parse::<ReduceOp>().unwrap_err().to_string();
        assert_eq!(text, "unknown reduction `mean`; use one of sum, prod, max, min, avg, band, bor, bxor");
        assert_eq!(ReduceOp::name_of_code(9), None);
    }

    #[test]
    fn numbers_are_those_of_nccl() {
        // Proves the numbers of the five built-in operations, and that scalars do not change an operation's own.
        let header = ["sum", "prod", "max", "min", "avg"];
        for (code, name) in (0..).zip(header) {
            let op = ReduceOp::from_nccl_code(code).unwrap();
            assert_eq!((op.name(), u32::from(op.code())), (name, code));
        }
        assert_eq!(ReduceOp::from_nccl_code(5), None);
        assert_eq!(pre_mul_sum(DType::I8).code(), ReduceOp::PreMulSum(Scalar::new(7u64)).code());
    }

    #[test]
    fn pairs_that_make_no_sense_are_refused_with_the_good_ones() {
        // Proves which pairs are valid, and the texts for the others.
        for dtype in DType::ALL {
            assert!(ReduceOp::BUILTIN.iter().all(|op| op.check(dtype).is_ok()));
            assert!(ReduceOp::BITWISE.iter().all(|op| op.check(dtype).is_ok() != dtype.is_float()));
            for other in DType::ALL {
                assert_eq!(pre_mul_sum(other).check(dtype).is_ok(), other == dtype);
            }
        }
        let text = ReduceOp::BitXor.check(DType::F8E4M3).unwrap_err().to_string();
        assert_eq!(
            text,
            "bxor is for integers, not for fp8_e4m3; use one of sum, prod, max, min, avg, premulsum"
        );
        let text = pre_mul_sum(DType::F16).check(DType::F32).unwrap_err().to_string();
        assert_eq!(text, "the scalar of premulsum is half, the elements are float; make it of their type");
    }
}
