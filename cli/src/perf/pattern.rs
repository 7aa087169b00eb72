//! Inputs whose results are exact in every type, and the check of results.

use half::{bf16, f16};
use ringccl::{DType, Element, ReduceOp};

/// An element that can hold small whole numbers exactly.
pub(super) trait Value: Element + Copy + PartialEq {
    /// Largest whole number below which all are exact.
    const EXACT: u64;
    fn from_whole(x: u64) -> Self;
    fn to_f64(self) -> f64;
}

macro_rules! values {
    ($($t:ty, $exact:expr, $from:expr, $to:expr;)*) => { $(
        impl Value for $t {
            const EXACT: u64 = $exact;
            fn from_whole(x: u64) -> Self { $from(x) }
            fn to_f64(self) -> f64 { $to(self) }
        }
    )* };
}
values! {
    f32, 1 << 24, |x| x as f32, f64::from;
    f64, 1 << 53, |x| x as f64, |x| x;
    i32, 1 << 31, |x| x as i32, f64::from;
    i64, 1 << 53, |x| x as i64, |x| x as f64;
    f16, 1 << 11, |x| f16::from_f32(x as f32), f16::to_f64;
    bf16, 1 << 8, |x| bf16::from_f32(x as f32), bf16::to_f64;
}

/// What the ranks hold, and what comes out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    pub(super) op: ReduceOp,
    pub(super) ranks: u64,
    /// The rank whose data arrives, where nothing is reduced.
    pub(super) root: Option<u64>,
}

impl Pattern {
    /// Values go up to here, so that sums over all ranks are exact.
    fn range<T: Value>(&self) -> u64 {
        (T::EXACT / self.ranks).clamp(2, 1024)
    }

    /// Element `i` of rank `rank`.
    fn input<T: Value>(&self, rank: u64, i: u64) -> u64 {
        let hash = (i.wrapping_mul(2_654_435_761) ^ rank.wrapping_mul(40_503))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            >> 40;
        match (self.op, self.root) {
            // One rank holds 2 or 3, the others 1, so that products stay small.
            (ReduceOp::Prod, None) if (i + rank).is_multiple_of(self.ranks) => 2 + i % 2,
            (ReduceOp::Prod, None) => 1,
            _ => hash % self.range::<T>(),
        }
    }

    pub(super) fn fill<T: Value>(&self, buffer: &mut [T], rank: u64) {
        for (i, element) in buffer.iter_mut().enumerate() {
            *element = T::from_whole(self.input::<T>(rank, i as u64));
        }
    }

    /// How many elements of a result are wrong.
    pub(super) fn wrong<T: Value>(&self, result: &[T]) -> u64 {
        let mut wrong = 0;
        for (i, found) in result.iter().enumerate() {
            wrong += u64::from(!self.is_right(*found, i as u64));
        }
        wrong
    }

    fn is_right<T: Value>(&self, found: T, i: u64) -> bool {
        if let Some(root) = self.root {
            return found == T::from_whole(self.input::<T>(root, i));
        }
        let all = (0..self.ranks).map(|rank| self.input::<T>(rank, i));
        let expected = match self.op {
            ReduceOp::Sum => all.sum(),
            ReduceOp::Prod => all.product(),
            ReduceOp::Min => all.min().unwrap_or(0),
            ReduceOp::Max => all.max().unwrap_or(0),
            ReduceOp::Avg => return self.is_average(found, all.sum()),
        };
        found == T::from_whole(expected)
    }

    /// Integers divide the sum; floats multiply each input by 1/n first, which rounds once per rank and sum.
    fn is_average<T: Value>(&self, found: T, sum: u64) -> bool {
        if matches!(T::DTYPE, DType::I32 | DType::I64) {
            return found == T::from_whole(sum / self.ranks);
        }
        let exact = sum as f64 / self.ranks as f64;
        let roundings = if self.ranks.is_power_of_two() { 0.0 } else { 2.0 * self.ranks as f64 };
        (found.to_f64() - exact).abs() <= exact * roundings / T::EXACT as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check counts exactly the elements that are wrong.
    #[test]
    fn wrong_elements_are_counted() {
        for op in ReduceOp::ALL {
            let pattern = Pattern { op, ranks: 4, root: None };
            let mut inputs = [[0f32; 100]; 4];
            for (rank, input) in inputs.iter_mut().enumerate() {
                pattern.fill(input, rank as u64);
            }
            let mut result: Vec<f32> = (0..100)
                .map(|i| {
                    let all = inputs.iter().map(|input| input[i]);
                    match op {
                        ReduceOp::Sum => all.sum(),
                        ReduceOp::Prod => all.product(),
                        ReduceOp::Min => all.fold(f32::MAX, f32::min),
                        ReduceOp::Max => all.fold(0.0, f32::max),
                        ReduceOp::Avg => all.map(|x| x / 4.0).sum(),
                    }
                })
                .collect();
            assert_eq!(pattern.wrong(&result), 0, "{op:?}");
            result[3] += 1.0;
            result[99] = f32::NAN;
            assert_eq!(pattern.wrong(&result), 2, "{op:?}");
        }
    }
}
