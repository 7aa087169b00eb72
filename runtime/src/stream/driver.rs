//! Who drives the operations of streams.
//!
//! ```text
//!  Stream::launch --> arrivals --+                   Pending::wait drives too, if nobody else does
//!                                v                             v
//!  driver's thread:   [ stream 1: batch, batch | stream 2: event, batch | ... ]   polls the first of each in turn
//!                                |  nobody can go on
//!                                v
//!                     sleeps on its own bell and those of all ranks that wait
//! ```
//!
//! A driver has many streams and never waits for one of them alone, so no operation keeps another from running. The
//! process has as many drivers as cores at most; their threads start when they are first needed, and sleep without
//! any time-out while there is nothing to do.

use super::event::Mark;
use super::outcome::{Outcome, Payload};
use crate::error::Error;
use crate::task::{Batch, Naps};
use shmring::doorbell::{Bell, Sleepers};
use shmring::wait::{Wait, WaitPolicy, Waiter, usable_cores};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How long a driver sleeps that has nothing to do; it is woken for what comes.
const IDLE: Duration = Duration::from_secs(3600);

/// What a stream does next.
pub(super) enum Item {
    /// Operations, what they give back, and who wants it.
    Batch { batch: Batch, payload: Option<Payload>, outcome: Arc<Outcome> },
    /// Says that all before it is done.
    Record(Arc<Mark>),
    /// Waits for a mark of another stream.
    Await(Arc<Mark>),
    /// A function of the program's.
    Call(Box<dyn FnOnce() + Send>),
}

/// One stream's queue.
struct Queue {
    stream: u64,
    items: VecDeque<Item>,
    /// Why the stream has ended, if it has.
    ended: Option<String>,
}

/// The streams of a driver that have something to do, or have ended.
#[derive(Default)]
struct Set {
    queues: Vec<Queue>,
}

/// Drives streams.
#[derive(Default)]
pub(super) struct Driver {
    arrivals: Mutex<Vec<(u64, Item)>>,
    set: Mutex<Set>,
    bell: Bell,
    sleepers: Sleepers,
    /// Whether the thread was started.
    is_started: Mutex<bool>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// The drivers of this process, and how many streams were given to them.
static DRIVERS: Mutex<(Vec<Arc<Driver>>, usize)> = Mutex::new((Vec::new(), 0));

/// Picks the driver for a new stream, one after the other.
pub(super) fn assign() -> (u64, Arc<Driver>) {
    let mut drivers = DRIVERS.lock().unwrap_or_else(PoisonError::into_inner);
    let (all, streams) = &mut *drivers;
    *streams += 1;
    let index = (*streams - 1) % usable_cores();
    if index >= all.len() {
        all.push(Arc::default());
    }
    let at = index.min(all.len() - 1);
    (*streams as u64, Arc::clone(&all[at]))
}

impl Driver {
    fn set(&self) -> MutexGuard<'_, Set> {
        // Items are taken out before anything of theirs runs that could panic.
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn arrivals(&self) -> MutexGuard<'_, Vec<(u64, Item)>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the thread, if it sleeps.
    pub(super) fn ring(&self) {
        if self.sleepers.any() {
            self.bell.ring_always();
        }
    }

    /// Queues an item. With `inline` the calling thread lets it run as far as it can at once, if nothing is in its way;
    /// the rest is the thread's.
    ///
    /// # Errors
    /// The system's, when no thread can be started.
    pub(super) fn submit(
        self: &Arc<Self>,
        stream: u64,
        item: Item,
        inline: bool,
    ) -> Result<(), std::io::Error> {
        self.start()?;
        self.arrivals().push((stream, item));
        if inline {
            match self.set.try_lock() {
                Ok(mut set) => {
                    if set.go_on(self) {
                        return Ok(());
                    }
                }
                // Whoever drives now looks at the arrivals before it sleeps.
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Poisoned(_)) => {}
            }
        }
        self.ring();
        Ok(())
    }

    fn start(self: &Arc<Self>) -> Result<(), std::io::Error> {
        let mut is_started = self.is_started.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_started {
            let driver = Arc::clone(self);
            std::thread::Builder::new().name("ringccl-driver".into()).spawn(move || driver.work())?;
            *is_started = true;
        }
        Ok(())
    }

    /// The thread's work: never ends.
    fn work(self: Arc<Self>) {
        loop {
            let mut shift = Shift { driver: &self, set: Some(self.set()), until: None, ran: false };
            let policy = shift.policy();
            never_fails(Waiter::new(policy).run(&mut shift));
            drop(shift);
            // Nothing to do: look once more after the announcement, and sleep.
            let arrivals = || Ok::<_, Infallible>(self.arrivals().is_empty());
            let nap = shmring::doorbell::Nap {
                bell: &self.bell,
                sleepers: &self.sleepers,
                awaits: shmring::doorbell::Awaits::Anyone,
            };
            never_fails(shmring::doorbell::sleep_any(&[nap], IDLE, arrivals).map(|_| ()));
        }
    }

    /// Drives, if nobody else does, until `outcome` is over; returns early after `limit` at the latest.
    pub(super) fn help(self: &Arc<Self>, outcome: &Outcome, limit: Duration) {
        /// How long the outcome is waited for before looking again whether anybody drives.
        const LOOK_AGAIN: Duration = Duration::from_millis(1);
        match self.set.try_lock() {
            Ok(set) => {
                let begun = std::time::Instant::now();
                let is_late = move || begun.elapsed() >= limit;
                let until: Until<'_> = (outcome, &is_late);
                let mut shift = Shift { driver: self, set: Some(set), until: Some(until), ran: false };
                let policy = shift.policy();
                never_fails(Waiter::new(policy).run(&mut shift));
                let rest = shift.set.take().is_none_or(|set| !set.is_idle());
                if rest {
                    self.ring();
                }
            }
            Err(_) => outcome.wait(limit.min(LOOK_AGAIN)),
        }
    }
}

fn never_fails(result: Result<(), Infallible>) {
    match result {
        Ok(()) => {}
        Err(never) => match never {},
    }
}

/// Until when a helper helps: an outcome, or a moment.
type Until<'a> = (&'a Outcome, &'a dyn Fn() -> bool);

/// One thread's time of driving. It has the set, but while it sleeps.
struct Shift<'a> {
    driver: &'a Arc<Driver>,
    set: Option<MutexGuard<'a, Set>>,
    until: Option<Until<'a>>,
    ran: bool,
}

impl Shift<'_> {
    /// With as many threads that compute as there are ranks, drivers of more ranks than half the cores must yield.
    fn policy(&self) -> WaitPolicy {
        let ranks = self.set.as_ref().map_or(1, |set| set.most_ranks());
        WaitPolicy::for_cores(2 * ranks, usable_cores())
    }

    fn is_over(&self, is_idle: bool) -> bool {
        match self.until {
            Some((outcome, is_late)) => is_idle || outcome.is_over() || (self.ran && is_late()),
            None => is_idle,
        }
    }
}

impl Wait<Infallible> for Shift<'_> {
    fn look(&mut self) -> Result<bool, Infallible> {
        let driver = self.driver;
        let set = self.set.get_or_insert_with(|| driver.set());
        let is_idle = set.go_on(driver);
        Ok(self.is_over(is_idle))
    }

    fn nap(&mut self, waited: Duration, nap: Duration) -> Result<bool, Infallible> {
        self.ran = true;
        let driver = self.driver;
        let set = self.set.get_or_insert_with(|| driver.set());
        set.check(waited);
        let mut naps = Naps::default();
        if set.nap(&mut naps) {
            let own = Some((&driver.bell, &driver.sleepers));
            let mut held = self.set.take();
            naps.sleep_with(own, nap, |again| {
                // The set is free while this thread sleeps, for who wants to help.
                let still = held.take().is_some_and(|mut set| set.nap(again));
                still && driver.arrivals().is_empty()
            });
        }
        self.look()
    }
}

impl Set {
    fn is_idle(&self) -> bool {
        self.queues.iter().all(|queue| queue.items.is_empty())
    }

    fn most_ranks(&self) -> usize {
        let ranks = self.queues.iter().filter_map(|queue| match queue.items.front() {
            Some(Item::Batch { batch, .. }) => batch.nranks(),
            _ => None,
        });
        ranks.max().unwrap_or(1)
    }

    /// Takes new items in and lets every stream go on as far as it can; true when nothing is left to do.
    fn go_on(&mut self, driver: &Arc<Driver>) -> bool {
        loop {
            for (stream, item) in std::mem::take(&mut *driver.arrivals()) {
                self.queue(stream).items.push_back(item);
            }
            let mut any_ended = false;
            for queue in &mut self.queues {
                any_ended |= queue.go_on(driver);
            }
            self.queues.retain(|queue| !queue.items.is_empty() || queue.ended.is_some());
            // What has ended may be what another stream waits for, and callbacks may have queued more.
            if !any_ended && driver.arrivals().is_empty() {
                return self.is_idle();
            }
        }
    }

    fn queue(&mut self, stream: u64) -> &mut Queue {
        let index = self.queues.iter().position(|queue| queue.stream == stream).unwrap_or_else(|| {
            self.queues.push(Queue { stream, items: VecDeque::new(), ended: None });
            self.queues.len() - 1
        });
        &mut self.queues[index]
    }

    fn check(&mut self, waited: Duration) {
        for queue in &mut self.queues {
            if let Some(Item::Batch { batch, .. }) = queue.items.front_mut() {
                batch.check(waited);
            }
        }
    }

    /// Collects whom the streams wait for; false when one of them can go on.
    fn nap(&mut self, naps: &mut Naps) -> bool {
        self.queues.iter_mut().all(|queue| match queue.items.front_mut() {
            Some(Item::Batch { batch, .. }) => !batch.is_over() && batch.nap(naps),
            Some(Item::Await(mark)) => !mark.is_done(),
            Some(Item::Record(_) | Item::Call(_)) => false,
            None => true,
        })
    }
}

impl Queue {
    /// Lets the stream go on as far as it can; true when an item has ended.
    fn go_on(&mut self, driver: &Arc<Driver>) -> bool {
        let mut any = false;
        while let Some(item) = self.items.front_mut() {
            let is_over = match item {
                Item::Batch { batch, .. } if self.ended.is_none() => {
                    // A panic is a defect of this library; it must not take all streams of the process along.
                    let polled = catch_unwind(AssertUnwindSafe(|| batch.poll()));
                    if polled.is_err() {
                        self.ended = Some("an operation panicked".into());
                    }
                    polled.is_err() || batch.is_over()
                }
                Item::Await(mark) => {
                    mark.tell(driver);
                    mark.is_done()
                }
                Item::Batch { .. } | Item::Record(_) | Item::Call(_) => true,
            };
            if !is_over {
                break;
            }
            let Some(item) = self.items.pop_front() else { break };
            any = true;
            self.end(item);
        }
        any
    }

    fn end(&mut self, item: Item) {
        match item {
            Item::Batch { mut batch, payload, outcome } => {
                let result = match (&self.ended, batch.take_error()) {
                    (Some(why), _) => Err(Error::StreamEnded { why: why.clone() }),
                    (None, Some(error)) => Err(error),
                    (None, None) => Ok(payload.unwrap_or_else(|| Box::new(()))),
                };
                drop(batch);
                if catch_unwind(AssertUnwindSafe(|| outcome.end(result))).is_err() {
                    self.ended = Some("a callback panicked".into());
                }
            }
            Item::Record(mark) => mark.set(),
            Item::Await(_) => {}
            Item::Call(function) if self.ended.is_none() => {
                if catch_unwind(AssertUnwindSafe(function)).is_err() {
                    self.ended = Some("a function that was called in it panicked".into());
                }
            }
            Item::Call(_) => {}
        }
    }
}
