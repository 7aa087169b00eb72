//! `cargo xtask kill`: the campaigns of killed and stopped ranks of `verification`.

use crate::run;
use anyhow::Result;

/// Options of the campaign.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How many jobs lose a rank
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    times: u32,
    /// Threads that compute meanwhile
    #[arg(long, default_value_t = 0)]
    load: u32,
}

/// Runs both campaigns and shows the time from each signal to the survivors' errors.
pub(crate) fn run(options: &Options) -> Result<()> {
    for campaign in ["kill_campaign", "stop_campaign"] {
        let mut command = run::cargo();
        command.args(["test", "--quiet", "--release", "--package", "verification", "--test", "kill_ranks"]);
        command.args(["--", "--ignored", "--exact", campaign, "--nocapture"]);
        command.env("KILLS", options.times.to_string()).env("LOAD", options.load.to_string());
        run::show(&mut command)?;
    }
    Ok(())
}
