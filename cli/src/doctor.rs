//! `ringccl doctor`: every setting and its origin, the machine, what will be used, and what to fix.
//!
//! ```text
//! settings    the table with values and origins
//! machine     what this process may use of the machine
//! used        what a job of -n ranks would run with
//! coordinator what the one that the variables name answers
//! findings    judged from the three: each with its remedy
//! text        all of it for people; --json has the same
//! ```

mod coordinator;
mod findings;
mod machine;
mod probe;
mod settings;
mod text;
mod used;

use crate::print::print;
use crate::run::seconds;
use anyhow::Result;
use findings::{Finding, Level};
use machine::Machine;
use ringccl::settings::{Vars, resolve};
use serde::Serialize;
use settings::Line;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use used::Used;

/// Most ranks of a communicator.
const RANKS_MAX: u32 = shmring::layout::MAX_MEMBERS;

/// Options of `ringccl doctor`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of ranks to judge for, 1 to 1024 [default: the world size of the cluster file, or 8]
    #[arg(short = 'n', long = "ranks", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(RANKS_MAX)))]
    ranks: Option<u32>,
    /// As for `ringccl run`
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// As for `ringccl run`
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout_start: Option<Duration>,
    /// As for `ringccl run`
    #[arg(long, value_name = "HOW")]
    bind: Option<String>,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
    /// Print the reference of all settings, `docs/settings.md`, and nothing else
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// Everything that is shown.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Whether a job could run.
    ok: bool,
    ranks: u32,
    settings: Vec<Line>,
    machine: Machine,
    used: Option<Used>,
    findings: Vec<Finding>,
}

/// Shows the report; the exit code is 1 where something would keep a job from running.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    if args.markdown {
        print(&ringccl::settings::page())?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = examine(&args, Vars::of_process());
    let shown = if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { text::render(&report) };
    print(&shown)?;
    Ok(if report.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(args: &Args, mut vars: Vars) -> Report {
    if let Some(path) = &args.cluster {
        vars.set_by_option("RINGCCL_CLUSTER_CONFIG", path, "--cluster");
    }
    if let Some(time) = args.timeout_start {
        vars.set_by_option("RINGCCL_JOIN_TIMEOUT_MS", time.as_millis().to_string(), "--timeout-start");
    }
    if let Some(bind) = &args.bind {
        vars.set_by_option("RINGCCL_BIND", bind, "--bind");
    }
    let cluster = findings::cluster(&vars);
    let of_file = cluster.as_ref().and_then(|file| file.as_ref().ok()).map(topo::Cluster::world_size);
    let ranks = args.ranks.or(of_file).unwrap_or(8).clamp(1, RANKS_MAX);
    let resolved = resolve(ranks, &vars);
    let machine = Machine::look(&resolved.config.shm_dir);
    let used = Used::of(&resolved.config, ranks, &machine);
    let mut findings = findings::of_settings(&vars, &resolved);
    findings.extend(findings::of_files(&resolved.config, &vars, cluster, args.ranks));
    findings.extend(findings::of_machine(&machine, used.as_ref(), ranks));
    findings.extend(coordinator::ask(&vars));
    findings.sort_by_key(|finding| finding.level);
    let ok = !findings.iter().any(|finding| finding.level == Level::Error);
    Report { ok, ranks, settings: settings::lines(&vars, ranks), machine, used, findings }
}
