//! What every element of every buffer must be, from the definitions: small whole numbers, which every type has and
//! every order of the ranks adds up to the same.

use crate::draw::hash;
use anyhow::ensure;
use half::{bf16, f16};
use ringccl::{Element, F8E4M3, F8E5M2, ReduceOp};
use std::fmt::Debug;

/// An element made of a small number.
pub(super) trait Small: Element + Copy + PartialEq + Debug {
    fn small(value: u32) -> Self;
}

macro_rules! small {
    ($($type:ty: $of:expr,)*) => {
        $(impl Small for $type {
            fn small(value: u32) -> Self {
                let of: fn(u32) -> Self = $of;
                of(value)
            }
        })*
    };
}

small! {
    i8: |value| value as i8,
    u8: |value| value as u8,
    i32: |value| value as i32,
    u32: |value| value,
    i64: i64::from,
    u64: u64::from,
    f16: |value| f16::from_f32(value as f32),
    bf16: |value| bf16::from_f32(value as f32),
    f32: |value| value as f32,
    f64: f64::from,
    F8E4M3: |value| F8E4M3::from_f32(value as f32),
    F8E5M2: |value| F8E5M2::from_f32(value as f32),
}

/// Element `at` of what `rank` has, where nothing is reduced.
pub(super) fn plain(key: u64, rank: usize, at: usize) -> u32 {
    (hash(key, rank as u64, at as u64) >> 40) as u32 & 7
}

/// The reductions of the soak, by number: those for every type first, then those for integers.
pub(super) fn op<T: Small>(number: u64, n: usize) -> ReduceOp {
    let is_float = T::DTYPE.is_float();
    match number % 9 {
        0 => ReduceOp::Prod,
        1 => ReduceOp::Max,
        2 => ReduceOp::Min,
        // A narrow float rounds each rank's part of the mean: exact for powers of two alone.
        3 if !is_float || n.is_power_of_two() => ReduceOp::Avg,
        4 => ReduceOp::PreMulSum(T::small(2).scalar()),
        5 if !is_float => ReduceOp::BitAnd,
        6 if !is_float => ReduceOp::BitOr,
        7 if !is_float => ReduceOp::BitXor,
        _ => ReduceOp::Sum,
    }
}

/// Element `at` of what `rank` of `n` adds to a reduction, so that no partial result needs more than three bits.
pub(super) fn part(op: ReduceOp, key: u64, rank: usize, at: usize, n: usize) -> u32 {
    let drawn = hash(key, 0, at as u64);
    let (bit, whose) = ((drawn >> 20) as u32 & 1, (drawn >> 32) % n as u64);
    let own = plain(key, rank, at);
    match op {
        ReduceOp::Sum => own & 1,
        ReduceOp::Prod => 1 + u32::from(whose == rank as u64) * bit,
        ReduceOp::Avg => u32::from(whose == rank as u64) * bit * n as u32,
        ReduceOp::PreMulSum(_) => u32::from((whose + rank as u64).is_multiple_of(4)) * (own & 1),
        _ => own,
    }
}

/// Element `at` of the result, by the definition.
pub(super) fn reduced(op: ReduceOp, key: u64, at: usize, n: usize) -> u32 {
    let parts = (0..n).map(|rank| part(op, key, rank, at, n));
    match op {
        ReduceOp::Sum => parts.sum(),
        ReduceOp::Prod => parts.product(),
        ReduceOp::Avg => parts.sum::<u32>() / n as u32,
        ReduceOp::PreMulSum(_) => 2 * parts.sum::<u32>(),
        ReduceOp::Max => parts.max().unwrap_or(0),
        ReduceOp::Min => parts.min().unwrap_or(0),
        ReduceOp::BitAnd => parts.fold(u32::MAX, |a, b| a & b),
        ReduceOp::BitOr => parts.fold(0, |a, b| a | b),
        ReduceOp::BitXor => parts.fold(0, |a, b| a ^ b),
    }
}

/// Elements around a buffer that nobody may touch.
const GUARD: usize = 5;
/// What they are.
const GUARD_VALUE: u32 = 6;

/// A buffer with guards before and behind it.
pub(super) struct Guarded<T> {
    all: Vec<T>,
}

impl<T: Small> Guarded<T> {
    /// A buffer of `len` elements, each what `of` says.
    pub(super) fn new(len: usize, of: impl Fn(usize) -> u32) -> Self {
        let guard = || std::iter::repeat_n(T::small(GUARD_VALUE), GUARD);
        Self { all: guard().chain((0..len).map(|at| T::small(of(at)))).chain(guard()).collect() }
    }

    /// A buffer of `len` elements that are to be overwritten.
    pub(super) fn blank(len: usize) -> Self {
        Self::new(len, |_| 7)
    }

    pub(super) fn get(&mut self) -> &mut [T] {
        let end = self.all.len() - GUARD;
        &mut self.all[GUARD..end]
    }

    /// Whether every element is what `of` says, and the guards are what they were.
    pub(super) fn check(&self, of: impl Fn(usize) -> u32) -> anyhow::Result<()> {
        let end = self.all.len() - GUARD;
        for (at, &found) in self.all.iter().enumerate() {
            let is_guard = at < GUARD || at >= end;
            let expected = T::small(if is_guard { GUARD_VALUE } else { of(at - GUARD) });
            let what = if is_guard { "guard" } else { "element" };
            ensure!(
                found == expected,
                "{what} {} of {} is {found:?}, not {expected:?}",
                at as i64 - GUARD as i64,
                end - GUARD
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guard that is touched and an element that is wrong are told.
    #[test]
    fn wrong_elements_are_told() {
        let mut buffer = Guarded::<u8>::new(4, |at| at as u32);
        buffer.check(|at| at as u32).unwrap();
        buffer.get()[2] = 9;
        assert!(buffer.check(|at| at as u32).unwrap_err().to_string().contains("element 2 of 4 is 9, not 2"));
    }
}
