//! Seeds in the test run, and that a seed repeats.
#![cfg(ringccl_sim)]

use simulator::campaign::{self, Limits};
use simulator::machine::Mode;
use simulator::run::run;
use simulator::scenario::Scenario;
use std::time::Duration;

fn clean(mode: Mode, seeds: u64) {
    // Far more than it takes: a test must not fail because the machine is busy.
    let time = Duration::from_secs(3600);
    let tally = campaign::run(&Limits { first: 1, seeds, time, threads: 2, mode });
    assert!(tally.failed.is_none(), "{}", tally.explain(mode).unwrap_or_default());
    assert_eq!(tally.seeds, seeds);
    for (fault, (all, felt)) in campaign::FAULTS.iter().zip(tally.faults).skip(1) {
        assert!(felt * 2 > all && all > 0, "{fault}: felt in {felt} of {all} seeds only");
    }
}

/// Communicators do what they promise, with each fault, when stores become visible late.
#[test]
fn stores_visible_late() {
    clean(Mode::Mixed, 6000);
}

/// The same when memory is sequentially consistent.
#[test]
fn stores_visible_at_once() {
    clean(Mode::Off, 2000);
}

/// A seed gives the same accesses, the same times and the same events again, also in another thread.
#[test]
fn seeds_repeat() {
    for seed in 1..300 {
        let of = move || {
            let outcome = run(&Scenario::new(seed, Mode::Mixed), 40);
            // Addresses of memory that is not in the segment would differ; there are none.
            (outcome.steps, outcome.time, outcome.events)
        };
        let here = of();
        let there = std::thread::spawn(of).join().unwrap();
        assert_eq!(here, there, "seed {seed}");
        assert!(here.0 == 0 || !here.2.is_empty());
    }
}
