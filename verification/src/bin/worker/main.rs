//! One rank of an end-to-end check: joins, does what it is told, and reports it as JSON lines.
#![deny(unsafe_code)]

/// Calls a function with the element type of a number.
macro_rules! typed {
    ($number:expr, $($function:ident)::+, $($arg:expr),*) => {
        match $number % 12 {
            0 => $($function)::+::<i8>($($arg),*),
            1 => $($function)::+::<u8>($($arg),*),
            2 => $($function)::+::<i32>($($arg),*),
            3 => $($function)::+::<u32>($($arg),*),
            4 => $($function)::+::<i64>($($arg),*),
            5 => $($function)::+::<u64>($($arg),*),
            6 => $($function)::+::<half::f16>($($arg),*),
            7 => $($function)::+::<half::bf16>($($arg),*),
            8 => $($function)::+::<f32>($($arg),*),
            9 => $($function)::+::<f64>($($arg),*),
            10 => $($function)::+::<ringccl::F8E4M3>($($arg),*),
            _ => $($function)::+::<ringccl::F8E5M2>($($arg),*),
        }
    };
}

mod calls;
mod conform;
mod deadlock;
mod draw;
mod family;
mod held;
mod soak;
mod work;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use ringccl::{Communicator, Config, UniqueId};
use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Instant;
use verification::report::{Event, Report, monotonic_ns};

/// What a worker does after it has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Act {
    /// Checks all-reduce, broadcast and barrier on values that any rank can compute.
    Check,
    /// All-reduces until an error or the limit ends it.
    Loop,
    /// As `loop`, then exits at once, without finalize.
    Exit,
    /// Rank 1 sleeps before the operation for which the others wait.
    Late,
    /// Messages of `--bytes` between rank 0 and each other rank wait in streams while all ranks finalize.
    MailAtEnd,
    /// Rank 1 leaves after the first operation; the others go on.
    Leave,
    /// Rank 1 panics after the first operation, with its communicator alive; the others go on.
    Panic,
    /// Rank 1 ends with exit code 7 in the same place.
    Quit,
    /// A small and a large operation, and the memory after each.
    Memory,
    /// As `loop`; after the error, all but rank 1 make a new communicator and check it for a while.
    Regroup,
    /// Splits in several ways and uses children, their children and the parent in turn.
    Split,
    /// As `loop`; after the error, all but rank 1 shrink the communicator and check what they get.
    Shrink,
    /// As `shrink`, while the old communicator still runs and rank 1 waits in it.
    ShrinkAbort,
    /// Ranks but 1 shrink the communicator; rank 2 excludes rank 3 too.
    ShrinkUnlike,
    /// All but rank 1 split; rank 1 ends before.
    SplitLate,
    /// Grows by as many ranks as there are, checks old and new communicator.
    Grow,
    /// Rank 1 revokes the communicator while the others wait in it; then all shrink it.
    Revoke,
    /// Makes and drops `--ops` communicators in each of five rounds, then holds as many at once.
    Many,
    /// `--ops` operations of every kind with all settings, types and reductions, against what their definitions say.
    Conform,
    /// `--ops` mixed operations by the script that `--seed` draws, all results checked.
    Soak,
    /// The calls that `--calls` lists, but on the odd rank those of `--odd-calls`.
    Calls,
    /// The same with another thread in each process that does nothing, but might.
    ThreadedCalls,
    /// Each rank makes its part of `--calls`; parts are separated by `|`, the last is for all ranks above, too.
    Script,
    /// The same with another thread in each process that does nothing, but might.
    ThreadedScript,
    /// Rank 0 of a job makes communicators for two ranks in its own process, and calls for one of them alone.
    OneThread,
    /// The same with another thread that might call for the other.
    OneThreadOfTwo,
    /// Rank 1 makes a second communicator while the others go on in the first.
    Remake,
}

/// A rank of an end-to-end check.
#[derive(Debug, Parser)]
struct Args {
    /// What to do.
    #[arg(value_enum)]
    act: Act,
    /// Join by a unique id of 128 bytes from standard input instead of the environment's rendezvous.
    #[arg(long)]
    id: bool,
    /// Bytes of an operation of a loop.
    #[arg(long, default_value_t = 8)]
    bytes: usize,
    /// Operations of a loop.
    #[arg(long, default_value_t = u64::MAX)]
    ops: u64,
    /// What the script of a soak is drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Operations of a soak after which it says what it holds.
    #[arg(long, default_value_t = 1000)]
    every: u64,
    /// What every rank of a soak loses at each step, for its test to notice.
    #[arg(long, value_enum)]
    leak: Option<soak::Leak>,
    /// How long the late rank sleeps, in milliseconds.
    #[arg(long, default_value_t = 1000)]
    late_ms: u64,
    /// Calls, as `calls.rs` writes them, separated by blanks.
    #[arg(long, default_value = "")]
    calls: String,
    /// What rank 1 calls instead.
    #[arg(long, default_value = "")]
    odd_calls: String,
}

/// Prints a report; a test that has gone away ends this process too.
fn say(rank: u32, event: Event) -> anyhow::Result<()> {
    let report = Report { rank, at_ns: monotonic_ns(), event };
    let mut line = serde_json::to_vec(&report)?;
    line.push(b'\n');
    // In one piece, since several workers may share the pipe.
    std::io::stdout().lock().write_all(&line).context("cannot report")
}

fn number(name: &str) -> anyhow::Result<u32> {
    let text = std::env::var(name).with_context(|| format!("{name} is not set"))?;
    text.parse().with_context(|| format!("{name}={text}"))
}

fn join(args: &Args) -> anyhow::Result<Result<Communicator, ringccl::Error>> {
    if !args.id {
        return Ok(Communicator::from_env());
    }
    let mut bytes = [0; 128];
    std::io::stdin().lock().read_exact(&mut bytes).context("cannot read an id of 128 bytes")?;
    let (rank, nranks) = (number("RANK")?, number("WORLD_SIZE")?);
    let joined = UniqueId::from_bytes(&bytes)
        .map_err(ringccl::Error::from)
        .and_then(|id| Communicator::init(&id, rank, nranks, Config::from_env(nranks)?));
    Ok(joined)
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("worker: {error:#}");
            ExitCode::from(3)
        }
    }
}

fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let rank = number("RANK")?;
    say(rank, Event::Started)?;
    let start = Instant::now();
    let outcome = join(args)?.map_err(anyhow::Error::from).and_then(|comm| {
        say(rank, Event::Joined { init_ms: start.elapsed().as_secs_f64() * 1e3 })?;
        work::run(args, rank, comm)
    });
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let class = error.downcast_ref::<ringccl::Error>().map(|error| format!("{:?}", error.class()));
            let class = class.unwrap_or_else(|| "Wrong".into());
            say(rank, Event::Failed { class, error: error.to_string() })?;
            Ok(ExitCode::FAILURE)
        }
    }
}
