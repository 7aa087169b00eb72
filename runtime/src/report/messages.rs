//! What is counted of messages between two ranks.

use super::{FIRST_MESSAGES, get, put};
use shmring::layout::MemberRecord;
use shmring::sync::{AtomicU64, Ordering};

/// Messages of one rank, counted by whichever of its threads completes them: sends and their bytes, receives and
/// theirs.
#[derive(Debug, Default)]
pub(crate) struct Traffic([AtomicU64; Traffic::WORDS]);

impl Traffic {
    /// Words of a record that hold it.
    pub(super) const WORDS: usize = 4;

    /// Counts a message that was sent.
    #[inline]
    pub(crate) fn sent(&self, bytes: usize) {
        self.count(0, bytes);
    }

    /// Counts a message that was received.
    #[inline]
    pub(crate) fn received(&self, bytes: usize) {
        self.count(2, bytes);
    }

    fn count(&self, first: usize, bytes: usize) {
        // ORDERING: Relaxed; each counter stands for itself.
        self.0[first].fetch_add(1, Ordering::Relaxed);
        self.0[first + 1].fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Writes everything to the rank's record.
    pub(crate) fn publish(&self, record: &MemberRecord) {
        for (at, counter) in self.0.iter().enumerate() {
            // ORDERING: Relaxed, as above.
            put(record, FIRST_MESSAGES + at, counter.load(Ordering::Relaxed));
        }
    }
}

/// Whether some rank has sent what none has received, as all have published it.
pub(crate) fn any_unread<'a>(records: impl Iterator<Item = &'a MemberRecord>) -> bool {
    let (sent, received) = records.map(read).fold((0, 0), |(sent, received), [out, _, got, _]| {
        (u64::wrapping_add(sent, out), u64::wrapping_add(received, got))
    });
    sent != received
}

/// Whether a rank has published that it has sent anything.
pub(crate) fn has_sent(record: &MemberRecord) -> bool {
    read(record)[0] > 0
}

/// Sends, bytes sent, receives and bytes received, as the rank has published them.
pub(super) fn read(record: &MemberRecord) -> [u64; Traffic::WORDS] {
    std::array::from_fn(|at| get(record, FIRST_MESSAGES + at))
}
