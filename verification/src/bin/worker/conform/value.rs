//! Elements of every type as the conformance checks need them: random ones, one step of a reduction, what it may lose.

use half::{bf16, f16};
use ringccl::{Element, F8E4M3, F8E5M2, ReduceOp};
use std::fmt::Debug;

pub(super) trait Value: Element + Copy + PartialEq + Debug {
    /// What stands where nobody may write.
    const MARK: Self;
    /// By how much of itself one rounding changes a value at most; 0 where nothing is rounded.
    const UNIT: f64;
    /// The smallest value above zero: what rounding changes near zero.
    const TINY: f64;
    /// An element from random bits; of floats, a factor near 1 if `op` multiplies.
    fn random(bits: u64, op: ReduceOp) -> Self;
    /// Two elements reduced, rounded once.
    fn step(op: ReduceOp, a: Self, b: Self) -> Self;
    /// An integer divided by the number of ranks, towards zero.
    fn divided(self, nranks: usize) -> Self;
    fn wide(self) -> f64;
}

macro_rules! integers {
    ($($t:ty),*) => { $(
        impl Value for $t {
            const MARK: Self = 77;
            const UNIT: f64 = 0.0;
            const TINY: f64 = 0.0;
            fn random(bits: u64, _op: ReduceOp) -> Self {
                bits as Self
            }
            fn step(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Max => a.max(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::BitAnd => a & b,
                    ReduceOp::BitOr => a | b,
                    ReduceOp::BitXor => a ^ b,
                }
            }
            fn divided(self, nranks: usize) -> Self {
                (i128::from(self) / nranks as i128) as Self
            }
            fn wide(self) -> f64 {
                self as f64
            }
        }
    )* };
}
integers!(i8, u8, i32, u32, i64, u64);

/// A float of a random sign with as many random digits as `f64` has: from 1/8 to 8, or near 1.
fn float(bits: u64, op: ReduceOp) -> f64 {
    let digits = (bits >> 12) as f64 / 2f64.powi(52);
    let size = match op {
        // The product of eight stays between 1/10 and 26.
        ReduceOp::Prod => 0.75 + 0.75 * digits,
        _ => (1.0 + digits) * 2f64.powi((bits >> 1 & 7) as i32 % 6 - 3),
    };
    if bits & 1 == 0 { size } else { -size }
}

macro_rules! floats {
    ($($t:ty: $digits:expr, $smallest:expr, $single:ty, $from:expr, $to:expr;)*) => { $(
        impl Value for $t {
            const MARK: Self = <$t>::from_bits(0x35);
            const UNIT: f64 = 1.0 / (1u64 << $digits) as f64;
            const TINY: f64 = $smallest;
            fn random(bits: u64, op: ReduceOp) -> Self {
                let from: fn($single) -> Self = $from;
                from(float(bits, op) as $single)
            }
            fn step(op: ReduceOp, a: Self, b: Self) -> Self {
                let (from, to): (fn($single) -> Self, fn(Self) -> $single) = ($from, $to);
                match op {
                    ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => from(to(a) + to(b)),
                    ReduceOp::Prod => from(to(a) * to(b)),
                    ReduceOp::Max => from(to(a).max(to(b))),
                    ReduceOp::Min => from(to(a).min(to(b))),
                    _ => unreachable!("bits are combined of integers only"),
                }
            }
            fn divided(self, _nranks: usize) -> Self {
                unreachable!("floats are not divided")
            }
            fn wide(self) -> f64 {
                let to: fn(Self) -> $single = $to;
                to(self) as f64
            }
        }
    )* };
}
floats! {
    f32: 24, 1.4e-45, f32, |x| x, |x| x;
    f64: 53, 5e-324, f64, |x| x, |x| x;
    f16: 11, 5.97e-8, f32, f16::from_f32, f16::to_f32;
    bf16: 8, 9.2e-41, f32, bf16::from_f32, bf16::to_f32;
    F8E4M3: 4, 0.001_953_125, f32, F8E4M3::from_f32, F8E4M3::to_f32;
    F8E5M2: 3, 1.53e-5, f32, F8E5M2::from_f32, F8E5M2::to_f32;
}
