//! The command line of `sim`.

use clap::{Parser, ValueEnum};
use simulator::campaign::{self, FAULTS, Limits, Tally};
use simulator::machine::Mode;
use simulator::run::{describe, explain, run};
use simulator::scenario::Scenario;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Runs all ranks in one thread, once per seed.
#[derive(Debug, Parser)]
struct Options {
    /// Run this seed only and show what happened last
    #[arg(long)]
    seed: Option<u64>,
    /// Longest time of a campaign
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Most seeds of a campaign
    #[arg(long, default_value_t = u64::MAX)]
    seeds: u64,
    /// First seed of a campaign; by default the time of day decides
    #[arg(long)]
    first: Option<u64>,
    /// Whether stores become visible late
    #[arg(long, value_enum, default_value_t = StoreBuffer::Mixed)]
    store_buffer: StoreBuffer,
    /// Threads of a campaign; by default one per core
    #[arg(long)]
    threads: Option<usize>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StoreBuffer {
    On,
    Off,
    Mixed,
}

impl StoreBuffer {
    fn mode(self) -> Mode {
        match self {
            Self::On => Mode::On,
            Self::Off => Mode::Off,
            Self::Mixed => Mode::Mixed,
        }
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
    }
}

/// Does what the command line says.
pub(crate) fn main() -> ExitCode {
    let options = Options::parse();
    // A panic of a rank is part of the report of its seed.
    std::panic::set_hook(Box::new(|_| {}));
    match options.seed {
        Some(seed) => one(seed, options.store_buffer),
        None => many(&options),
    }
}

fn one(seed: u64, stores: StoreBuffer) -> ExitCode {
    let scenario = Scenario::new(seed, stores.mode());
    let outcome = run(&scenario, 0);
    match outcome.failure {
        Some(failure) => {
            println!("{}", explain(seed, stores.mode(), &failure));
            ExitCode::FAILURE
        }
        None => {
            let mut text = String::new();
            describe(&mut text, &scenario);
            let time = outcome.time as f64 / 1e6;
            println!("seed {seed}: nothing wrong, {} accesses, {time:.3} ms\n{text}", outcome.steps);
            ExitCode::SUCCESS
        }
    }
}

fn many(options: &Options) -> ExitCode {
    let today = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let limits = Limits {
        first: options.first.unwrap_or_else(|| today() << 24),
        seeds: options.seeds,
        time: Duration::from_secs(options.seconds),
        threads: options.threads.unwrap_or(cores),
        mode: options.store_buffer.mode(),
    };
    let start = Instant::now();
    let tally = campaign::run(&limits);
    report(&tally, limits.first, start.elapsed());
    match (&tally.failed, tally.explain(limits.mode)) {
        (Some((seed, _)), Some(text)) => {
            let stores = options.store_buffer.name();
            println!("{text}\nreplay: cargo xtask sim --seed {seed} --store-buffer {stores}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

fn report(tally: &Tally, first: u64, took: Duration) {
    let rate = tally.seeds as f64 / took.as_secs_f64();
    println!(
        "{} seeds from {first} on in {:.1} s: {rate:.0} seeds/s, {} accesses a seed",
        tally.seeds,
        took.as_secs_f64(),
        tally.steps / tally.seeds.max(1)
    );
    println!(
        "{:<11} {:>9} seeds: slow at most, and none may be called a deadlock",
        "groups and streams", tally.mixed
    );
    for ((name, (all, felt)), longest) in FAULTS.iter().zip(tally.faults).zip(tally.longest) {
        let longest = longest / 1_000_000;
        println!("{name:<11} {all:>9} seeds, felt in {felt:>9}, longest simulated run {longest:>6} ms");
    }
}
