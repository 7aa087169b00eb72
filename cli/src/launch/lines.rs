//! Bytes into lines, and the last lines of a rank.

use std::collections::VecDeque;

/// Longest line that is kept together; what is longer is cut into lines of this size.
pub(crate) const LINE_BYTES_MAX: usize = 256 << 10;
/// Number of lines that are remembered of a rank.
const TAIL_LINES: usize = 10;
/// Bytes that are remembered of each of them.
const TAIL_LINE_BYTES: usize = 2048;

/// Puts the pieces of a stream together to lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    partial: Vec<u8>,
}

impl Lines {
    /// Takes the next bytes and hands each complete line, without its end, to `each`.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
            if self.partial.is_empty() {
                each(line);
            } else {
                self.partial.extend_from_slice(line);
                each(&self.partial);
                self.partial.clear();
            }
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
        while self.partial.len() >= LINE_BYTES_MAX {
            let rest = self.partial.split_off(LINE_BYTES_MAX);
            each(&self.partial);
            self.partial = rest;
        }
    }

    /// The stream has ended: hands over what has no end of line.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        if !self.partial.is_empty() {
            each(&self.partial);
            self.partial.clear();
        }
    }
}

/// The last lines of a rank, of both streams in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    lines: VecDeque<Vec<u8>>,
}

impl Tail {
    pub(crate) fn push(&mut self, line: &[u8]) {
        let mut kept =
            if self.lines.len() == TAIL_LINES { self.lines.pop_front() } else { None }.unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(&line[..line.len().min(TAIL_LINE_BYTES)]);
        self.lines.push_back(kept);
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().map(Vec::as_slice)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All lines of `pieces`.
    fn lines(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| found.push(line.to_vec()));
        }
        lines.finish(|line| found.push(line.to_vec()));
        found
    }

    #[test]
    fn any_cut_gives_the_same_lines() {
        // Empty lines, bytes that are not text, and a last line without an end stay as they are.
        let text = b"one\n\ntwo \xff\xfe\nlast";
        let whole = lines(&[text]);
        assert_eq!(whole, [&b"one"[..], b"", b"two \xff\xfe", b"last"]);
        for cut in 0..=text.len() {
            assert_eq!(lines(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(lines(&bytes), whole);
        assert_eq!(lines(&[]), [b""; 0]);
    }

    #[test]
    fn endless_lines_are_cut() {
        // Memory stays bounded when a rank never ends its line.
        let endless = vec![b'x'; LINE_BYTES_MAX * 2 + 5];
        let sizes: Vec<usize> = lines(&[&endless, b"y\n"]).iter().map(Vec::len).collect();
        assert_eq!(sizes, [LINE_BYTES_MAX, LINE_BYTES_MAX, 6]);
    }

    #[test]
    fn a_tail_keeps_the_last_ten() {
        // Old lines go, long lines are cut.
        let mut tail = Tail::default();
        assert!(tail.is_empty());
        for i in 0..25 {
            tail.push(format!("line {i}").as_bytes());
        }
        tail.push(&vec![b'x'; TAIL_LINE_BYTES + 1]);
        let lines: Vec<&[u8]> = tail.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[9].len()), (TAIL_LINES, &b"line 16"[..], TAIL_LINE_BYTES));
    }
}
