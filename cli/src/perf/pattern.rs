//! Inputs whose results are exact in every type, and the check of results.

use super::layout::{Part, Source};
use half::{bf16, f16};
use ringccl::{DType, Element, F8E4M3, F8E5M2, ReduceOp, Scalar};
use std::cmp::Ordering;

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
    i8, 1 << 7, |x| x as i8, f64::from;
    u8, 1 << 8, |x| x as u8, f64::from;
    i32, 1 << 31, |x| x as i32, f64::from;
    u32, 1 << 32, |x| x as u32, f64::from;
    i64, 1 << 53, |x| x as i64, |x| x as f64;
    u64, 1 << 53, |x| x, |x| x as f64;
    f16, 1 << 11, |x| f16::from_f32(x as f32), f16::to_f64;
    bf16, 1 << 8, |x| bf16::from_f32(x as f32), bf16::to_f64;
    F8E4M3, 1 << 4, |x| F8E4M3::from_f32(x as f32), |x: F8E4M3| f64::from(x.to_f32());
    F8E5M2, 1 << 3, |x| F8E5M2::from_f32(x as f32), |x: F8E5M2| f64::from(x.to_f32());
}

/// Values repeat after this many elements: a prime, so that no chunk, piece or slot is a multiple of it and
/// misplaced data shows.
const PERIOD: usize = 8191;

/// What nccl-tests multiplies the input of a rank by in `mulsum`: 1 or 2, so that results are exact.
fn factor(rank: u64) -> u64 {
    1 + rank % 2
}

/// The sum to which `rank` gives its input times its factor.
pub(super) fn pre_mul_sum(dtype: DType, rank: u64) -> ReduceOp {
    ReduceOp::PreMulSum(Scalar::from_f64(dtype, factor(rank) as f64))
}

/// What the ranks hold, and what comes out, for one element type.
#[derive(Clone, Debug)]
pub(super) struct Pattern<T> {
    shape: Shape,
    /// This rank's, made once and looked up.
    input: Vec<T>,
    /// By how much of itself a right reduction may be off; 0 where it is exact.
    slack: f64,
}

/// Which data is meant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) op: ReduceOp,
    pub(super) ranks: u64,
    /// Whether data is reduced, or arrives as it was sent.
    pub(super) reduces: bool,
}

impl Shape {
    /// Element `i` of rank `rank`.
    fn input<T: Value>(&self, rank: u64, i: u64) -> u64 {
        let mixed = i.wrapping_mul(2_654_435_761) ^ rank.wrapping_mul(40_503);
        let hash = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        // The largest factor leaves room for half of it.
        let exact = if matches!(self.op, ReduceOp::PreMulSum(_)) { T::EXACT / 2 } else { T::EXACT };
        match self.op {
            // One rank holds 2 or 3, the others 1, so that products stay small.
            ReduceOp::Prod if self.reduces && (i + rank).is_multiple_of(self.ranks) => 2 + i % 2,
            ReduceOp::Prod if self.reduces => 1,
            _ if !self.reduces => hash % T::EXACT.min(1024),
            // Sums over all ranks stay exact; where 0 and 1 are too much for that, only so many ranks hold a 1.
            _ if exact / self.ranks < 2 => {
                let ones = 1 + (i / 3) % (exact - 1).min(self.ranks);
                u64::from((rank + 7 * i) % self.ranks < ones)
            }
            _ => hash % (exact / self.ranks).min(1024),
        }
    }

    fn expected<T: Value>(&self, source: Source, i: u64) -> f64 {
        if let Source::Rank(rank) = source {
            return self.input::<T>(rank, i) as f64;
        }
        let all = (0..self.ranks).map(|rank| self.input::<T>(rank, i));
        match self.op {
            ReduceOp::Sum => all.sum::<u64>() as f64,
            ReduceOp::Prod => all.product::<u64>() as f64,
            ReduceOp::Min => all.min().unwrap_or(0) as f64,
            ReduceOp::Max => all.max().unwrap_or(0) as f64,
            ReduceOp::Avg if is_integer::<T>() => (all.sum::<u64>() / self.ranks) as f64,
            ReduceOp::Avg => all.sum::<u64>() as f64 / self.ranks as f64,
            ReduceOp::BitAnd => all.reduce(|a, b| a & b).unwrap_or(0) as f64,
            ReduceOp::BitOr => all.reduce(|a, b| a | b).unwrap_or(0) as f64,
            ReduceOp::BitXor => all.reduce(|a, b| a ^ b).unwrap_or(0) as f64,
            ReduceOp::PreMulSum(_) => {
                let products = all.zip(0..).map(|(input, rank)| input * factor(rank));
                products.sum::<u64>() as f64
            }
        }
    }
}

fn is_integer<T: Value>() -> bool {
    !T::DTYPE.is_float()
}

impl<T: Value> Pattern<T> {
    /// The data of `rank`.
    pub(super) fn new(shape: Shape, rank: u64) -> Self {
        // Floats multiply each input by 1/n before adding, which rounds once per rank and once per sum.
        let rounds = shape.op == ReduceOp::Avg && shape.reduces && !is_integer::<T>();
        let rounds = rounds && !shape.ranks.is_power_of_two();
        Self {
            shape,
            input: (0..PERIOD as u64).map(|i| T::from_whole(shape.input::<T>(rank, i))).collect(),
            slack: if rounds { 2.0 * shape.ranks as f64 / T::EXACT as f64 } else { 0.0 },
        }
    }

    /// Writes this rank's input.
    pub(super) fn fill(&self, buffer: &mut [T]) {
        for part in buffer.chunks_mut(PERIOD) {
            part.copy_from_slice(&self.input[..part.len()]);
        }
    }

    /// How many elements of a result are wrong.
    pub(super) fn wrong(&self, result: &[T], parts: &[Part]) -> u64 {
        parts.iter().map(|part| self.wrong_part(&result[part.at.clone()], part)).sum()
    }

    fn wrong_part(&self, result: &[T], part: &Part) -> u64 {
        // Inputs repeat, so results do.
        let index = |i: usize| ((part.first + i) % PERIOD) as u64;
        let expected: Vec<f64> =
            (0..result.len().min(PERIOD)).map(|i| self.shape.expected::<T>(part.source, index(i))).collect();
        let slack = if part.source == Source::All { self.slack } else { 0.0 };
        let is_wrong = |(found, right): &(&T, &f64)| {
            // Written so that a NaN is wrong.
            let off = (found.to_f64() - **right).abs();
            !matches!(off.partial_cmp(&(**right * slack)), Some(Ordering::Less | Ordering::Equal))
        };
        let count = |part: &[T]| part.iter().zip(&expected).filter(is_wrong).count() as u64;
        result.chunks(PERIOD).map(count).sum()
    }

    /// How many elements of an input buffer are no longer what [`Pattern::fill`] wrote.
    pub(super) fn changed(&self, buffer: &[T]) -> u64 {
        let count = |part: &[T]| part.iter().zip(&self.input).filter(|(a, b)| a != b).count() as u64;
        buffer.chunks(PERIOD).map(count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check counts exactly the elements that are wrong.
    #[test]
    fn wrong_elements_are_counted() {
        for op in ReduceOp::BUILTIN.into_iter().chain([pre_mul_sum(DType::F32, 0)]) {
            let shape = Shape { op, ranks: 4, reduces: true };
            let parts = [Part { at: 0..100, source: Source::All, first: 0 }];
            let pattern = Pattern::<f32>::new(shape, 0);
            let mut inputs = [[0f32; 100]; 4];
            for (rank, input) in inputs.iter_mut().enumerate() {
                Pattern::new(shape, rank as u64).fill(input);
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
                        ReduceOp::PreMulSum(_) => all.zip([1.0, 2.0, 1.0, 2.0]).map(|(x, by)| x * by).sum(),
                        _ => unreachable!("not an operation of floats"),
                    }
                })
                .collect();
            assert_eq!(pattern.wrong(&result, &parts), 0, "{op:?}");
            result[3] += 1.0;
            result[99] = f32::NAN;
            assert_eq!(pattern.wrong(&result, &parts), 2, "{op:?}");
        }
    }

    /// Sums over any number of ranks are exact also in 8 bits, and are not all the same.
    #[test]
    fn sums_stay_exact() {
        fn check<T: Value>() {
            let ops = [ReduceOp::Sum, pre_mul_sum(T::DTYPE, 0)];
            for (ranks, op) in
                [1, 2, 3, 7, 8, 15, 16, 64, 1000].into_iter().flat_map(|n| ops.map(|op| (n, op)))
            {
                let shape = Shape { op, ranks, reduces: true };
                let expected: Vec<f64> =
                    (0..PERIOD as u64).map(|i| shape.expected::<T>(Source::All, i)).collect();
                let exact = |x: &f64| *x < T::EXACT as f64 && T::from_whole(*x as u64).to_f64() == *x;
                assert!(expected.iter().all(exact), "{:?} of {ranks} ranks", T::DTYPE);
                assert!(expected.iter().any(|x| *x != expected[0]), "{:?} of {ranks} ranks", T::DTYPE);
            }
        }
        check::<i8>();
        check::<u8>();
        check::<F8E4M3>();
        check::<F8E5M2>();
        check::<bf16>();
    }

    /// Data that is shifted, doubled, missing or another rank's is seen in every type.
    #[test]
    fn misplaced_data_shows() {
        fn check<T: Value>() {
            let shape = Shape { op: ReduceOp::Sum, ranks: 64, reduces: false };
            let mut right = vec![T::from_whole(0); 3 * PERIOD];
            Pattern::<T>::new(shape, 3).fill(&mut right);
            let parts = [Part { at: 0..right.len(), source: Source::Rank(3), first: 0 }];
            let pattern = Pattern::<T>::new(shape, 0);
            assert_eq!(pattern.wrong(&right, &parts), 0);
            let tail = [Part { at: 0..right.len() - 100, source: Source::Rank(3), first: 100 }];
            assert_eq!(pattern.wrong(&right[100..], &tail), 0);
            for shift in [1, 64, 4096, 32_768 % right.len()] {
                let mut shifted = right.clone();
                shifted.rotate_left(shift);
                assert!(pattern.wrong(&shifted, &parts) > PERIOD as u64 / 4, "{:?} by {shift}", T::DTYPE);
            }
            let mut others = right.clone();
            Pattern::<T>::new(shape, 4).fill(&mut others);
            assert!(pattern.wrong(&others, &parts) > PERIOD as u64 / 4, "{:?}", T::DTYPE);
        }
        check::<i8>();
        check::<u8>();
        check::<i32>();
        check::<u32>();
        check::<i64>();
        check::<u64>();
        check::<f16>();
        check::<f32>();
        check::<f64>();
        check::<bf16>();
        check::<F8E4M3>();
        check::<F8E5M2>();
    }
}
