//! A flood of strangers must not become a flood of log lines.

use std::time::{Duration, Instant};

/// Lines about strangers that are written per [`WINDOW`].
const LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);

/// Counts lines and says which are written.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    since: Option<Instant>,
    lines: u32,
}

/// What to do with a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Write it.
    Write,
    /// Write it and, before it, how many were left out.
    WriteAfter(u32),
    /// Leave it out.
    Omit,
}

impl LogLimit {
    pub(super) fn next(&mut self, now: Instant) -> Line {
        if self.since.is_none_or(|since| now.duration_since(since) >= WINDOW) {
            let omitted = self.lines.saturating_sub(LINES);
            (self.since, self.lines) = (Some(now), 1);
            return if omitted == 0 { Line::Write } else { Line::WriteAfter(omitted) };
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines <= LINES { Line::Write } else { Line::Omit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_lines_is_counted_instead() {
        // Ten lines in a second are written, the rest is a number in front of the next line.
        let (now, mut limit) = (Instant::now(), LogLimit::default());
        let lines: Vec<Line> = (0..25).map(|_| limit.next(now)).collect();
        assert!(lines[..10].iter().all(|line| *line == Line::Write));
        assert!(lines[10..].iter().all(|line| *line == Line::Omit));
        assert_eq!(limit.next(now + WINDOW), Line::WriteAfter(15));
        assert_eq!(limit.next(now + 2 * WINDOW), Line::Write);
    }
}
