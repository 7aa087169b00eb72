//! What each operation must give, from its definition, element by element: no plan, no cut, no order of messages.

use super::value::Value;
use crate::draw::hash;
use ringccl::{ReduceOp, Scalar};

/// The operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    AllReduce,
    Broadcast(usize),
    Reduce(usize),
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather(usize),
    Scatter(usize),
    AllGatherV,
    ReduceScatterV,
    AllToAllV,
    /// Every rank sends to the one so far behind it, which may be itself.
    Shift(usize),
    Barrier,
}

/// One operation of a communicator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// The reduction; a scalar's value is each rank's own.
    pub(super) op: ReduceOp,
    /// Elements of the buffer, of a block, or about so many.
    pub(super) count: usize,
    /// Tells the data of this operation from that of all others.
    pub(super) key: u64,
    pub(super) n: usize,
    /// Whether contributions enter in the order of the ranks, so that the bits are known.
    pub(super) in_order: bool,
}

/// What one element must be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<T> {
    Exactly(T),
    Near { value: f64, within: f64 },
}

impl<T: Value> Wanted<T> {
    pub(super) fn fits(self, found: T) -> bool {
        match self {
            Self::Exactly(value) => found == value,
            // Written so that a NaN does not fit.
            Self::Near { value, within } => (found.wide() - value).abs() <= within,
        }
    }
}

impl Shape {
    /// Elements of each rank's block.
    pub(super) fn counts(&self) -> Vec<usize> {
        let uneven = |rank: usize| self.count * ((self.key as usize % 1000 + rank * 5) % 7) / 3;
        match self.kind {
            Kind::AllGatherV | Kind::ReduceScatterV => (0..self.n).map(uneven).collect(),
            _ => vec![self.count; self.n],
        }
    }

    /// Elements that `from` sends to `to` in an uneven exchange.
    pub(super) fn between(&self, from: usize, to: usize) -> usize {
        self.count * ((self.key as usize % 1000 + from * 5 + to * 3) % 7) / 3
    }

    /// Elements of the message of `from` in a shift.
    pub(super) fn message(&self, from: usize) -> usize {
        self.count * (1 + from) / self.n
    }

    /// Elements that a rank passes and gets.
    pub(super) fn lengths(&self, rank: usize) -> (usize, usize) {
        let counts = self.counts();
        let (one, all) = (counts[rank], counts.iter().sum());
        let on = |root: usize, elements: usize| if rank == root { elements } else { 0 };
        match self.kind {
            Kind::Barrier => (0, 0),
            Kind::AllReduce | Kind::Broadcast(_) => (one, one),
            Kind::Reduce(root) => (one, on(root, one)),
            Kind::AllGather | Kind::AllGatherV => (one, all),
            Kind::Gather(root) => (one, on(root, all)),
            Kind::ReduceScatter | Kind::ReduceScatterV => (all, one),
            Kind::Scatter(root) => (on(root, all), one),
            Kind::AllToAll => (all, all),
            Kind::AllToAllV => {
                let sum = |of: &dyn Fn(usize) -> usize| (0..self.n).map(of).sum();
                (sum(&|to| self.between(rank, to)), sum(&|from| self.between(from, rank)))
            }
            Kind::Shift(by) => (self.message(rank), self.message((rank + self.n - by) % self.n)),
        }
    }

    /// Where input and output begin in the one buffer of a call in place, and how long that is; `None` for a kind
    /// without such a form.
    pub(super) fn places(&self, rank: usize) -> Option<(usize, usize, usize)> {
        let counts = self.counts();
        let (first, all): (usize, usize) = (counts[..rank].iter().sum(), counts.iter().sum());
        match self.kind {
            Kind::AllReduce | Kind::Broadcast(_) | Kind::Reduce(_) => Some((0, 0, self.count)),
            Kind::AllToAll => Some((0, 0, all)),
            Kind::AllGather | Kind::AllGatherV | Kind::Gather(_) => Some((first, 0, all)),
            Kind::ReduceScatter | Kind::ReduceScatterV | Kind::Scatter(_) => Some((0, first, all)),
            Kind::AllToAllV | Kind::Shift(_) | Kind::Barrier => None,
        }
    }

    /// Element `i` of what `rank` passes.
    pub(super) fn input<T: Value>(&self, rank: usize, i: usize) -> T {
        T::random(hash(self.key, rank as u64, i as u64), self.op)
    }

    /// The rank's own scalar, for a sum that has one.
    pub(super) fn scalar<T: Value>(&self, rank: usize) -> T {
        T::random(hash(self.key, rank as u64, u64::MAX), ReduceOp::Prod)
    }

    /// The reduction as `rank` passes it.
    pub(super) fn op_of<T: Value>(&self, rank: usize) -> ReduceOp {
        match self.op {
            ReduceOp::PreMulSum(_) => ReduceOp::PreMulSum(Scalar::new(self.scalar::<T>(rank))),
            op => op,
        }
    }

    /// Element `i` of what `rank` gets.
    pub(super) fn wanted<T: Value>(&self, rank: usize, i: usize) -> Wanted<T> {
        let counts = self.counts();
        let first = |rank: usize| counts[..rank].iter().sum::<usize>();
        // The block that has element `i` of all blocks, and which of its elements that is.
        let owner = || {
            let of = (0..self.n).find(|of| i < first(*of) + counts[*of]).unwrap_or(0);
            (of, i - first(of))
        };
        let from = |rank: usize, i: usize| Wanted::Exactly(self.input(rank, i));
        match self.kind {
            Kind::AllReduce | Kind::Reduce(_) => self.reduced(i),
            Kind::ReduceScatter | Kind::ReduceScatterV => self.reduced(first(rank) + i),
            Kind::Broadcast(root) => from(root, i),
            Kind::Scatter(root) => from(root, first(rank) + i),
            Kind::AllGather | Kind::AllGatherV | Kind::Gather(_) => {
                let (of, at) = owner();
                from(of, at)
            }
            Kind::AllToAll => {
                let (of, at) = owner();
                from(of, first(rank) + at)
            }
            Kind::AllToAllV => {
                let (mut source, mut at) = (0, i);
                while at >= self.between(source, rank) {
                    at -= self.between(source, rank);
                    source += 1;
                }
                let before: usize = (0..rank).map(|to| self.between(source, to)).sum();
                from(source, before + at)
            }
            Kind::Shift(by) => from((rank + self.n - by) % self.n, i),
            Kind::Barrier => unreachable!("a barrier gives nothing"),
        }
    }

    /// Element `i` of all inputs reduced.
    fn reduced<T: Value>(&self, i: usize) -> Wanted<T> {
        let (n, op) = (self.n, self.op);
        let is_scaled = matches!(op, ReduceOp::PreMulSum(_));
        let all = || {
            (0..n).map(|rank| {
                let own = self.input(rank, i);
                if is_scaled { T::step(ReduceOp::Prod, own, self.scalar(rank)) } else { own }
            })
        };
        let in_order = all().reduce(|a, b| T::step(op, a, b)).unwrap_or(T::MARK);
        let is_exact = !T::DTYPE.is_float() || matches!(op, ReduceOp::Max | ReduceOp::Min) || n == 1;
        match op {
            ReduceOp::Avg if !T::DTYPE.is_float() => Wanted::Exactly(in_order.divided(n)),
            // A float's share of the mean is rounded before it is added; how is the kernel's affair.
            ReduceOp::Avg if n > 1 => {
                let sum: f64 = all().map(Value::wide).sum();
                let size: f64 = all().map(|x| x.wide().abs()).sum();
                near::<T>(sum / n as f64, size / n as f64, n + 1, n)
            }
            _ if is_exact || self.in_order => Wanted::Exactly(in_order),
            ReduceOp::Prod => {
                let product: f64 = all().map(Value::wide).product();
                near::<T>(product, product.abs(), n - 1, n)
            }
            _ => {
                let sum: f64 = all().map(Value::wide).sum();
                let size: f64 = all().map(|x| x.wide().abs()).sum();
                near::<T>(sum, size, n - 1, n)
            }
        }
    }
}

/// A result that was rounded `times` times, each by one unit of at most `size` and of what was lost before; and by no
/// less than the smallest value where `n` of them came near zero. Wide sums are exact beside that, but for 64 bits.
fn near<T: Value>(value: f64, size: f64, times: usize, n: usize) -> Wanted<T> {
    let unit = T::UNIT + if T::UNIT < 1e-15 { f64::EPSILON } else { 0.0 };
    let within =
        size * ((1.0 + unit).powi(times as i32) - 1.0) + n as f64 * T::TINY + size * f64::EPSILON * n as f64;
    Wanted::Near { value, within }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    const KINDS: [Kind; 12] = [
        Kind::AllReduce,
        Kind::Broadcast(1),
        Kind::Reduce(2),
        Kind::AllGather,
        Kind::ReduceScatter,
        Kind::AllToAll,
        Kind::Gather(0),
        Kind::Scatter(2),
        Kind::AllGatherV,
        Kind::ReduceScatterV,
        Kind::AllToAllV,
        Kind::Shift(1),
    ];

    fn shape(kind: Kind, op: ReduceOp) -> Shape {
        Shape { kind, op, count: 5, key: 9, n: 3, in_order: true }
    }

    /// Every element of every output is defined, and no two of a rank's are the same by accident of the definition.
    #[test]
    fn outputs_are_defined() {
        for kind in KINDS {
            let shape = shape(kind, ReduceOp::Sum);
            for rank in 0..3 {
                let (_, len) = shape.lengths(rank);
                let mut all: Vec<u64> = (0..len)
                    .map(|i| match shape.wanted::<u64>(rank, i) {
                        Wanted::Exactly(value) => value,
                        near @ Wanted::Near { .. } => panic!("{near:?}"),
                    })
                    .collect();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len(), len, "{kind:?} on rank {rank}");
            }
        }
    }

    /// A sum in any order is within the bound, and one that lacks a rank's part or has it twice is not.
    #[test]
    fn bounds_are_tight() {
        let shape = Shape { in_order: false, ..shape(Kind::AllReduce, ReduceOp::Sum) };
        for i in 0..500 {
            let parts: Vec<bf16> = (0..3).map(|rank| shape.input(rank, i)).collect();
            let wanted = shape.wanted::<bf16>(0, i);
            let sum = |order: &[usize]| {
                order.iter().map(|at| parts[*at]).reduce(|a, b| bf16::step(ReduceOp::Sum, a, b)).unwrap()
            };
            assert!([[0, 1, 2], [2, 1, 0], [1, 2, 0]].iter().all(|order| wanted.fits(sum(order))));
            assert!(!wanted.fits(sum(&[0, 1])) && !wanted.fits(sum(&[0, 1, 2, 2])), "{parts:?}");
            assert!(!wanted.fits(bf16::NAN));
        }
    }
}
