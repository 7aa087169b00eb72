//! What is sent: each step's protocol, length, bytes and pauses follow from the seed and the step.

use shmring::Protocol;

/// How a message is laid out and stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// LL or LL128 lines.
    Lines(Protocol),
    /// A Simple slot, by ordinary stores.
    Plain,
    /// A Simple slot, by non-temporal stores and a fence.
    Streamed,
}

/// The ways, by their place in the counts of a report.
pub(crate) const WAYS: [Way; 4] =
    [Way::Lines(Protocol::Ll), Way::Lines(Protocol::Ll128), Way::Plain, Way::Streamed];
/// Their names, in the same order.
pub(crate) const NAMES: [&str; 4] = ["LL", "LL128", "Simple", "Simple streamed"];

/// Lengths in bytes: one word, parts of lines, whole lines, several lines with and without a rest.
const LINE_LENGTHS: [usize; 8] = [8, 48, 56, 64, 120, 128, 560, 1000];
/// Lengths in bytes, for Simple: a word, a line, a page and its neighbours, a whole slot.
const SLOT_LENGTHS: [usize; 8] = [8, 64, 520, 4088, 4096, 4104, 8192, 16384];
/// Longest message, in words.
pub(crate) const WORDS_MAX: usize = 16384 / 8;

/// A step's message. Both sides derive the same one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    key: u64,
    /// Place in [`WAYS`].
    pub(crate) way: usize,
    /// Bytes; a multiple of 8.
    pub(crate) len: usize,
}

impl Message {
    /// The message of `step`.
    pub(crate) fn of(seed: u64, step: u64) -> Self {
        let key = mix(seed ^ mix(step));
        let way = (key >> 8) as usize % WAYS.len();
        let lengths = if matches!(WAYS[way], Way::Lines(_)) { LINE_LENGTHS } else { SLOT_LENGTHS };
        Self { key, way, len: lengths[(key >> 16) as usize % lengths.len()] }
    }

    /// The words of the payload; the lowest bit of the first one is clear, unless this is the last message.
    pub(crate) fn words(self, last: bool) -> impl Iterator<Item = u64> {
        let first = self.word(0) & !1 | u64::from(last);
        std::iter::once(first).chain((1..self.len as u64 / 8).map(move |i| self.word(i)))
    }

    /// Whether `payload` is this message, and if so, whether it says to be the last.
    pub(crate) fn check(self, payload: &[u64]) -> Result<bool, Wrong> {
        let last = payload[0] & 1 == 1;
        for (index, (&found, expected)) in payload.iter().zip(self.words(last)).enumerate() {
            if found != expected {
                return Err(Wrong { offset: 8 * index, found, expected });
            }
        }
        Ok(last)
    }

    fn word(self, index: u64) -> u64 {
        // An odd factor keeps the words of one message apart, the key those of different steps.
        self.key.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The first word of a message that is not what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Where it is, in bytes.
    pub(crate) offset: usize,
    /// What was read.
    pub(crate) found: u64,
    /// What was sent.
    pub(crate) expected: u64,
}

/// Random numbers for pauses; each side has its own.
#[derive(Debug)]
pub(crate) struct Pauses(u64);

impl Pauses {
    /// Pauses of `side`.
    pub(crate) fn new(seed: u64, side: u64) -> Self {
        Self(mix(seed ^ (side << 32)))
    }

    /// Pauses for a random time: mostly not at all, sometimes for up to some microseconds.
    pub(crate) fn pause(&mut self) {
        self.0 = mix(self.0);
        let longest = [0, 0, 4, 128][self.0 as usize % 4];
        for _ in 0..(self.0 >> 8) % (longest + 1) {
            shmring::sync::spin_hint();
        }
    }
}

/// A bijection of words in which every bit depends on every other (SplitMix64's finaliser).
pub(crate) fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message passes its own check, and one with any changed word fails it at that word.
    #[test]
    fn every_word_is_checked() {
        for step in 0..200 {
            let message = Message::of(3, step);
            let mut words: Vec<u64> = message.words(step % 2 == 1).collect();
            assert_eq!((8 * words.len(), message.check(&words)), (message.len, Ok(step % 2 == 1)));
            let index = step as usize * 7 % words.len();
            words[index] ^= 1 << 40;
            assert_eq!(message.check(&words).unwrap_err().offset, 8 * index);
        }
    }

    /// A word of an earlier step in the same place is never taken for the present one.
    #[test]
    fn stale_words_differ() {
        for step in 4..2000 {
            let now: Vec<u64> = Message::of(9, step).words(false).collect();
            let before: Vec<u64> = Message::of(9, step - 4).words(false).collect();
            assert!(now.iter().zip(before).all(|(&now, before)| now != before), "step {step}");
        }
    }

    /// All ways and all lengths come up.
    #[test]
    fn everything_comes_up() {
        let mut seen = std::collections::BTreeSet::new();
        for message in (0..2000).map(|step| Message::of(1, step)) {
            seen.insert((message.way, message.len));
        }
        assert_eq!(seen.len(), 2 * LINE_LENGTHS.len() + 2 * SLOT_LENGTHS.len());
    }
}
