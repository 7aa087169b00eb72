//! Planting weakenings in a copy of the code, one after the other, and running the test that must fail.

use super::mutants::{ALL, Mutant};
use crate::plant::WorkspaceCopy;
use crate::run::{self, Watched};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

/// The folders whose copies are changed.
const COPIED: [&str; 2] = ["shmring", "loom-tests"];
/// Longest time for building and running one mutant: a hang is no proof that a test has noticed anything.
const DEADLINE: Duration = Duration::from_secs(300);

/// Plants every mutant whose name contains `only` and prints a table. Returns how many there were.
///
/// # Errors
/// When the unchanged copy fails, a mutant does not apply or does not compile, or one survives.
pub(super) fn run(only: &str) -> Result<usize> {
    let chosen: Vec<&Mutant> = ALL.iter().copied().flatten().filter(|m| m.name.contains(only)).collect();
    if chosen.is_empty() {
        bail!("no mutant's name contains `{only}`; see xtask/src/loom/mutants.rs");
    }
    let copy = WorkspaceCopy::make("mutants", &COPIED)?;
    let start = Instant::now();
    let unchanged = run::watch(&mut super::tests(copy.folder()), DEADLINE * 3)?;
    if !unchanged.status.is_some_and(|status| status.success()) {
        bail!("the unchanged copy must pass, and did not:\n{}", unchanged.output);
    }
    println!("unchanged copy: all tests pass ({:.0?})", start.elapsed());
    println!("{:<54} {:<28} {:>6}  how it shows", "mutant", "test that must fail", "time");
    let mut survivors = Vec::new();
    for &mutant in &chosen {
        let start = Instant::now();
        let found = try_mutant(&copy, mutant).with_context(|| format!("mutant `{}`", mutant.name))?;
        let how = found.as_deref().unwrap_or("SURVIVED");
        let test = format!("{}::{}", mutant.test.0, mutant.test.1);
        println!("{:<54} {test:<28} {:>5.1}s  {how}", mutant.name, start.elapsed().as_secs_f64());
        if found.is_none() {
            survivors.push(mutant.name);
        }
    }
    if !survivors.is_empty() {
        bail!("{} of {} mutants survived: {}", survivors.len(), chosen.len(), survivors.join("; "));
    }
    Ok(chosen.len())
}

/// Plants one mutant, runs its test, takes the mutant out again. Returns how the test failed, if it did.
fn try_mutant(copy: &WorkspaceCopy, mutant: &Mutant) -> Result<Option<String>> {
    let (file, function) = mutant.test;
    let mut command = super::tests(copy.folder());
    command.args(["--test", file, "--", "--exact", function]);
    let watched = copy.with(mutant.edits, || run::watch(&mut command, DEADLINE))??;
    judge(&watched, function)
}

/// How the test failed; `None` if it passed.
fn judge(watched: &Watched, function: &str) -> Result<Option<String>> {
    let output = &watched.output;
    match watched.status {
        None => bail!("neither passed nor failed within {DEADLINE:?}:\n{output}"),
        Some(status) if status.success() => {
            // A name that matches no test passes too, and would prove nothing.
            if !output.contains(&format!("test {function} ... ok")) {
                bail!("test {function} did not run:\n{output}");
            }
            Ok(None)
        }
        Some(_) => {
            // A test that aborts, because a second panic follows the first, never prints its own result.
            let panic = format!("thread '{function}'");
            if !output.contains(&format!("test {function} ... FAILED")) && !output.contains(&panic) {
                bail!("failed before the test ran:\n{output}");
            }
            Ok(Some(first_panic(output)))
        }
    }
}

/// The message of the first panic in a test's output, shortened to a column of the table.
fn first_panic(output: &str) -> String {
    let mut lines = output
        .lines()
        .skip_while(|line| !line.contains("' panicked at ") && !line.contains(") panicked at "));
    let message = lines.nth(1).unwrap_or("failed without a message").trim();
    message.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only a test that ran and failed counts as a catch; a build error, a hang or a wrong name is an error.
    #[test]
    fn only_failing_tests_catch() {
        use std::os::unix::process::ExitStatusExt;
        let watched = |code: Option<i32>, output: &str| Watched {
            status: code.map(|code| std::process::ExitStatus::from_raw(code << 8)),
            output: output.into(),
        };
        assert_eq!(judge(&watched(Some(0), "test t ... ok\n"), "t").unwrap(), None);
        let failed = "test t ... FAILED\nthread 't' (5) panicked at x.rs:1:\n  Causality violation\n";
        assert_eq!(judge(&watched(Some(101), failed), "t").unwrap().unwrap(), "Causality violation");
        assert!(judge(&watched(Some(101), "error[E0308]: mismatched types"), "t").is_err());
        assert!(judge(&watched(Some(0), "running 0 tests"), "t").is_err());
        assert!(judge(&watched(None, "test t has been running"), "t").is_err());
    }
}
