//! Operations as things that somebody drives: polled in turn with others, on whichever thread.
//!
//! ```text
//!  Communicator::send, Group::run      drive(tasks)          the calling thread
//!  Stream                              Driver                a thread of this library, or who waits for a result
//! ```
//!
//! A task that cannot go on says whom it waits for; what would end the wait rings its rank's bell, also if another
//! thread of the same rank does it. So one thread can wait for many tasks of many communicators ([`Naps`]).

mod collective;
mod naps;
mod turn;

pub(crate) use collective::CollectiveTask;
pub(crate) use naps::Naps;
pub(crate) use turn::TurnWatch;

use crate::comm::Shared;
use crate::error::Error;
use crate::executor::Progress;
use crate::mail::{RecvTask, SendTask};
use shmring::clock::now;
use shmring::doorbell::Awaits;
use shmring::wait::{Wait, WaitPolicy, Waiter, usable_cores};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Least time between two looks whether tasks can succeed; less than a nap, so that a sleeper looks every time.
const CHECK_AFTER: Duration = Duration::from_millis(10);

/// Whether the thread that drives a task waits for others too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// For this one alone: as long as it waits, the thread does nothing else.
    Alone,
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

/// Several tasks that are driven together, and the first error among them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    tasks: Vec<Task>,
    error: Option<Error>,
    /// When it was last seen whether they can succeed.
    checked: Option<Instant>,
}

impl Batch {
    pub(crate) fn new(tasks: Vec<Task>) -> Self {
        Self { tasks, error: None, checked: None }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Ranks of the largest communicator among the tasks'.
    pub(crate) fn nranks(&self) -> Option<usize> {
        self.tasks.iter().map(|task| task.shared().nranks as usize).max()
    }

    /// The first error, once the batch is over.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Lets every task go on as far as it can.
    pub(crate) fn poll(&mut self) {
        self.keep(|task| Ok(task.poll()? != Progress::Done));
    }

    /// Before a sleep: ends what cannot succeed. `company` is that of the batch.
    pub(crate) fn check(&mut self, company: Company) {
        // A busy thread gets here between any two messages, and a look costs system calls.
        let time = now();
        if self.checked.is_some_and(|checked| time - checked < CHECK_AFTER) {
            return;
        }
        self.checked = Some(time);
        let company = if self.tasks.len() == 1 { company } else { Company::Others };
        self.keep(|task| task.check(company).map(|()| true));
    }

    /// Ends all of it, and with it the communicators: their other ranks run what will not be run here.
    pub(crate) fn abandon(&mut self) {
        for task in self.tasks.drain(..) {
            task.shared().abandon("an operation in a stream that has ended");
        }
    }

    /// Adds whom the tasks wait for to `naps`; false when one of them can go on.
    pub(crate) fn nap(&mut self, naps: &mut Naps) -> bool {
        self.tasks.iter_mut().all(|task| match task.awaits() {
            Ok(Some(awaits)) => {
                naps.add(task.shared(), awaits);
                true
            }
            // An error is met again, and kept, when the task is polled.
            Ok(None) | Err(_) => false,
        })
    }

    fn keep(&mut self, mut goes_on: impl FnMut(&mut Task) -> Result<bool, Error>) {
        let Self { tasks, error, .. } = self;
        tasks.retain_mut(|task| match goes_on(task) {
            Ok(goes_on) => goes_on,
            Err(new) => {
                // The first to fail tells why: the others often fail because of it.
                error.get_or_insert(new);
                false
            }
        });
    }
}

/// A batch that the calling thread drives to its end.
impl Wait<std::convert::Infallible> for Batch {
    fn look(&mut self) -> Result<bool, std::convert::Infallible> {
        self.poll();
        Ok(self.is_over())
    }

    fn nap(&mut self, _waited: Duration, nap: Duration) -> Result<bool, std::convert::Infallible> {
        self.check(Company::Alone);
        let mut naps = Naps::default();
        if self.nap(&mut naps) {
            naps.sleep(nap, |again| self.nap(again));
        }
        self.look()
    }
}

/// Drives tasks to their end in the calling thread; the first error, if any failed.
pub(crate) fn drive(tasks: Vec<Task>) -> Result<(), Error> {
    let waiters = tasks.first().map_or(1, |task| task.shared().nranks as usize);
    let mut batch = Batch::new(tasks);
    let mut waiter = Waiter::new(WaitPolicy::for_cores(waiters, usable_cores()));
    match waiter.run(&mut batch) {
        Ok(()) => batch.take_error().map_or(Ok(()), Err),
        Err(never) => match never {},
    }
}
