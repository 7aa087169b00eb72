//! A processor's buffer of stores that nobody else sees yet.

use shmring::sim::Word;
use shmring::sync::Ordering;

/// A store that is not visible to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// What is changed.
    pub(super) word: Word,
    /// To what.
    pub(super) value: u64,
    /// Whether everything stored before it must be visible first.
    pub(super) release: bool,
}

/// The stores of one rank in program order.
///
/// Rules, which are those of the memory model for stores: two stores to one word become visible in their order; a
/// release store becomes visible after everything before it; so does every store after a release fence; nothing else is
/// ordered, so a later store may pass an earlier one, also a release store.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// Each with the number of release fences before it.
    pending: Vec<(Pending, u64)>,
    fences: u64,
}

/// Whether a store or a change of this ordering publishes what was stored before.
pub(super) fn is_release(order: Ordering) -> bool {
    !matches!(order, Ordering::Relaxed | Ordering::Acquire)
}

impl Buffer {
    /// Stores that wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether no store waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Everything stored later becomes visible after everything stored so far.
    pub(super) fn fence(&mut self) {
        self.fences += 1;
    }

    /// Adds a store.
    pub(super) fn push(&mut self, pending: Pending) {
        self.pending.push((pending, self.fences));
    }

    /// What the owner itself reads from `word`, if it has stored to it.
    #[inline]
    pub(super) fn forward(&self, word: Word) -> Option<u64> {
        self.pending.iter().rev().find(|(pending, _)| pending.word == word).map(|(pending, _)| pending.value)
    }

    /// Takes a store that may become visible now: the one that `choice` (below `len`) points at, or one that must come
    /// before it.
    pub(super) fn take(&mut self, choice: usize) -> Pending {
        let word = self.pending[choice].0.word;
        let first = self.find(word).unwrap_or(0);
        let (pending, fences) = self.pending[first];
        let ready = !pending.release && fences == self.pending[0].1;
        self.pending.remove(if ready { first } else { 0 }).0
    }

    fn find(&self, word: Word) -> Option<usize> {
        self.pending.iter().position(|(pending, _)| pending.word == word)
    }

    /// Takes a store that must become visible before `word` can be changed in one step, if there is one.
    pub(super) fn take_for(&mut self, word: Word) -> Option<Pending> {
        self.find(word).map(|index| self.take(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    fn word(of: &mut u64) -> Word {
        Word::Large(NonNull::from(of))
    }

    /// The owner reads its latest store; a release store waits for all before it, and lets later ones pass.
    #[test]
    fn stores_pass_as_the_memory_model_allows() {
        let mut memory = [0u64; 3];
        let [a, b, c] = &mut memory;
        let (a, b, c) = (word(a), word(b), word(c));
        let store = |word, value, release| Pending { word, value, release };
        let fill = || {
            let mut buffer = Buffer::default();
            for (word, value, release) in [(a, 1, false), (a, 2, false), (b, 3, true), (c, 4, false)] {
                buffer.push(store(word, value, release));
            }
            buffer
        };
        assert_eq!(fill().forward(a), Some(2));
        assert_eq!(fill().take(1), store(a, 1, false), "the second store to a word waits for the first");
        assert_eq!(fill().take(2), store(a, 1, false), "a release store waits for everything before it");
        assert_eq!(fill().take(3), store(c, 4, false), "a later store passes a release store");
        let mut fenced = Buffer::default();
        fenced.push(store(a, 1, false));
        fenced.fence();
        fenced.push(store(b, 2, false));
        fenced.fence();
        fenced.push(store(c, 3, false));
        assert_eq!([fenced.take(2), fenced.take(1), fenced.take(0)].map(|p| p.value), [1, 2, 3]);
        let mut buffer = fill();
        assert_eq!([buffer.take(0), buffer.take(0), buffer.take(0)].map(|p| p.value), [1, 2, 3]);
        assert_eq!(fill().take_for(c), Some(store(c, 4, false)));
        assert_eq!(fill().take_for(b), Some(store(a, 1, false)));
        assert_eq!(fill().take_for(word(&mut 0)), None);
    }
}
