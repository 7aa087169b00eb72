//! Rules that look at one line at a time.

use super::{Problem, Source};

const WIDTH: usize = 120;
const FILE_LINES: usize = 600;
/// Split, so that this file does not break its own rules.
const MARKERS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("dbg", "!")];
/// Where some machine keeps this project, or what lies beside it there.
const MACHINE_PATHS: [&str; 4] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("../sha", "red")];
const ATOMICS: [&str; 2] = [concat!("std::sync::", "atomic"), concat!("core::sync::", "atomic")];
/// Scripts and C programs that follow the habits of the libraries they measure.
const SCRIPTS: &str = "benches/peers/";
/// The one file that names them, for everybody.
const SYNC: &str = "shmring/src/sync.rs";

/// Checks the lines of one file.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    let path = &source.path;
    let lines: Vec<&str> = source.text.lines().collect();
    if source.is_rust() && lines.len() > FILE_LINES {
        problems.push(format!("{path}: {} lines, at most {FILE_LINES}; split it by concept", lines.len()));
    }
    for (index, line) in lines.iter().enumerate() {
        let mut problem = |what: String| problems.push(format!("{path}:{}: {what}", index + 1));
        let width = line.chars().count();
        let exempt = path.starts_with(SCRIPTS) || is_table(line) || (source.is_rust() && is_message(line));
        if width > WIDTH && !exempt {
            problem(format!("{width} characters, at most {WIDTH}"));
        }
        for marker in MARKERS.into_iter().filter(|marker| has_word(line, marker)) {
            problem(format!("`{marker}` is left over; finish it, or describe it where work is planned"));
        }
        for machine in MACHINE_PATHS.into_iter().filter(|machine| line.contains(machine)) {
            problem(format!("`{machine}` exists on one machine only"));
        }
        let names_atomics = source.is_rust() && ATOMICS.iter().any(|name| line.contains(name));
        if names_atomics && path != SYNC && !explained(&lines, index, "ATOMICS:") {
            let remedy =
                "take it from `shmring::sync`, so that loom sees it, or say in an `ATOMICS:` comment why not";
            problem(remedy.into());
        }
    }
    problems
}

/// Whether a line is a row of a table, also in a doc comment; such a row cannot be broken.
fn is_table(line: &str) -> bool {
    line.trim_start().trim_start_matches(['/', '!', ' ']).starts_with('|')
}

/// Whether a line is one text for people, as in `#[error("...")]`: kept whole, it can be searched for.
fn is_message(line: &str) -> bool {
    let line = line.trim_start();
    line.strip_prefix("#[error(").unwrap_or(line).starts_with('"')
}

/// Whether line `index` or one of the three above it has a comment that begins with `label`.
fn explained(lines: &[&str], index: usize, label: &str) -> bool {
    lines[index.saturating_sub(3)..=index].iter().any(|line| line.contains(&format!("// {label}")))
}

fn has_word(line: &str, word: &str) -> bool {
    let letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !letter(line[..at].chars().next_back()) && !letter(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<Problem> {
        check(&source(path, text))
    }

    /// Long lines are found, but not long rows of tables, in Markdown or in doc comments.
    #[test]
    fn width() {
        let long = "x".repeat(121);
        assert_eq!(found("a.md", &long).len(), 1);
        assert_eq!(found("a.rs", &long[1..]).len(), 0);
        assert_eq!(found("a.md", &format!("| {long} |")).len(), 0);
        assert_eq!(found("a.rs", &format!("//! | {long} |")).len(), 0);
        assert_eq!(found("a.rs", &format!("    #[error(\"{long}\")]")).len(), 0);
        assert_eq!(found("a.rs", &format!("    f(\"{long}\");")).len(), 1);
    }

    /// Files beyond the limit are found.
    #[test]
    fn file_size() {
        assert_eq!(found("a.rs", &"\n".repeat(600)).len(), 0);
        assert_eq!(found("a.rs", &"\n".repeat(601)).len(), 1);
        assert_eq!(found("a.md", &"\n".repeat(601)).len(), 0);
    }

    /// Markers count as words only, and machine paths anywhere.
    #[test]
    fn markers_and_paths() {
        for text in MARKERS.iter().chain(&MACHINE_PATHS) {
            assert_eq!(found("a.rs", &format!("// {text} x")).len(), 1, "{text}");
        }
        assert_eq!(found("a.rs", &format!("let {}_LIST = 1;", MARKERS[0])).len(), 0);
    }

    /// Atomics are allowed in one file, elsewhere with a reason.
    #[test]
    fn atomics() {
        let line = format!("use {}::AtomicU64;", ATOMICS[0]);
        assert_eq!(found("a/src/x.rs", &line).len(), 1);
        assert_eq!(found(SYNC, &line).len(), 0);
        assert_eq!(found("a/src/x.rs", &format!("// ATOMICS: a signal handler sets it.\n{line}")).len(), 0);
    }
}
