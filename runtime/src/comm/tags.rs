//! Tags of a receive that waits, and of messages that came in instead of what it asks for.

use std::fmt;

/// The tag that a send or receive names; for a receive also what has come in from its sources under other tags, and
/// nobody has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tags {
    pub(crate) asked: u32,
    /// The lowest of the other tags.
    pub(crate) came: Option<u32>,
    /// Whether there are more other tags than one.
    pub(crate) more: bool,
}

impl Tags {
    /// Of a message, or of a receive for which nothing else has come in.
    pub(crate) fn of(asked: u32) -> Self {
        Self { asked, ..Self::default() }
    }

    /// Both tags in one word of a record, and what else is known in two bits.
    pub(super) fn to_words(self) -> (u64, u64) {
        let Self { asked, came, more } = self;
        let tags = u64::from(asked) | u64::from(came.unwrap_or(0)) << 32;
        (tags, u64::from(came.is_some()) | u64::from(came.is_some() && more) << 1)
    }

    /// Reads words back, whatever they hold.
    pub(super) fn from_words(tags: u64, bits: u64) -> Self {
        let came = (bits & 1 != 0).then_some((tags >> 32) as u32);
        Self { asked: tags as u32, came, more: came.is_some() && bits & 2 != 0 }
    }

    /// The other tags in words, if there are any.
    pub(super) fn others(&self) -> Option<String> {
        let more = if self.more { " and others" } else { "" };
        self.came.map(|tag| format!("tag {tag}{more}"))
    }
}

/// What stands behind the call in messages: nothing for tag 0, unless something else has come in.
impl fmt::Display for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.others() {
            Some(others) => write!(f, " with tag {} (what has come in has {others})", self.asked),
            None if self.asked != 0 => write!(f, " with tag {}", self.asked),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written to words is read back, and told; words of any content are read as some tags.
    #[test]
    fn tags_are_read_back() {
        let came = |came, more| Tags { asked: 4, came, more };
        let texts = [
            (Tags::of(0), ""),
            (Tags::of(u32::MAX), " with tag 4294967295"),
            (came(Some(0), false), " with tag 4 (what has come in has tag 0)"),
            (came(Some(u32::MAX), true), " with tag 4 (what has come in has tag 4294967295 and others)"),
        ];
        for (tags, text) in texts {
            let (words, bits) = tags.to_words();
            assert_eq!(Tags::from_words(words, bits), tags);
            assert_eq!(tags.to_string(), text);
        }
        assert_eq!(Tags::from_words(u64::MAX, 2), Tags::of(u32::MAX));
    }
}
