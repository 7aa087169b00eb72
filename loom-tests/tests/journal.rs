//! Is an entry of a journal that is read as number `n` what was written as number `n`?
#![cfg(loom)]

use loom_tests::{both, check};
use shmring::layout::{JOURNAL_ENTRIES, Journal, Record};
use std::sync::Arc;

/// Two entries that lie at the same position.
const FIRST: u64 = 3;
const SECOND: u64 = FIRST + JOURNAL_ENTRIES as u64;

fn words(number: u64) -> [u64; 2] {
    [number * 10, number * 100]
}

/// While an entry replaces another, a reader of either gets all of its words or none.
#[test]
fn entries_are_whole() {
    check(|| {
        let journal = Arc::new(Journal::new());
        let owners = Arc::clone(&journal);
        journal.write(FIRST, words(FIRST));
        both(
            move || owners.write(SECOND, words(SECOND)),
            || {
                for number in [FIRST, SECOND] {
                    if let Record::Here(found) = journal.read(number) {
                        assert_eq!(found, words(number));
                    }
                }
            },
        );
        assert_eq!(journal.read(SECOND), Record::Here(words(SECOND)));
        assert_eq!(journal.read(FIRST), Record::Overwritten);
    });
}

/// A reader that finds the first entry ever finds its words, not zeros.
#[test]
fn words_come_with_their_number() {
    check(|| {
        let journal = Arc::new(Journal::new());
        let owners = Arc::clone(&journal);
        both(
            move || owners.write(FIRST, words(FIRST)),
            || match journal.read(FIRST) {
                Record::Here(found) => assert_eq!(found, words(FIRST)),
                other => assert_eq!(other, Record::NotYet),
            },
        );
    });
}
