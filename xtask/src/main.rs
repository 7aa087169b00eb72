//! Project commands, run as `cargo xtask COMMAND`.

mod bench;
mod conform;
mod demo;
mod fuzz;
mod kill;
mod litmus;
mod loom;
mod nccl;
mod plant;
mod run;
mod settings;
mod sim;
mod soak;
mod test;
mod tidy;
mod torch;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Commands of the RingCCL project.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train the digits on 8 ranks of 2 virtual nodes and leave a report
    Demo(demo::Options),
    /// Every check and test of the project, cheap ones first
    Test(test::Options),
    /// Rules of the source text: sizes, markers, orderings
    Tidy,
    /// The page of settings, written from their table
    Settings(settings::Options),
    /// Model checks of the rings, the waiting and the abort path
    Loom(loom::Options),
    /// Hostile bytes for sockets, files and shared memory, guided by coverage
    Fuzz(fuzz::Options),
    /// The finished libnccl.so.2, under its name
    Nccl(nccl::Options),
    /// Communicators in one thread under a seeded scheduler, with faults
    Sim(sim::Options),
    /// Hardware checks of what model checking does not see
    Litmus(litmus::Options),
    /// Jobs that lose a rank in the middle of an operation, many times
    Kill(kill::Options),
    /// Every operation between processes against its definition: settings, types, reductions, shapes at random
    Conform(conform::Options),
    /// RingCCL beside other libraries in one interleaved run, or what the ways through shared memory cost
    Bench(bench::Options),
    /// Mixed operations of 8 ranks on communicators that come and go: no wrong byte, and nothing grows
    Soak(soak::Options),
    /// The Python package's wheel, with a shim for the torch at hand
    Wheel(torch::Wheel),
    /// PyTorch's own tests of torch.distributed, with gloo and with RingCCL
    Conformance(torch::Conformance),
}

fn main() -> ExitCode {
    match execute(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // One line with all its causes; a backtrace of this program would help nobody.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(options) => demo::run(options),
        Command::Test(options) => test::run(options),
        Command::Tidy => tidy::run(),
        Command::Settings(options) => settings::run(options),
        Command::Loom(options) => loom::run(options),
        Command::Fuzz(options) => fuzz::run(options),
        Command::Nccl(options) => nccl::run(options),
        Command::Sim(options) => sim::run(options),
        Command::Litmus(options) => litmus::run(options),
        Command::Kill(options) => kill::run(options),
        Command::Conform(options) => conform::run(options),
        Command::Bench(options) => bench::run(options),
        Command::Soak(options) => soak::run(options),
        Command::Wheel(options) => torch::wheel(options),
        Command::Conformance(options) => torch::conformance(options),
    }
}
