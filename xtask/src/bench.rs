//! `cargo xtask bench --peers`: RingCCL beside what users would pick instead, in one interleaved run.
//! `cargo xtask bench --staging`: what the ways through shared memory cost, as a record, tables and drawings.

use crate::run;
use anyhow::{Result, ensure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Options of the measurements.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Compare with the peers at the named points
    #[arg(long)]
    peers: bool,
    /// Run criterion's suite of the ways through shared memory; the other suites run by `cargo bench`
    #[arg(long, conflicts_with_all = ["peers", "of", "rounds", "budget"])]
    staging: bool,
    /// Which of them, separated by commas
    #[arg(long, default_value = "ringccl-registered,gloo,openmpi,mpich-tuned,impi")]
    of: String,
    /// Rounds; a figure is the median of the rounds' ratios
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of timed loop at a point
    #[arg(long, default_value_t = 0.3)]
    budget: f64,
    /// Append the peers' medians to this file, or write the suite's record there instead of `target/staging.csv`
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draw the suite's record into this folder, such as `docs/plots`
    #[arg(long, value_name = "DIR", conflicts_with = "peers")]
    plots: Option<PathBuf>,
}

/// Runs the suite from nothing, then prints its record's tables.
fn staging(options: &Options) -> Result<()> {
    let csv = options.csv.clone().unwrap_or_else(|| run::root().join("target/staging.csv"));
    let csv = std::path::absolute(csv)?;
    plot("clear", &[])?;
    run::show(run::cargo().args(["bench", "--package", "ringccl-benches", "--bench", "staging"]))?;
    plot("collect", &[("--csv", &csv)])?;
    plot("tables", &[("--csv", &csv)])?;
    match &options.plots {
        Some(folder) => plot("draw", &[("--csv", &csv), ("--out", &std::path::absolute(folder)?)]),
        None => Ok(()),
    }
}

/// Runs the program that makes records of criterion's results.
fn plot(what: &str, options: &[(&str, &Path)]) -> Result<()> {
    let mut command = run::cargo();
    command.args([
        "run",
        "--quiet",
        "--release",
        "--package",
        "ringccl-benches",
        "--bin",
        "plot",
        "--",
        what,
    ]);
    for (name, path) in options {
        command.arg(name).arg(path);
    }
    run::show(&mut command)
}

/// Installs the peers if they are not there, builds, and compares.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.staging {
        return staging(options);
    }
    ensure!(
        options.peers,
        "say --peers to compare, or --staging for the suite of that name; `cargo bench` runs all suites"
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
