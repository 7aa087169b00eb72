//! What waiting ranks cost the one that computes, and how much CPU time they use.
//!
//! Rank 0 computes for a given time while the others wait for it in an all-reduce of 8 bytes, over and over. The
//! same computation is timed with nobody waiting, before the ranks meet and after they have parted.

mod rank;
mod work;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use rank::Row;
use ringccl_benches::figures::{round3, short};
use ringccl_benches::machine::{Neighbours, QUIET_CORES, usable_cores};
use ringccl_benches::{launch, record};
use serde::Serialize;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Times a computing rank while the others wait for it, and the CPU time that they burn meanwhile
#[derive(Debug, Parser)]
#[command(name = "straggler", version)]
struct Args {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// How long rank 0 computes, in microseconds
    #[arg(long, value_delimiter = ',', default_value = "20,200,2000,20000,200000")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    compute_us: Vec<u64>,
    /// Computing time spent on a point, in milliseconds; at least 5 and at most 2000 iterations
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    budget_ms: u64,
    /// Processor cores of the ranks, as for `ringccl run`: none, even
    #[arg(long, default_value = "none")]
    bind: String,
    /// Seconds that one launch may take
    #[arg(long, default_value_t = 300)]
    deadline: u64,
    /// The `ringccl` program [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    ringccl: Option<PathBuf>,
    /// Append every row here, as JSON lines
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Append the figures to this record
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Run as one of the ranks (set by the program itself)
    #[arg(long, hide = true)]
    as_rank: bool,
}

/// A row with what the launch as a whole was disturbed by.
#[derive(Debug, Serialize)]
struct Found {
    #[serde(flatten)]
    row: Row,
    /// Cores that other programs kept busy during the launch.
    foreign_cpus: f64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = if args.as_rank { rank::main(&args.compute_us, args.budget_ms) } else { run(&args) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("straggler: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let ringccl = launch::find_ringccl(args.ringccl.as_deref())?;
    let mut all = Vec::new();
    for &ranks in &args.ranks {
        let found = measure(&ringccl, ranks, args).with_context(|| format!("{ranks} ranks"))?;
        print(ranks, &found);
        if let Some(path) = &args.out {
            record::append_json(path, &found)?;
        }
        all.extend(found);
    }
    if let Some(path) = &args.csv {
        let rows: Vec<record::Row> = all.iter().flat_map(|found| records(&found.row)).collect();
        record::append_csv(path, &rows)?;
    }
    Ok(())
}

/// Launches the ranks, which are this program again.
fn measure(ringccl: &Path, ranks: u32, args: &Args) -> Result<Vec<Found>> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let times: Vec<String> = args.compute_us.iter().map(u64::to_string).collect();
    let mut command = Command::new(ringccl);
    command.args(["run", "--no-prefix", "-n", &ranks.to_string(), "--bind", &args.bind]);
    // The others wait for rank 0, which computes alone before it joins them.
    command.args(["--timeout-start", &args.deadline.to_string(), "--"]);
    command.arg(own).args(["--as-rank", "--compute-us", &times.join(",")]);
    command.args(["--budget-ms", &args.budget_ms.to_string()]);
    let neighbours = Neighbours::watch()?;
    let rows: Vec<Row> = launch::json_lines(&mut command, Duration::from_secs(args.deadline))?;
    let foreign_cpus = round3(neighbours.cores()?);
    ensure!(
        rows.len() == args.compute_us.len(),
        "{} rows came back for {} times",
        rows.len(),
        args.compute_us.len()
    );
    Ok(rows.into_iter().map(|row| Found { row, foreign_cpus }).collect())
}

fn print(ranks: u32, found: &[Found]) {
    let cores = usable_cores();
    let over =
        if ranks as usize > cores { format!(", more ranks than the {cores} cores") } else { String::new() };
    let noise = if found.iter().any(|f| f.foreign_cpus > QUIET_CORES) {
        "; ~ other programs took CPU time"
    } else {
        ""
    };
    println!();
    println!("# {ranks} ranks{over}{noise}: us per iteration, measured");
    println!("{LEGEND}");
    let (wall, cpu) = (["alone", "awaited", "p99"], ["waiters", "share", "yields", "sleeps"]);
    println!("{}", line(["compute", "iters"], wall, ["slower", "(mean)", "reduce"], cpu));
    for Found { row, .. } in found {
        let us = |value| short(Some(value));
        let asked = [row.compute_us.to_string(), row.iterations.to_string()];
        let wall = [us(row.alone_us), us(row.awaited_us), us(row.awaited_p99_us)];
        let ratios = [format!("{:.3}", row.slowdown), format!("{:.3}", row.slowdown_mean), us(row.reduce_us)];
        let share = format!("{:.1}%", row.waiter_share * 100.0);
        let waiters = [us(row.waiters_cpu_us), share, us(row.yields_per_wait), us(row.sleeps_per_wait)];
        println!("{}", line(asked, wall, ratios, waiters));
    }
}

/// What the columns are.
const LEGEND: &str = "\
# alone, awaited, p99: rank 0's computation while nobody waits, and while the others do; medians, and 99 of 100
# slower: awaited / alone, of medians and of means; reduce: rank 0's time in the all-reduce, median
# waiters: CPU time of all waiting ranks, and share of a core that one of them uses; yields, sleeps: of one of them";

/// One line of the table: what was asked for, wall times, ratios and the all-reduce, what the waiters spent.
fn line<T: Display>(asked: [T; 2], wall: [T; 3], ratios: [T; 3], waiters: [T; 4]) -> String {
    let cells = asked.iter().chain(&wall).chain(&ratios).chain(&waiters);
    cells.map(|cell| format!("{cell:>8} ")).collect::<String>().trim_end().to_owned()
}

/// Two lines of a record: the computation alone, and awaited; the CPU time is that of the computation, and of
/// all ranks together.
fn records(row: &Row) -> [record::Row; 2] {
    let line = |what: &str, ranks, median_us, p99_us, cpu_us| {
        let op = format!("compute_{}us_{what}", row.compute_us);
        record::Row { peer: "ringccl".into(), op, ranks, bytes: 8, median_us, p99_us, cpu_us, ok: true }
    };
    let all = row.awaited_cpu_us + row.waiters_cpu_us;
    [
        line("alone", 1, row.alone_us, row.alone_p99_us, row.alone_cpu_us),
        line("awaited", row.ranks, row.awaited_us, row.awaited_p99_us, all),
    ]
}
