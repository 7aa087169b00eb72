//! Does a stream's driver, which sleeps without a time-out while it has nothing to do, ever sleep on work?
//!
//! The same steps as the driver of `runtime/src/stream`: arrivals under one lock, what is driven under another that a
//! submitter or a helper may hold for a while and leave work behind.
#![cfg(loom)]

use loom::sync::Mutex;
use loom::thread;
use loom_tests::{both, check};
use shmring::doorbell::{Awaits, Bell, Nap, Sleepers, sleep_any};
use std::convert::Infallible;
use std::sync::{Arc, TryLockError};
use std::time::Duration;

#[derive(Default)]
struct Driver {
    /// Items that nobody has taken in.
    arrivals: Mutex<u32>,
    /// Items that whoever has the lock drives.
    set: Mutex<u32>,
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
        if let Ok(mut set) = self.set.try_lock() {
            self.take_in(&mut set);
        }
        self.ring();
    }

    fn has_nothing(&self) -> bool {
        let nothing_new = *self.arrivals.lock().unwrap() == 0;
        nothing_new
            && match self.set.try_lock() {
                Ok(set) => *set == 0,
                // Whoever has the set rings when it leaves something behind.
                Err(TryLockError::WouldBlock) => true,
                Err(TryLockError::Poisoned(_)) => false,
            }
    }

    /// Drives until `items` are done.
    fn work(&self, items: u32) {
        let mut done = 0;
        loop {
            let mut set = self.set.lock().unwrap();
            self.take_in(&mut set);
            done += std::mem::take(&mut *set);
            drop(set);
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
