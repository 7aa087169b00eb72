//! Does a stream's driver, which sleeps without a time-out while it has nothing to do, ever sleep on work?
//!
//! The same steps as the driver of `runtime/src/stream`: arrivals under one lock, what is driven under another that a
//! submitter or a helper may hold for a while and leave work behind.
#![cfg(loom)]

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use loom_tests::{both, check};
use shmring::doorbell::{Awaits, Bell, Nap, Sleepers, sleep_any};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// A number of items under a lock that others meet taken: the checker changes threads at atomics alone, so that nobody
/// ever finds its own mutex taken by one that does nothing else while it has it.
#[derive(Default)]
struct Set {
    taken: AtomicU32,
    items: AtomicU32,
}

impl Set {
    /// Does something with the items, unless another thread has them.
    fn try_with<R>(&self, act: impl FnOnce(&mut u32) -> R) -> Option<R> {
        self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        let mut items = self.items.load(Ordering::Relaxed);
        let result = act(&mut items);
        self.items.store(items, Ordering::Relaxed);
        self.taken.store(0, Ordering::Release);
        Some(result)
    }

    fn with<R>(&self, act: impl Fn(&mut u32) -> R) -> R {
        loop {
            if let Some(result) = self.try_with(&act) {
                return result;
            }
            thread::yield_now();
        }
    }
}

#[derive(Default)]
struct Driver {
    /// Items that nobody has taken in.
    arrivals: Mutex<u32>,
    /// Items that whoever has the lock drives.
    set: Set,
    bell: Bell,
    sleepers: Sleepers,
}

impl Driver {
    fn ring(&self) {
        if self.sleepers.any() {
            self.bell.ring_always();
        }
    }

    fn take_in(&self, set: &mut u32) {
        *set += std::mem::take(&mut *self.arrivals.lock().unwrap());
    }

    fn submit(&self) {
        *self.arrivals.lock().unwrap() += 1;
        self.ring();
    }

    /// Takes in what is there, is held up by it, and leaves it to the driver.
    fn submit_and_start(&self) {
        *self.arrivals.lock().unwrap() += 1;
        self.set.try_with(|set| self.take_in(set));
        self.ring();
    }

    /// Looks whether there is work, as the diagnosis does, and does none.
    fn any_work(&self) -> bool {
        let has = self.set.try_with(|set| *set > 0).unwrap_or(true);
        if has {
            self.ring();
        }
        has || *self.arrivals.lock().unwrap() > 0
    }

    fn has_nothing(&self) -> bool {
        // Whoever has the set rings when it leaves something behind, or looks and finds it.
        let nothing_left = self.set.try_with(|set| *set == 0).unwrap_or(true);
        nothing_left && *self.arrivals.lock().unwrap() == 0
    }

    /// Drives until `items` are done.
    fn work(&self, items: u32) {
        let mut done = 0;
        loop {
            done += self.set.with(|set| {
                self.take_in(set);
                std::mem::take(set)
            });
            if done == items {
                return;
            }
            let nap = Nap { bell: &self.bell, sleepers: &self.sleepers, awaits: Awaits::Anyone };
            sleep_any(&[nap], Duration::ZERO, || Ok::<_, Infallible>(self.has_nothing())).unwrap();
        }
    }
}

/// Whatever arrives while the driver goes to sleep wakes it.
#[test]
fn arrivals() {
    check(|| {
        let driver = Arc::new(Driver::default());
        let submitters = [(); 2].map(|()| {
            let driver = Arc::clone(&driver);
            thread::spawn(move || driver.submit())
        });
        driver.work(2);
        for submitter in submitters {
            submitter.join().unwrap();
        }
    });
}

/// What another thread has taken in and left behind is driven on, also if that happened while the driver went to sleep.
#[test]
fn left_behind() {
    check(|| {
        let driver = Arc::new(Driver::default());
        let theirs = Arc::clone(&driver);
        both(move || theirs.submit_and_start(), || driver.work(1));
    });
}

/// A look of a third thread, which has the set for a moment and does nothing, hides no work from the driver.
#[test]
fn a_look_hides_nothing() {
    check(|| {
        let driver = Arc::new(Driver::default());
        let (submits, looks) = (Arc::clone(&driver), Arc::clone(&driver));
        let submitter = thread::spawn(move || submits.submit());
        let looker = thread::spawn(move || {
            looks.any_work();
        });
        driver.work(1);
        submitter.join().unwrap();
        looker.join().unwrap();
    });
}

/// The same where the submitter takes its item in and leaves it.
#[test]
fn a_look_hides_nothing_that_was_left() {
    check(|| {
        let driver = Arc::new(Driver::default());
        let (submits, looks) = (Arc::clone(&driver), Arc::clone(&driver));
        let submitter = thread::spawn(move || submits.submit_and_start());
        let looker = thread::spawn(move || {
            looks.any_work();
        });
        driver.work(1);
        submitter.join().unwrap();
        looker.join().unwrap();
    });
}
