//! Waiting: spin while a core is there for the peer, then yield, then sleep on the doorbell.

use crate::clock::now;
use crate::doorbell::{Awaits, Bell, Sleepers};
use crate::sync::{spin_hint, yield_core};
use std::time::{Duration, Instant};

/// The budgets of one wait. The yielding budget adapts between its bounds, see [`Waiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitPolicy {
    /// Most looks with a pause instruction between them (about 40 ns each). Looking without a pause would fetch the
    /// awaited line back just before the peer writes it, which costs the peer more than the pause costs this side.
    pub spins: u32,
    /// Least time of yielding before the first sleep.
    pub yield_min: Duration,
    /// Most time of yielding before the first sleep.
    pub yield_max: Duration,
    /// Longest sleep before `check` runs again: bounds how late death, abort and deadlines are seen.
    pub nap: Duration,
}

impl WaitPolicy {
    /// The policy for `waiters` threads that wait for each other on `cores` usable cores.
    ///
    /// With more waiters than cores a spinning waiter keeps the core from the one it waits for, so each
    /// failed look yields at once.
    pub fn for_cores(waiters: usize, cores: usize) -> Self {
        let room = waiters <= cores;
        Self {
            spins: if room { 1500 } else { 0 },
            yield_min: Duration::from_micros(50),
            yield_max: Duration::from_millis(1),
            nap: Duration::from_millis(20),
        }
    }

    /// A policy that sleeps at once: for tests and for threads that expect long waits.
    pub fn sleep_at_once() -> Self {
        Self {
            spins: 0,
            yield_min: Duration::ZERO,
            yield_max: Duration::ZERO,
            nap: Duration::from_millis(20),
        }
    }
}

/// Cores that this process may use: affinity and cgroup quota, not the machine's count.
pub fn usable_cores() -> usize {
    #[cfg(ringccl_sim)]
    if let Some(cores) = crate::sim::with(|world| world.cores()) {
        return cores;
    }
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// What a waiter has spent so far. Waits that ended while spinning, or within the first few yields, are not counted:
/// reading the clock would cost too much of what they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitStats {
    /// Waits that went beyond spinning and the first yields.
    pub waits: u64,
    /// Total time of these waits, in nanoseconds.
    pub total_ns: u64,
    /// The longest of them, in nanoseconds.
    pub longest_ns: u64,
    /// How often the waiter slept on its bell.
    pub sleeps: u64,
    /// How often the waiter gave its core away.
    pub yields: u64,
}

/// Runs waits for one thread and adapts how long it spins and yields.
///
/// Spinning pays only while the peer runs on another core. A wait that outlasts the spins and ends as soon as
/// the core is given away was a wait for a peer on this very core: the budget halves. A wait that ends while
/// spinning lets it grow again.
///
/// A wake-up of a sleeper on another core costs tens of microseconds, yielding costs CPU time. A wait that
/// ends within twice the budget although the waiter slept would have been better off yielding, so the
/// budget doubles; a wait much longer than that halves it.
#[derive(Debug)]
pub struct Waiter {
    policy: WaitPolicy,
    spins: u32,
    yield_for: Duration,
    stats: WaitStats,
}

/// What a [`Waiter`] waits for.
pub trait Wait<E> {
    /// Looks: true when the wait is over.
    ///
    /// # Errors
    /// What ends the wait otherwise.
    fn look(&mut self) -> Result<bool, E>;

    /// After `waited` in this wait: looks whether it can succeed at all, then sleeps for `nap` at most, or until what
    /// it waits for happens. True when the wait is over.
    ///
    /// # Errors
    /// What ends the wait otherwise.
    fn nap(&mut self, waited: Duration, nap: Duration) -> Result<bool, E>;
}

/// A wait on one bell.
struct OneBell<'a, P, C> {
    bell: &'a Bell,
    sleepers: &'a Sleepers,
    poll: P,
    check: C,
    /// Whom the last look found to be waited for.
    awaits: Awaits,
}

impl<E, P, C> Wait<E> for OneBell<'_, P, C>
where
    P: FnMut() -> Result<Option<Awaits>, E>,
    C: FnMut(Duration) -> Result<(), E>,
{
    #[inline]
    fn look(&mut self) -> Result<bool, E> {
        let found = (self.poll)()?;
        self.awaits = found.unwrap_or(self.awaits);
        Ok(found.is_none())
    }

    fn nap(&mut self, waited: Duration, nap: Duration) -> Result<bool, E> {
        (self.check)(waited)?;
        let found = self.bell.sleep(self.sleepers, nap, self.awaits, &mut self.poll)?;
        if found.is_none() { Ok(true) } else { self.look() }
    }
}

/// Fewest spins of a policy that spins: enough to notice that the peer has got a core of its own again.
const SPINS_MIN: u32 = 32;
/// Yields before the clock is read.
const YIELDS_UNTIMED: u32 = 3;
/// A wait that ends within so many yields after spinning was spun in vain.
const YIELDS_IN_VAIN: u64 = 2;

impl Waiter {
    /// A waiter that starts with the largest budgets.
    pub fn new(policy: WaitPolicy) -> Self {
        Self { policy, spins: policy.spins, yield_for: policy.yield_max, stats: WaitStats::default() }
    }

    /// The policy that it was made with.
    pub fn policy(&self) -> WaitPolicy {
        self.policy
    }

    /// What this waiter has spent so far.
    pub fn stats(&self) -> WaitStats {
        self.stats
    }

    /// Calls `poll` until it answers `None`, or fails; `Some` says whom it waits for.
    ///
    /// `check` runs before each sleep, so every [`WaitPolicy::nap`] at the latest, with the time waited so
    /// far: it looks at deadlines and the health of peers, and ends the wait by an error. `poll` must itself look at
    /// every condition whose setter rings `bell`.
    ///
    /// # Errors
    /// The first error of `poll` or `check`.
    #[inline]
    pub fn wait<E>(
        &mut self,
        bell: &Bell,
        sleepers: &Sleepers,
        poll: impl FnMut() -> Result<Option<Awaits>, E>,
        check: impl FnMut(Duration) -> Result<(), E>,
    ) -> Result<(), E> {
        self.run(&mut OneBell { bell, sleepers, poll, check, awaits: Awaits::Anyone })
    }

    /// Looks, spins, yields and naps until `wait` is over.
    ///
    /// # Errors
    /// The first error of `wait`.
    #[inline]
    pub fn run<E>(&mut self, wait: &mut impl Wait<E>) -> Result<(), E> {
        for _ in 0..self.spins {
            if wait.look()? {
                self.spun_well();
                return Ok(());
            }
            spin_hint();
        }
        let yields = self.stats.yields;
        let outcome = self.yield_at_first(wait);
        if self.stats.yields - yields <= YIELDS_IN_VAIN {
            self.spun_in_vain();
        }
        outcome
    }

    /// Looks and spins, then yields a few times; true when `look` answered true. Reads no clock: for waits that are
    /// short as a rule, before [`Waiter::run`].
    ///
    /// # Errors
    /// Those of `look`.
    #[inline]
    pub fn run_briefly<E>(&mut self, mut look: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        for _ in 0..self.spins {
            if look()? {
                self.spun_well();
                return Ok(true);
            }
            spin_hint();
        }
        for yields in 0..=YIELDS_UNTIMED {
            if look()? {
                if u64::from(yields) <= YIELDS_IN_VAIN {
                    self.spun_in_vain();
                }
                return Ok(true);
            }
            if yields < YIELDS_UNTIMED {
                self.stats.yields += 1;
                yield_core();
            }
        }
        Ok(false)
    }

    /// Goes on after [`Waiter::run_briefly`] in vain: yields and naps until `wait` is over.
    ///
    /// # Errors
    /// The first error of `wait`.
    pub fn run_on<E>(&mut self, wait: &mut impl Wait<E>) -> Result<(), E> {
        self.run_long(wait)
    }

    fn spun_well(&mut self) {
        self.spins = (self.spins + self.spins / 8 + 1).min(self.policy.spins);
    }

    fn spun_in_vain(&mut self) {
        self.spins = (self.spins / 2).max(SPINS_MIN.min(self.policy.spins));
    }

    /// Yields a few times before the clock is read, which costs a tenth of what a wait for a peer on this core takes.
    #[inline]
    fn yield_at_first<E>(&mut self, wait: &mut impl Wait<E>) -> Result<(), E> {
        if !self.yield_for.is_zero() {
            for _ in 0..YIELDS_UNTIMED {
                if wait.look()? {
                    return Ok(());
                }
                self.stats.yields += 1;
                yield_core();
            }
        }
        self.run_long(wait)
    }

    #[cold]
    #[inline(never)]
    fn run_long<E>(&mut self, wait: &mut impl Wait<E>) -> Result<(), E> {
        let start = now();
        let outcome = self.yield_then_sleep(start, wait);
        let waited = u64::try_from((now() - start).as_nanos()).unwrap_or(u64::MAX);
        self.stats.waits += 1;
        self.stats.total_ns = self.stats.total_ns.saturating_add(waited);
        self.stats.longest_ns = self.stats.longest_ns.max(waited);
        outcome
    }

    fn yield_then_sleep<E>(&mut self, start: Instant, wait: &mut impl Wait<E>) -> Result<(), E> {
        let mut looks: u32 = 0;
        loop {
            if wait.look()? {
                return Ok(());
            }
            // The clock is read on every fourth look: a look takes from half a microsecond up.
            if self.yield_for.is_zero() || (looks % 4 == 3 && (now() - start) >= self.yield_for) {
                break;
            }
            self.stats.yields += 1;
            yield_core();
            looks += 1;
        }
        loop {
            self.stats.sleeps += 1;
            if wait.nap(now() - start, self.policy.nap)? {
                self.adapt(now() - start);
                return Ok(());
            }
        }
    }

    /// Moves the yielding budget after a wait of `waited` that ended in sleep.
    fn adapt(&mut self, waited: Duration) {
        let next = if waited < self.yield_for * 2 { self.yield_for * 2 } else { self.yield_for / 2 };
        self.yield_for = next.clamp(self.policy.yield_min, self.policy.yield_max);
    }
}
