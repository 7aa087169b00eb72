//! Virtual time: where each rank is, and when an operation could begin.
//!
//! ```text
//!   words of a member's record     | 32 .. 40: when its operations began, by number modulo 8 | 40: where it is now |
//!
//!   begins                 writes its time with the number of the operation
//!   ends, and waits for    all: all-reduce, all-gather, reduce-scatter, all-to-all, barrier; the root: broadcast,
//!   others                 scatter; all at the root: reduce, gather
//!                          goes on at the latest of these times, plus the price
//! ```
//!
//! Each word has one writer. A word that is already that of a later operation is passed over: it belongs to a rank that
//! this one does not wait for, or is read too late to matter.

use crate::plan::Kind;
use shmring::layout::MemberRecord;
use shmring::segment::Segment;
use shmring::sync::{AtomicU64, Ordering};

/// Where the words begin, and how many operations back they reach.
const FIRST_WORD: usize = 32;
const BACK: u64 = 8;
/// The word with a rank's time at the end.
const NOW_WORD: usize = FIRST_WORD + BACK as usize;
// The words behind are those of a clash.
const _: () = assert!(NOW_WORD < 48);

/// A word is the lowest 16 bits of a number, then a time in ticks of 16 ns.
const TICK_BITS: u32 = 48;
const TICK_MASK: u64 = (1 << TICK_BITS) - 1;
const TICK_NS: f64 = 16.0;

/// The virtual time of a rank, in ns; all communicators of the rank share it.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn now_ns(&self) -> f64 {
        // ORDERING: Relaxed; only this rank's operations move it, one after the other or with any result.
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set_ns(&self, ns: f64) {
        // ORDERING: Relaxed, as above.
        self.0.store(ns.to_bits(), Ordering::Relaxed);
    }
}

/// Tells the others when operation `seqno` begins here.
#[inline]
pub(super) fn begins(record: &MemberRecord, seqno: u64, ns: f64) {
    let ticks = (ns / TICK_NS) as u64 & TICK_MASK;
    // ORDERING: Relaxed; the messages of the operation publish it to those that wait for them.
    record.words[FIRST_WORD + (seqno % BACK) as usize].store(seqno << TICK_BITS | ticks, Ordering::Relaxed);
}

/// When operation `seqno` could begin on this rank, in ns: not before those that it waits for have.
pub(super) fn begun(
    segment: &Segment,
    (rank, nranks): (u32, u32),
    (seqno, kind): (u64, Kind),
    own: f64,
) -> f64 {
    let look = |peer: u32| {
        let record = segment.member_record(peer);
        // ORDERING: Relaxed, as above.
        let word = record.words[FIRST_WORD + (seqno % BACK) as usize].load(Ordering::Relaxed);
        later_ns(word, seqno, own)
    };
    let waits_for_all = match kind {
        Kind::Broadcast { root } | Kind::Scatter { root } => {
            return if root == rank { own } else { own + look(root) };
        }
        Kind::Reduce { root } | Kind::Gather { root } => root == rank,
        Kind::AllReduce
        | Kind::Barrier
        | Kind::AllGather
        | Kind::AllGatherV
        | Kind::ReduceScatter
        | Kind::ReduceScatterV
        | Kind::AllToAll => true,
    };
    if !waits_for_all {
        return own;
    }
    own + (0..nranks).filter(|peer| *peer != rank).map(look).fold(0.0, f64::max)
}

/// How much later than `own` ns a word of operation `seqno` is; nothing if it is of another one, or earlier.
fn later_ns(word: u64, seqno: u64, own: f64) -> f64 {
    if word >> TICK_BITS != seqno & 0xffff {
        return 0.0;
    }
    let ahead = (word & TICK_MASK).wrapping_sub((own / TICK_NS) as u64) & TICK_MASK;
    // Ticks wrap; what is more than half of them ahead is behind.
    if ahead >> (TICK_BITS - 1) != 0 { 0.0 } else { ahead as f64 * TICK_NS }
}

/// Leaves the rank's time for the report.
pub(super) fn publish(record: &MemberRecord, ns: f64) {
    // ORDERING: Relaxed; the report is written after a barrier, or takes what is there.
    record.words[NOW_WORD].store(ns as u64, Ordering::Relaxed);
}

/// A rank's time as it was published, in ns.
pub(crate) fn published(record: &MemberRecord) -> u64 {
    // ORDERING: Relaxed, as above.
    record.words[NOW_WORD].load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time that another rank wrote counts if it is later and of the same operation, also where ticks wrap.
    #[test]
    fn times_of_others_are_compared() {
        let word = |seqno: u64, ns: f64| seqno << TICK_BITS | ((ns / TICK_NS) as u64 & TICK_MASK);
        assert_eq!(later_ns(word(7, 1600.0), 7, 800.0), 800.0);
        assert_eq!(later_ns(word(7, 800.0), 7, 1600.0), 0.0);
        assert_eq!(later_ns(word(15, 1600.0), 7, 800.0), 0.0);
        assert_eq!(later_ns(word(7 + (1 << 16), 1600.0), 7, 800.0), 800.0);
        let wrapped = (TICK_MASK as f64 + 1.0) * TICK_NS;
        assert_eq!(later_ns(word(7, wrapped + 32.0), 7, wrapped - 32.0), 64.0);
    }
}
