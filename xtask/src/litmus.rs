//! `cargo xtask litmus`: the hardware checks of `verification`.

use crate::run;
use anyhow::Result;

/// Options of the hardware checks.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How long all checks together take, about
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// A run of a few seconds, to see that the checks work and find nothing at once.
pub(crate) fn smoke() -> Result<()> {
    run(&Options { seconds: 8 })
}

/// Builds the checks with optimisation, as the rings are used, and runs them.
pub(crate) fn run(options: &Options) -> Result<()> {
    let seconds = options.seconds.to_string();
    run::show(run::cargo().args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "verification",
        "--bin",
        "litmus",
        "--",
        "--seconds",
        &seconds,
    ]))
}
