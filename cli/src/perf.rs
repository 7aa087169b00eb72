//! `ringccl perf`: time and check a collective over a range of sizes, with nccl-tests' options and columns.

mod layout;
mod measure;
mod pattern;
pub(crate) mod sizes;
mod table;
mod what;

use crate::launch::{self, Job};
use crate::run::place;
use anyhow::{Context, Result, bail, ensure};
use ringccl::{DType, ReduceOp};
use std::process::ExitCode;
use std::str::FromStr;
use what::What;

/// Most ranks of one host.
const RANKS_MAX: u32 = shmring::layout::MAX_MEMBERS;

/// Options of `ringccl perf`.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Args {
    /// Operation: all_reduce, broadcast, reduce, all_gather, reduce_scatter, all_to_all, all_to_all_v, gather, scatter,
    /// all_gather_v, reduce_scatter_v, sendrecv, barrier
    kind: String,
    /// Number of ranks, 1 to 1024
    #[arg(short = 'n', long = "ranks", default_value = "2", allow_hyphen_values = true)]
    ranks: String,
    /// Smallest size in bytes; K, M, G are powers of 1024
    #[arg(short = 'b', long = "minbytes", default_value = "8")]
    min_bytes: String,
    /// Largest size in bytes
    #[arg(short = 'e', long = "maxbytes", default_value = "128M")]
    max_bytes: String,
    /// Factor between sizes
    #[arg(short = 'f', long = "stepfactor", conflicts_with = "step_bytes")]
    step_factor: Option<u64>,
    /// Increment between sizes in bytes
    #[arg(short = 'i', long = "stepbytes")]
    step_bytes: Option<String>,
    /// Element type: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16, fp8_e4m3, fp8_e5m2
    #[arg(short = 'd', long = "datatype", default_value = "float")]
    datatype: String,
    /// Reduction: sum, prod, max, min, avg, mulsum; of integers also band, bor, bxor
    #[arg(short = 'o', long = "op", default_value = "sum")]
    op: String,
    /// Root rank of broadcast, reduce, gather, scatter
    #[arg(short = 'r', long = "root", default_value_t = 0)]
    root: u32,
    /// Check every element on every rank: 1 or 0
    #[arg(short = 'c', long = "check", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    check: u8,
    /// Register the buffers, so that ranks use each other's memory without copies: 1 or 0
    #[arg(short = 'R', long = "local_register", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=1))]
    register: u8,
    /// Iterations before timing
    #[arg(short = 'w', long = "warmup_iters", default_value_t = 5)]
    warmup: u32,
    /// Timed iterations
    #[arg(long = "iters", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iters: u32,
    /// Processor cores of the ranks: `even` gives each one core [default: none]
    #[arg(long, value_name = "HOW", value_parser = ["none", "even"])]
    bind: Option<String>,
    /// One JSON object per point instead of a table
    #[arg(long)]
    json: bool,
    /// Run as one of the ranks (set by perf itself)
    #[arg(long, hide = true)]
    as_rank: bool,
}

/// What is measured, after all options have been checked.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    kind: What,
    ranks: u32,
    sizes: Vec<u64>,
    dtype: DType,
    op: ReduceOp,
    check: bool,
    /// Whether buffers are registered memory.
    register: bool,
    warmup: u32,
    iters: u32,
    json: bool,
}

/// Starts the ranks, or runs as one of them.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let spec = Spec::new(&args)?;
    if args.as_rank {
        return measure::rank_main(&spec);
    }
    sizes::ensure_memory(&spec)?;
    // A bad setting is one error here instead of one of each rank.
    ringccl::Config::from_env(spec.ranks)?;
    let program = std::env::current_exe().context("cannot find the program's own file")?;
    let mut command = vec![program.into_os_string()];
    command.extend(std::env::args_os().skip(1));
    command.push("--as-rank".into());
    let mut job = Job::new(command, place(spec.ranks, None));
    job.prefix = false;
    job.ranks_explain = true;
    if let Some(bind) = args.bind {
        job.env.push(("RINGCCL_BIND".into(), bind.into()));
    }
    Ok(launch::launch(&job)?.into())
}

impl Spec {
    fn new(args: &Args) -> Result<Self> {
        let Some(kind) = What::ALL.into_iter().find(|what| what.name() == args.kind) else {
            bail!("unknown operation `{}`; use one of {}", args.kind, What::ALL.map(What::name).join(", "));
        };
        let ranks = match args.ranks.parse::<u32>() {
            Ok(ranks) if (1..=RANKS_MAX).contains(&ranks) => ranks,
            _ => bail!("-n {}: the number of ranks is a whole number from 1 to {RANKS_MAX}", args.ranks),
        };
        let dtype =
            DType::from_str(&args.datatype).map_err(|e| anyhow::anyhow!("-d {}: {e}", args.datatype))?;
        let op = match args.op.as_str() {
            // nccl-tests' name and ours.
            "mulsum" | "premulsum" => pattern::pre_mul_sum(dtype, 0),
            name => ReduceOp::from_str(name).map_err(|e| {
                anyhow::anyhow!("-o {name}: {e}, or mulsum, a sum with a factor of each rank")
            })?,
        };
        op.check(dtype).map_err(|e| anyhow::anyhow!("-o {}: {e}", args.op))?;
        ensure!(args.root < ranks, "-r {}: the root is a rank below {ranks}", args.root);
        let kind = kind.with_root(args.root);
        let sizes = if kind == What::BARRIER { vec![0] } else { sizes::list(args, dtype)? };
        Ok(Self {
            kind,
            ranks,
            sizes,
            dtype,
            op,
            check: args.check == 1,
            register: args.register == 1,
            warmup: args.warmup,
            iters: args.iters,
            json: args.json,
        })
    }

    /// Name of the reduction in tables, as nccl-tests prints it.
    fn redop(&self) -> &'static str {
        if self.kind.reduces() { self.op.name() } else { "none" }
    }
}
