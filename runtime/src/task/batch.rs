//! Tasks that are driven together: a blocking call's, a group's, or those of one item of a stream.
//!
//! ```text
//!  group:  send to 1 | recv from 1 | all_reduce | send to 1 | send to 2 | recv from any | all_reduce
//!
//!  lanes:  sends to 1:    o o        a row: the second begins when the first is done
//!          sends to 2:    o
//!          collectives:   o o        a row, in the order of their tickets
//!          receives:      o o        at one desk of the inbox, which tells those that have got a message
//! ```
//!
//! So a look costs as much as there are lanes and messages that are arriving, however many tasks wait.

use super::receives::Receives;
use super::{Company, Naps, Task};
use crate::error::Error;
use crate::executor::Progress;
use shmring::clock::now;
use shmring::wait::Wait;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Least time between two looks whether tasks can succeed; less than a nap, so that a sleeper looks every time.
const CHECK_AFTER: Duration = Duration::from_millis(10);

/// Several tasks that are driven together, and the first error among them, which ends them all.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    lanes: Vec<Lane>,
    error: Option<Error>,
    /// When it was last seen whether they can succeed.
    checked: Option<Instant>,
}

/// Tasks of one rank of a communicator that share something.
#[derive(Debug)]
enum Lane {
    /// Each waits for the one before it.
    Row(VecDeque<Task>),
    Receives(Receives),
}

/// What the tasks of a lane have in common, besides the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Collectives,
    SendsTo(u32),
    Receives,
    /// A receive that had its place before, by its position.
    Posted(usize),
}

impl Batch {
    /// A batch of these tasks, whose messages take their places now, in this order.
    pub(crate) fn new(tasks: Vec<Task>) -> Self {
        let lanes = match <[Task; 1]>::try_from(tasks) {
            Ok([mut task]) => {
                take_place(&mut task);
                vec![Lane::Row(VecDeque::from([task]))]
            }
            Err(tasks) => sort(tasks),
        };
        Self { lanes, error: None, checked: None }
    }

    /// Whether nothing is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Ranks of the largest communicator among the tasks'.
    pub(crate) fn nranks(&self) -> Option<usize> {
        self.lanes.iter().map(|lane| lane.shared().nranks as usize).max()
    }

    /// The first error, once the batch is over.
    pub(crate) fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Lets every task go on as far as it can.
    pub(crate) fn poll(&mut self) {
        self.each(Lane::poll);
    }

    /// Before a sleep: ends what cannot succeed. `company` is that of the batch.
    pub(crate) fn check(&mut self, company: Company) {
        // A busy thread gets here between any two messages, and a look costs system calls.
        let time = now();
        if self.checked.is_some_and(|checked| time - checked < CHECK_AFTER) {
            return;
        }
        self.checked = Some(time);
        let is_one = self.lanes.iter().map(Lane::len).sum::<usize>() == 1;
        let company = if is_one || company == Company::Others { company } else { Company::Together };
        self.each(|lane| lane.check(company));
    }

    /// Ends all of it, and with it the communicators: their other ranks run what will not be run here.
    pub(crate) fn abandon(&mut self) {
        for lane in self.lanes.drain(..) {
            lane.shared().abandon("an operation in a stream that has ended");
        }
    }

    /// Adds whom the tasks wait for to `naps`; false when one of them can go on.
    pub(crate) fn nap(&mut self, naps: &mut Naps) -> bool {
        self.lanes.iter_mut().all(|lane| lane.nap(naps))
    }

    /// Does something with every lane. After an error nothing of the batch goes on: the others would wait for what may
    /// never come, and whoever waits for the batch would hear of the error only then. What is left has been called and
    /// will not be done, so its communicators end.
    fn each(&mut self, mut act: impl FnMut(&mut Lane) -> Result<(), Error>) {
        for lane in &mut self.lanes {
            if let Err(new) = act(lane) {
                // The first to fail tells why: the others often fail because of it.
                self.error.get_or_insert(new);
            }
        }
        self.lanes.retain(|lane| lane.len() > 0);
        if let Some(error) = &self.error {
            // All have ended before any of it is dropped.
            self.lanes.iter().for_each(|lane| lane.shared().abandon_after(error));
            self.lanes.clear();
        }
    }
}

/// Gives a message its place among those of its rank, if it has none.
fn take_place(task: &mut Task) {
    match task {
        Task::Send(send) => send.queue(),
        Task::Recv(recv) => {
            recv.post(None);
        }
        Task::Collective(_) => {}
    }
}

/// Puts tasks that share something together.
fn sort(tasks: Vec<Task>) -> Vec<Lane> {
    let mut places = HashMap::new();
    let mut rows: Vec<Vec<Task>> = Vec::new();
    for (position, mut task) in tasks.into_iter().enumerate() {
        let kind = match &mut task {
            Task::Collective(_) => Kind::Collectives,
            Task::Send(send) => {
                send.queue();
                Kind::SendsTo(send.destination())
            }
            Task::Recv(recv) if recv.is_posted() => Kind::Posted(position),
            Task::Recv(_) => Kind::Receives,
        };
        let place = *places.entry((Arc::as_ptr(task.shared()), kind)).or_insert_with(|| {
            rows.push(Vec::new());
            rows.len() - 1
        });
        rows[place].push(task);
    }
    rows.into_iter().map(Lane::new).collect()
}

impl Lane {
    /// # Panics
    /// Without a task.
    fn new(mut row: Vec<Task>) -> Self {
        match &mut row[..] {
            [Task::Recv(_), _, ..] => Self::Receives(Receives::new(row)),
            [first] => {
                take_place(first);
                Self::Row(row.into())
            }
            _ => {
                // A group that was put into another one may have been called first.
                row.sort_by_key(|task| match task {
                    Task::Collective(collective) => collective.place(),
                    Task::Send(_) | Task::Recv(_) => 0,
                });
                Self::Row(row.into())
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Row(row) => row.len(),
            Self::Receives(receives) => receives.len(),
        }
    }

    fn shared(&self) -> &Arc<crate::comm::Shared> {
        match self {
            Self::Row(row) => row[0].shared(),
            Self::Receives(receives) => receives.shared(),
        }
    }

    fn poll(&mut self) -> Result<(), Error> {
        let row = match self {
            Self::Row(row) => row,
            Self::Receives(receives) => return receives.poll(),
        };
        while let Some(first) = row.front_mut() {
            if first.poll()? != Progress::Done {
                break;
            }
            row.pop_front();
        }
        Ok(())
    }

    fn check(&mut self, company: Company) -> Result<(), Error> {
        match self {
            Self::Row(row) => row.front_mut().map_or(Ok(()), |first| first.check(company)),
            Self::Receives(receives) => receives.check(company),
        }
    }

    fn nap(&mut self, naps: &mut Naps) -> bool {
        match self {
            Self::Row(row) => row.front_mut().is_none_or(|first| nap(first, naps)),
            Self::Receives(receives) => receives.nap(naps),
        }
    }
}

/// Adds whom a task waits for to `naps`; false when it can go on.
fn nap(task: &mut Task, naps: &mut Naps) -> bool {
    match task.awaits() {
        Ok(Some(awaits)) => {
            naps.add(task.shared(), awaits);
            true
        }
        // An error is met again, and kept, when the task is polled.
        Ok(None) | Err(_) => false,
    }
}

/// A batch that the calling thread drives to its end.
impl Wait<Infallible> for Batch {
    fn look(&mut self) -> Result<bool, Infallible> {
        self.poll();
        Ok(self.is_over())
    }

    fn nap(&mut self, _waited: Duration, nap: Duration) -> Result<bool, Infallible> {
        self.check(Company::Alone);
        let mut naps = Naps::default();
        if self.nap(&mut naps) {
            naps.sleep(nap, |again| self.nap(again));
        }
        self.look()
    }
}
