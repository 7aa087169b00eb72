//! What a rank waited in when its time limit passed: how it tells the others, which wait in something else.
//!
//! ```text
//!  word 48   1: a collective, 2: finalize, 3: send, 4: recv, 5: recv from any rank, 6: wait_signal; anything else is
//!            not told
//!  word 49   the operation's number, or the other rank
//! ```

use crate::error::Stage;
use shmring::layout::MemberRecord;
use shmring::sync::Ordering;

/// Where the words lie among those of a member's record: as those of a `Clash`, of which there is none then.
const FIRST_WORD: usize = 48;

/// Writes the stage to the record of the rank that ends the communicator because of it.
pub(super) fn publish(record: &MemberRecord, stage: Stage) {
    let words = match stage {
        Stage::Operation(seqno) => [1, seqno],
        Stage::Finalize(seqno) => [2, seqno],
        Stage::Send { to } => [3, u64::from(to)],
        Stage::Recv { from: Some(from) } => [4, u64::from(from)],
        Stage::Recv { from: None } => [5, 0],
        Stage::Signal { from } => [6, u64::from(from)],
        Stage::Join | Stage::Turn => [0; 2],
    };
    for (word, value) in record.words[FIRST_WORD..].iter().zip(words) {
        // ORDERING: Relaxed; the abort word's Release publishes them.
        word.store(value, Ordering::Relaxed);
    }
}

/// Reads what a rank has written, whatever that is; ranks that cannot be are read as the last one.
pub(super) fn read(record: &MemberRecord, nranks: u32) -> Option<Stage> {
    // ORDERING: Relaxed; the caller has acquired the abort word.
    let [kind, which] = [0, 1].map(|at| record.words[FIRST_WORD + at].load(Ordering::Relaxed));
    let rank = u32::try_from(which).unwrap_or(u32::MAX).min(nranks - 1);
    Some(match kind {
        1 => Stage::Operation(which),
        2 => Stage::Finalize(which),
        3 => Stage::Send { to: rank },
        4 => Stage::Recv { from: Some(rank) },
        5 => Stage::Recv { from: None },
        6 => Stage::Signal { from: rank },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a rank has written is read back; words of any content are read as something.
    #[test]
    fn stages_travel() {
        let record = MemberRecord::new();
        assert_eq!(read(&record, 8), None);
        let recv = |from| Stage::Recv { from };
        let stages = [Stage::Operation(u64::MAX), Stage::Finalize(3), Stage::Send { to: 7 }];
        for stage in stages.into_iter().chain([recv(Some(0)), recv(None), Stage::Signal { from: 5 }]) {
            publish(&record, stage);
            assert_eq!(read(&record, 8), Some(stage));
        }
        record.words[FIRST_WORD].store(3, Ordering::Relaxed);
        record.words[FIRST_WORD + 1].store(u64::MAX, Ordering::Relaxed);
        assert_eq!(read(&record, 8), Some(Stage::Send { to: 7 }));
        publish(&record, Stage::Turn);
        assert_eq!(read(&record, 8), None);
    }
}
