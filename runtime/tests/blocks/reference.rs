//! What each collective must give, written from its definition, element by element.

use half::{bf16, f16};
use ringccl::{Element, ReduceOp};
use std::fmt::Debug;

/// An element with a value for what nobody may write.
pub(crate) trait Value: Element + Copy + PartialEq + Debug {
    const MARK: Self;
    /// Small whole numbers, exact in every type.
    fn of(x: i64) -> Self;
}

macro_rules! values {
    ($($t:ty: $mark:expr, $of:expr;)*) => { $(
        impl Value for $t {
            const MARK: Self = $mark;
            fn of(x: i64) -> Self { $of(x) }
        }
    )* };
}
values! {
    f32: -777.0, |x| x as f32;
    f64: -777.0, |x| x as f64;
    i32: -777, |x| x as i32;
    i64: -777, |x| x;
    f16: f16::from_f32_const(-777.0), |x| f16::from_f32(x as f32);
    bf16: bf16::from_f32_const(-776.0), |x| bf16::from_f32(x as f32);
}

/// The collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mold {
    Broadcast(usize),
    Reduce(usize),
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather(usize),
    Scatter(usize),
    AllGatherV,
    ReduceScatterV,
}

/// One call: which collective, and how many elements each rank's block has.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) mold: Mold,
    pub(crate) op: ReduceOp,
    pub(crate) counts: Vec<usize>,
}

/// What a rank must have in its output; `None` where nothing may be written.
pub(crate) struct Wanted<T> {
    pub(crate) output: Vec<Option<T>>,
}

impl<T: Value> Wanted<T> {
    /// Compares a buffer that held [`Value::MARK`] everywhere before the call.
    pub(crate) fn compare(&self, found: &[T], what: impl Fn() -> String) {
        assert_eq!(found.len(), self.output.len(), "{}", what());
        for (i, (found, wanted)) in found.iter().zip(&self.output).enumerate() {
            let wanted = wanted.unwrap_or(T::MARK);
            assert!(*found == wanted, "{}: [{i}] is {found:?}, not {wanted:?}", what());
        }
    }
}

impl Shape {
    fn nranks(&self) -> usize {
        self.counts.len()
    }

    fn all(&self) -> usize {
        self.counts.iter().sum()
    }

    /// The rank whose block has element `i` of all blocks, and which element of that block it is.
    fn owner(&self, i: usize) -> (usize, usize) {
        let mut first = 0;
        for (rank, count) in self.counts.iter().enumerate() {
            if i < first + count {
                return (rank, i - first);
            }
            first += count;
        }
        panic!("there is no element {i}")
    }

    /// Element `i` of what `rank` has to send.
    fn value(&self, rank: usize, i: usize) -> i64 {
        let n = self.nranks() as i64;
        let hash = (i as u64 * 8191 + rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        let small = (hash % 13) as i64;
        match self.op {
            // At most four ranks hold a 2.
            ReduceOp::Prod => 1 + i64::from((i + rank).is_multiple_of(self.nranks().max(4))),
            // Whole, and exact in every type, also when each is divided by the number of ranks first.
            ReduceOp::Avg => n * (small % 4),
            _ => small - 6,
        }
    }

    fn reduced(&self, i: usize) -> i64 {
        let values = (0..self.nranks()).map(|rank| self.value(rank, i));
        match self.op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Prod => values.product(),
            ReduceOp::Min => values.min().unwrap(),
            ReduceOp::Max => values.max().unwrap(),
            ReduceOp::Avg => values.sum::<i64>() / self.nranks() as i64,
            other => panic!("cases have the operations of BUILTIN, not {other}"),
        }
    }

    /// The input of `rank`; empty where the collective ignores it.
    pub(crate) fn input<T: Value>(&self, rank: usize) -> Vec<T> {
        let len = match self.mold {
            Mold::ReduceScatter | Mold::ReduceScatterV | Mold::AllToAll => self.all(),
            Mold::Scatter(root) if root == rank => self.all(),
            Mold::Scatter(_) => 0,
            _ => self.counts[rank],
        };
        (0..len).map(|i| T::of(self.value(rank, i))).collect()
    }

    pub(crate) fn wanted<T: Value>(&self, rank: usize) -> Wanted<T> {
        let first: usize = self.counts[..rank].iter().sum();
        let one = self.counts[rank];
        let list = |len: usize, value: &dyn Fn(usize) -> i64| Wanted {
            output: (0..len).map(|i| Some(T::of(value(i)))).collect(),
        };
        let gathered = |i: usize| {
            let (owner, at) = self.owner(i);
            self.value(owner, at)
        };
        match self.mold {
            Mold::Broadcast(root) => list(one, &|i| self.value(root, i)),
            Mold::Reduce(root) if root == rank => list(one, &|i| self.reduced(i)),
            Mold::AllGather | Mold::AllGatherV => list(self.all(), &gathered),
            Mold::Gather(root) if root == rank => list(self.all(), &gathered),
            // Nothing may be written on the other ranks.
            Mold::Reduce(_) | Mold::Gather(_) => Wanted { output: vec![None; one] },
            Mold::ReduceScatter | Mold::ReduceScatterV => list(one, &|i| self.reduced(first + i)),
            Mold::AllToAll => list(self.all(), &|i| {
                let (owner, at) = self.owner(i);
                self.value(owner, first + at)
            }),
            Mold::Scatter(root) => list(one, &|i| self.value(root, first + i)),
        }
    }

    /// What the one buffer of a call in place must hold: the result where it belongs, and what was there elsewhere.
    pub(crate) fn wanted_in_place<T: Value>(&self, rank: usize, apart: &Wanted<T>) -> Wanted<T> {
        let count = self.counts[rank];
        let own = rank * count..(rank + 1) * count;
        let mut input: Vec<Option<T>> = self.input(rank).into_iter().map(Some).collect();
        let output = match self.mold {
            Mold::Reduce(root) if root != rank => input,
            Mold::Gather(root) if root != rank => {
                let mut all = vec![None; self.all()];
                all[own].copy_from_slice(&input);
                all
            }
            Mold::ReduceScatter | Mold::Scatter(_) => {
                // Scatter's input is empty but on the root.
                input.resize(self.all(), None);
                input[own].copy_from_slice(&apart.output);
                input
            }
            _ => apart.output.clone(),
        };
        Wanted { output }
    }
}
