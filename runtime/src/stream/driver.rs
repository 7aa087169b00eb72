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
//! Callbacks are called by the driver's thread alone: who enqueues or waits may hold what they need.
//!
//! A driver has many streams and never waits for one of them alone, so no operation keeps another from running. The
//! process has as many drivers as cores at most; their threads start when they are first needed, and sleep without
//! any time-out while there is nothing to do.

use super::event::Mark;
use super::outcome::{Outcome, Payload};
use crate::error::Error;
use crate::task::{Batch, Company, Naps};
use nix::unistd::gettid;
use shmring::clock::now;
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
    /// Nothing comes any more: that the stream has ended need not be known.
    Forget,
}

/// One stream's queue.
struct Queue {
    stream: u64,
    items: VecDeque<Item>,
    /// Why the stream has ended, if it has.
    ended: Option<String>,
    /// What comes next calls a function of the program's.
    waits_for_driver: bool,
}

/// Who drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Driver,
    /// Any other thread, that enqueues or waits.
    Helper,
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

thread_local! {
    /// The same for each process that this thread simulates: in which simulation, and which member.
    #[cfg(ringccl_sim)]
    static SIMULATED: std::cell::RefCell<Vec<Simulated>> = const { std::cell::RefCell::new(Vec::new()) };
}

#[cfg(ringccl_sim)]
type Simulated = ((u64, u32), (Vec<Arc<Driver>>, usize));

/// Does something with the drivers of this process.
fn with_drivers<R>(act: impl FnOnce(&mut (Vec<Arc<Driver>>, usize)) -> R) -> R {
    #[cfg(ringccl_sim)]
    if let Some(member) = shmring::sim::with(|world| world.running()) {
        let key = (shmring::sim::runs(), member);
        return SIMULATED.with_borrow_mut(|all| {
            for (_, (drivers, _)) in all.extract_if(.., |((run, _), _)| *run != key.0) {
                // What a simulation that was broken off has left cannot be taken apart: its threads have stopped
                // anywhere.
                let is_idle = |driver: &Arc<Driver>| driver.set.try_lock().is_ok_and(|set| set.is_idle());
                drivers.into_iter().filter(|driver| !is_idle(driver)).for_each(std::mem::forget);
            }
            if !all.iter().any(|(other, _)| *other == key) {
                all.push((key, Default::default()));
            }
            let own = all.iter_mut().find(|(other, _)| *other == key);
            act(own.map(|(_, drivers)| drivers).unwrap_or_else(|| unreachable!("it was added")))
        });
    }
    act(&mut DRIVERS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Picks the driver for a new stream, one after the other.
pub(super) fn assign() -> (u64, Arc<Driver>) {
    with_drivers(|(all, streams)| assign_of(all, streams))
}

fn assign_of(all: &mut Vec<Arc<Driver>>, streams: &mut usize) -> (u64, Arc<Driver>) {
    *streams += 1;
    let index = (*streams - 1) % usable_cores();
    if index >= all.len() {
        all.push(Arc::default());
    }
    let at = index.min(all.len() - 1);
    (*streams as u64, Arc::clone(&all[at]))
}

/// The threads of all drivers, by their numbers in the system. They never end.
static THREADS: Mutex<Vec<i32>> = Mutex::new(Vec::new());

/// The threads that do nothing but what is queued on streams, as the system numbers them.
pub(crate) fn threads() -> Vec<i32> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether a stream has something to do, or somebody looks whether it has.
pub(crate) fn any_work() -> bool {
    let drivers = with_drivers(|(all, _)| all.clone());
    drivers.iter().any(|driver| {
        let has = driver.set.try_lock().map_or(true, |set| !set.is_idle());
        if has {
            // Its thread may have taken this look for somebody who drives, and gone to sleep.
            driver.ring();
        }
        has || !driver.arrivals().is_empty()
    })
}

impl Driver {
    fn set(&self) -> MutexGuard<'_, Set> {
        // Items are taken out before anything of theirs runs that could panic.
        shmring::sync::lock(&self.set)
    }

    /// The set, unless somebody else has it.
    fn try_set(&self) -> Option<MutexGuard<'_, Set>> {
        match self.set.try_lock() {
            Ok(set) => Some(set),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
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
        // Where somebody drives now, that one looks at the arrivals before it sleeps.
        if inline
            && let Some(mut set) = self.try_set()
            && set.begin(self, stream)
        {
            return Ok(());
        }
        self.ring();
        Ok(())
    }

    /// Forgets a stream, once what was queued has run.
    pub(super) fn forget(&self, stream: u64) {
        // Without a thread nothing was ever queued.
        if *self.is_started.lock().unwrap_or_else(PoisonError::into_inner) {
            self.arrivals().push((stream, Item::Forget));
            self.ring();
        }
    }

    fn start(self: &Arc<Self>) -> Result<(), std::io::Error> {
        let mut is_started = self.is_started.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_started {
            let driver = Arc::clone(self);
            driver.spawn()?;
            *is_started = true;
        }
        Ok(())
    }

    fn spawn(self: Arc<Self>) -> Result<(), std::io::Error> {
        #[cfg(ringccl_sim)]
        if shmring::sim::with(|_| ()).is_some() {
            let work = Box::new(move || self.work());
            shmring::sim::with(|world| world.spawn(work));
            return Ok(());
        }
        let work = move || {
            THREADS.lock().unwrap_or_else(PoisonError::into_inner).push(gettid().as_raw());
            self.work();
        };
        std::thread::Builder::new().name("ringccl-driver".into()).spawn(work).map(drop)
    }

    /// The thread's work: never ends.
    fn work(self: Arc<Self>) {
        loop {
            let mut shift = Shift::new(&self, self.set(), None);
            let policy = shift.policy();
            never_fails(Waiter::new(policy).run(&mut shift));
            drop(shift);
            // Nothing to do: look once more after the announcement, and sleep.
            let idle = || Ok::<_, Infallible>(self.is_idle());
            let nap = shmring::doorbell::Nap {
                bell: &self.bell,
                sleepers: &self.sleepers,
                awaits: shmring::doorbell::Awaits::Anyone,
            };
            never_fails(shmring::doorbell::sleep_any(&[nap], IDLE, idle).map(|_| ()));
        }
    }

    /// Whether there is nothing to do, or who has the set now rings when it leaves something undone there. What arrives
    /// meanwhile was rung for before the announcement, perhaps, and nobody else may look at it.
    fn is_idle(&self) -> bool {
        // Arrivals may have been taken into the set by one who could not finish them, before the announcement.
        self.try_set().is_none_or(|set| set.is_idle()) && self.arrivals().is_empty()
    }

    /// Drives, if nobody else does, until `outcome` is over; returns early after `limit` at the latest.
    pub(super) fn help(self: &Arc<Self>, outcome: &Outcome, limit: Duration) {
        /// How long the outcome is waited for before looking again whether anybody drives.
        const LOOK_AGAIN: Duration = Duration::from_millis(1);
        match self.try_set() {
            Some(set) => {
                let begun = now();
                let is_late = move || now() - begun >= limit;
                let until: Until<'_> = (outcome, &is_late);
                let mut shift = Shift::new(self, set, Some(until));
                let policy = shift.policy();
                never_fails(Waiter::new(policy).run(&mut shift));
                let (rest, calls) = (shift.set.take().is_none_or(|set| !set.is_idle()), shift.calls);
                if rest {
                    self.ring();
                }
                if calls {
                    outcome.wait(limit.min(LOOK_AGAIN));
                }
            }
            None => outcome.wait(limit.min(LOOK_AGAIN)),
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
    /// A callback is due that only the driver's thread may call.
    calls: bool,
}

impl<'a> Shift<'a> {
    fn new(driver: &'a Arc<Driver>, set: MutexGuard<'a, Set>, until: Option<Until<'a>>) -> Self {
        Self { driver, set: Some(set), until, ran: false, calls: false }
    }

    fn who(&self) -> Who {
        if self.until.is_some() { Who::Helper } else { Who::Driver }
    }

    /// With as many threads that compute as there are ranks, drivers of more ranks than half the cores must yield.
    fn policy(&self) -> WaitPolicy {
        let ranks = self.set.as_ref().map_or(1, |set| set.most_ranks());
        WaitPolicy::for_cores(2 * ranks, usable_cores())
    }

    fn is_over(&self, is_idle: bool) -> bool {
        match self.until {
            Some((outcome, is_late)) => is_idle || self.calls || outcome.is_over() || (self.ran && is_late()),
            None => is_idle,
        }
    }
}

impl Wait<Infallible> for Shift<'_> {
    fn look(&mut self) -> Result<bool, Infallible> {
        let (driver, who) = (self.driver, self.who());
        let set = self.set.get_or_insert_with(|| driver.set());
        let is_idle = set.go_on(driver, who);
        self.calls = who == Who::Helper && set.has_calls();
        Ok(self.is_over(is_idle))
    }

    fn nap(&mut self, _waited: Duration, nap: Duration) -> Result<bool, Infallible> {
        self.ran = true;
        let driver = self.driver;
        let set = self.set.get_or_insert_with(|| driver.set());
        set.check();
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
    fn go_on(&mut self, driver: &Arc<Driver>, who: Who) -> bool {
        loop {
            self.take_in(driver);
            let mut any_ended = false;
            for queue in &mut self.queues {
                any_ended |= queue.go_on(driver, who);
            }
            self.queues.retain(|queue| !queue.items.is_empty() || queue.ended.is_some());
            // What has ended may be what another stream waits for, and callbacks may have queued more.
            if !any_ended && driver.arrivals().is_empty() {
                return self.is_idle();
            }
        }
    }

    fn take_in(&mut self, driver: &Arc<Driver>) {
        for (stream, item) in std::mem::take(&mut *driver.arrivals()) {
            self.queue(stream).items.push_back(item);
        }
    }

    /// Takes new items in and lets one stream go on once; true when nothing of it is left. The others are not waited
    /// for, and no callback is called: whoever enqueues is not held up by more than its own.
    fn begin(&mut self, driver: &Arc<Driver>, stream: u64) -> bool {
        self.take_in(driver);
        let queue = self.queue(stream);
        queue.go_on(driver, Who::Helper);
        let is_over = queue.items.is_empty();
        self.queues.retain(|queue| !queue.items.is_empty() || queue.ended.is_some());
        is_over
    }

    /// Whether a stream has come to something that only the driver's thread does.
    fn has_calls(&self) -> bool {
        self.queues.iter().any(|queue| queue.waits_for_driver)
    }

    fn queue(&mut self, stream: u64) -> &mut Queue {
        let index = self.queues.iter().position(|queue| queue.stream == stream).unwrap_or_else(|| {
            self.queues.push(Queue { stream, items: VecDeque::new(), ended: None, waits_for_driver: false });
            self.queues.len() - 1
        });
        &mut self.queues[index]
    }

    fn check(&mut self) {
        for queue in &mut self.queues {
            queue.guarded(|batch| batch.check(Company::Others));
        }
    }

    /// Collects whom the streams wait for; false when one of them can go on.
    fn nap(&mut self, naps: &mut Naps) -> bool {
        self.queues.iter_mut().all(|queue| match queue.items.front() {
            Some(Item::Batch { .. }) => {
                queue.guarded(|batch| !batch.is_over() && batch.nap(naps)).is_some_and(|naps| naps)
            }
            Some(Item::Await(mark)) => !mark.is_done(),
            Some(Item::Record(_) | Item::Call(_) | Item::Forget) => false,
            None => true,
        })
    }
}

impl Queue {
    /// Does something with the batch that comes first. A panic in it is a defect of this library, which must not take
    /// all streams of the process along: this one ends.
    fn guarded<R>(&mut self, act: impl FnOnce(&mut Batch) -> R) -> Option<R> {
        let Some(Item::Batch { batch, .. }) = self.items.front_mut() else { return None };
        let done = catch_unwind(AssertUnwindSafe(|| act(batch)));
        if done.is_err() {
            self.ended.get_or_insert_with(|| "an operation panicked".into());
        }
        done.ok()
    }

    /// Whether what comes first is over, or ends at once, as far as `who` may say so.
    fn is_first_over(&mut self, driver: &Arc<Driver>, who: Who) -> bool {
        if self.ended.is_none() {
            self.guarded(Batch::poll);
        }
        let has_ended = self.ended.is_some();
        match self.items.front() {
            None => false,
            Some(Item::Await(mark)) => {
                mark.tell(driver);
                mark.is_done() || has_ended
            }
            Some(Item::Record(_) | Item::Forget) => true,
            Some(Item::Call(_)) => {
                self.waits_for_driver = who != Who::Driver;
                who == Who::Driver
            }
            Some(Item::Batch { batch, outcome, .. }) => {
                let is_over = has_ended || batch.is_over();
                let may_end = who == Who::Driver || (is_over && outcome.end_quietly());
                self.waits_for_driver = is_over && !may_end;
                is_over && may_end
            }
        }
    }

    /// Lets the stream go on as far as it can; true when an item has ended.
    fn go_on(&mut self, driver: &Arc<Driver>, who: Who) -> bool {
        let mut any = false;
        self.waits_for_driver = false;
        while self.is_first_over(driver, who) {
            let Some(item) = self.items.pop_front() else { break };
            any = true;
            // Callbacks panic, and what they own may when it is dropped.
            if catch_unwind(AssertUnwindSafe(|| self.end(item))).is_err() {
                self.ended.get_or_insert_with(|| "a function that was called in it panicked".into());
            }
        }
        any
    }

    fn end(&mut self, item: Item) {
        match item {
            Item::Batch { mut batch, payload, outcome } => {
                let result = match (&self.ended, batch.take_error()) {
                    (_, Some(error)) => Err(error),
                    (Some(why), None) => Err(Error::StreamEnded { why: why.clone() }),
                    (None, None) => Ok(payload.unwrap_or_else(|| Box::new(()))),
                };
                // What is left of it does not run here, but on the other ranks.
                batch.abandon();
                outcome.end(result);
            }
            Item::Record(mark) => mark.set(),
            Item::Call(function) if self.ended.is_none() => function(),
            Item::Forget => self.ended = None,
            Item::Await(_) | Item::Call(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What arrives while another thread has the set is seen by a driver that is about to sleep: whoever queued it may
    /// have rung before the driver announced that it sleeps, and who has the set may be done with its look.
    #[test]
    fn arrivals_are_seen_while_others_look() {
        let driver = Driver::default();
        let set = driver.set();
        assert!(driver.is_idle());
        driver.arrivals().push((1, Item::Forget));
        assert!(!driver.is_idle());
        drop(set);
        assert!(!driver.is_idle());
    }
}
