//! Messages that a rank leaves behind unread when it leaves its communicator.

use std::collections::BTreeSet;
use std::fmt;

/// Sources and tags that one line names; the rest is not.
const NAMED: usize = 8;

/// Messages that have come in and were not received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    pub(super) count: u64,
    pub(super) sources: BTreeSet<u32>,
    pub(super) tags: BTreeSet<u32>,
}

impl Unread {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, sources, tags } = self;
        let list = |what: &str, all: &BTreeSet<u32>| {
            let named: Vec<String> = all.iter().take(NAMED).map(u32::to_string).collect();
            let (many, more) =
                (if all.len() > 1 { "s" } else { "" }, if all.len() > NAMED { ", .." } else { "" });
            format!("{what}{many} {}{more}", named.join(", "))
        };
        let many = if *count > 1 { "s" } else { "" };
        write!(f, "{count} message{many} from {} with {}", list("rank", sources), list("tag", tags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Few sources and tags are all named, many not.
    #[test]
    fn lists_are_bounded() {
        let unread = |count, n| Unread { count, sources: (0..n).collect(), tags: (7..7 + n).collect() };
        assert_eq!(unread(1, 1).to_string(), "1 message from rank 0 with tag 7");
        assert_eq!(unread(5, 2).to_string(), "5 messages from ranks 0, 1 with tags 7, 8");
        assert!(unread(9, 9).to_string().ends_with("with tags 7, 8, 9, 10, 11, 12, 13, 14, .."));
    }
}
