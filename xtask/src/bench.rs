//! `cargo xtask bench --peers`: RingCCL beside what users would pick instead, in one interleaved run.

use crate::run;
use anyhow::{Result, ensure};
use std::path::PathBuf;
use std::process::Command;

/// Options of the comparison.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Compare with the peers at the named points; there is nothing else to bench here: criterion's suites run by
    /// `cargo bench`
    #[arg(long)]
    peers: bool,
    /// Which of them, separated by commas
    #[arg(long, default_value = "ringccl-registered,gloo,openmpi,mpich-tuned,impi")]
    of: String,
    /// Rounds; a figure is the median of the rounds' ratios
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of timed loop at a point
    #[arg(long, default_value_t = 0.3)]
    budget: f64,
    /// Append the medians to this file
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

/// Installs the peers if they are not there, builds, and compares.
pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(
        options.peers,
        "say --peers: `cargo xtask bench --peers` compares, `cargo bench` runs the suites"
    );
    let here = run::root().join("benches/peers");
    run::show(Command::new("sh").arg(here.join("setup.sh")))?;
    let mut build = run::cargo();
    build.args(["build", "--release", "--package", "ringccl-cli", "--package", "ringccl-benches"]);
    run::show(&mut build)?;
    let mut compare = Command::new("python3");
    compare.arg(here.join("compare.py")).args(["--named", "--peers", &options.of]);
    compare.args(["--rounds", &options.rounds.to_string(), "--budget", &options.budget.to_string()]);
    if let Some(csv) = &options.csv {
        compare.arg("--csv").arg(std::path::absolute(csv)?);
    }
    run::show(&mut compare)
}
