//! `cargo xtask conform`: every operation between real processes against its definition, by random scripts.

use crate::run;
use anyhow::Result;

/// Options of the campaign.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Operations of each job
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    ops: u64,
    /// Rounds; each has a job of 2, 3, 4, 8 and 5 ranks, and a seed of its own
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Seed of the first round: the same one runs the same operations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Jobs of this many ranks only: 2, 3, 4, 5 or 8
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=8))]
    ranks: Option<u32>,
}

/// Runs it and shows a line for each job.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = run::cargo();
    command.args(["test", "--quiet", "--release", "--package", "verification", "--test", "conformance"]);
    command.args(["--", "--ignored", "--exact", "conformance_campaign", "--nocapture"]);
    command.env("CONFORM_OPS", options.ops.to_string()).env("CONFORM_ROUNDS", options.rounds.to_string());
    command.env("CONFORM_SEED", options.seed.to_string());
    command.env("CONFORM_RANKS", options.ranks.unwrap_or(0).to_string());
    run::show(&mut command)
}
