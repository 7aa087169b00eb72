//! A message that is not what its receive expects: how the receiver tells all.
//!
//! ```text
//!  word 48   0: not a collective, which has a number
//!  word 49   bits 0..32 the receiver, 32.. the sender
//!  word 50   what was sent: bits 0..32 type, 32.. tag        word 51   its elements
//!  word 52   what was expected, likewise                     word 53   its elements
//! ```

use super::health::{self, Verdict};
use super::shared::Shared;
use crate::error::Error;
use crate::mail::Letter;
use crate::reduce::DType;
use shmring::layout::MemberRecord;
use shmring::sync::Ordering;
use std::fmt;

/// Where the words lie among those of a member's record: as those of a `Clash`, of which there is none then.
const FIRST_WORD: usize = 48;

/// What a message is, as a record has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    count: u64,
    dtype: u32,
    tag: u32,
}

/// A message and the receive that it does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    receiver: u32,
    sender: u32,
    sent: Told,
    expected: Told,
}

impl From<Letter> for Told {
    fn from(Letter { count, dtype, tag }: Letter) -> Self {
        Self { count: count as u64, dtype: dtype.nccl_code(), tag }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, dtype, tag } = *self;
        match DType::from_nccl_code(dtype) {
            Some(dtype) => write!(f, "{count} x {dtype}")?,
            None => write!(f, "{count} x unknown type {dtype}")?,
        }
        if tag != 0 { write!(f, " with tag {tag}") } else { Ok(()) }
    }
}

impl Misfit {
    pub(crate) fn new(receiver: u32, sender: u32, sent: Letter, expected: Letter) -> Self {
        Self { receiver, sender, sent: sent.into(), expected: expected.into() }
    }

    /// Ends the communicator because of this, as its receiver, if it has not ended; the error for it.
    #[cold]
    pub(crate) fn tell(&self, shared: &Shared) -> Error {
        if shared.aborted() != 0 {
            // What ended it before is not what is wrong with this receive.
            return self.into_error(shared.rank);
        }
        self.publish(shared.record());
        health::end(&shared.segment, Verdict::Mismatch(shared.rank), &shared.health(), 0)
    }

    /// Writes this to the record of the receiver.
    fn publish(&self, record: &MemberRecord) {
        let Self { receiver, sender, sent, expected } = *self;
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [sent, expected] = [sent, expected].map(|told| [pair(told.dtype, told.tag), told.count]);
        let words = [0, pair(receiver, sender), sent[0], sent[1], expected[0], expected[1]];
        for (word, value) in record.words[FIRST_WORD..].iter().zip(words) {
            // ORDERING: Relaxed; the abort word's Release publishes them.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads what a receiver has written, whatever that is; `None` if the record is of a collective. Ranks that cannot
    /// be are read as the last one.
    pub(super) fn read(record: &MemberRecord, nranks: u32) -> Option<Self> {
        // ORDERING: Relaxed; the caller has acquired the abort word.
        let word = |i: usize| record.words[FIRST_WORD + i].load(Ordering::Relaxed);
        let halves = |word: u64| (word as u32, (word >> 32) as u32);
        let told = |i: usize| {
            let (dtype, tag) = halves(word(i));
            Told { count: word(i + 1), dtype, tag }
        };
        let (receiver, sender) = halves(word(1));
        let (receiver, sender) = (receiver.min(nranks - 1), sender.min(nranks - 1));
        (word(0) == 0).then(|| Self { receiver, sender, sent: told(2), expected: told(4) })
    }

    pub(super) fn into_error(self, rank: u32) -> Error {
        let Self { receiver, sender, sent, expected } = self;
        let mut calls = [
            (sender, format!("send of {sent} to rank {receiver}")),
            (receiver, format!("recv of {expected} from rank {sender}")),
        ];
        calls.sort_by_key(|(rank, _)| *rank);
        let [(first, first_call), (second, second_call)] = calls;
        Error::Mismatch {
            rank,
            seqno: 0,
            first,
            first_call,
            second,
            second_call,
            difference: "a receive expects exactly what is sent".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a receiver writes, all ranks read, in the order of ranks; words of any content are read as something, and
    /// those of collectives are left alone.
    #[test]
    fn misfits_travel() {
        let record = MemberRecord::new();
        let letter = |count, tag| Letter { count, dtype: DType::I64, tag };
        let misfit = Misfit::new(1, 3, letter(7, u32::MAX), letter(1 << 40, 0));
        misfit.publish(&record);
        assert_eq!(Misfit::read(&record, 8), Some(misfit));
        let text = misfit.into_error(5).to_string();
        let told = "rank 1 called recv of 1099511627776 x int64 from rank 3, rank 3 called send of 7 x int64 with tag \
                    4294967295 to rank 1";
        assert!(text.starts_with("a message does not match: ") && text.contains(told), "{text}");
        for word in &record.words {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(Misfit::read(&record, 8), None);
        record.words[FIRST_WORD].store(0, Ordering::Relaxed);
        let text = Misfit::read(&record, 8).unwrap().into_error(0).to_string();
        assert!(text.contains("rank 7") && text.contains("unknown type"), "{text}");
    }
}
