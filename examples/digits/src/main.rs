//! Trains the digits model, data parallel, and says how good it became.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use digits_ddp::data::Dataset;
use digits_ddp::sync::GradientSync;
use digits_ddp::sync::memory::MemorySync;
use digits_ddp::{EpochReport, Error, TrainOptions, overlap, train};

/// Data-parallel training of a multilayer perceptron on the 1,797 handwritten digits of UCI Optdigits
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// How often the training part is gone through
    #[arg(long, default_value_t = TrainOptions::default().epochs)]
    epochs: usize,
    /// Images per rank and step
    #[arg(long, default_value_t = TrainOptions::default().batch)]
    batch: usize,
    /// Learning rate
    #[arg(long, default_value_t = TrainOptions::default().lr)]
    lr: f32,
    /// Seed of initial weights and shuffles
    #[arg(long, default_value_t = TrainOptions::default().seed)]
    seed: u64,
    /// CSV file of 64 pixels (0 to 16) and a label (0 to 9) per line, instead of the built-in data
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Let successive layers share a gradient bucket of up to this many KiB, instead of one bucket per layer
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    bucket_kib: Option<u32>,
    /// Fail if the test accuracy after training is below this many percent
    #[arg(long, value_name = "PERCENT", default_value_t = 95.0)]
    min_accuracy: f64,
    /// Run this many ranks as threads of this process instead of joining the processes of a job
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Train nothing: read the traces `trace-*.json` in this directory and say how much of the exchange of gradients
    /// ran during the backward pass
    #[arg(long, value_name = "DIR")]
    overlap: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to report to if standard error is closed too.
            let _ = writeln!(std::io::stderr(), "digits-ddp: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints what the traces of a run prove; an error if not one exchange overlapped.
fn report_overlap(dir: &Path) -> Result<()> {
    let list = std::fs::read_dir(dir).with_context(|| format!("cannot read `{}`", dir.display()))?;
    let is_trace = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("trace-") && name.ends_with(".json")
    };
    let mut files: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).filter(is_trace).collect();
    files.sort();
    let found = overlap(&files)?;
    for (bucket, of) in &found.buckets {
        println!(
            "bucket {bucket}: all-reduce began before the backward of layer {} had ended in {} of {} steps",
            bucket - 1,
            of.overlapped,
            of.pairs
        );
    }
    let hidden = 100.0 * found.hidden_us / found.all_reduce_us.max(f64::MIN_POSITIVE);
    println!("{} ranks, {} steps: {hidden:.0} % of the all-reduce time was hidden", found.ranks, found.steps);
    if found.overlapped == 0 {
        bail!("no all-reduce ran during a backward pass");
    }
    Ok(())
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(dir) = &arguments.overlap {
        return report_overlap(dir);
    }
    if !(0.0..=100.0).contains(&arguments.min_accuracy) {
        bail!("--min-accuracy is {}; give 0 to 100 percent", arguments.min_accuracy);
    }
    let options = TrainOptions {
        epochs: arguments.epochs,
        batch: arguments.batch,
        lr: arguments.lr,
        seed: arguments.seed,
        bucket_bytes: arguments.bucket_kib.map(|kib| kib as usize * 1024),
    };
    options.validate()?;
    let data = match &arguments.data {
        Some(file) => Dataset::load(file)?,
        None => Dataset::built_in()?,
    };
    let job = Job { options, data, min_accuracy: arguments.min_accuracy };
    match arguments.threads {
        Some(threads) => job.run_threads(usize::from(threads)),
        None => job.run_processes(),
    }
}

/// What every rank does.
struct Job {
    options: TrainOptions,
    data: Dataset,
    min_accuracy: f64,
}

impl Job {
    /// Joins the processes of the job; a program that was not launched as one is a job of one rank.
    fn run_processes(&self) -> Result<()> {
        match std::env::var_os("WORLD_SIZE") {
            Some(_) => self.run_rank(digits_ddp::sync::ring::RingSync::from_env()?),
            None => self.run_threads(1),
        }
    }

    fn run_threads(&self, nranks: usize) -> Result<()> {
        let group = MemorySync::group(nranks);
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let start = |sync| {
                std::thread::Builder::new()
                    .spawn_scoped(scope, || self.run_rank(sync))
                    .context("cannot start a thread")
            };
            // A rank that could not be started drops its handle, which ends the ranks that wait for it.
            let threads: Vec<_> = group.into_iter().map(start).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(|thread| thread.and_then(join)).collect()
        });
        // The ranks that only lost a peer say less than the one that failed first.
        let mut errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(|error| matches!(error.downcast_ref(), Some(Error::Sync { .. })));
        errors.into_iter().next().map_or(Ok(()), Err)
    }

    fn run_rank<S: GradientSync>(&self, mut sync: S) -> Result<()> {
        let first = sync.rank() == 0;
        let outcome = train(&mut sync, &self.data, &self.options, |report| {
            if first { say(&epoch_line(report)) } else { Ok(()) }
        })?;
        sync.finish()?;
        if first {
            say(&format!("replicas identical: hash {:016x}", outcome.hash))?;
        }
        if outcome.accuracy < self.min_accuracy {
            return Err(Error::Accuracy { accuracy: outcome.accuracy, minimum: self.min_accuracy }.into());
        }
        Ok(())
    }
}

fn epoch_line(report: &EpochReport) -> String {
    let seconds = report.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let communication = report.communication.as_secs_f64();
    format!(
        "epoch {}  loss {:.4}  test accuracy {:.1} %  {:.0} samples/s  communication {:.1} % ({:.2} s)",
        report.epoch,
        report.loss,
        report.accuracy,
        report.samples as f64 / seconds,
        100.0 * communication / seconds,
        communication,
    )
}

/// One line on standard output, written and flushed at once so that a launcher shows it as it comes.
fn say(line: &str) -> digits_ddp::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}
