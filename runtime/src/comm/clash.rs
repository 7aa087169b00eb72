//! Two ranks that called different things: how the one that finds out tells all.

use super::descriptor::Descriptor;
use crate::error::Error;
use shmring::layout::MemberRecord;
use shmring::sync::Ordering;

/// Where the words lie among those of a member's record: behind the report's.
const FIRST_WORD: usize = 48;

/// Two ranks and what each called as operation `seqno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clash {
    pub(super) seqno: u64,
    pub(super) ranks: [u32; 2],
    /// `None` when the rank has gone on and its journal does not reach back.
    pub(super) calls: [Option<Descriptor>; 2],
}

impl Clash {
    /// The same, the lower rank first: every rank tells it in the same words.
    pub(super) fn sorted(mut self) -> Self {
        if self.ranks[0] > self.ranks[1] {
            self.ranks.reverse();
            self.calls.reverse();
        }
        self
    }

    /// Whether this is of an operation after number `seqno`; a message that did not fit is of none, and after all.
    pub(super) fn is_after(&self, seqno: u64) -> bool {
        self.seqno == 0 || self.seqno > seqno
    }

    /// Writes this to the record of the rank that found it, before that rank ends the communicator.
    pub(super) fn publish(&self, record: &MemberRecord) {
        let mut words = [self.seqno, 0, 0, 0, 0, 0, 0, 0, 0];
        for (i, (rank, call)) in self.ranks.iter().zip(self.calls).enumerate() {
            let [what, count] = call.map_or([0; 2], Descriptor::to_words);
            words[1 + 4 * i..][..4].copy_from_slice(&[
                u64::from(*rank),
                u64::from(call.is_some()),
                what,
                count,
            ]);
        }
        for (word, value) in record.words[FIRST_WORD..].iter().zip(words) {
            // ORDERING: Relaxed; the abort word's Release publishes them.
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Reads what the rank that found it has written; ranks that cannot be read as the last one.
    pub(super) fn read(record: &MemberRecord, nranks: u32) -> Self {
        // ORDERING: Relaxed; the caller has acquired the abort word.
        let word = |i: usize| record.words[FIRST_WORD + i].load(Ordering::Relaxed);
        let rank = |i| u32::try_from(word(i)).unwrap_or(u32::MAX).min(nranks - 1);
        let call = |i: usize| (word(i + 1) != 0).then(|| Descriptor::from_words([word(i + 2), word(i + 3)]));
        Self { seqno: word(0), ranks: [rank(1), rank(5)], calls: [call(1), call(5)] }
    }

    pub(super) fn into_error(self, rank: u32) -> Error {
        let text = |call: Option<Descriptor>| {
            call.map_or_else(
                || "something else, which is no longer on record".into(),
                |call| call.to_string(),
            )
        };
        let difference = match self.calls {
            [Some(a), Some(b)] => a.difference(b),
            _ => "the calls differ".into(),
        };
        let [first, second] = self.ranks;
        let [first_call, second_call] = self.calls.map(text);
        Error::Mismatch { rank, seqno: self.seqno, first, first_call, second, second_call, difference }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one rank writes, the others read, in the order of ranks; words of any content are read as something.
    #[test]
    fn clashes_travel() {
        let record = MemberRecord::new();
        let calls = [Some(Descriptor::from_words([2, 0])), None];
        let clash = Clash { seqno: 12, ranks: [7, 3], calls }.sorted();
        clash.publish(&record);
        assert_eq!(Clash::read(&record, 8), clash);
        let text = clash.into_error(5).to_string();
        assert!(text.contains("rank 3 called something else"), "{text}");
        assert!(text.contains("operation 12") && text.contains("rank 7 called barrier"), "{text}");
        for word in &record.words {
            word.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(Clash::read(&record, 8).ranks, [7, 7]);
    }
}
