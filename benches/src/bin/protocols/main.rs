//! Which protocol and which algorithm is the fastest all-reduce, by size and number of ranks.
//!
//! Runs `ringccl perf all_reduce --json` with `RINGCCL_ALGO` and `RINGCCL_PROTO` set to one case after another, in
//! rounds that alternate their order: what slows the machine for a while slows all cases alike. The limits in
//! the runtime's plan selection are read from these tables.

mod race;
mod table;

use anyhow::{Context, Result};
use clap::Parser;
use race::{Case, Sample, Span};
use ringccl_benches::{launch, record};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Times all-reduce in every protocol and algorithm, and says which wins at each size
#[derive(Debug, Parser)]
#[command(name = "protocols", version)]
struct Args {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1024))]
    ranks: Vec<u32>,
    /// Sizes, as FIRST:LAST:FACTOR; a launch measures one such span
    #[arg(long, value_delimiter = ',', default_value = "8:512:4,2K:128K:4,512K:8M:4,64M:64M:2")]
    sizes: Vec<Span>,
    /// Rounds over all cases
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Iterations of a point, as a multiple of the usual number (3 at 64 MiB up to 200 below 256 KiB)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    effort: u32,
    /// LL beyond 4 KiB and LL128 beyond 32 KiB, too: minutes per point with many ranks
    #[arg(long)]
    all: bool,
    /// Processor cores of the ranks, as for `ringccl perf`: none, even
    #[arg(long, default_value = "even")]
    bind: String,
    /// Seconds that one launch may take
    #[arg(long, default_value_t = 300)]
    deadline: u64,
    /// The `ringccl` program [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    ringccl: Option<PathBuf>,
    /// Append every sample here, as JSON lines
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Append the medians to this record
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("protocols: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    let ringccl = launch::find_ringccl(args.ringccl.as_deref())?;
    let start = Instant::now();
    let mut samples = Vec::new();
    for round in 0..args.rounds {
        for &ranks in &args.ranks {
            for span in &args.sizes {
                for case in in_turn(round) {
                    let Some(span) = span.up_to(case.largest(args.all)) else { continue };
                    let measured = race::measure(&ringccl, case, ranks, &span, round, args);
                    let rows = measured.with_context(|| format!("{ranks} ranks, {}, {span}", case.name))?;
                    if let Some(path) = &args.out {
                        record::append_json(path, &rows)?;
                    }
                    samples.extend(rows);
                }
            }
        }
        eprintln!("round {} of {} done after {:.0?}", round + 1, args.rounds, start.elapsed());
    }
    for &ranks in &args.ranks {
        table::print(ranks, args.rounds, &samples);
    }
    if let Some(path) = &args.csv {
        record::append_csv(path, &table::records(&args.ranks, &samples))?;
    }
    Ok(())
}

/// All cases, in every other round from the last to the first.
fn in_turn(round: u32) -> Vec<&'static Case> {
    let mut cases: Vec<&Case> = Case::ALL.iter().collect();
    if round % 2 == 1 {
        cases.reverse();
    }
    cases
}

/// The samples of one case at one point, out of place: the figures that the tables show.
fn of<'a>(
    samples: &'a [Sample],
    case: &'a Case,
    ranks: u32,
    bytes: u64,
) -> impl Iterator<Item = &'a Sample> + 'a {
    samples.iter().filter(move |s| {
        s.case == case.name && s.ranks == ranks && s.point.bytes == bytes && !s.point.inplace
    })
}
