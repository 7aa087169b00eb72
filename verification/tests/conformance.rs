//! Every operation between processes against its definition: all settings, types and reductions, in place and not,
//! blocking, in groups and in streams, random shapes.

mod common;

use common::worker;
use verification::report::Event;
use verification::testkit::{Ended, Job, Meet, ShmDir};

/// A number from the environment, or what stands for it.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Runs `ops` operations of a script drawn from `seed` on `ranks` ranks; what rank 0 says of it.
fn conform(ranks: u32, ops: u64, seed: u64) -> String {
    println!(
        "{ranks} ranks, seed {seed}: replay by CONFORM_RANKS={ranks} CONFORM_SEED={seed} CONFORM_OPS={ops}"
    );
    let shm = ShmDir::new();
    let args = ["conform", "--ops", &ops.to_string(), "--seed", &seed.to_string()];
    let job = Job::new(worker(), Meet::launcher(), ranks, &args, &shm).with("RINGCCL_TIMEOUT_MS", 40_000);
    let all = job.start_all().finish_all();
    if all.iter().any(|ended| ended.code != Some(0)) {
        // One rank has failed and the others tell of it: all of their errors are needed.
        for Ended { reports, code, stderr } in &all {
            println!("code {code:?}, last report {:?}, {stderr}", reports.last().map(|report| &report.event));
        }
    }
    all.iter().for_each(Ended::assert_done_after_suspicion);
    shm.assert_empty();
    let told = all[0].reports.iter().find_map(|report| match &report.event {
        Event::Covered { what } => Some(what.clone()),
        _ => None,
    });
    told.expect("rank 0 says what it has done")
}

/// Some thousand operations on 2, 3, 4 and 8 ranks.
#[test]
fn operations_are_what_their_definitions_say() {
    let seed = number("CONFORM_SEED", 1);
    for (ranks, ops) in [(2, 1500), (3, 1500), (4, 1000), (8, 500)] {
        println!("{}", conform(ranks, ops, seed));
    }
}

/// As many as wanted, each round with a seed of its own.
#[test]
#[ignore = "runs for as long as it is told to: cargo xtask conform"]
fn conformance_campaign() {
    let (ops, rounds, seed) =
        (number("CONFORM_OPS", 5000), number("CONFORM_ROUNDS", 10), number("CONFORM_SEED", 1));
    let only = number("CONFORM_RANKS", 0) as u32;
    for round in 0..rounds {
        for ranks in [2, 3, 4, 8, 5].into_iter().filter(|ranks| only == 0 || *ranks == only) {
            println!("{}", conform(ranks, ops, seed + round));
        }
    }
}
