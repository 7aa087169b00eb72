//! `cargo xtask test`: every check and test, cheap ones first, the unit and integration tests last.

use crate::run::{self, Shown};
use crate::{fuzz, litmus, loom, sim, tidy, torch};
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Options of the checks.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only the step of this name, such as `pytorch`
    #[arg(long)]
    only: Option<String>,
}

/// Tests that ran in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
}

/// What a step did, short of failing.
enum Outcome {
    /// A check that is not counted in tests.
    Checked,
    /// Tests, counted from what their runner printed.
    Ran(Count),
    /// Nothing to do here, and why.
    Skipped(&'static str),
}

type Step = (&'static str, fn() -> Result<Outcome>);

/// The unit and integration tests come last, so that their runner's own summary stands at the end.
const STEPS: &[Step] = &[
    ("fmt", fmt),
    ("tidy", || tidy::run().map(|()| Outcome::Checked)),
    ("clippy", clippy),
    ("doc", doc),
    ("python", python),
    ("doctests", doctests),
    ("loom", || counted(loom::checks()?, libtest)),
    ("loom mutants", mutants),
    ("fuzz", fuzz_smoke),
    ("simulator", || counted(sim::checks()?, libtest)),
    ("litmus", || litmus::smoke().map(|()| Outcome::Checked)),
    ("bench smoke", bench_smoke),
    ("pytorch", pytorch),
    ("nextest", nextest),
];

/// Steps that run only when they are named: they fetch 3 GB.
const ON_REQUEST: &[&str] = &["pytorch"];

/// Runs every step but those on request, and stops at the first that fails. Ends with the number of tests on a line of
/// its own.
pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = |name: &str| match options.only.as_deref() {
        Some(only) => only == name,
        None => !ON_REQUEST.contains(&name),
    };
    if !STEPS.iter().any(|(name, _)| chosen(name)) {
        let names: Vec<_> = STEPS.iter().map(|(name, _)| *name).collect();
        bail!("there is no such step: there are {}", names.join(", "));
    }
    let mut total = Count::default();
    let mut counted = Vec::new();
    let mut skipped = Vec::new();
    for (name, step) in STEPS.iter().filter(|(name, _)| chosen(name)) {
        println!("== {name}");
        let start = Instant::now();
        let outcome = step();
        let took = start.elapsed();
        match outcome {
            Ok(Outcome::Checked) => println!("== {name}: ok ({took:.1?})"),
            Ok(Outcome::Skipped(why)) => {
                println!("== {name}: SKIPPED, {why}");
                skipped.push(*name);
            }
            Ok(Outcome::Ran(count)) => {
                println!("== {name}: {} passed, {} failed ({took:.1?})", count.passed, count.failed);
                counted.push(format!("{} {name}", count.passed + count.failed));
                total.passed += count.passed;
                total.failed += count.failed;
                if count.failed > 0 {
                    println!("{} passed, {} failed", total.passed, total.failed);
                    bail!("step `{name}` failed; later steps did not run");
                }
            }
            Err(error) => {
                println!("{} passed, {} failed", total.passed, total.failed + 1);
                return Err(error.context(format!("step `{name}` failed; later steps did not run")));
            }
        }
    }
    if !skipped.is_empty() {
        println!("SKIPPED {}: {}", skipped.len(), skipped.join(", "));
    }
    println!("tests counted from what their runners printed: {}", counted.join(", "));
    println!("{} passed, {} failed", total.passed, total.failed);
    Ok(())
}

fn fmt() -> Result<Outcome> {
    run::show(run::cargo().args(["fmt", "--all", "--check"]))?;
    Ok(Outcome::Checked)
}

fn clippy() -> Result<Outcome> {
    let lint = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    run::show(run::cargo().args(lint))?;
    loom::clippy()?;
    sim::clippy()?;
    Ok(Outcome::Checked)
}

fn doc() -> Result<Outcome> {
    let mut command = run::cargo();
    run::show(
        command.args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    Ok(Outcome::Checked)
}

fn python() -> Result<Outcome> {
    let folder = "benches/peers";
    if !has_file(&run::root().join(folder), |name| name.starts_with("test_") && name.ends_with(".py")) {
        return Ok(Outcome::Skipped("there are no tests in benches/peers"));
    }
    let mut command = Command::new("python3");
    // Compiled files would land among the sources otherwise.
    command.current_dir(run::root()).env("PYTHONDONTWRITEBYTECODE", "1");
    counted(run::tee(command.args(["-m", "unittest", "discover", "-s", folder]))?, unittest)
}

/// The Python package in a virtual environment with PyTorch.
fn pytorch() -> Result<Outcome> {
    match torch::tests()? {
        Some(shown) => counted(shown, unittest),
        None => Ok(Outcome::Skipped("pip could not install torch")),
    }
}

fn doctests() -> Result<Outcome> {
    counted(
        run::tee(run::cargo().args(["test", "--quiet", "--doc", "--workspace", "--no-fail-fast"]))?,
        libtest,
    )
}

fn mutants() -> Result<Outcome> {
    let passed = loom::all_mutants()? as u64;
    Ok(Outcome::Ran(Count { passed, failed: 0 }))
}

/// Every fuzz target for some seconds; a target that finds nothing is a test that passed.
fn fuzz_smoke() -> Result<Outcome> {
    Ok(match fuzz::smoke()? {
        fuzz::Smoke::Passed(passed) => Outcome::Ran(Count { passed, failed: 0 }),
        fuzz::Smoke::NoCompiler => Outcome::Skipped("there is no C++ compiler to build libFuzzer"),
    })
}

/// Runs each benchmark once, to see that it still works; times mean nothing here.
fn bench_smoke() -> Result<Outcome> {
    let manifest = std::fs::read_to_string(run::root().join("Cargo.toml"))?;
    let mut found = false;
    for member in members(&manifest)? {
        let text = std::fs::read_to_string(run::root().join(member).join("Cargo.toml"))
            .with_context(|| format!("cannot read the manifest of member `{member}`"))?;
        let mut command = run::cargo();
        command.args(["bench", "--quiet", "--package", package_name(&text)?]);
        // By name: all bench targets at once would include the unit tests of the library.
        let names = bench_names(&text);
        for name in &names {
            command.args(["--bench", name]);
        }
        if !names.is_empty() {
            run::show(command.args(["--", "--test"]))?;
            found = true;
        }
    }
    Ok(if found { Outcome::Checked } else { Outcome::Skipped("no package has a [[bench]] target") })
}

fn nextest() -> Result<Outcome> {
    let mut version = run::cargo();
    version.args(["nextest", "--version"]);
    if run::watch(&mut version, std::time::Duration::from_secs(60))?.status.is_some_and(|s| s.success()) {
        let run_all = ["nextest", "run", "--workspace", "--no-fail-fast", "--no-tests", "pass"];
        return counted(run::tee(run::cargo().args(run_all))?, nextest_summary);
    }
    println!("cargo-nextest is not installed; `cargo test` runs the same tests, one binary after the other");
    let run_all = ["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"];
    counted(run::tee(run::cargo().args(run_all))?, libtest)
}

/// Counts the tests of a runner that has ended; its exit code has the last word.
fn counted(shown: Shown, count: fn(&str) -> Count) -> Result<Outcome> {
    let count = count(&shown.output);
    if !shown.status.success() && count.failed == 0 {
        bail!("`{}` failed: {}", shown.command, shown.status);
    }
    Ok(Outcome::Ran(count))
}

/// The number before each of `words` in `line`, added up.
fn before(line: &str, words: &[&str]) -> u64 {
    let number =
        |word: &&str| line.split_once(word)?.0.rsplit(' ').find(|part| !part.is_empty())?.parse().ok();
    words.iter().filter_map(|word| -> Option<u64> { number(word) }).sum()
}

/// Sums `test result: ok. 4 passed; 0 failed; ...`, one line a test binary.
fn libtest(output: &str) -> Count {
    let lines = output.lines().filter(|line| line.starts_with("test result: "));
    lines.fold(Count::default(), |sum, line| Count {
        passed: sum.passed + before(line, &[" passed;"]),
        failed: sum.failed + before(line, &[" failed;"]),
    })
}

/// Reads `Summary [ 1.2s] 9 tests run: 7 passed (1 slow), 1 failed, 1 timed out, 3 skipped`.
fn nextest_summary(output: &str) -> Count {
    let line = output.lines().rfind(|line| line.trim_start().starts_with("Summary [")).unwrap_or("");
    Count {
        passed: before(line, &[" passed"]),
        failed: before(line, &[" failed", " timed out", " exec failed"]),
    }
}

/// Reads `Ran 9 tests in 0.1s` and `FAILED (failures=1, errors=2)`; skipped tests do not count as passed.
fn unittest(output: &str) -> Count {
    let ran =
        output.lines().rfind(|line| line.starts_with("Ran ")).map_or(0, |line| before(line, &[" test"]));
    let end =
        output.lines().rfind(|line| line.starts_with("FAILED (") || line.starts_with("OK (")).unwrap_or("");
    let after = |key: &str| -> u64 {
        let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
        end.split_once(key).and_then(|(_, rest)| digits(rest).parse().ok()).unwrap_or(0)
    };
    let failed = after("failures=") + after("errors=");
    Count { passed: ran.saturating_sub(failed + after("skipped=")), failed }
}

fn has_file(folder: &Path, accept: fn(&str) -> bool) -> bool {
    std::fs::read_dir(folder)
        .is_ok_and(|entries| entries.flatten().any(|entry| entry.file_name().to_str().is_some_and(accept)))
}

/// The folders of the workspace's members.
fn members(manifest: &str) -> Result<Vec<&str>> {
    let list = manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.context("the root Cargo.toml has no `members = [...]`")?.0;
    Ok(list.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty()).collect())
}

/// The names of a manifest's `[[bench]]` targets.
fn bench_names(manifest: &str) -> Vec<&str> {
    let targets = manifest.split("[[bench]]").skip(1);
    targets.filter_map(|target| package_name(target.split("\n[").next()?).ok()).collect()
}

/// The value of the manifest's first `name = "..."`.
fn package_name(manifest: &str) -> Result<&str> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = "));
    Ok(line.context("no line `name = ...` in a manifest")?.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts are what each runner says, also when tests failed, timed out or were skipped.
    #[test]
    fn runners_are_counted() {
        let two =
            "test result: ok. 4 passed; 0 failed; 1 ignored\nx\ntest result: FAILED. 10 passed; 2 failed; 0";
        assert_eq!(libtest(two), Count { passed: 14, failed: 2 });
        let line = "  Summary [   1.234s] 12 tests run: 9 passed (1 slow), 2 failed, 1 timed out, 4 skipped";
        assert_eq!(nextest_summary(line), Count { passed: 9, failed: 3 });
        let line = "     Summary [   0.004s] 3 tests run: 3 passed, 0 skipped";
        assert_eq!(nextest_summary(line), Count { passed: 3, failed: 0 });
        assert_eq!(unittest("Ran 14 tests in 0.1s\n\nOK\n"), Count { passed: 14, failed: 0 });
        assert_eq!(unittest("Ran 1 test in 0.1s\n\nOK (skipped=1)\n"), Count { passed: 0, failed: 0 });
        let failed = "Ran 9 tests in 0.1s\n\nFAILED (failures=1, errors=2, skipped=1)\n";
        assert_eq!(unittest(failed), Count { passed: 5, failed: 3 });
        for count in [libtest(""), nextest_summary(""), unittest("")] {
            assert_eq!(count, Count::default());
        }
    }

    /// Members and package names are read from manifests as this workspace writes them.
    #[test]
    fn manifests_are_read() {
        assert_eq!(
            members("[workspace]\nmembers = [\"a\", \"b/c\",\n \"d\",\n]\n").unwrap(),
            ["a", "b/c", "d"]
        );
        assert_eq!(package_name("[package]\nname = \"x-y\"\n").unwrap(), "x-y");
        assert!(package_name("[package]\n").is_err());
        let benches =
            "[package]\nname = \"x\"\n[[bench]]\nname = \"a\"\nharness = false\n[[bench]]\nname = \"b\"\n";
        assert_eq!(bench_names(benches), ["a", "b"]);
        assert!(bench_names("[package]\nname = \"x\"\n[lib]\nbench = false\n").is_empty());
        let manifest = std::fs::read_to_string(run::root().join("Cargo.toml")).unwrap();
        assert!(members(&manifest).unwrap().contains(&"xtask"));
    }
}
