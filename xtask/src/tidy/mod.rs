//! `cargo xtask tidy`: rules of the source text that no compiler checks.
//!
//! | rule | where |
//! | --- | --- |
//! | lines of at most 120 characters, but for tables and messages | text |
//! | Rust files of at most 600 lines | text |
//! | no marker of unfinished work, no path of one machine | text |
//! | atomics by `shmring::sync`, elsewhere with a reason | text |
//! | functions of at most 70 lines | functions |
//! | each ordering explained | orderings |
//! | `docs/memory-model.md` lists what the code does | memory_model |
//! | the environment is read by the settings only | environment |
//! | planted errors apply to the code as it is | `loom`, `sim` of xtask |
//! | `docs/settings.md` is what the table of settings gives | `settings.rs` of xtask |

mod environment;
mod functions;
mod memory_model;
mod orderings;
mod text;

use crate::{loom, run, settings, sim};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// A source file: its path from the root, with `/`, and its text.
#[derive(Debug)]
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines before the file's own tests, with their numbers from 1; none if all of it is tests.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let in_tests = self.path.contains("/tests/") || self.path.ends_with("/tests.rs");
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        let tests = self.text.lines().zip(self.text.lines().skip(1)).position(|(attribute, module)| {
            attribute.starts_with("#[cfg(") && attribute.contains("test") && module.starts_with("mod tests {")
        });
        lines.take(if in_tests { 0 } else { tests.unwrap_or(usize::MAX) })
    }
}

/// A rule that is broken: `file:line: what`.
type Problem = String;

/// Checks every rule on every file.
///
/// # Errors
/// The problems found, all of them.
pub(crate) fn run() -> Result<()> {
    let sources = sources()?;
    let mut problems: Vec<Problem> = Vec::new();
    for source in &sources {
        problems.extend(text::check(source));
        problems.extend(functions::check(source));
        problems.extend(orderings::check(source));
        problems.extend(environment::check(source));
    }
    problems.extend(memory_model::check(&sources));
    problems.extend(loom::stale());
    problems.extend(sim::stale());
    problems.extend(settings::check().err().map(|error| format!("{error:#}")));
    for problem in &problems {
        println!("{problem}");
    }
    if !problems.is_empty() {
        bail!("{} problems in the source text; the rules are in xtask/src/tidy", problems.len());
    }
    println!("tidy: {} files, no problem", sources.len());
    Ok(())
}

/// Every text file that people write.
fn sources() -> Result<Vec<Source>> {
    let mut found = Vec::new();
    walk(&run::root(), "", &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<Source>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            if !name.starts_with("target") && name != ".git" && name != "__pycache__" {
                walk(&entry.path(), &format!("{path}/"), found)?;
            }
        } else if is_text(&path) {
            let text =
                std::fs::read_to_string(entry.path()).with_context(|| format!("{path} is not UTF-8"))?;
            found.push(Source { path, text });
        }
    }
    Ok(())
}

fn is_text(path: &str) -> bool {
    const ENDS: [&str; 11] =
        [".rs", ".md", ".toml", ".yaml", ".yml", ".py", ".sh", ".c", ".cpp", ".h", ".ci/run"];
    ENDS.iter().any(|end| path.ends_with(end))
}

#[cfg(test)]
fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file's own tests are told from its code, and files of tests have no code.
    #[test]
    fn tests_are_not_code() {
        let text = "fn a() {}\n#[cfg(all(test, not(loom)))]\nmod tests {\n}\n";
        assert_eq!(source("x/src/a.rs", text).code().collect::<Vec<_>>(), [(1, "fn a() {}")]);
        for path in ["x/tests/a.rs", "x/src/ring/tests.rs"] {
            assert_eq!(source(path, text).code().count(), 0);
        }
        assert_eq!(source("x/src/a.rs", "#[cfg(test)]\nmod tests;\n").code().count(), 2);
    }
}
