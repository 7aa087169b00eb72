//! Many seeds, on all threads that are wanted.

use crate::machine::Mode;
use crate::run::{self, explain};
use crate::scenario::{Fault, Scenario};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How much to run.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The first seed.
    pub first: u64,
    /// Most seeds.
    pub seeds: u64,
    /// Longest time.
    pub time: Duration,
    /// Threads.
    pub threads: usize,
    /// When stores become visible.
    pub mode: Mode,
}

/// What a campaign has found.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Seeds that ran.
    pub seeds: u64,
    /// Accesses to shared memory in all of them.
    pub steps: u64,
    /// Seeds of each fault: without, death, stall, late start, abort, mismatch; and those in which it was felt.
    pub faults: [(u64, u64); 6],
    /// Seeds of programs that are right, however slow, and use groups or streams.
    pub mixed: u64,
    /// The longest simulated time of a seed of each fault, in nanoseconds.
    pub longest: [u64; 6],
    /// The first failing seed and what is wrong.
    pub failed: Option<(u64, String)>,
}

/// Names of the entries of [`Tally::faults`].
pub const FAULTS: [&str; 6] = ["none", "death", "stall", "late start", "abort", "mismatch"];

/// Runs seeds until a limit is reached or one fails.
pub fn run(limits: &Limits) -> Tally {
    let shared = Mutex::new((limits.first, Tally::default()));
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..limits.threads.max(1) {
            scope.spawn(|| while one_seed(limits, start, &shared) {});
        }
    });
    shared.into_inner().unwrap_or_else(PoisonError::into_inner).1
}

/// Runs the next seed; whether there is another.
fn one_seed(limits: &Limits, start: Instant, shared: &Mutex<(u64, Tally)>) -> bool {
    let seed = {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = shared.0;
        if seed - limits.first >= limits.seeds || start.elapsed() >= limits.time || shared.1.failed.is_some()
        {
            return false;
        }
        shared.0 += 1;
        seed
    };
    let scenario = Scenario::new(seed, limits.mode);
    let outcome = run::run(&scenario, 0);
    let kind = match scenario.fault {
        Fault::None => 0,
        Fault::Death { .. } => 1,
        Fault::Stall { .. } => 2,
        Fault::Late { .. } => 3,
        Fault::Abort { .. } => 4,
        Fault::Mismatch { .. } => 5,
    };
    let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let tally = &mut shared.1;
    tally.seeds += 1;
    tally.steps += outcome.steps;
    // Only such programs have any.
    tally.mixed += u64::from(scenario.mixes() > 0);
    tally.longest[kind] = tally.longest[kind].max(outcome.time);
    tally.faults[kind].0 += 1;
    tally.faults[kind].1 += u64::from(outcome.fault_felt);
    if let Some(failure) = outcome.failure
        && tally.failed.as_ref().is_none_or(|(earlier, _)| seed < *earlier)
    {
        tally.failed = Some((seed, failure));
    }
    true
}

impl Tally {
    /// The report of a failure, by running the seed again.
    pub fn explain(&self, mode: Mode) -> Option<String> {
        self.failed.as_ref().map(|(seed, failure)| explain(*seed, mode, failure))
    }
}
