//! The naive model of the reduction kernels: one element at a time, exact arithmetic where it fits, and a
//! rounding of its own for the 16-bit floats.

use half::{bf16, f16};
use ringccl::reduce::{Element, ReduceOp};

/// One element type of the model.
pub(crate) trait Model: Element + std::fmt::Debug {
    /// Bits of one element, widened.
    fn bits(self) -> u64;
    /// An element from the low bits of `raw`.
    fn from_raw(raw: u64) -> Self;
    /// Values at which kernels go wrong first.
    fn special(index: u64) -> Self;
    fn is_nan(self) -> bool;
    fn is_zero(self) -> bool;
    /// One hop, rounded to the element type.
    fn hop(op: ReduceOp, a: Self, b: Self) -> Self;
    /// The average's treatment of a rank's own input.
    fn scale(self, nranks: usize) -> Self;
    /// The average's treatment of the finished value.
    fn finish(self, nranks: usize) -> Self;
}

/// Folds column `i` of `srcs` as the design asks.
pub(crate) fn fold<T: Model>(op: ReduceOp, column: &[T], own: Option<usize>, nranks: usize, last: bool) -> T {
    let average = op == ReduceOp::Avg;
    let input = |s: usize| if average && own == Some(s) { column[s].scale(nranks) } else { column[s] };
    let mut acc = input(0);
    for s in 1..column.len() {
        acc = T::hop(op, acc, input(s));
    }
    if average && last { acc.finish(nranks) } else { acc }
}

/// Whether a kernel may answer `got` where the model says `want`: the payload of a NaN and the sign of the
/// zero that a minimum or maximum picks are free.
pub(crate) fn agrees<T: Model>(op: ReduceOp, got: T, want: T) -> bool {
    let picks = matches!(op, ReduceOp::Min | ReduceOp::Max);
    same(got, want) || (picks && got.is_zero() && want.is_zero())
}

/// Whether two kernels gave the same answer: only the payload of a NaN is free.
pub(crate) fn same<T: Model>(a: T, b: T) -> bool {
    a.bits() == b.bits() || (a.is_nan() && b.is_nan())
}

/// The multiple of the last place nearest to `x`, ties to even, for a format with `digits` significant bits
/// and smallest normal exponent `exponent_min`; beyond `largest`, infinity.
fn nearest(x: f64, digits: i32, exponent_min: i32, largest: f64) -> f64 {
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    let exponent = (((x.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(exponent_min);
    let quantum = 2f64.powi(exponent - digits + 1);
    let rounded = (x / quantum).round_ties_even() * quantum;
    if rounded.abs() > largest { f64::INFINITY.copysign(x) } else { rounded }
}

fn pick<T: Copy + PartialOrd>(op: ReduceOp, a: T, b: T, nan: impl Fn(T) -> bool) -> T {
    match (nan(a), nan(b)) {
        (true, _) => b,
        (_, true) => a,
        _ if (op == ReduceOp::Min) == (a < b) => a,
        _ => b,
    }
}

macro_rules! integer {
    ($($t:ident, $u:ident);*) => {$(
        impl Model for $t {
            fn bits(self) -> u64 {
                u64::from(self as $u)
            }
            fn from_raw(raw: u64) -> Self {
                raw as $t
            }
            fn special(index: u64) -> Self {
                [0, 1, -1, $t::MAX, $t::MIN, $t::MIN + 1, 2, -7][index as usize % 8]
            }
            fn is_nan(self) -> bool {
                false
            }
            fn is_zero(self) -> bool {
                false
            }
            fn hop(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => a.wrapping_add(b),
                    ReduceOp::Prod => a.wrapping_mul(b),
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                }
            }
            fn scale(self, _nranks: usize) -> Self {
                self
            }
            fn finish(self, nranks: usize) -> Self {
                if nranks == 1 { self } else { self / nranks as $t }
            }
        }
    )*};
}

macro_rules! float {
    ($($t:ident);*) => {$(
        impl Model for $t {
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn from_raw(raw: u64) -> Self {
                $t::from_bits(raw as _)
            }
            fn special(index: u64) -> Self {
                let tiny = $t::from_bits(1);
                [0.0, -0.0, 1.0, -1.5, $t::NAN, $t::INFINITY, -$t::INFINITY, $t::MAX, $t::MIN, tiny, -tiny, 0.1]
                    [index as usize % 12]
            }
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            fn is_zero(self) -> bool {
                self == 0.0
            }
            fn hop(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => a + b,
                    ReduceOp::Prod => a * b,
                    ReduceOp::Min | ReduceOp::Max => pick(op, a, b, $t::is_nan),
                }
            }
            fn scale(self, nranks: usize) -> Self {
                self * (1.0 / nranks as $t)
            }
            fn finish(self, _nranks: usize) -> Self {
                self
            }
        }
    )*};
}

/// `$arith` is the type in which a hop is computed before it is rounded: exact for fp16; for bf16 the
/// binary32 that the kernels define themselves by.
macro_rules! narrow {
    ($($t:ident, $arith:ident, $digits:literal, $exponent_min:literal);*) => {$(
        impl Model for $t {
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn from_raw(raw: u64) -> Self {
                $t::from_bits(raw as u16)
            }
            fn special(index: u64) -> Self {
                let bits = [0, 0x8000, 1, 0x8001, 0x7f80, 0xff80, 0x7c00, 0xfc00, 0x7fff, 0x7bff, 0x7f7f, 0x3f80];
                $t::from_bits(bits[index as usize % 12])
            }
            fn is_nan(self) -> bool {
                self.is_nan()
            }
            fn is_zero(self) -> bool {
                self.to_bits() & 0x7fff == 0
            }
            fn hop(op: ReduceOp, a: Self, b: Self) -> Self {
                let (x, y) = (f64::from(a) as $arith, f64::from(b) as $arith);
                let wide = match op {
                    ReduceOp::Sum | ReduceOp::Avg => x + y,
                    ReduceOp::Prod => x * y,
                    ReduceOp::Min | ReduceOp::Max => return pick(op, a, b, $t::is_nan),
                };
                // The cast is exact: `nearest` gives a representable value.
                $t::from_f64(nearest(f64::from(wide), $digits, $exponent_min, $t::MAX.to_f64()))
            }
            fn scale(self, nranks: usize) -> Self {
                let factor = nearest(1.0 / nranks as f64, $digits, $exponent_min, $t::MAX.to_f64());
                Self::hop(ReduceOp::Prod, self, $t::from_f64(factor))
            }
            fn finish(self, _nranks: usize) -> Self {
                self
            }
        }
    )*};
}

integer!(i32, u32; i64, u64);
float!(f32; f64);
narrow!(f16, f64, 11, -14; bf16, f32, 8, -126);
