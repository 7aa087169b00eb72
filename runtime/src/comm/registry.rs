//! The communicators of this process, and what the others may know of its threads: where one of them is stuck.
//!
//! A thread whose wait gets long says so in its records of all communicators that it was the last to use, and whether
//! the process has another thread, which could use them meanwhile. A rank that waits for this one elsewhere can then
//! tell "has not come yet" from "cannot come", or at least suspect it: see `order.rs`.

use shmring::layout::MemberRecord;
use shmring::segment::Segment;
use shmring::sync::{Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Where the words lie among those of a member's record.
const FIRST_WORD: usize = 58;

/// A thread that waits: in which operation of which communicator, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stuck {
    /// Tells this wait from every other one of the process.
    pub(super) epoch: u64,
    pub(super) job: u64,
    pub(super) seqno: u64,
    /// The member of that communicator whose doing would end the wait.
    pub(super) awaits: u32,
    /// Whether the process has no other thread, so that nobody could use another of its communicators meanwhile.
    pub(super) is_alone: bool,
}

/// The job of a communicator that is being made: it has none yet, and `seqno` is its number among those of the process.
pub(super) const MAKING: u64 = 0;
/// Stands beside the awaited member in a record where another thread could come.
const NOT_ALONE: u64 = 1 << 32;

/// One communicator of this process.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) job: u64,
    /// How many communicators this process had made when it made this one: its name in messages.
    pub(super) number: u64,
    pub(super) view: Segment,
    /// The thread that used it last.
    home: Mutex<u64>,
}

static ENTRIES: Mutex<Vec<Arc<Entry>>> = Mutex::new(Vec::new());
static LAST: Mutex<u64> = Mutex::new(0);

thread_local! {
    /// This thread's number, from 1.
    static THREAD: u64 = next();
}

/// A number that this process has not used for a thread or a wait before.
fn next() -> u64 {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last += 1;
    *last
}

/// The calling thread's number.
#[inline]
pub(super) fn thread() -> u64 {
    THREAD.with(|number| *number)
}

fn entries() -> Vec<Arc<Entry>> {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Enters a communicator, in the hands of the calling thread.
pub(super) fn enter(job: u64, number: u64, view: Segment) -> Arc<Entry> {
    let entry = Arc::new(Entry { job, number, view, home: Mutex::new(thread()) });
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&entry));
    entry
}

/// Takes a communicator out.
pub(super) fn leave(entry: &Arc<Entry>) {
    ENTRIES.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, entry));
}

/// This process's entries for a job: one for each of its ranks that live here.
pub(super) fn of_job(job: u64) -> Vec<Arc<Entry>> {
    entries().into_iter().filter(|entry| entry.job == job).collect()
}

impl Entry {
    /// Takes the communicator into the calling thread's hands. What the last one said of itself no longer counts.
    pub(super) fn take(&self) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = thread();
        write(self.record(), None);
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
            write(self.record(), stuck);
        }
        is_ours
    }

    fn record(&self) -> &MemberRecord {
        self.view.member_record(self.view.member())
    }
}

/// Whether no other thread of this process could call anything. The coordinator's threads do not.
fn is_only_thread() -> bool {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return false };
    let names =
        tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.trim_end() != "coordinator").count() == 1
}

/// A wait that others know of, or one that nobody knows of yet; they are told that it is over when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Announced {
    told: Vec<Arc<Entry>>,
    epoch: u64,
}

impl Announced {
    /// Says in the records of all communicators of this thread where it waits; again when that has changed.
    pub(super) fn tell(&mut self, job: u64, seqno: u64, awaits: u32) -> Stuck {
        if self.epoch == 0 {
            self.epoch = next();
        }
        let all = entries();
        // Another thread of this process might still use the other communicators, whoever used them last.
        let is_alone = all.len() > 1 && is_only_thread();
        let stuck = Stuck { epoch: self.epoch, job, seqno, awaits, is_alone };
        for entry in all.into_iter().filter(|entry| entry.say(Some(stuck))) {
            if !self.told.iter().any(|told| Arc::ptr_eq(told, &entry)) {
                self.told.push(entry);
            }
        }
        stuck
    }

    /// Says in the records of all communicators of this thread that it makes another one, the process's `number`th.
    pub(super) fn making(number: u64) -> Self {
        let mut announced = Self { told: Vec::new(), epoch: 0 };
        announced.tell(MAKING, number, 0);
        announced
    }

    /// Says that the wait is over.
    #[inline]
    pub(super) fn end(&mut self) {
        if self.epoch != 0 {
            self.withdraw();
        }
    }

    #[cold]
    fn withdraw(&mut self) {
        for entry in self.told.drain(..) {
            entry.say(None);
        }
        self.epoch = 0;
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        self.end();
    }
}

fn write(record: &MemberRecord, stuck: Option<Stuck>) {
    let words = &record.words[FIRST_WORD..];
    // ORDERING: Relaxed for all; a torn reading has an epoch that is 0 or seen once only, and counts for nothing.
    words[0].store(0, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    if let Some(stuck) = stuck {
        let others = if stuck.is_alone { 0 } else { NOT_ALONE };
        let values = [stuck.job, stuck.seqno, u64::from(stuck.awaits) | others];
        // ORDERING: Relaxed, as above.
        for (word, value) in words[1..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        words[0].store(stuck.epoch, Ordering::Relaxed);
    }
}

/// Where the process of this record is stuck, as it says itself.
pub(super) fn read(record: &MemberRecord) -> Option<Stuck> {
    let words = &record.words[FIRST_WORD..];
    // ORDERING: Relaxed with fences, as in `write`: epochs that are equal before and after enclose whole words.
    let epoch = words[0].load(Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let [job, seqno, awaits] = [1, 2, 3].map(|i: usize| words[i].load(Ordering::Relaxed));
    fence(Ordering::SeqCst);
    let again = words[0].load(Ordering::Relaxed);
    let is_alone = awaits & NOT_ALONE == 0;
    let awaits = u32::try_from(awaits & !NOT_ALONE).ok()?;
    (epoch != 0 && epoch == again).then_some(Stuck { epoch, job, seqno, awaits, is_alone })
}

/// A member of one of this process's communicators that waits there for this process: its rank, the operation, and the
/// communicator's number.
pub(super) fn awaited_by() -> Option<(u32, u64, u64)> {
    entries().iter().find_map(|entry| {
        let own = entry.view.member();
        let others = (0..entry.view.geometry().members).filter(|rank| *rank != own);
        let waits = |rank: u32| {
            let stuck = read(entry.view.member_record(rank))?;
            (stuck.job == entry.job && stuck.awaits == own).then_some((rank, stuck.seqno, entry.number))
        };
        others.filter_map(waits).next()
    })
}
