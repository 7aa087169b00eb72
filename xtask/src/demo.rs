//! `cargo xtask demo`: data-parallel training on 8 rank processes of 2 virtual nodes.

use crate::run;
use anyhow::{Context, Result, bail};
use std::process::Command;

const CLUSTER: &str = "examples/digits/cluster.yaml";
const TRAINER: &str = "target/release/digits-ddp";

/// Options of the demonstration.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Ranks; the cluster file describes two nodes of four
    #[arg(short = 'n', long, default_value_t = 8)]
    ranks: u32,
    /// Arguments for the training program
    #[arg(last = true)]
    training: Vec<String>,
}

/// Builds launcher and trainer, runs them, and says what they left.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = run::root();
    let mut build = run::cargo();
    build.args(["build", "--release", "--package", "ringccl-cli", "--package", "digits-ddp"]);
    run::show(&mut build)?;

    let left = root.join("target/demo");
    if left.exists() {
        std::fs::remove_dir_all(&left).with_context(|| format!("cannot clear {}", left.display()))?;
    }
    let trace = left.join("trace");
    let report = left.join("cluster_report.json");
    std::fs::create_dir_all(&trace).with_context(|| format!("cannot make {}", trace.display()))?;

    let mut launch = Command::new("target/release/ringccl");
    launch.current_dir(&root);
    launch.args(["run", "-n", &options.ranks.to_string(), "--cluster", CLUSTER]);
    launch.args(["--", TRAINER]).args(&options.training);
    launch.env("RINGCCL_TRACE", &trace).env("RINGCCL_REPORT", &report);
    println!("{} ranks as {CLUSTER} describes them: {}", options.ranks, run::line(&launch));
    run::show(&mut launch)?;

    if !report.is_file() {
        bail!("the training ended without target/demo/cluster_report.json");
    }
    let mut proof = Command::new(TRAINER);
    run::show(proof.current_dir(&root).arg("--overlap").arg(&trace))?;
    println!("report: target/demo/cluster_report.json, traces of the ranks: target/demo/trace");
    Ok(())
}
