//! `cargo xtask sim`: the deterministic simulator, and the planted errors that show what it finds.

mod mutants;
mod plant;

use crate::run::{self, Shown};
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// Options of the simulator.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long the campaign takes
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Most seeds of the campaign
    #[arg(long)]
    seeds: Option<u64>,
    /// First seed of the campaign; by default the time of day decides
    #[arg(long)]
    first: Option<u64>,
    /// Run one seed only and show what happened last
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Whether stores become visible late: on, off or mixed
    #[arg(long, default_value = "mixed", value_parser = ["on", "off", "mixed"])]
    store_buffer: String,
    /// Plant each error in a copy of the code and show that a seed finds it
    #[arg(long)]
    mutants: bool,
    /// With --mutants: only those whose name contains this
    #[arg(long, requires = "mutants", value_name = "TEXT")]
    only: Option<String>,
}

/// Planted errors that no longer apply to the code, and why.
pub(crate) fn stale() -> Vec<String> {
    mutants::ALL
        .iter()
        .filter_map(|mutant| {
            let why = crate::plant::stale(mutant.edits)?;
            Some(format!("xtask/src/sim/mutants.rs: `{}`: {why}", mutant.name))
        })
        .collect()
}

/// Runs what the options ask for.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.mutants {
        let found = plant::run(options.only.as_deref().unwrap_or(""))?;
        println!("{found} planted errors found, 0 missed");
        return Ok(());
    }
    let mut command = simulator(&run::root());
    command.args(["--seconds", &options.seconds.to_string(), "--store-buffer", &options.store_buffer]);
    for (name, value) in [("--seeds", options.seeds), ("--first", options.first), ("--seed", options.seed)] {
        if let Some(value) = value {
            command.args([name, &value.to_string()]);
        }
    }
    run::show(&mut command)
}

/// The simulator's own tests, among them some thousand seeds.
pub(crate) fn checks() -> Result<Shown> {
    run::tee(&mut under_flag(
        &run::root(),
        &["test", "--quiet", "--profile", "sim", "--package", "simulator"],
    ))
}

/// Lints what exists under the flag only, which a normal build does not see.
pub(crate) fn clippy() -> Result<()> {
    // Clippy looks at the members that this one depends on, too.
    let mut command = under_flag(&run::root(), &["clippy", "--quiet", "--profile", "sim"]);
    run::show(command.args(["--package", "simulator", "--all-targets", "--", "-D", "warnings"]))
}

/// The command that runs the simulator of the workspace at `workspace`.
fn simulator(workspace: &Path) -> Command {
    under_flag(
        workspace,
        &["run", "--quiet", "--profile", "sim", "--package", "simulator", "--bin", "sim", "--"],
    )
}

/// Cargo with the simulated machine in place of the real one.
fn under_flag(workspace: &Path, args: &[&str]) -> Command {
    let mut command = run::cargo();
    command.current_dir(workspace).args(&args[..1]);
    // Everything is compiled anew under the flag, so it must not share a folder with normal builds.
    command.arg("--target-dir").arg(crate::plant::build_folder(workspace, "sim")).args(&args[1..]);
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    command.env("RUSTFLAGS", format!("{flags} --cfg ringccl_sim").trim_start());
    command
}
