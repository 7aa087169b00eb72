//! `cargo xtask settings`: `docs/settings.md`, as `ringccl doctor --markdown` prints it from the table of settings.

use crate::run;
use anyhow::{Context, Result, bail};

/// The page, from the project's root.
const PAGE: &str = "docs/settings.md";

/// Options of the page of settings.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only compare, and fail where the page differs
    #[arg(long)]
    check: bool,
}

/// Writes the page, or compares it.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.check {
        return check();
    }
    std::fs::write(run::root().join(PAGE), made()?).with_context(|| format!("cannot write {PAGE}"))
}

/// Fails where the page is not what the table gives, with the first line that differs.
pub(crate) fn check() -> Result<()> {
    let there =
        std::fs::read_to_string(run::root().join(PAGE)).with_context(|| format!("cannot read {PAGE}"))?;
    match first_difference(&there, &made()?) {
        None => Ok(()),
        Some(line) => bail!("{PAGE}:{line}: differs from the table of settings; run `cargo xtask settings`"),
    }
}

/// What the table gives now.
fn made() -> Result<String> {
    let mut command = run::cargo();
    command.args([
        "run",
        "--quiet",
        "--package",
        "ringccl-cli",
        "--bin",
        "ringccl",
        "--",
        "doctor",
        "--markdown",
    ]);
    let text = run::line(&command);
    let output = command.output().with_context(|| format!("cannot start `{text}`"))?;
    if !output.status.success() {
        bail!("`{text}` failed: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{text}` printed what is not UTF-8"))
}

/// Number of the first line, from 1, that differs between two texts.
fn first_difference(a: &str, b: &str) -> Option<usize> {
    let (mut ours, mut theirs) = (a.split('\n'), b.split('\n'));
    let mut line = 0;
    loop {
        line += 1;
        match (ours.next(), theirs.next()) {
            (None, None) => return None,
            (a, b) if a == b => {}
            _ => return Some(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that are missing, added or changed are found, and a missing end of the last line.
    #[test]
    fn differences_are_found() {
        for (a, b, line) in [
            ("a\nb\n", "a\nb\n", None),
            ("a\nb\n", "a\nc\n", Some(2)),
            ("a\n", "a\nb\n", Some(2)),
            ("a\nb\n", "a\nb", Some(3)),
            ("", "", None),
        ] {
            assert_eq!(first_difference(a, b), line, "{a:?} {b:?}");
        }
    }
}
