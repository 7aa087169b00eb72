//! `ringccl predict`: what NCCL would choose for an operation on a cluster, by which numbers, and what would change it.

mod grid;
mod json;
mod links;
mod plot;
mod source;
mod sweep;
mod text;
mod versus;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;

use ::topo::links::{Model, Prediction};
use ::topo::nccl::release::Release;
use ::topo::nccl::tuner::{Choice, Collective, Operation, Spread, Tuner};
use anyhow::{Context, Result, ensure};

use crate::perf::sizes::bytes;
use crate::print::print;

use self::source::Source;

/// Largest size that is taken; the model itself has no limit.
const BYTES_MAX: u64 = 1 << 44;

/// Options of `ringccl predict`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A machine by name; an unknown name lists them
    #[arg(long, value_name = "NAME", conflicts_with = "graph")]
    profile: Option<String>,
    /// A cluster file (YAML): its machines, its release of NCCL and its variables
    #[arg(long, value_name = "FILE")]
    #[arg(conflicts_with_all = ["profile", "graph", "nodes", "nodes_per_leaf", "oversubscription", "rails", "collnet"])]
    cluster: Option<PathBuf>,
    /// Ranks of the cluster file instead of all, such as 0-7,16
    #[arg(long, value_name = "LIST", requires = "cluster")]
    ranks: Option<String>,
    /// A file (YAML) with descriptions of machines; --profile names one of them
    #[arg(long, value_name = "FILE", requires = "profile")]
    machines: Option<PathBuf>,
    /// A file (YAML) with the graphs as a log of NCCL prints them
    #[arg(long, value_name = "FILE")]
    graph: Option<PathBuf>,
    /// Nodes of the profile
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "graph")]
    nodes: u32,
    /// Release of NCCL, 2.18.1 to 2.30.7 [default: the cluster file's, or 2.30.7]
    #[arg(long, value_name = "RELEASE")]
    nccl: Option<Release>,
    /// all_reduce, broadcast, reduce, all_gather or reduce_scatter
    #[arg(long, value_name = "NAME", default_value = "all_reduce")]
    collective: Collective,
    /// Size of the operation as nccl-tests counts it: for all_gather and reduce_scatter, of all ranks together
    #[arg(long, value_name = "SIZE")]
    bytes: Option<String>,
    /// A variable of NCCL; may be given again
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Another release, or NAME=VALUE, to compare with
    #[arg(long, value_name = "RELEASE|NAME=VALUE")]
    versus: Option<String>,
    /// Write a table (CSV) and a plot (SVG) over sizes from 8 bytes to 8 GiB, or MIN..MAX
    #[arg(long, value_name = "MIN..MAX", num_args = 0..=1, default_missing_value = "8..8G", require_equals = true)]
    sweep: Option<String>,
    /// Sweep over numbers of nodes: a list such as 1,2,8, or FIRST..LAST, doubled each time
    #[arg(long, value_name = "LIST", conflicts_with = "graph")]
    sweep_nodes: Option<String>,
    /// Sweep over speeds of all network ports, such as 100Gb/s,200Gb/s,400Gb/s
    #[arg(long, value_name = "LIST", conflicts_with = "graph")]
    sweep_nic: Option<String>,
    /// Where a sweep writes: this name with .csv and .svg behind it [default: predict]
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Nodes that share a leaf switch
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes_per_leaf: u32,
    /// How much less a leaf's way to the spine carries than the ports below it, 2 for half
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    oversubscription: f64,
    /// Leaf switches have one port of each node (rails) instead of all ports of some
    #[arg(long)]
    rails: bool,
    /// A network that reduces (SHARP): CollNet, and NVLS between nodes
    #[arg(long, conflicts_with = "graph")]
    collnet: bool,
    /// Data and reduction that an NVSwitch cannot reduce, such as products
    #[arg(long)]
    no_nvls_reduction: bool,
    /// Elements are floats of 8 bits
    #[arg(long)]
    fp8: bool,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["sweep", "sweep_nodes", "sweep_nic"])]
    json: bool,
}

/// The answers of tuner and link model, and what was asked.
pub(crate) struct Answer {
    model: Model,
    operation: Operation,
    choice: Choice,
    spread: Spread,
    predicted: Prediction,
}

impl Args {
    /// The table and the picture of a sweep.
    fn files(&self) -> (PathBuf, PathBuf) {
        let with_end = |end: &str| {
            let mut name = self.output.clone().unwrap_or_else(|| "predict".into()).into_os_string();
            name.push(end);
            PathBuf::from(name)
        };
        (with_end(".csv"), with_end(".svg"))
    }
}

/// Predicts one operation, or a range of sizes.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let source = Source::new(&args)?;
    if args.sweep_nodes.is_some() || args.sweep_nic.is_some() {
        print(&grid::write(&source, &args)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(range) = &args.sweep {
        print(&sweep::write(&source, &args, range)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        args.output.is_none(),
        "--output is where a sweep writes; add --sweep, --sweep-nodes or --sweep-nic"
    );
    let size = args.bytes.as_deref().context("give --bytes, or --sweep")?;
    let size = bytes("--bytes", size)?;
    ensure!(size <= BYTES_MAX, "--bytes {size}: sizes end at 16 TiB");
    let (answer, other) = both(&source, &args, size);
    let (answer, other) = (answer?, other.transpose()?);
    let text = if args.json {
        json::answer(&answer, other.as_ref())?
    } else {
        let mut text = text::answer(&answer);
        if let Some(other) = &other {
            text.push_str(&versus::compare(&answer, other, args.versus.as_deref().unwrap_or_default()));
        }
        text
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The answer and the one to compare it with, at the same time: each may need a search of its own.
fn both(source: &Source, args: &Args, size: u64) -> (Result<Answer>, Option<Result<Answer>>) {
    thread::scope(|scope| {
        let other =
            args.versus.as_deref().map(|versus| scope.spawn(|| versus::other(source, args, versus, size)));
        let answer = source.model(source.release(), &[]).and_then(|model| Answer::new(model, args, size));
        let other = other.map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        (answer, other)
    })
}

impl Answer {
    fn new(model: Model, args: &Args, size: u64) -> Result<Self> {
        let tuner = model.tuner();
        let operation = operation(tuner, args, size);
        let choice = tuner.choose(operation)?;
        let spread = tuner.spread(operation, choice.best.algorithm, choice.best.protocol);
        let predicted = model.predict(operation)?;
        Ok(Self { operation, choice, spread, predicted, model })
    }

    fn tuner(&self) -> &Tuner {
        self.model.tuner()
    }

    /// The line that NCCL prints, if it prints one.
    fn line(&self) -> Option<String> {
        self.tuner().line(self.operation, &self.choice.best, self.spread)
    }
}

/// The operation of a size; whole parts for all ranks, as nccl-tests has it.
fn operation(tuner: &Tuner, args: &Args, size: u64) -> Operation {
    let ranks = u64::from(tuner.setup().ranks);
    let whole = if args.collective.counts_all_ranks() { size / ranks * ranks } else { size };
    let operation = Operation::new(args.collective, whole);
    Operation { nvls_reduces: !args.no_nvls_reduction && !args.fp8, fp8: args.fp8, ..operation }
}
