//! Operations as things that somebody drives: polled in turn with others, on whichever thread.
//!
//! ```text
//!  Communicator::send, Group::run      drive(tasks)          the calling thread
//!  Stream                              Driver                a thread of this library, or who waits for a result
//! ```
//!
//! Tasks that are driven together are a [`Batch`]: it polls, of those that wait for each other, the first.
//!
//! A task that cannot go on says whom it waits for; what would end the wait rings its rank's bell, also if another
//! thread of the same rank does it. So one thread can wait for many tasks of many communicators ([`Naps`]).

mod batch;
mod collective;
mod naps;
mod receives;
mod turn;

pub(crate) use batch::Batch;
pub(crate) use collective::CollectiveTask;
pub(crate) use naps::Naps;
pub(crate) use turn::{Ahead, TurnWatch};

use crate::comm::{Shared, refuse_in_callback};
use crate::error::Error;
use crate::executor::Progress;
use crate::mail::{RecvTask, SendTask};
use shmring::doorbell::Awaits;
use shmring::wait::{WaitPolicy, Waiter, usable_cores};
use std::sync::Arc;

/// Whether the thread that drives a task waits for others too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// For this one alone: as long as it waits, the thread does nothing else.
    Alone,
    /// For others of a batch too, of which it drives all to their ends: it calls nothing as long as one waits.
    Together,
    /// The thread may go on elsewhere, so that its wait here proves nothing.
    Others,
}

/// One operation of one rank.
///
/// Dropped before it is done it gives its turn up; if it has begun, that ends its communicator.
#[derive(Debug)]
pub(crate) enum Task {
    Collective(CollectiveTask),
    Send(SendTask),
    Recv(RecvTask),
}

impl Task {
    /// Goes on as far as possible without waiting. After `Done` or an error the task is over.
    ///
    /// # Errors
    /// What ends the operation; its communicator has ended then.
    pub(crate) fn poll(&mut self) -> Result<Progress, Error> {
        match self {
            Self::Collective(task) => task.poll(),
            Self::Send(task) => task.poll(),
            Self::Recv(task) => task.poll(),
        }
    }

    /// As [`Task::poll`], before anybody sleeps for the task: it is the only one that its thread drives.
    #[inline]
    fn poll_at_first(&mut self) -> Result<Progress, Error> {
        match self {
            Self::Recv(task) => task.poll_at_first(),
            _ => self.poll(),
        }
    }

    /// Whom the task waits for, or `None` when it can go on.
    ///
    /// # Errors
    /// As [`Task::poll`].
    pub(crate) fn awaits(&mut self) -> Result<Option<Awaits>, Error> {
        match self {
            Self::Collective(task) => task.awaits(),
            Self::Send(task) => task.awaits(),
            Self::Recv(task) => task.awaits(),
        }
    }

    /// Called before each sleep. Time counts from the first call for each operation: how long the thread has waited
    /// for other tasks says nothing of this one.
    ///
    /// # Errors
    /// As [`Task::poll`], if the operation cannot succeed any more.
    pub(crate) fn check(&mut self, company: Company) -> Result<(), Error> {
        match self {
            Self::Collective(task) => task.check(company),
            Self::Send(task) => task.check(company),
            Self::Recv(task) => task.check(company),
        }
    }

    /// The rank whose operation it is.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        match self {
            Self::Collective(task) => task.shared(),
            Self::Send(task) => task.shared(),
            Self::Recv(task) => task.shared(),
        }
    }
}

/// Drives tasks to their end in the calling thread; the first error, if any failed.
///
/// # Errors
/// [`Error::Argument`] in a callback of a stream: nothing was run then. Otherwise as [`Task::poll`].
pub(crate) fn drive(tasks: Vec<Task>) -> Result<(), Error> {
    let (rank, waiters) =
        tasks.first().map_or((0, 1), |task| (task.shared().rank, task.shared().nranks as usize));
    refuse_in_callback(rank)?;
    let mut batch = Batch::new(tasks);
    with_waiter(waiters, |waiter| waiter.run(&mut batch)).unwrap_or_else(|never| match never {});
    batch.take_error().map_or(Ok(()), Err)
}

/// Drives one task: as [`drive`], without more than looks for as long as a short wait takes.
///
/// # Errors
/// As [`drive`].
pub(crate) fn drive_one(mut task: Task) -> Result<(), Error> {
    let (rank, waiters) = (task.shared().rank, task.shared().nranks as usize);
    refuse_in_callback(rank)?;
    with_waiter(waiters, |waiter| {
        if waiter.run_briefly(|| task.poll_at_first().map(|progress| progress == Progress::Done))? {
            return Ok(());
        }
        let mut batch = Batch::new(vec![task]);
        waiter.run_on(&mut batch).unwrap_or_else(|never| match never {});
        batch.take_error().map_or(Ok(()), Err)
    })
}

/// Looks for as long as a short wait takes; whether `look` has answered true.
///
/// # Errors
/// Those of `look`.
#[inline]
pub(crate) fn briefly(waiters: usize, look: impl FnMut() -> Result<bool, Error>) -> Result<bool, Error> {
    with_waiter(waiters, |waiter| waiter.run_briefly(look))
}

/// Waits with what this thread has learned so far of how long to spin.
fn with_waiter<R>(waiters: usize, run: impl FnOnce(&mut Waiter) -> R) -> R {
    let policy = WaitPolicy::for_cores(waiters, cores());
    // Ranks of a simulation share a thread.
    #[cfg(ringccl_sim)]
    return run(&mut Waiter::new(policy));
    #[cfg(not(ringccl_sim))]
    {
        thread_local! {
            static LAST: std::cell::Cell<Option<Waiter>> = const { std::cell::Cell::new(None) };
        }
        let learned = LAST.take().filter(|waiter| waiter.policy() == policy);
        let mut waiter = learned.unwrap_or_else(|| Waiter::new(policy));
        let result = run(&mut waiter);
        LAST.set(Some(waiter));
        result
    }
}

/// Cores of this process. Asking the system reads files of its control groups, which takes ten times as long as a small
/// message, so it is asked once.
pub(crate) fn cores() -> usize {
    // Each simulated machine has its own.
    #[cfg(ringccl_sim)]
    return usable_cores();
    #[cfg(not(ringccl_sim))]
    {
        static CORES: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
        *CORES.get_or_init(usable_cores)
    }
}
