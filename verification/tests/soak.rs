//! Mixed operations of 8 ranks on communicators that come and go: no wrong byte, and nothing is left behind.

mod common;

use common::worker;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;
use verification::held::{Bounds, Held, growth};
use verification::report::Event;
use verification::testkit::{Job, Meet, ShmDir};

const RANKS: u32 = 8;

/// Settings of glibc's allocator: one heap, whose free end is given back, and mappings for all that is large.
const MALLOC: [(&str, u32); 3] =
    [("MALLOC_ARENA_MAX", 1), ("MALLOC_TRIM_THRESHOLD_", 65_536), ("MALLOC_MMAP_THRESHOLD_", 65_536)];

/// A number from the environment, or what stands for it.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Waits until every rank has taken sample `number`; what they held.
fn sample(job: &mut Job, number: u64, ranks: u32) -> Vec<Held> {
    let prefix = format!("{number}: ");
    let is_it = |event: &Event| matches!(event, Event::Held { after, .. } if after.starts_with(&prefix));
    let taken = (0..ranks).map(|rank| match job.rank(rank).wait_for("a sample", is_it).event {
        Event::Held { resident_kb, shared_kb, descriptors, threads, mappings, .. } => {
            Held { own_kb: resident_kb.saturating_sub(shared_kb), shared_kb, descriptors, threads, mappings }
        }
        other => panic!("{other:?}"),
    });
    taken.collect()
}

/// Runs `ops` operations of `ranks` ranks drawn from `seed`, with a sample after `every`; all samples, by time and by
/// rank.
fn soak(ops: u64, every: u64, seed: u64, ranks: u32, leak: &[&str]) -> Vec<Vec<Held>> {
    println!("seed {seed}: replay by SOAK_SEED={seed} SOAK_OPS={ops} SOAK_EVERY={every}");
    let shm = ShmDir::new();
    let numbers = [ops, every, seed].map(|number| number.to_string());
    let mut args = vec!["soak", "--ops", &numbers[0], "--every", &numbers[1], "--seed", &numbers[2]];
    args.extend(leak);
    let mut job = Job::new(worker(), Meet::launcher(), ranks, &args, &shm).with("RINGCCL_TIMEOUT_MS", 40_000);
    // What is freed goes back to the system at once, so that what stays is what is held.
    for (name, value) in MALLOC {
        job = job.with(name, value);
    }
    job = job.start_all();
    let begun = Instant::now();
    let mut samples = Vec::new();
    for number in 1..=ops / every {
        match catch_unwind(AssertUnwindSafe(|| sample(&mut job, number, ranks))) {
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
        let [.., last] = samples.as_slice() else { continue };
        println!(
            "{done} operations, {per_second:.0}/s; rank 0: {}; last rank: {}",
            last[0],
            last[ranks as usize - 1]
        );
    }
    for ended in job.finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
    samples
}

/// 8 ranks run mixed operations by a script of one seed, and hold no more at the end than after a while.
#[test]
fn mixed_operations() {
    let samples = soak(2000, 100, number("SOAK_SEED", 1), RANKS, &[]);
    println!("{}", growth(&samples, &Bounds::OF_A_TEST).unwrap_or_else(|leak| panic!("{leak}")));
}

/// The comparison of the soak sees what a process loses, little by little, of each kind.
#[test]
fn leaks_are_noticed() {
    for (leak, what) in [("memory", "own memory"), ("descriptor", "descriptors"), ("thread", "threads")] {
        let samples = soak(600, 30, 7, 2, &["--leak", leak]);
        let told = growth(&samples, &Bounds::OF_A_TEST).expect_err("something was lost at every step");
        assert!(told.contains(what), "{leak}: {told}");
    }
}

/// As many as wanted, with samples; fails by itself when something grows.
#[test]
#[ignore = "runs for as long as it is told to: cargo xtask soak"]
fn soak_campaign() {
    let (ops, every) = (number("SOAK_OPS", 1_000_000), number("SOAK_EVERY", 5000));
    let samples = soak(ops, every, number("SOAK_SEED", 1), RANKS, &[]);
    println!("{}", growth(&samples, &Bounds::OF_A_CAMPAIGN).unwrap_or_else(|leak| panic!("{leak}")));
}
