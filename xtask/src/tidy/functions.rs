//! Functions of at most 70 lines.
//!
//! rustfmt puts a function's closing brace on a line of its own, indented as the line with `fn`. That is all
//! this needs to find the end; no parser is involved.

use super::{Problem, Source};

const LINES: usize = 70;

/// Finds functions that are too long.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    if !source.is_rust() {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().collect();
    let mut problems = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let length = length(&lines[index..]);
        if length > LINES {
            problems.push(format!(
                "{}:{}: `{name}` has {length} lines, at most {LINES}",
                source.path,
                index + 1
            ));
        }
    }
    problems
}

/// The name of the function whose signature begins on this line.
pub(super) fn function_name(line: &str) -> Option<&str> {
    const BEFORE: [&str; 7] = ["pub", "const", "async", "unsafe", "extern", "default", "\"C\""];
    let (before, after) = line.trim_start().split_once("fn ")?;
    let qualified = before.split_whitespace().all(|word| BEFORE.contains(&word) || word.starts_with("pub("));
    let end = after.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    (qualified && end > 0).then(|| &after[..end])
}

/// Lines of the function that begins on the first of `lines`.
fn length(lines: &[&str]) -> usize {
    let indent = lines[0].len() - lines[0].trim_start().len();
    let is_end = |line: &&str| {
        let inside = line.trim_start();
        let own_level = line.len() - inside.len() == indent;
        // A body on one line, a declaration without one, or the closing brace.
        own_level
            && (inside == "}" || inside.ends_with(';') || inside.ends_with(" }") || inside.ends_with("{}"))
    };
    lines.iter().position(is_end).map_or(lines.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    /// A function with 71 lines is found and one with 70 is not, whatever stands around it.
    #[test]
    fn length_is_measured() {
        let function =
            |lines: usize| format!("    fn f() {{\n{}    }}\n", "        x();\n".repeat(lines - 2));
        let around =
            |inner: String| format!("impl A {{\n    fn e(&self) -> u8;\n{inner}    fn g() {{}}\n}}\n");
        assert!(check(&source("a.rs", &around(function(70)))).is_empty());
        let found = check(&source("a.rs", &around(function(71))));
        assert_eq!(found, ["a.rs:3: `f` has 71 lines, at most 70"]);
    }

    /// Signatures are recognised with all their qualifiers; words and types that look alike are not.
    #[test]
    fn signatures() {
        for (line, name) in [
            ("fn a() {", Some("a")),
            ("    pub(crate) const unsafe fn b<T>(", Some("b")),
            ("pub extern \"C\" fn c_d(x: u8) {", Some("c_d")),
            ("    f: fn (u8),", None),
            ("// the fn is called", None),
            ("let f: fn() = g;", None),
        ] {
            assert_eq!(function_name(line), name, "{line}");
        }
    }
}
