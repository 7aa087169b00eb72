//! The naive model of the reduction kernels: one element at a time, exact arithmetic where it fits, and a
//! rounding of its own for the narrow floats.

use half::{bf16, f16};
use ringccl_reduce::{Element, F8E4M3, F8E5M2, ReduceOp, Scalar};

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
    /// 1/nranks, by which a float average multiplies a rank's own input; 1 where it does not.
    fn share(nranks: usize) -> Self;
    /// The average's treatment of the finished value.
    fn finish(self, nranks: usize) -> Self;
}

/// Folds column `i` of `srcs` as the design asks.
pub(crate) fn fold<T: Model>(op: ReduceOp, column: &[T], own: Option<usize>, nranks: usize, last: bool) -> T {
    let average = op == ReduceOp::Avg && nranks > 1;
    let factor = match op {
        ReduceOp::PreMulSum(scalar) => Some(scalar.get().expect("a scalar of the elements' type")),
        _ if average && T::DTYPE.is_float() => Some(T::share(nranks)),
        _ => None,
    };
    let input = |s: usize| match factor {
        Some(factor) if own == Some(s) => T::hop(ReduceOp::Prod, column[s], factor),
        _ => column[s],
    };
    let mut acc = input(0);
    for s in 1..column.len() {
        acc = T::hop(op, acc, input(s));
    }
    if average && last { acc.finish(nranks) } else { acc }
}

/// The operation that a number stands for; the scalar of a sum with factors comes from `raw`.
pub(crate) fn operation<T: Model>(index: usize, raw: u64) -> ReduceOp {
    let scalar = if raw.is_multiple_of(3) { T::special(raw / 3) } else { T::from_raw(raw >> 7) };
    let of_type = if T::DTYPE.is_float() { &ReduceOp::BUILTIN[..] } else { &ReduceOp::NAMED[..] };
    of_type.get(index % (of_type.len() + 1)).copied().unwrap_or(ReduceOp::PreMulSum(Scalar::new(scalar)))
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

/// The operation on two integers of some width, which the caller cuts off.
fn on_bits(op: ReduceOp, a: u64, b: u64) -> u64 {
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => a.wrapping_add(b),
        ReduceOp::Prod => a.wrapping_mul(b),
        ReduceOp::BitAnd => a & b,
        ReduceOp::BitOr => a | b,
        ReduceOp::BitXor => a ^ b,
        ReduceOp::Min | ReduceOp::Max => unreachable!("not an operation on bits"),
    }
}

/// The sum or product of two floats.
fn on_floats<T: std::ops::Add<Output = T> + std::ops::Mul<Output = T>>(op: ReduceOp, a: T, b: T) -> T {
    match op {
        ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum(_) => a + b,
        ReduceOp::Prod => a * b,
        _ => unreachable!("not arithmetic of floats"),
    }
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

/// The larger or smaller one; a number before a NaN.
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
                [0, 1, $t::MAX, $t::MIN, $t::MIN + 1, $t::MAX / 2 + 1, 2, !0, !6][index as usize % 9]
            }
            fn is_nan(self) -> bool {
                false
            }
            fn is_zero(self) -> bool {
                false
            }
            fn hop(op: ReduceOp, a: Self, b: Self) -> Self {
                match op {
                    ReduceOp::Min => a.min(b),
                    ReduceOp::Max => a.max(b),
                    _ => on_bits(op, a.bits(), b.bits()) as $t,
                }
            }
            fn share(_nranks: usize) -> Self {
                1
            }
            fn finish(self, nranks: usize) -> Self {
                (i128::from(self) / nranks as i128) as $t
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
                    ReduceOp::Min | ReduceOp::Max => pick(op, a, b, $t::is_nan),
                    _ => on_floats(op, a, b),
                }
            }
            fn share(nranks: usize) -> Self {
                1.0 / nranks as $t
            }
            fn finish(self, _nranks: usize) -> Self {
                self
            }
        }
    )*};
}

/// `$arith` is the type in which a hop is computed before it is rounded: exact for fp16 and 8 bits; for bf16 the
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
                    ReduceOp::Min | ReduceOp::Max => return pick(op, a, b, $t::is_nan),
                    _ => on_floats(op, x, y),
                };
                // The cast is exact: `nearest` gives a representable value.
                $t::from_f64(nearest(f64::from(wide), $digits, $exponent_min, $t::MAX.to_f64()))
            }
            fn share(nranks: usize) -> Self {
                $t::from_f64(nearest(1.0 / nranks as f64, $digits, $exponent_min, $t::MAX.to_f64()))
            }
            fn finish(self, _nranks: usize) -> Self {
                self
            }
        }
    )*};
}

/// The 8-bit code of a number of the format, or of the largest one if it is beyond.
fn code_of(rounded: f64, largest: f64, value: impl Fn(u8) -> f64) -> u8 {
    if rounded.is_nan() {
        return 0x7f;
    }
    let wanted = rounded.clamp(-largest, largest);
    let found = (0..=255u8).find(|code| value(*code).to_bits() == wanted.to_bits());
    found.expect("a number of the format")
}

/// The 8-bit floats: a result beyond the largest number becomes that, and its code is found by looking at all codes.
macro_rules! float8 {
    ($($t:ident, $digits:literal, $exponent_min:literal, $largest:literal);*) => {$(
        impl Model for $t {
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn from_raw(raw: u64) -> Self {
                $t::from_bits(raw as u8)
            }
            fn special(index: u64) -> Self {
                let codes = [0, 0x80, 1, 0x81, 0x7f, 0xff, 0x7e, 0xfe, 0x7b, 0xfb, 0x7c, 0xfc, 0x38, 0x3c, 0x08, 0x04];
                $t::from_bits(codes[index as usize % 16])
            }
            fn is_nan(self) -> bool {
                self.to_f32().is_nan()
            }
            fn is_zero(self) -> bool {
                self.to_bits() & 0x7f == 0
            }
            fn hop(op: ReduceOp, a: Self, b: Self) -> Self {
                let value = |code| f64::from($t::from_bits(code).to_f32());
                let (x, y) = (value(a.to_bits()), value(b.to_bits()));
                let exact = match op {
                    ReduceOp::Min | ReduceOp::Max => pick(op, x, y, f64::is_nan),
                    _ => on_floats(op, x, y),
                };
                $t::from_bits(code_of(nearest(exact, $digits, $exponent_min, $largest), $largest, value))
            }
            fn share(nranks: usize) -> Self {
                let rounded = nearest(1.0 / nranks as f64, $digits, $exponent_min, $largest);
                $t::from_bits(code_of(rounded, $largest, |code| f64::from($t::from_bits(code).to_f32())))
            }
            fn finish(self, _nranks: usize) -> Self {
                self
            }
        }
    )*};
}

integer!(i8, u8; u8, u8; i32, u32; u32, u32; i64, u64; u64, u64);
float!(f32; f64);
narrow!(f16, f64, 11, -14; bf16, f32, 8, -126);
float8!(F8E4M3, 4, -6, 448.0; F8E5M2, 3, -14, 57344.0);
