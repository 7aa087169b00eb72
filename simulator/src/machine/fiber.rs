//! One rank, or one thread beside the ranks, as the scheduler sees it.

use super::buffer::Buffer;
use corosensei::Yielder;
use std::ptr::NonNull;

/// When a fiber starts to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At this time, in nanoseconds.
    At(u64),
    /// After this many accesses of all fibers, or when nothing else can happen.
    After(u64),
}

/// What happens to a fiber at one of its accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// It never runs again; others learn of it `known_after` nanoseconds later.
    Death {
        /// How long its end takes.
        known_after: u64,
    },
    /// It does not run for so many nanoseconds.
    Stall(u64),
}

/// What a fiber does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has not begun.
    Waiting(Start),
    /// It can run.
    Ready,
    /// It sleeps on the futex words [`Fiber::sleeps_on`] until woken or this moment.
    Futex(u64),
    /// It sleeps.
    Asleep(u64),
    /// It has died; others do not know before the given time.
    Dying(u64),
    /// It has died and others may know.
    Dead,
    /// It has run to its end.
    Done,
}

/// A fiber.
#[derive(Debug)]
pub struct Fiber {
    /// What it does.
    pub status: Status,
    /// It does not run before this time.
    pub stalled_until: Option<u64>,
    /// What happens to it, at which of its accesses.
    pub blow: Option<(u64, Blow)>,
    /// Accesses so far.
    pub steps: u64,
    /// Addresses of the futex words that it sleeps on, or slept on last.
    pub(super) sleeps_on: Vec<usize>,
    /// Its stores that others do not see yet.
    pub(super) buffer: Buffer,
    /// Under [`super::Policy::Priorities`]: higher runs first.
    pub priority: i64,
    /// Whether it is a rank; otherwise it is a thread of one.
    pub is_rank: bool,
    /// Whose thread it is.
    pub member: u32,
    /// Whether it only serves others: nobody waits for its end.
    pub serves: bool,
    /// When its blow fell, in nanoseconds.
    pub struck_at: Option<u64>,
    /// When it ended, in nanoseconds.
    pub ended_at: Option<u64>,
    /// How the fiber gives its turn back; set when it begins.
    pub yielder: Option<NonNull<Yielder<(), ()>>>,
}

impl Fiber {
    /// A fiber that begins at `start`.
    pub fn new(start: Start, blow: Option<(u64, Blow)>, is_rank: bool) -> Self {
        let status = if start == Start::At(0) { Status::Ready } else { Status::Waiting(start) };
        Self {
            status,
            stalled_until: None,
            blow,
            steps: 0,
            sleeps_on: Vec::new(),
            buffer: Buffer::default(),
            priority: 0,
            is_rank,
            member: 0,
            serves: false,
            struck_at: None,
            ended_at: None,
            yielder: None,
        }
    }

    /// A thread of `member` that serves its others, and begins now.
    pub fn servant(member: u32) -> Self {
        Self { member, serves: true, ..Self::new(Start::At(0), None, false) }
    }

    /// Whether nothing of it is to come that anybody waits for: who serves the others sleeps then, and not in the
    /// middle of something.
    pub(super) fn is_over(&self) -> bool {
        let rests = self.serves && self.stalled_until.is_none() && matches!(self.status, Status::Futex(_));
        rests || matches!(self.status, Status::Dead | Status::Done)
    }

    /// Whether it can run now.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.status == Status::Ready && self.stalled_until.is_none()
    }

    /// When something happens to it by itself, if anything.
    pub fn next_event(&self) -> Option<u64> {
        let status = match self.status {
            Status::Waiting(Start::At(at)) | Status::Asleep(at) | Status::Dying(at) | Status::Futex(at) => {
                Some(at)
            }
            _ => None,
        };
        match (status, self.stalled_until) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Whether it may yet do something that others wait for, although it cannot run now.
    pub fn is_held(&self) -> bool {
        self.stalled_until.is_some()
            || matches!(self.status, Status::Waiting(_) | Status::Asleep(_) | Status::Dying(_) | Status::Dead)
    }
}
