//! `cargo xtask kill`: the campaign of killed ranks of `verification`.

use crate::run;
use anyhow::Result;

/// Options of the campaign.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many jobs lose a rank
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
}

/// Runs the campaign and shows the time from each kill to the survivors' errors.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = run::cargo();
    command.args(["test", "--quiet", "--release", "--package", "verification", "--test", "kill_ranks"]);
    command.args(["--", "--ignored", "--exact", "kill_campaign", "--nocapture"]);
    run::show(command.env("KILLS", options.times.to_string()))
}
