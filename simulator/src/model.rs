//! What each call must give, computed naively from its definition: the values are small whole numbers, exact in every
//! type.

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

/// Lengths of the ranks' blocks; where a kind has none, that of the buffer.
pub fn counts(call: &Call, nranks: usize) -> Vec<usize> {
    let uneven = matches!(call.kind, Kind::AllGatherV | Kind::ReduceScatterV(_));
    let of = |rank: usize| match rank {
        // Calls with other counts have other blocks.
        0 => call.count,
        _ if uneven => call.count * ((call.count + 5 * rank) % 7) / 3,
        _ => call.count,
    };
    (0..nranks).map(of).collect()
}

/// Elements that a rank passes in and gets.
pub fn lengths(call: &Call, nranks: usize, rank: usize) -> (usize, usize) {
    let counts = counts(call, nranks);
    let (one, all) = (counts[rank], counts.iter().sum());
    let on = |root: usize, elements: usize| if rank == root { elements } else { 0 };
    match call.kind {
        Kind::Barrier => (0, 0),
        Kind::AllReduce(_) | Kind::Broadcast(_) => (one, one),
        Kind::Reduce(_, root) => (one, on(root, one)),
        Kind::AllGather | Kind::AllGatherV => (one, all),
        Kind::Gather(root) => (one, on(root, all)),
        Kind::ReduceScatter(_) | Kind::ReduceScatterV(_) => (all, one),
        Kind::AllToAll => (all, all),
        Kind::Scatter(root) => (on(root, all), one),
    }
}

/// Element `i` of the input of `rank` to call number `index`.
pub fn input(call: &Call, index: usize, rank: usize, i: usize) -> i64 {
    let draw = scramble((index as u64) << 40 | (rank as u64) << 32 | i as u64);
    let is_reduced = call.kind.op().is_some();
    let bound = match call.dtype {
        DType::F8E4M3 | DType::F8E5M2 if is_reduced => 2,
        DType::F8E4M3 | DType::F8E5M2 => 8,
        DType::I8 | DType::U8 => 16,
        _ => 32,
    };
    match call.kind.op() {
        // The product of five of these is at most 32, their sum at most 155: exact also in bfloat16, but not in 8 bits.
        Some(ReduceOp::Prod) => 1 + (draw % 2) as i64,
        _ => (draw % bound) as i64,
    }
}

/// Element `i` of what `rank` of `nranks` ranks gets from call number `index`.
pub fn output(call: &Call, index: usize, nranks: usize, rank: usize, i: usize) -> f64 {
    let counts = counts(call, nranks);
    let start = |of: usize| counts[..of].iter().sum::<usize>();
    let from = |source: usize, i: usize| input(call, index, source, i) as f64;
    // Whose block has element `i` of all blocks, and which element of it that is.
    let owner = || {
        let last = |of: &usize| start(*of) <= i && i < start(*of) + counts[*of];
        let of = (0..nranks).find(last).unwrap_or(0);
        (of, i - start(of))
    };
    match call.kind {
        Kind::Barrier => 0.0,
        Kind::AllReduce(op) | Kind::Reduce(op, _) => reduced(call, op, index, nranks, i),
        Kind::ReduceScatter(op) | Kind::ReduceScatterV(op) => {
            reduced(call, op, index, nranks, start(rank) + i)
        }
        Kind::Broadcast(root) => from(root, i),
        Kind::Scatter(root) => from(root, start(rank) + i),
        Kind::AllGather | Kind::AllGatherV | Kind::Gather(_) => {
            let (of, at) = owner();
            from(of, at)
        }
        Kind::AllToAll => {
            let (of, at) = owner();
            from(of, start(rank) + at)
        }
    }
}

/// The reduction of element `i` of all inputs.
fn reduced(call: &Call, op: ReduceOp, index: usize, nranks: usize, i: usize) -> f64 {
    let inputs = (0..nranks).map(|rank| input(call, index, rank, i));
    match op {
        ReduceOp::Sum => inputs.sum::<i64>() as f64,
        ReduceOp::Prod => inputs.product::<i64>() as f64,
        ReduceOp::Min => inputs.min().unwrap_or(0) as f64,
        ReduceOp::Max => inputs.max().unwrap_or(0) as f64,
        ReduceOp::Avg if call.dtype.is_float() => inputs.sum::<i64>() as f64 / nranks as f64,
        ReduceOp::Avg => (inputs.sum::<i64>() / nranks as i64) as f64,
        _ => unreachable!("no scenario has {op}"),
    }
}
