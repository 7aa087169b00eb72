//! The `ringccl` command: one file per subcommand, and what they share.

mod coordinator;
mod doctor;
mod launch;
mod perf;
mod predict;
mod preload;
mod print;
mod run;
mod topo;
mod tune;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ringccl::settings::table::LogLevel;
use ringccl::settings::{Vars, table};
use tracing::level_filters::LevelFilter;

/// Collective communication between the ranks of one host, on the cluster of your choice.
#[derive(Parser)]
#[command(name = "ringccl", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start N copies of a command as the ranks of a job, and end them together
    Run(run::Args),
    /// Run a command with RingCCL's libnccl.so.2 in place of NVIDIA's
    Env(preload::Args),
    /// Time and check a collective over a range of sizes
    Perf(perf::Args),
    /// Tell what NCCL would choose for an operation on a cluster, and why
    Predict(predict::Args),
    /// Check a cluster file, or show what it describes
    Topo(topo::Args),
    /// Measure which algorithm is the fastest here from which size on, and keep it for all communicators
    Tune(tune::Args),
    /// Show every setting and where it comes from, the machine, what will be used and what to fix
    Doctor(doctor::Args),
    /// Be the place where ranks meet, or ask the one that is
    Coordinator(coordinator::Args),
    /// Watch over the ranks of a job (started by `run`, not by hand)
    #[command(name = launch::KEEPER, hide = true)]
    Keeper(launch::KeeperArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let level = table::LOG.get(&Vars::of_process());
    start_log(*level.as_ref().unwrap_or(&None));
    let result = match cli.command {
        Command::Doctor(args) => doctor::main(args),
        _ if let Err(bad) = level => Err(bad.into()),
        Command::Run(args) => run::main(args),
        Command::Env(args) => preload::main(args),
        Command::Perf(args) => perf::main(args),
        Command::Predict(args) => predict::main(args),
        Command::Topo(args) => topo::main(args),
        Command::Tune(args) => tune::main(args),
        Command::Coordinator(args) => coordinator::main(args),
        Command::Keeper(args) => launch::keeper_main(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("ringccl: {}", one_line(&error));
        ExitCode::FAILURE
    })
}

/// The error and its causes in one line. Most messages of the libraries name their cause themselves; it is not
/// said twice.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

/// Log lines of the libraries go to stderr: peers that were dropped, ranks that were refused.
fn start_log(level: Option<LogLevel>) {
    let level = match level.unwrap_or(LogLevel::Warn) {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false)
        .with_ansi(false)
        .without_time()
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_said_once() {
        // A message that holds its cause stands alone; one that does not is followed by it.
        let cause = || anyhow::anyhow!("disk full");
        assert_eq!(
            one_line(&cause().context("rank 3: disk full; free some")),
            "rank 3: disk full; free some"
        );
        assert_eq!(one_line(&cause().context("cannot write `a`")), "cannot write `a`: disk full");
    }
}
