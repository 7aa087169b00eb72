//! Mixed operations of 8 ranks on communicators that come and go: no wrong byte, and nothing is left behind.

mod common;

use common::worker;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;
use verification::report::Event;
use verification::testkit::{Job, Meet, ShmDir};

const RANKS: u32 = 8;

/// A number from the environment, or what stands for it.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// What a rank held: resident, shared KiB, descriptors, threads, mappings.
type Held = [u64; 5];

/// Waits until every rank has taken sample `number`; what they held.
fn sample(job: &mut Job, number: u64) -> Vec<Held> {
    let prefix = format!("{number}: ");
    let is_it = |event: &Event| matches!(event, Event::Held { after, .. } if after.starts_with(&prefix));
    let taken = (0..RANKS).map(|rank| match job.rank(rank).wait_for("a sample", is_it).event {
        Event::Held { resident_kb, shared_kb, descriptors, threads, mappings, .. } => {
            [resident_kb, shared_kb, descriptors, threads, mappings]
        }
        other => panic!("{other:?}"),
    });
    taken.collect()
}

/// Runs `ops` operations drawn from `seed`, with a sample after `every`: all of them, by rank.
fn soak(ops: u64, every: u64, seed: u64) -> Vec<Vec<Held>> {
    println!("seed {seed}: replay by SOAK_SEED={seed} SOAK_OPS={ops} SOAK_EVERY={every}");
    let shm = ShmDir::new();
    let args =
        ["soak", "--ops", &ops.to_string(), "--every", &every.to_string(), "--seed", &seed.to_string()];
    let mut job = Job::new(worker(), Meet::launcher(), RANKS, &args, &shm).with("RINGCCL_TIMEOUT_MS", 40_000);
    job = job.start_all();
    let begun = Instant::now();
    let mut samples = Vec::new();
    for number in 1..=ops / every {
        match catch_unwind(AssertUnwindSafe(|| sample(&mut job, number))) {
            Ok(held) => samples.push(held),
            Err(panic) => {
                // One rank has failed and the others tell of it: all of their errors are needed.
                for ended in job.finish_all() {
                    let last = ended.reports.last().map(|report| &report.event);
                    println!("code {:?}, last report {last:?}, {}", ended.code, ended.stderr);
                }
                resume_unwind(panic);
            }
        }
        let (done, per_second) = (number * every, (number * every) as f64 / begun.elapsed().as_secs_f64());
        println!(
            "{done} operations, {per_second:.0}/s; rank 0, rank 7: {:?} {:?}",
            samples[samples.len() - 1][0],
            samples[samples.len() - 1][7]
        );
    }
    for ended in job.finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
    samples
}

/// 8 ranks run mixed operations by a script of one seed.
#[test]
fn mixed_operations() {
    let seed = number("SOAK_SEED", 1);
    soak(2000, 200, seed);
}

/// As many as wanted, with samples.
#[test]
#[ignore = "runs for as long as it is told to: cargo xtask soak"]
fn soak_campaign() {
    soak(number("SOAK_OPS", 1_000_000), number("SOAK_EVERY", 5000), number("SOAK_SEED", 1));
}
