//! `cargo xtask soak`: mixed operations of 8 ranks, as many as wanted, and what the processes hold meanwhile. It fails
//! when that grows: the bounds are in `verification/src/held.rs`.

use crate::run;
use anyhow::Result;

/// Options of the soak.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Operations of all ranks together
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// Operations after which every rank says what it holds
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    every: u64,
    /// What the script of the operations is drawn from: the same one runs the same operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs it and shows a line for each sample, and what has grown most.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = run::cargo();
    command.args(["test", "--quiet", "--release", "--package", "verification", "--test", "soak"]);
    command.args(["--", "--ignored", "--exact", "soak_campaign", "--nocapture"]);
    command.env("SOAK_OPS", options.ops.to_string()).env("SOAK_EVERY", options.every.to_string());
    command.env("SOAK_SEED", options.seed.to_string());
    run::show(&mut command)
}
