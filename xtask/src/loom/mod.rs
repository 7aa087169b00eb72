//! `cargo xtask loom`: the model checks, and the weakenings that show what each of them guards.

mod mutants;
mod plant;

use crate::run::{self, Shown};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Options of the model checks.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Plant each weakening in a copy of the code and show that its named test fails
    #[arg(long)]
    mutants: bool,
    /// With --mutants: only those whose name contains this
    #[arg(long, requires = "mutants", value_name = "TEXT")]
    only: Option<String>,
}

/// Runs what the options ask for.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.mutants {
        let caught = plant::run(options.only.as_deref().unwrap_or(""))?;
        println!("{caught} mutants caught, 0 survived");
        return Ok(());
    }
    run::show(&mut tests(&run::root()))
}

/// The model checks, with their output shown and returned.
pub(crate) fn checks() -> Result<Shown> {
    run::tee(&mut tests(&run::root()))
}

/// Plants every weakening; returns how many there are, all of them caught.
pub(crate) fn all_mutants() -> Result<usize> {
    plant::run("")
}

/// Weakenings that no longer apply to the code, and why; those whose test no longer exists, too.
pub(crate) fn stale() -> Vec<String> {
    mutants::ALL
        .iter()
        .copied()
        .flatten()
        .filter_map(|mutant| Some((mutant, why_stale(mutant)?)))
        .map(|(mutant, why)| format!("xtask/src/loom/mutants: `{}`: {why}", mutant.name))
        .collect()
}

fn why_stale(mutant: &mutants::Mutant) -> Option<String> {
    let (file, function) = mutant.test;
    let path = format!("loom-tests/tests/{file}.rs");
    let exists = std::fs::read_to_string(run::root().join(&path))
        .is_ok_and(|text| text.contains(&format!("fn {function}(")));
    if exists {
        crate::plant::stale(mutant.edits)
    } else {
        Some(format!("there is no `{function}` in {path}"))
    }
}

/// Lints what exists under loom only, which a normal build does not see.
pub(crate) fn clippy() -> Result<()> {
    let mut command =
        under_loom(&run::root(), &["clippy", "--quiet", "--package", "shmring", "--package", "loom-tests"]);
    run::show(command.args(["--all-targets", "--", "-D", "warnings"]))
}

/// The command that runs the tests of `loom-tests` in the workspace at `workspace`.
fn tests(workspace: &Path) -> Command {
    under_loom(workspace, &["test", "--release", "--package", "loom-tests"])
}

/// Cargo with loom in place of the real atomics.
fn under_loom(workspace: &Path, args: &[&str]) -> Command {
    let mut command = run::cargo();
    command.current_dir(workspace).args(args);
    // Everything is compiled anew under the flag, so it must not share a folder with normal builds.
    command.arg("--target-dir").arg(crate::plant::build_folder(workspace, "loom"));
    // Line tables would take as long to link as the checks take to build.
    command.env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{flags} --cfg loom").trim_start());
    command
}
