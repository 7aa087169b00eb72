//! Many receives of one rank that one thread waits for.

use super::{Company, Naps, Task};
use crate::comm::Shared;
use crate::error::Error;
use crate::executor::Progress;
use crate::mail::RecvTask;
use std::collections::HashMap;
use std::sync::Arc;

/// Receives that sit at one desk of their rank's inbox.
#[derive(Debug)]
pub(super) struct Receives {
    shared: Arc<Shared>,
    desk: u64,
    /// Those for which nothing has come, by their numbers.
    waiting: HashMap<u64, RecvTask>,
    /// Those whose messages arrive.
    arriving: Vec<RecvTask>,
}

impl Receives {
    /// Posts receives of one rank, in this order; tasks that are none are not expected here.
    ///
    /// # Panics
    /// Without a task.
    pub(super) fn new(tasks: Vec<Task>) -> Self {
        let shared = Arc::clone(tasks[0].shared());
        let desk = shared.mail.open_desk();
        let (mut waiting, mut arriving) = (HashMap::with_capacity(tasks.len()), Vec::new());
        for task in tasks {
            let Task::Recv(mut task) = task else { continue };
            match task.post(Some(desk)) {
                Some(id) => drop(waiting.insert(id, task)),
                // It says why when it is polled.
                None => arriving.push(task),
            }
        }
        Self { shared, desk, waiting, arriving }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.arriving.len()
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Looks whether something has come; whether it has.
    fn look(&mut self) -> Result<bool, Error> {
        let Self { shared, desk, waiting, arriving } = self;
        let served = shared.mail.look(shared, *desk).map_err(|error| shared.give_up(error, 0))?;
        let before = arriving.len();
        arriving.extend(served.into_iter().filter_map(|id| waiting.remove(&id)));
        Ok(arriving.len() > before)
    }

    pub(super) fn poll(&mut self) -> Result<(), Error> {
        let word = self.shared.aborted();
        loop {
            self.look()?;
            let (before, mut error) = (self.arriving.len(), None);
            self.arriving.retain_mut(|task| match task.poll() {
                Ok(progress) => progress != Progress::Done,
                Err(new) => {
                    error.get_or_insert(new);
                    false
                }
            });
            if let Some(error) = error {
                return Err(error);
            }
            // Behind a message that was read there may be the next.
            if self.arriving.len() == before {
                break;
            }
        }
        // Whatever was sent before the end has been looked for.
        if word != 0 && !self.waiting.is_empty() { Err(self.shared.refuse(word, 0)) } else { Ok(()) }
    }

    /// Of those that nothing has come for the first of each source stands for all.
    pub(super) fn check(&mut self, company: Company) -> Result<(), Error> {
        self.arriving.iter_mut().try_for_each(|task| task.check(company))?;
        let waiting = self.shared.mail.waiting_at(self.desk);
        let mut first = waiting.into_iter().map(|(id, _)| id);
        first.try_for_each(|id| self.waiting.get_mut(&id).map_or(Ok(()), |task| task.check(company)))
    }

    pub(super) fn nap(&mut self, naps: &mut Naps) -> bool {
        // An error is met again, and kept, when this is polled.
        if self.shared.aborted() != 0 || !matches!(self.look(), Ok(false)) {
            return false;
        }
        let Self { shared, desk, arriving, .. } = self;
        for task in arriving {
            match task.awaits() {
                Ok(Some(awaits)) => naps.add(shared, awaits),
                Ok(None) | Err(_) => return false,
            }
        }
        shared.mail.waiting_at(*desk).into_iter().for_each(|(_, awaits)| naps.add(shared, awaits));
        true
    }
}

impl Drop for Receives {
    fn drop(&mut self) {
        self.shared.mail.close_desk(self.desk);
    }
}
