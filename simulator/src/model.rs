//! What each call must give, computed naively: the values are small whole numbers, exact in every type.

use crate::rng::scramble;
use crate::scenario::{Call, Kind};
use half::{bf16, f16};
use ringccl::{DType, Element, F8E4M3, F8E5M2, ReduceOp};

/// An element that a small whole number can be turned into.
pub trait Exact: Element + PartialEq + std::fmt::Debug {
    /// The element of this value.
    fn exact(value: f64) -> Self;
}

macro_rules! exact {
    ($($element:ty: $from:expr;)*) => {$(
        impl Exact for $element {
            fn exact(value: f64) -> Self {
                $from(value)
            }
        }
    )*};
}
exact! {
    i8: |value| value as i8;
    u8: |value| value as u8;
    i32: |value| value as i32;
    u32: |value| value as u32;
    i64: |value| value as i64;
    u64: |value| value as u64;
    f32: |value| value as f32;
    f64: |value| value;
    f16: f16::from_f64;
    bf16: bf16::from_f64;
    F8E4M3: |value| F8E4M3::from_f32(value as f32);
    F8E5M2: |value| F8E5M2::from_f32(value as f32);
}

/// Element `i` of the input of `rank` to call number `index`.
pub fn input(call: &Call, index: usize, rank: usize, i: usize) -> i64 {
    let draw = scramble((index as u64) << 40 | (rank as u64) << 32 | i as u64);
    let bound = match call.dtype {
        DType::F8E4M3 | DType::F8E5M2 => 2,
        DType::I8 | DType::U8 => 16,
        _ => 32,
    };
    match call.kind {
        // The product of five of these is at most 32, their sum at most 155: exact also in bfloat16, but not in 8 bits.
        Kind::AllReduce(ReduceOp::Prod) => 1 + (draw % 2) as i64,
        _ => (draw % bound) as i64,
    }
}

/// Element `i` of what every one of `nranks` ranks gets from call number `index`.
pub fn output(call: &Call, index: usize, nranks: usize, i: usize) -> f64 {
    let mut inputs = (0..nranks).map(|rank| input(call, index, rank, i));
    match call.kind {
        Kind::AllReduce(ReduceOp::Sum) => inputs.sum::<i64>() as f64,
        Kind::AllReduce(ReduceOp::Prod) => inputs.product::<i64>() as f64,
        Kind::AllReduce(ReduceOp::Min) => inputs.min().unwrap_or(0) as f64,
        Kind::AllReduce(ReduceOp::Max) => inputs.max().unwrap_or(0) as f64,
        Kind::AllReduce(ReduceOp::Avg) if call.dtype.is_float() => inputs.sum::<i64>() as f64 / nranks as f64,
        Kind::AllReduce(ReduceOp::Avg) => (inputs.sum::<i64>() / nranks as i64) as f64,
        Kind::AllReduce(op) => unreachable!("no scenario has {op}"),
        Kind::Broadcast(root) => inputs.nth(root).unwrap_or(0) as f64,
        Kind::Barrier => 0.0,
    }
}
