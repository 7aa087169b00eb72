//! What a member has lately begun, for the others to compare with: the last 16 entries, numbered.

use crate::sync::{AtomicU64, Ordering, fence};

/// Entries that a journal keeps.
pub const JOURNAL_ENTRIES: usize = 16;
/// Words of an entry, besides its number, to which the layer above gives a meaning.
pub const JOURNAL_WORDS: usize = 2;

/// The last entries of one member. Written by that member only, read by any at any time.
///
/// Entry `n` lies at position `n % 16` until entry `n + 16` takes its place.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(128)))]
pub struct Journal {
    entries: [Entry; JOURNAL_ENTRIES],
}

/// One entry; `number` is 0 while the words change.
#[derive(Debug)]
#[cfg_attr(not(loom), repr(C, align(32)))]
struct Entry {
    number: AtomicU64,
    words: [AtomicU64; JOURNAL_WORDS],
}

/// What a look for an entry found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// The entry has not been written, or is being written now.
    NotYet,
    /// Its words.
    Here([u64; JOURNAL_WORDS]),
    /// A later entry has taken its place.
    Overwritten,
}

impl Journal {
    /// The journal of zeroed memory: nothing has been entered.
    pub fn new() -> Self {
        let entry = || Entry { number: AtomicU64::new(0), words: std::array::from_fn(|_| AtomicU64::new(0)) };
        Self { entries: std::array::from_fn(|_| entry()) }
    }

    /// Enters `words` as number `number`. Numbers start at 1 and grow; only the owner calls this.
    #[inline]
    pub fn write(&self, number: u64, words: [u64; JOURNAL_WORDS]) {
        let entry = self.entry(number);
        // ORDERING: Relaxed; the fence below puts it before the words: who reads a new word also finds this 0, or
        // the new number.
        entry.number.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in entry.words.iter().zip(words) {
            // ORDERING: Relaxed; the number's Release publishes them.
            word.store(value, Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire in `read`: the words come with their number.
        entry.number.store(number, Ordering::Release);
    }

    /// Looks for entry `number`. Any content of the memory gives some answer.
    pub fn read(&self, number: u64) -> Record {
        let entry = self.entry(number);
        // ORDERING: Acquire pairs with the last store of `write`: not older than the words of this number.
        let before = entry.number.load(Ordering::Acquire);
        // ORDERING: Relaxed; the fence below keeps these loads before the second look at the number.
        let words = std::array::from_fn(|i| entry.words[i].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        // ORDERING: Relaxed; the fence above pairs with the one in `write`: after a word of a later entry, the old
        // number is not found again.
        let after = entry.number.load(Ordering::Relaxed);
        match before {
            n if n == number && n == after => Record::Here(words),
            n if n > number || after > number => Record::Overwritten,
            _ => Record::NotYet,
        }
    }

    #[inline]
    fn entry(&self, number: u64) -> &Entry {
        &self.entries[(number % JOURNAL_ENTRIES as u64) as usize]
    }
}

impl Default for Journal {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Entry>() == 32 && size_of::<Journal>() == 512);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// An entry is found until the sixteenth one after it; earlier and later looks are told apart.
    #[test]
    fn the_last_sixteen_are_kept() {
        let journal = Journal::new();
        assert_eq!(journal.read(1), Record::NotYet);
        for number in 1..=40 {
            journal.write(number, [number * 10, !number]);
            assert_eq!(journal.read(number), Record::Here([number * 10, !number]));
            assert_eq!(journal.read(number + 1), Record::NotYet);
            if number > 16 {
                assert_eq!(journal.read(number - 15), Record::Here([(number - 15) * 10, !(number - 15)]));
                assert_eq!(journal.read(number - 16), Record::Overwritten);
            }
        }
    }
}
