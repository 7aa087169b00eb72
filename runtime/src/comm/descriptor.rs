//! What a rank tells the others about the operation that it has begun, and how two such records differ.
//!
//! Each rank enters the descriptor of every operation in its journal in the segment, and marks the operation's
//! messages with a stamp made from it. A message of a different call therefore never arrives; whoever waits for one
//! in vain looks at the journals and finds who called what.

use crate::plan::{Call, Kind};
use crate::reduce::{DType, ReduceOp};
use shmring::Stamp;
use std::fmt;

/// One operation as a rank called it, in the two words of a journal's entry.
///
/// | bits of the first word | |
/// | --- | --- |
/// | 0..8 | kind |
/// | 8..16 | element type |
/// | 16..24 | reduction |
/// | 32..64 | root; a hash of the counts, where each rank has its own |
///
/// The second word is the count, of all ranks together where each has its own. Fields that a kind does not have are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    what: u64,
    count: u64,
}

/// The kinds by number; `finalize` is a barrier with a name of its own.
const KINDS: [&str; 12] = [
    "all_reduce",
    "broadcast",
    "barrier",
    "finalize",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "gather",
    "scatter",
    "all_gather_v",
    "reduce_scatter_v",
];
const ALL_REDUCE: u64 = 0;
const BROADCAST: u64 = 1;
const BARRIER: u64 = 2;
const FINALIZE: u64 = 3;
const REDUCE: u64 = 4;
const ALL_GATHER: u64 = 5;
const REDUCE_SCATTER: u64 = 6;
const ALL_TO_ALL: u64 = 7;
const GATHER: u64 = 8;
const SCATTER: u64 = 9;
const ALL_GATHER_V: u64 = 10;
const REDUCE_SCATTER_V: u64 = 11;

impl Descriptor {
    /// The descriptor of a call; `closing` is the barrier of a rank that leaves.
    pub(crate) fn new(call: &Call, closing: bool) -> Self {
        let kind = match call.kind {
            Kind::AllReduce => ALL_REDUCE,
            Kind::Broadcast { .. } => BROADCAST,
            Kind::Barrier if closing => FINALIZE,
            Kind::Barrier => BARRIER,
            Kind::Reduce { .. } => REDUCE,
            Kind::AllGather => ALL_GATHER,
            Kind::ReduceScatter => REDUCE_SCATTER,
            Kind::AllToAll => ALL_TO_ALL,
            Kind::Gather { .. } => GATHER,
            Kind::Scatter { .. } => SCATTER,
            Kind::AllGatherV => ALL_GATHER_V,
            Kind::ReduceScatterV => REDUCE_SCATTER_V,
        };
        let dtype = if call.kind == Kind::Barrier { 0 } else { u64::from(call.dtype.nccl_code()) };
        let op = if call.kind.reduces() { u64::from(call.op.code()) } else { 0 };
        let hash = call.counts.as_ref().map(|counts| counts.hash());
        let high = call.kind.root().or(hash).unwrap_or(0);
        Self { what: kind | dtype << 8 | op << 16 | u64::from(high) << 32, count: call.count as u64 }
    }

    pub(crate) fn to_words(self) -> [u64; 2] {
        [self.what, self.count]
    }

    /// Takes words that another process has written; any are taken, and shown as what they are.
    pub(crate) fn from_words([what, count]: [u64; 2]) -> Self {
        Self { what, count }
    }

    /// Mixes the descriptor, without the number of the operation.
    pub(crate) fn mix(self) -> u64 {
        (self.what.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.count).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    /// What differs from `other`, for a message: `count 4 and 8`, or the kinds alone if those differ.
    pub(crate) fn difference(self, other: Self) -> String {
        if self.kind() != other.kind() {
            return "the calls differ".into();
        }
        let mut parts = Vec::new();
        if self.count != other.count {
            let what = if self.has_counts() { "sum of the counts" } else { "count" };
            parts.push(format!("{what} {} and {}", self.count, other.count));
        }
        let mut fields = |name: &str, mine: String, theirs: String| {
            if mine != theirs {
                parts.push(format!("{name} {mine} and {theirs}"));
            }
        };
        fields("type", self.dtype(), other.dtype());
        fields("reduction", self.op(), other.op());
        if self.has_counts() {
            // Where the sums differ, so do the counts.
            if self.high() != other.high() {
                parts.push("the counts of the ranks differ".into());
            }
        } else {
            fields("root", self.high().to_string(), other.high().to_string());
        }
        parts.join(", ")
    }

    fn kind(self) -> u64 {
        self.what & 0xff
    }

    /// Whether no rank gets through before every rank has called: all give something to all.
    pub(crate) fn needs_all(self) -> bool {
        matches!(self.kind(), ALL_REDUCE | BARRIER | FINALIZE | ALL_GATHER | REDUCE_SCATTER | ALL_TO_ALL)
    }

    /// The root, or the hash of the counts.
    fn high(self) -> u64 {
        self.what >> 32
    }

    /// Whether each rank has a count of its own.
    fn has_counts(self) -> bool {
        matches!(self.kind(), ALL_GATHER_V | REDUCE_SCATTER_V)
    }

    fn dtype(self) -> String {
        let code = self.what >> 8 & 0xff;
        let found = DType::from_nccl_code(code as u32).map(DType::name);
        found.map_or_else(|| format!("type {code}"), ToString::to_string)
    }

    fn op(self) -> String {
        let code = self.what >> 16 & 0xff;
        let found = ReduceOp::name_of_code(code as u8);
        found.map_or_else(|| format!("reduction {code}"), ToString::to_string)
    }
}

/// What an operation's messages are marked with; `mixed` is [`Descriptor::mix`].
#[inline]
pub(crate) fn stamp(mixed: u64, seqno: u64) -> Stamp {
    Stamp(((mixed ^ seqno).wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32)
}

impl fmt::Display for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        let Some(name) = KINDS.get(kind as usize) else {
            return write!(f, "an unknown operation ({kind})");
        };
        f.write_str(name)?;
        if matches!(kind, BARRIER | FINALIZE) {
            return Ok(());
        }
        write!(f, " of {} x {}", self.count, self.dtype())?;
        let high = self.high();
        match kind {
            ALL_GATHER | REDUCE_SCATTER | GATHER | SCATTER => f.write_str(" per rank")?,
            ALL_TO_ALL => f.write_str(" per pair of ranks")?,
            ALL_GATHER_V | REDUCE_SCATTER_V => write!(f, " in all, counts #{high:08x}")?,
            _ => {}
        }
        match kind {
            ALL_REDUCE | REDUCE | REDUCE_SCATTER | REDUCE_SCATTER_V => write!(f, ", {}", self.op())?,
            _ => {}
        }
        match kind {
            BROADCAST | SCATTER => write!(f, " from rank {high}"),
            REDUCE | GATHER => write!(f, " to rank {high}"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Counts;
    use proptest::prelude::*;

    fn calls() -> Vec<Call> {
        let mut calls = Vec::new();
        for count in [0usize, 1, 8, 1 << 40] {
            for dtype in DType::ALL {
                for op in ReduceOp::NAMED {
                    calls.push(Call::new(Kind::AllReduce, count, dtype, op));
                    calls.push(Call::new(Kind::Reduce { root: 5 }, count, dtype, op));
                    calls.push(Call::new(Kind::ReduceScatter, count, dtype, op));
                    for counts in [[count, 7], [7, count]].iter().filter(|counts| counts[0] != counts[1]) {
                        let counts = Counts::new(counts).unwrap();
                        calls.push(Call::uneven(Kind::ReduceScatterV, counts, dtype, op));
                    }
                }
                for root in [0, 1, 1023] {
                    calls.push(Call::new(Kind::Broadcast { root }, count, dtype, ReduceOp::Sum));
                    calls.push(Call::new(Kind::Reduce { root: 6 + root }, count, dtype, ReduceOp::Sum));
                    calls.push(Call::new(Kind::Gather { root }, count, dtype, ReduceOp::Sum));
                    calls.push(Call::new(Kind::Scatter { root }, count, dtype, ReduceOp::Sum));
                }
                calls.push(Call::new(Kind::AllGather, count, dtype, ReduceOp::Sum));
                calls.push(Call::new(Kind::AllToAll, count, dtype, ReduceOp::Sum));
                for counts in [[count, 9], [9, count]] {
                    let counts = Counts::new(&counts).unwrap();
                    calls.push(Call::uneven(Kind::AllGatherV, counts, dtype, ReduceOp::Sum));
                }
            }
        }
        calls.push(Call::new(Kind::Barrier, 0, DType::F32, ReduceOp::Sum));
        calls
    }

    /// Different calls have different descriptors, texts and stamps, and a difference names what differs.
    #[test]
    fn every_field_tells() {
        let all: Vec<Descriptor> = calls().iter().map(|call| Descriptor::new(call, false)).collect();
        for (i, a) in all.iter().enumerate() {
            assert_eq!(Descriptor::from_words(a.to_words()), *a);
            assert_ne!(stamp(a.mix(), 1), stamp(a.mix(), 2));
            for b in &all[..i] {
                assert_ne!(a, b);
                assert_ne!(a.to_string(), b.to_string());
                assert_ne!(stamp(a.mix(), 9), stamp(b.mix(), 9), "{a} and {b}");
                assert!(!a.difference(*b).is_empty(), "{a} and {b}");
            }
        }
        let call = Call::new(Kind::Barrier, 0, DType::F32, ReduceOp::Sum);
        let (barrier, finalize) = (Descriptor::new(&call, false), Descriptor::new(&call, true));
        assert_eq!(barrier.difference(finalize), "the calls differ");
        assert_eq!((barrier.to_string().as_str(), finalize.to_string().as_str()), ("barrier", "finalize"));
    }

    /// The text of a difference gives both values in the order of the ranks.
    #[test]
    fn differences_are_readable() {
        let call = |count, dtype, op| Call::new(Kind::AllReduce, count, dtype, op);
        let a = Descriptor::new(&call(4, DType::F32, ReduceOp::Sum), false);
        let b = Descriptor::new(&call(8, DType::I64, ReduceOp::Max), false);
        assert_eq!(a.difference(b), "count 4 and 8, type float and int64, reduction sum and max");
        assert_eq!(a.to_string(), "all_reduce of 4 x float, sum");
        let reduce =
            |root| Descriptor::new(&Call::new(Kind::Reduce { root }, 4, DType::F32, ReduceOp::Max), false);
        assert_eq!(reduce(0).difference(reduce(2)), "root 0 and 2");
        assert_eq!(reduce(2).to_string(), "reduce of 4 x float, max to rank 2");
        let scatter = Call::new(Kind::Scatter { root: 1 }, 4, DType::I32, ReduceOp::Sum);
        assert_eq!(Descriptor::new(&scatter, false).to_string(), "scatter of 4 x int32 per rank from rank 1");
        let uneven = |counts: &[usize]| {
            let counts = Counts::new(counts).unwrap();
            Descriptor::new(&Call::uneven(Kind::AllGatherV, counts, DType::F32, ReduceOp::Sum), false)
        };
        let (a, b) = (uneven(&[1, 2, 3]), uneven(&[3, 2, 1]));
        assert_eq!(a.difference(b), "the counts of the ranks differ");
        assert_eq!(
            a.difference(uneven(&[3, 2, 2])),
            "sum of the counts 6 and 7, the counts of the ranks differ"
        );
        let text = a.to_string();
        assert!(text.starts_with("all_gather_v of 6 x float in all, counts #"), "{text}");
    }

    proptest! {
        /// Words of any content are shown, without a panic.
        #[test]
        fn any_words_are_shown(a: [u64; 2], b: [u64; 2]) {
            let (a, b) = (Descriptor::from_words(a), Descriptor::from_words(b));
            prop_assert!(!a.to_string().is_empty());
            prop_assert!(a == b || !a.difference(b).is_empty() || a.to_string() == b.to_string());
        }
    }
}
