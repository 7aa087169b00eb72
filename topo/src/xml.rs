//! Text that claims to be XML, looked at before it is parsed.

/// The line at which more than `most` elements stand in each other, by the brackets alone, comments included: what
/// nests deeper would cost the parser its stack.
pub(crate) fn line_too_deep(text: &str, most: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, _) in text.match_indices('<') {
        let rest = &text.as_bytes()[at + 1..];
        let end = rest.iter().position(|&byte| byte == b'>').unwrap_or(rest.len());
        match rest.first() {
            Some(b'/') => depth = depth.saturating_sub(1),
            Some(b'?' | b'!') => {}
            _ if rest[..end].last() == Some(&b'/') => {}
            _ => depth += 1,
        }
        if depth > most {
            return Some(1 + text[..at].matches('\n').count());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_by_brackets() {
        // Ends and empty elements close what they open; declarations and comments open nothing.
        assert_eq!(line_too_deep("<?xml?>\n<a>\n<b/>\n<b><!-- -->\n</b></a>", 2), None);
        assert_eq!(line_too_deep("<a>\n<b>\n<c>", 2), Some(3));
        assert_eq!(line_too_deep("<a><b></b><c></c></a>", 2), None);
        assert_eq!(line_too_deep("no XML", 0), None);
    }
}
