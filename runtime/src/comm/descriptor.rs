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
/// | 32..64 | root |
///
/// The second word is the count. Fields that a kind does not have are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    what: u64,
    count: u64,
}

/// The kinds by number; `finalize` is a barrier with a name of its own.
const KINDS: [&str; 4] = ["all_reduce", "broadcast", "barrier", "finalize"];
const ALL_REDUCE: u64 = 0;
const BROADCAST: u64 = 1;
const BARRIER: u64 = 2;
const FINALIZE: u64 = 3;

impl Descriptor {
    /// The descriptor of a call; `closing` is the barrier of a rank that leaves.
    pub(crate) fn new(call: &Call, closing: bool) -> Self {
        let (dtype, op) = (u64::from(call.dtype.nccl_code()), u64::from(call.op.code()));
        let what = match call.kind {
            Kind::AllReduce => ALL_REDUCE | dtype << 8 | op << 16,
            Kind::Broadcast { root } => BROADCAST | dtype << 8 | u64::from(root) << 32,
            Kind::Barrier if closing => FINALIZE,
            Kind::Barrier => BARRIER,
        };
        Self { what, count: call.count as u64 }
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
            parts.push(format!("count {} and {}", self.count, other.count));
        }
        let mut fields = |name: &str, mine: String, theirs: String| {
            if mine != theirs {
                parts.push(format!("{name} {mine} and {theirs}"));
            }
        };
        fields("type", self.dtype(), other.dtype());
        fields("reduction", self.op(), other.op());
        fields("root", self.root().to_string(), other.root().to_string());
        parts.join(", ")
    }

    fn kind(self) -> u64 {
        self.what & 0xff
    }

    fn root(self) -> u64 {
        self.what >> 32
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
        let count = self.count;
        match self.kind() {
            ALL_REDUCE => write!(f, "all_reduce of {count} x {}, {}", self.dtype(), self.op()),
            BROADCAST => write!(f, "broadcast of {count} x {} from rank {}", self.dtype(), self.root()),
            kind => match KINDS.get(kind as usize) {
                Some(name) => f.write_str(name),
                None => write!(f, "an unknown operation ({kind})"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn calls() -> Vec<Call> {
        let mut calls = Vec::new();
        for count in [0usize, 1, 8, 1 << 40] {
            for dtype in DType::ALL {
                for op in ReduceOp::NAMED {
                    calls.push(Call { kind: Kind::AllReduce, count, dtype, op });
                }
                for root in [0, 1, 1023] {
                    calls.push(Call { kind: Kind::Broadcast { root }, count, dtype, op: ReduceOp::Sum });
                }
            }
        }
        calls.push(Call { kind: Kind::Barrier, count: 0, dtype: DType::F32, op: ReduceOp::Sum });
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
        let call = Call { kind: Kind::Barrier, count: 0, dtype: DType::F32, op: ReduceOp::Sum };
        let (barrier, finalize) = (Descriptor::new(&call, false), Descriptor::new(&call, true));
        assert_eq!(barrier.difference(finalize), "the calls differ");
        assert_eq!((barrier.to_string().as_str(), finalize.to_string().as_str()), ("barrier", "finalize"));
    }

    /// The text of a difference gives both values in the order of the ranks.
    #[test]
    fn differences_are_readable() {
        let call = |count, dtype, op| Call { kind: Kind::AllReduce, count, dtype, op };
        let a = Descriptor::new(&call(4, DType::F32, ReduceOp::Sum), false);
        let b = Descriptor::new(&call(8, DType::I64, ReduceOp::Max), false);
        assert_eq!(a.difference(b), "count 4 and 8, type float and int64, reduction sum and max");
        assert_eq!(a.to_string(), "all_reduce of 4 x float, sum");
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
