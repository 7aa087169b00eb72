//! Reduction operations and their names.

use std::fmt;
use std::str::FromStr;

use super::ParseNameError;

/// What a reduction does with the elements of all ranks.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum; integers wrap, fp16 and bf16 round after every addition.
    Sum,
    /// Product; wraps and rounds as the sum does.
    Prod,
    /// Minimum; a NaN loses against a number.
    Min,
    /// Maximum; a NaN loses against a number.
    Max,
    /// Mean: floats scale each rank's input before the sum, integers divide the sum at the end.
    Avg,
}

impl ReduceOp {
    /// Every operation, in declaration order.
    pub const ALL: [ReduceOp; 5] =
        [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

    /// The name nccl-tests uses for this operation.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
            ReduceOp::Avg => "avg",
        }
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
        ReduceOp::ALL
            .into_iter()
            .find(|op| op.name() == text)
            .ok_or_else(|| ParseNameError::new("reduction", text, &ReduceOp::ALL.map(ReduceOp::name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_typos_are_answered() {
        // Proves that printed names are accepted and that an unknown one lists the good ones.
        for op in ReduceOp::ALL {
            assert_eq!(op.name().parse(), Ok(op));
        }
        let text = "mean".parse::<ReduceOp>().unwrap_err().to_string();
        assert_eq!(text, "unknown reduction `mean`; use one of sum, prod, min, max, avg");
    }
}
