//! Payload words in a simulated machine: private copies, one access per word. Each function answers `None` on a thread
//! outside of a simulation.

use super::{Word, with};
use crate::sync::PayloadWord;
use std::ptr::NonNull;

fn word(word: &PayloadWord) -> Word {
    // An address of a live word is not null.
    Word::Large(NonNull::new(word.0.get()).expect("a reference has an address"))
}

/// Loads every word.
pub(crate) fn load(words: &[PayloadWord]) -> Option<Vec<u64>> {
    with(|world| words.iter().map(|w| world.load(word(w), None)).collect())
}

/// What the running rank would load, without an access.
pub(crate) fn peek(words: &[PayloadWord]) -> Option<Vec<u64>> {
    with(|world| words.iter().map(|w| world.peek(word(w))).collect())
}

/// Stores the words that differ between `before` and `after`.
pub(crate) fn store_changes(words: &[PayloadWord], before: &[u64], after: &[u64]) {
    with(|world| {
        for ((at, old), new) in words.iter().zip(before).zip(after) {
            if old != new {
                world.store(word(at), *new, None);
            }
        }
    });
}

/// Memory that stands for the words until they are given back.
pub(crate) fn lend(words: &[PayloadWord], write: bool) -> Option<*mut u8> {
    with(|world| world.lend(&words.iter().map(word).collect::<Vec<_>>(), write))
}
