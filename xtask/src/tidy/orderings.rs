//! Each memory ordering is explained where it is used.

use super::functions::function_name;
use super::{Problem, Source};

/// Folders whose code synchronises through shared memory.
const FOLDERS: [&str; 2] = ["shmring/src/", "runtime/src/"];
const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
/// How far above its use the explanation may stand.
const NEAR: usize = 6;

/// A use of a memory ordering.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Site<'a> {
    /// Line number, from 1.
    pub(super) line: usize,
    /// The function it is in.
    pub(super) function: &'a str,
}

/// Finds orderings that nothing explains.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    if !FOLDERS.iter().any(|folder| source.path.starts_with(folder)) {
        return Vec::new();
    }
    let lines: Vec<&str> = source.text.lines().collect();
    let explained = |site: &Site<'_>| {
        let above = &lines[site.line.saturating_sub(NEAR + 1)..site.line];
        above.iter().any(|line| line.contains("ORDERING:"))
    };
    let open = sites(source).into_iter().filter(|site| !explained(site));
    open.map(|site| {
        let Site { line, function } = site;
        format!("{}:{line}: `{function}` uses an ordering that no `ORDERING:` comment explains", source.path)
    })
    .collect()
}

/// Every use of an ordering in the code of a file, tests left out; one a line.
pub(super) fn sites(source: &Source) -> Vec<Site<'_>> {
    let mut function = "";
    let mut found = Vec::new();
    for (line, text) in source.code() {
        function = function_name(text).unwrap_or(function);
        let code = text.split("//").next().unwrap_or(text);
        if ORDERINGS.iter().any(|name| code.contains(&format!("Ordering::{name}"))) {
            found.push(Site { line, function });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    /// An explanation within six lines counts, one further up or in another place does not.
    #[test]
    fn explanations_are_near() {
        let text = |between: usize| {
            let filler = "    x();\n".repeat(between);
            format!("fn f() {{\n    // ORDERING: why.\n{filler}    a.load(Ordering::Acquire);\n}}\n")
        };
        assert!(check(&source("shmring/src/a.rs", &text(5))).is_empty());
        assert_eq!(check(&source("runtime/src/a.rs", &text(6))).len(), 1);
        assert!(check(&source("cli/src/a.rs", &text(6))).is_empty());
        assert!(check(&source("shmring/src/a/tests.rs", &text(6))).is_empty());
    }

    /// Comparisons are not memory orderings, and comments are not uses.
    #[test]
    fn only_memory_orderings() {
        let text = "fn f() {\n    // Ordering::Relaxed would do\n    Ordering::Less\n}\n\
                    fn g() {\n    Ordering::SeqCst\n}\n";
        let source = source("shmring/src/a.rs", text);
        assert_eq!(sites(&source), [Site { line: 6, function: "g" }]);
    }
}
