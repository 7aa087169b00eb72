//! Can threads that share a bell, or one that sleeps on several, sleep on although what they wait for has happened?
//!
//! A model's sleeper has no time-out, so loom reports a lost wake-up as a deadlock.
#![cfg(loom)]

use loom::thread;
use loom_tests::{Bells, both, check};
use shmring::doorbell::{Awaits, Nap, sleep_any};
use shmring::sync::{AtomicU32, Ordering};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Bells of members, and a flag of each that only it sets.
struct Shared<const N: usize> {
    bells: Bells<N>,
    flags: [AtomicU32; N],
}

impl<const N: usize> Shared<N> {
    fn new() -> Arc<Self> {
        Arc::new(Self { bells: Bells::new(), flags: std::array::from_fn(|_| AtomicU32::new(0)) })
    }

    fn is_set(&self, member: usize) -> bool {
        self.flags[member].load(Ordering::Relaxed) != 0
    }

    /// Sleeps as a thread of member `me` until `by` has set its flag; looks no more often than it must.
    fn wait(&self, me: usize, by: usize) {
        let awaits = Awaits::Member(by as u32);
        let look = || Ok::<_, Infallible>((!self.is_set(by)).then_some(awaits));
        let (bell, sleepers) = (&self.bells.bells[me], &self.bells.sleepers);
        while bell.sleep(sleepers, Duration::ZERO, awaits, look).unwrap().is_some() {}
    }

    /// Sets the flag of `me`, and rings `peer` if it sleeps.
    fn set(&self, me: usize, peer: usize) {
        self.flags[me].store(1, Ordering::Relaxed);
        self.bells.notify(me, peer);
    }
}

/// Waits as a thread of member 2 for member 0 while another thread of member 2 goes to sleep for member `by` and leaves
/// again. A third thread that waited, too, would only multiply the interleavings.
fn beside_another(by: u32) {
    let shared = Shared::<3>::new();
    let theirs = Arc::clone(&shared);
    let waiter = thread::spawn(move || theirs.wait(2, 0));
    let theirs = Arc::clone(&shared);
    let publisher = thread::spawn(move || theirs.set(0, 2));
    let (bell, sleepers) = (&shared.bells.bells[2], &shared.bells.sleepers);
    bell.sleep(sleepers, Duration::ZERO, Awaits::Member(by), || Ok::<_, Infallible>(None)).unwrap();
    waiter.join().unwrap();
    publisher.join().unwrap();
}

/// Of two threads of one member each is woken by whom it waits for, whichever of them announced itself first.
#[test]
fn two_threads_for_two_members() {
    check(|| beside_another(1));
}

/// A thread that leaves does not take the announcement of another along that waits for the same member.
#[test]
fn two_threads_for_one_member() {
    check(|| beside_another(0));
}

/// A thread that sleeps on the bells of two segments is woken by whoever acts first in either, and by the other after.
#[test]
fn two_bells() {
    check(|| {
        let segments = [Shared::<2>::new(), Shared::<2>::new()];
        let publishers = segments.each_ref().map(|segment| {
            let segment = Arc::clone(segment);
            thread::spawn(move || segment.set(0, 1))
        });
        wait_all(&segments);
        for publisher in publishers {
            publisher.join().unwrap();
        }
    });
}

/// The same, where one thread acts in both: what comes second is heard on the second bell.
#[test]
fn two_bells_one_publisher() {
    check(|| {
        let segments = [Shared::<2>::new(), Shared::<2>::new()];
        let theirs = segments.each_ref().map(Arc::clone);
        both(move || theirs.iter().for_each(|segment| segment.set(0, 1)), || wait_all(&segments));
    });
}

/// Sleeps as member 1 of all segments until member 0 has set its flag in each.
fn wait_all(segments: &[Arc<Shared<2>>]) {
    let open = || segments.iter().filter(|segment| !segment.is_set(0)).count();
    loop {
        let before = open();
        if before == 0 {
            return;
        }
        let naps: Vec<_> = segments
            .iter()
            .map(|segment| Nap {
                bell: &segment.bells.bells[1],
                sleepers: &segment.bells.sleepers,
                awaits: Awaits::Member(0),
            })
            .collect();
        sleep_any(&naps, Duration::ZERO, || Ok::<_, Infallible>(open() == before)).unwrap();
    }
}
