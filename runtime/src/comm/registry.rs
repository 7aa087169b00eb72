//! The communicators of this process, and what the others may know of its threads: where one of them is stuck.
//!
//! A thread whose wait gets long says so in its records of all communicators that it was the last to use, and what
//! else the process might do meanwhile ([`Stuck`]). A rank that waits for this one, there or elsewhere, can then
//! tell "has not come yet" from "cannot come", or at least suspect it: see `order.rs`.
//!
//! In a simulation the ranks share a process; there each fiber counts as one.

use super::stuck::{self, Call, MAKING, Marks, SEVERAL, Stuck};
use super::tags::Tags;
use crate::stream;
use shmring::layout::MemberRecord;
use shmring::segment::Segment;
use shmring::sync::Ordering;
use std::cell::Cell;
use std::sync::{Arc, Mutex, PoisonError};

/// One communicator of this process.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) job: u64,
    pub(super) view: Segment,
    /// The thread that used it last.
    home: Mutex<u64>,
    /// The thread that made it.
    #[cfg(ringccl_sim)]
    maker: u64,
    /// How many waits there were.
    #[cfg(ringccl_sim)]
    waits: Mutex<u64>,
    /// Ranks whose processes are known to have ended.
    dead: Mutex<Vec<u32>>,
    /// Sends that are under way, or will be: each has a clone.
    sends: Arc<()>,
    /// The same for receives.
    receives: Arc<()>,
    /// The same for collectives that are tasks.
    collectives: Arc<()>,
}

/// Counts an operation of a communicator while it is under way.
#[derive(Debug)]
pub(crate) struct UnderWay {
    _counted: Arc<()>,
}

static ENTRIES: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());
static LAST: Mutex<u64> = Mutex::new(0);

thread_local! {
    /// This thread's number, from 1.
    static THREAD: u64 = next();
    /// Whether this thread is in a blocking call that has the handle of the communicator.
    static IS_HOLDING: Cell<bool> = const { Cell::new(false) };
    /// The same for the threads that this one simulates: those that are.
    #[cfg(ringccl_sim)]
    static HOLDING: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// A number that this process has not used for a thread or a wait before.
fn next() -> u64 {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last += 1;
    *last
}

/// The number of the thread itself, whatever it simulates.
fn own_thread() -> u64 {
    THREAD.with(|number| *number)
}

/// The calling thread's number.
#[inline]
pub(super) fn thread() -> u64 {
    #[cfg(ringccl_sim)]
    if let Some(simulated) = shmring::sim::with(|world| world.thread()) {
        return 1 << 63 | own_thread() << 32 | u64::from(simulated);
    }
    own_thread()
}

/// A number that this process has not used for a wait before.
fn next_epoch() -> u64 {
    // The numbers of a simulation repeat with its seed.
    #[cfg(ringccl_sim)]
    if shmring::sim::with(|_| ()).is_some() {
        let all = entries();
        let Some(first) = all.first() else { return 1 };
        let mut waits = first.waits.lock().unwrap_or_else(PoisonError::into_inner);
        *waits += 1;
        return *waits;
    }
    next()
}

/// A number for a communicator that lives in this process alone: random, but in a simulation.
pub(super) fn private_job() -> Result<u64, crate::Error> {
    #[cfg(ringccl_sim)]
    {
        let all = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.iter().filter(|entry| entry.maker == own_thread()).map(|entry| entry.job);
        Ok(own.max().unwrap_or(0) + 1)
    }
    // As random as a job of processes: half of what a secret has.
    #[cfg(not(ringccl_sim))]
    Ok(u64::from_str_radix(&coordinator_lite::Secret::random()?.to_hex()[..16], 16).unwrap_or(0))
}

/// Runs a blocking call that has the only handle of a rank, so that nobody else can call anything as that rank.
pub(super) fn holding<R>(call: impl FnOnce() -> R) -> R {
    /// Restores the mark also after a panic.
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            IS_HOLDING.set(self.0);
        }
    }
    #[cfg(ringccl_sim)]
    if shmring::sim::with(|_| ()).is_some() {
        return holding_simulated(call);
    }
    let _restore = Restore(IS_HOLDING.replace(true));
    call()
}

/// The same of a simulated thread, between whose accesses others run.
#[cfg(ringccl_sim)]
fn holding_simulated<R>(call: impl FnOnce() -> R) -> R {
    /// Takes the mark away also after a panic, and where the simulation is over.
    struct Restore(u64);
    impl Drop for Restore {
        fn drop(&mut self) {
            let last = |all: &mut Vec<u64>| {
                all.iter().rposition(|thread| *thread == self.0).map(|at| all.swap_remove(at))
            };
            HOLDING.with_borrow_mut(last);
        }
    }
    let own = thread();
    HOLDING.with_borrow_mut(|all| all.push(own));
    let _restore = Restore(own);
    call()
}

/// Whether the calling thread is in such a call.
fn is_holding() -> bool {
    #[cfg(ringccl_sim)]
    if shmring::sim::with(|_| ()).is_some() {
        let own = thread();
        return HOLDING.with_borrow(|all| all.contains(&own));
    }
    IS_HOLDING.get()
}

/// The word of a member's record with the number that it proposes for the communicator: one more than the highest of
/// its process.
const NUMBER_WORD: usize = 40;
/// What a number is at most: as much as messages have room for.
const NUMBER_MAX: u64 = (1 << 28) - 1;
/// The highest number of a communicator that has gone.
static HIGHEST: Mutex<u64> = Mutex::new(0);

/// The number that the next communicator of this process has, unless another rank's process knows a higher one.
pub(super) fn upcoming() -> u64 {
    let all = entries();
    // The numbers of a simulation repeat with its seed, also those made before it runs.
    #[cfg(ringccl_sim)]
    let (all, gone) = (all.iter().filter(|entry| entry.maker == own_thread()), 0);
    #[cfg(not(ringccl_sim))]
    let (all, gone) = (all.iter(), *HIGHEST.lock().unwrap_or_else(PoisonError::into_inner));
    all.map(|entry| entry.number()).max().unwrap_or(0).max(gone) + 1
}

/// The communicators of the process.
fn entries() -> Vec<Arc<Entry>> {
    let all = ENTRIES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    #[cfg(ringccl_sim)]
    if let Some(member) = shmring::sim::with(|world| world.running()) {
        let is_own = |entry: &Arc<Entry>| entry.maker == own_thread() && entry.view.member() == member;
        return all.into_iter().filter(is_own).collect();
    }
    all
}

/// Enters a communicator, in the hands of the calling thread.
pub(super) fn enter(job: u64, view: Segment) -> Arc<Entry> {
    // Ranks of one process propose the same.
    let proposed = of_job(job).first().map_or_else(upcoming, |sibling| sibling.proposed());
    // ORDERING: Relaxed; the number stands for itself.
    view.member_record(view.member()).words[NUMBER_WORD].store(proposed, Ordering::Relaxed);
    let entry = Arc::new(Entry {
        job,
        view,
        home: Mutex::new(thread()),
        #[cfg(ringccl_sim)]
        maker: own_thread(),
        #[cfg(ringccl_sim)]
        waits: Mutex::default(),
        dead: Mutex::default(),
        sends: Arc::default(),
        receives: Arc::default(),
        collectives: Arc::default(),
    });
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&entry));
    entry
}

/// Takes a communicator out.
pub(super) fn leave(entry: &Arc<Entry>) {
    // Before the lock: a simulated rank may be interrupted at any access to shared memory.
    let number = entry.number();
    let mut highest = HIGHEST.lock().unwrap_or_else(PoisonError::into_inner);
    *highest = number.max(*highest);
    drop(highest);
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, entry));
}

/// This process's entries for a job: one for each of its ranks that live here.
pub(super) fn of_job(job: u64) -> Vec<Arc<Entry>> {
    entries().into_iter().filter(|entry| entry.job == job).collect()
}

impl Entry {
    /// What this rank proposes as the communicator's number.
    fn proposed(&self) -> u64 {
        // ORDERING: Relaxed; the number stands for itself.
        self.record().words[NUMBER_WORD].load(Ordering::Relaxed)
    }

    /// The communicator's name in messages, the same on all its ranks once they have met: the highest number that any
    /// of them proposes. So it is higher than those of all that one of them had before.
    pub(super) fn number(&self) -> u64 {
        // ORDERING: Relaxed; each number stands for itself.
        let of = |rank| self.view.member_record(rank).words[NUMBER_WORD].load(Ordering::Relaxed);
        (0..self.view.geometry().members).map(of).max().unwrap_or(0).min(NUMBER_MAX)
    }

    /// Takes the communicator into the calling thread's hands. What the last one said of itself no longer counts.
    pub(super) fn take(&self) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = thread();
        stuck::write(self.record(), None);
    }

    /// Notes which ranks' processes have ended.
    pub(super) fn note_dead(&self, dead: &[u32]) {
        let mut known = self.dead.lock().unwrap_or_else(PoisonError::into_inner);
        if *known != dead {
            dead.clone_into(&mut known);
        }
    }

    /// The ranks whose processes are known to have ended.
    pub(super) fn dead(&self) -> Vec<u32> {
        self.dead.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A send of this communicator begins.
    pub(crate) fn send(&self) -> UnderWay {
        UnderWay { _counted: Arc::clone(&self.sends) }
    }

    /// A receive of this communicator begins.
    pub(crate) fn receive(&self) -> UnderWay {
        UnderWay { _counted: Arc::clone(&self.receives) }
    }

    /// A collective of this communicator begins, or is queued.
    pub(crate) fn collective(&self) -> UnderWay {
        UnderWay { _counted: Arc::clone(&self.collectives) }
    }

    /// Sends, receives, and collectives that are under way.
    pub(super) fn under_way(&self) -> [usize; 3] {
        [&self.sends, &self.receives, &self.collectives].map(|all| Arc::strong_count(all) - 1)
    }

    /// The thread that has the communicator in its hands.
    fn home(&self) -> u64 {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says where the calling thread waits, or that it no longer does; `false` if the communicator is in other hands.
    fn say(&self, stuck: Option<Stuck>) -> bool {
        // Another thread may take it in between, and two then write: what they leave may be stale or torn, but it is
        // marked as not alone by both, and counts for a suspicion at most. A thread that is alone has no such rival.
        let is_ours = self.home() == thread();
        if is_ours {
            stuck::write(self.record(), stuck);
        }
        is_ours
    }

    fn record(&self) -> &MemberRecord {
        self.view.member_record(self.view.member())
    }
}

/// Whether no other thread of this process could call anything: those of this library do not, as long as streams have
/// nothing to do.
fn is_only_thread() -> bool {
    // A simulated rank has one thread, and those of its streams.
    #[cfg(ringccl_sim)]
    if shmring::sim::with(|_| ()).is_some() {
        return !stream::any_work();
    }
    let main = std::process::id().to_string();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let drivers = stream::threads();
    let could_call = |task: &std::fs::DirEntry| {
        let name = task.file_name();
        let number = name.to_str().and_then(|name| name.parse::<i32>().ok());
        if number.is_some_and(|number| drivers.contains(&number)) {
            return false;
        }
        // A program may have any name, and its first thread has that.
        name.to_str() == Some(&main)
            || std::fs::read_to_string(task.path().join("comm")).unwrap_or_default().trim_end()
                != "coordinator"
    };
    tasks.flatten().filter(could_call).count() == 1 && !stream::any_work()
}

/// A wait, as whoever waits knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) job: u64,
    pub(super) rank: u32,
    pub(super) call: Call,
    pub(super) seqno: u64,
    pub(super) tags: Tags,
    /// The awaited rank, or [`SEVERAL`].
    pub(super) awaits: u32,
    /// Whether the operation is counted as under way: it is a task.
    pub(super) is_task: bool,
    /// Whether the thread may go on elsewhere meanwhile, and not only after this wait.
    pub(super) may_go_on: bool,
}

/// A wait that others know of, or one that nobody knows of yet; they are told that it is over when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Announced {
    told: Vec<Arc<Entry>>,
    wait: Option<(Wait, u64)>,
    looks: u64,
    is_alone: bool,
}

impl Announced {
    /// Says in the records of all communicators of this thread where it waits; with each look, and as a new wait when
    /// that has changed.
    pub(super) fn tell(&mut self, wait: Wait) -> Stuck {
        let epoch = match self.wait {
            Some((same, epoch)) if same == wait => epoch,
            _ => {
                let epoch = next_epoch();
                self.wait = Some((wait, epoch));
                (self.looks, self.is_alone) = (0, false);
                epoch
            }
        };
        self.looks += 1;
        let all = entries();
        let thread = self.marks_of_thread(wait, all.len());
        let Wait { job, rank, call, seqno, tags, awaits, .. } = wait;
        let stuck = Stuck { epoch, job, rank, call, seqno, tags, awaits, marks: thread, looks: self.looks };
        for entry in all {
            let stuck = Stuck { marks: marks_of_rank(thread, wait, &entry), ..stuck };
            if entry.say(Some(stuck)) && !self.told.iter().any(|told| Arc::ptr_eq(told, &entry)) {
                self.told.push(entry);
            }
        }
        stuck
    }

    /// What holds for all ranks that the thread has in its hands.
    fn marks_of_thread(&mut self, wait: Wait, communicators: usize) -> Marks {
        let is_held = wait.job != MAKING && !wait.may_go_on && is_holding();
        // Looking costs some system calls. Who is alone stays so until it goes on; who is not asks ever less often.
        let matters = !wait.may_go_on && (communicators > 1 || !is_held);
        if matters && !self.is_alone && self.looks.is_power_of_two() {
            self.is_alone = is_only_thread();
        }
        Marks { is_alone: self.is_alone, is_held, ..Marks::default() }
    }

    /// Says in the records of all communicators of this thread that it makes another one, of this number.
    pub(super) fn making(number: u64) -> Self {
        let mut announced = Self::default();
        let call = Call::Collective;
        announced.tell(Wait {
            job: MAKING,
            rank: 0,
            call,
            seqno: number,
            tags: Tags::default(),
            awaits: SEVERAL,
            is_task: false,
            may_go_on: false,
        });
        announced
    }

    /// Says that the wait is over.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.wait.is_some() {
            self.withdraw();
        }
    }

    #[cold]
    fn withdraw(&mut self) {
        for entry in self.told.drain(..) {
            entry.say(None);
        }
        self.wait = None;
    }
}

/// The marks for the record of one rank: what it has under way besides the operation that waits.
fn marks_of_rank(thread: Marks, wait: Wait, entry: &Entry) -> Marks {
    let [sends, receives, collectives] = entry.under_way();
    let is_own = wait.is_task && entry.job == wait.job && entry.view.member() == wait.rank;
    let own = |is_one: bool| usize::from(is_own && is_one);
    Marks {
        has_send: sends > own(wait.call == Call::Send),
        has_recv: receives > own(wait.call == Call::Recv),
        has_collective: collectives > own(!wait.call.is_message()),
        ..thread
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.end();
    }
}

/// A member of one of this process's communicators that waits there for this process: where, and the communicator's
/// number.
pub(super) fn awaited_by() -> Option<(Stuck, u64)> {
    entries().iter().find_map(|entry| {
        let own = entry.view.member();
        let others = (0..entry.view.geometry().members).filter(|rank| *rank != own);
        let waits = |rank: u32| {
            let stuck = stuck::read(entry.view.member_record(rank))?;
            (stuck.job == entry.job && stuck.rank == rank && stuck.awaits == own)
                .then_some((stuck, entry.number()))
        };
        others.filter_map(waits).next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A communicator's number is the highest that one of its ranks proposes, so higher than those of all that any of
    /// them had before, also of those that are gone; words of any content are a number that messages have room for.
    #[test]
    fn numbers_are_agreed_and_grow() {
        let geometry = crate::Config::new(2).geometry(2).unwrap();
        let mut views = Segment::in_memory(&geometry).unwrap();
        let elsewhere = views.pop().unwrap();
        let word = &elsewhere.member_record(1).words[NUMBER_WORD];
        let entry = enter(1 << 50, views.pop().unwrap());
        // Other tests make communicators meanwhile.
        let before = entry.number();
        word.store(before + 100_000, Ordering::Relaxed);
        assert_eq!(entry.number(), before + 100_000);
        assert!(upcoming() > before + 100_000);
        leave(&entry);
        let next = enter(1 << 51, Segment::in_memory(&geometry).unwrap().swap_remove(0));
        assert!(next.number() > before + 100_000);
        leave(&next);
        word.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(entry.number(), NUMBER_MAX);
    }
}
