//! `ringccl topo infer`: which inputs explain the lines of NCCL's log.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ::topo::nccl::infer::{Fit, Log, Origin, Tried, infer};
use ::topo::nccl::log::show_pattern;
use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::print::print;

/// Largest part of a log that is read, in bytes; what the tuner prints at start and the first operations are in it.
const LOG_BYTES_MAX: u64 = 64 << 20;
/// Lines without an explanation that are shown.
const SHOWN_MAX: usize = 20;

/// Options of `ringccl topo infer`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// Log of a run with NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING
    #[arg(value_name = "LOG")]
    log: PathBuf,
    /// Seconds after which the best found so far is told
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Tells the inputs and the lines that they do not explain.
pub(super) fn main(args: &Args) -> Result<ExitCode> {
    let shown = args.log.display();
    let file = File::open(&args.log).with_context(|| format!("cannot read `{shown}`"))?;
    ensure!(file.metadata().is_ok_and(|data| data.is_file()), "`{shown}` is no file; name a log");
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut bytes).with_context(|| format!("cannot read `{shown}`"))?;
    let log = Log::read(&String::from_utf8_lossy(&bytes));
    let (fit, tried) = infer(&log, Duration::from_secs(args.seconds))?;
    print(&if args.json { to_json(&fit, tried)? } else { text(&log, &fit, tried) })?;
    Ok(ExitCode::SUCCESS)
}

fn origin(fit: &Fit) -> String {
    match &fit.origin {
        Origin::Log => "the log's Pattern lines".to_owned(),
        Origin::Machine { name, mbps: None } => format!("the search on {name}"),
        Origin::Machine { name, mbps: Some(mbps) } => {
            format!("the search on {name} with network cards of {} Gbit/s", f64::from(*mbps) / 1000.0)
        }
    }
}

fn text(log: &Log, fit: &Fit, tried: Tried) -> String {
    let setup = fit.tuner.setup();
    let from_log = |known: bool| if known { "from the log" } else { "found" };
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(text, "NCCL               {} ({})", setup.release, from_log(log.release.is_some()));
    let _ = writeln!(text, "ranks              {} ({})", setup.ranks, from_log(log.ranks.is_some()));
    let _ = writeln!(text, "nodes              {} ({})", setup.nodes, from_log(log.nodes.is_some()));
    let _ = writeln!(text, "graphs             {}", origin(fit));
    for graph in [&setup.graphs.ring, &setup.graphs.tree].into_iter().chain(&setup.graphs.nvls) {
        let _ = writeln!(text, "                   {}", show_pattern(graph));
    }
    let _ = writeln!(text, "compute capability {}", setup.compute_capability);
    let _ = writeln!(text, "CPU                {}", setup.cpu);
    if setup.nodes > 1 {
        let ring = &setup.graphs.ring;
        let all = ring.channels as f32 * ring.bw_inter;
        let _ = writeln!(text, "plugin latency     {} us", setup.plugin_latency_us);
        let _ = writeln!(
            text,
            "network of a node  {} channels x {} GB/s = {all} GB/s, {} Gbit/s or more",
            ring.channels,
            ring.bw_inter,
            all * 8.0
        );
    }
    for (name, value) in &log.variables {
        let _ = writeln!(text, "variable           {name}={value}");
    }
    for (i, other) in fit.alike.iter().enumerate() {
        let head = if i == 0 { "explains as much" } else { "" };
        let _ = writeln!(text, "{head:<18} {other}");
    }
    let (explained, all) = (fit.explained.len(), fit.explained.len() + fit.unexplained.len());
    let rest = if tried.is_complete { "" } else { "; time was up before all were tried, see --seconds" };
    let _ = writeln!(text, "explains {explained} of {all} lines; {} combinations{rest}", tried.combinations);
    for number in log.unreadable.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "line {number}: a Pattern line that cannot be read");
    }
    for (line, instead) in fit.unexplained.iter().take(SHOWN_MAX) {
        let _ = writeln!(text, "line {}: not explained; the model says {instead}", line.number);
    }
    if fit.unexplained.len() > SHOWN_MAX {
        let _ = writeln!(text, "and {} more", fit.unexplained.len() - SHOWN_MAX);
    }
    text
}

fn to_json(fit: &Fit, tried: Tried) -> Result<String> {
    let setup = fit.tuner.setup();
    let graphs = [Some(&setup.graphs.ring), Some(&setup.graphs.tree), setup.graphs.nvls.as_ref()];
    let unexplained: Vec<_> = fit
        .unexplained
        .iter()
        .map(|(line, instead)| json!({"line": line.number, "model": instead}))
        .collect();
    let value = json!({
        "schema": "ringccl.infer.v1",
        "nccl": setup.release.to_string(),
        "ranks": setup.ranks,
        "nodes": setup.nodes,
        "graphs_from": origin(fit),
        "graphs": graphs.into_iter().flatten().map(show_pattern).collect::<Vec<_>>(),
        "compute_capability": setup.compute_capability,
        "cpu": setup.cpu.name(),
        "plugin_latency_us": setup.plugin_latency_us,
        "alike": fit.alike,
        "explained": fit.explained.iter().map(|line| line.number).collect::<Vec<_>>(),
        "unexplained": unexplained,
        "combinations": tried.combinations,
        "complete": tried.is_complete,
    });
    Ok(serde_json::to_string_pretty(&value)? + "\n")
}
