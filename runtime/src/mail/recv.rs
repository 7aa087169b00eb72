//! Receiving: a receive is posted, gets a message of its source and tag, and reads it as it arrives.

use super::Letter;
use super::inbox::AtOnce;
use crate::comm::{Duty, Mailing, Shared, Tags, UnderWay, Watch};
use crate::error::{Error, Stage};
use crate::executor::Progress;
use crate::task::Company;
use shmring::doorbell::Awaits;
use std::sync::Arc;

/// A message that is wanted.
#[derive(Debug)]
pub(crate) struct RecvTask {
    shared: Arc<Shared>,
    /// The number of the receive in the inbox; `None` before it is posted.
    id: Option<u64>,
    /// Where it may come from.
    source: Option<u32>,
    letter: Letter,
    to: *mut u8,
    /// Told where it came from.
    from: Option<Arc<std::sync::OnceLock<u32>>>,
    is_over: bool,
    watch: Watch,
    _under_way: UnderWay,
}

// SAFETY: the buffer may be used by whichever thread drives the task (contract of `new`).
unsafe impl Send for RecvTask {}

impl RecvTask {
    /// A receive from `source`, or from any rank.
    ///
    /// # Safety
    /// - `to` is writable for the letter's bytes, from any thread, until the task is over or dropped.
    pub(crate) unsafe fn new(shared: Arc<Shared>, source: Option<u32>, letter: Letter, to: *mut u8) -> Self {
        let (watch, _under_way) = (Watch::default(), shared.entry.receive());
        Self { shared, id: None, source, letter, to, from: None, is_over: false, watch, _under_way }
    }

    /// Gives the receive its place among those of its rank, if it has none: it gets what comes from now on, and what
    /// came before. Its number, unless the communicator has ended in a way that leaves no messages.
    pub(crate) fn post(&mut self, desk: Option<u64>) -> Option<u64> {
        let Self { shared, id, source, letter, .. } = self;
        if id.is_none() && shared.takes_messages() {
            *id = Some(shared.mail.inbox().post(*source, letter.tag, desk));
        }
        *id
    }

    /// Whether the receive has its place.
    pub(crate) fn is_posted(&self) -> bool {
        self.id.is_some()
    }

    /// Where the rank is told that the message came from.
    pub(crate) fn told_source(&mut self) -> Arc<std::sync::OnceLock<u32>> {
        Arc::clone(self.from.get_or_insert_default())
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn poll(&mut self) -> Result<Progress, Error> {
        let progress = self.go_on();
        match &progress {
            Ok(Progress::Blocked) => {}
            Ok(Progress::Advanced) => self.watch.waited(),
            Ok(Progress::Done) => {
                if !self.is_over {
                    self.shared.mail.traffic.received(self.letter.bytes());
                }
                self.end();
            }
            Err(_) => self.end(),
        }
        progress
    }

    /// As [`RecvTask::poll`] of a receive that waits alone, for a short time: it takes its message without being posted
    /// if it can, so that one that was called later, by another thread of the rank, may be served before it.
    #[inline]
    pub(crate) fn poll_at_first(&mut self) -> Result<Progress, Error> {
        let Self { shared, id: None, source: Some(source), letter, to, is_over: false, .. } = self else {
            return self.poll();
        };
        // SAFETY: the contract of `new`.
        let found = unsafe { shared.mail.take_at_once(shared, *source, *letter, *to) };
        match found {
            Ok(AtOnce::NotHere) => Ok(Progress::Blocked),
            Ok(AtOnce::Post) => self.poll(),
            Ok(AtOnce::Taken) => {
                if let Some(from) = &self.from {
                    // Set once: the task is over then.
                    let _ = from.set(*source);
                }
                self.is_over = true;
                Ok(Progress::Done)
            }
            Err(error) => {
                self.end();
                Err(error)
            }
        }
    }

    fn go_on(&mut self) -> Result<Progress, Error> {
        if self.is_over {
            return Ok(Progress::Done);
        }
        let word = self.shared.aborted();
        let Some(id) = self.post(None) else { return Err(self.shared.refuse(self.shared.aborted(), 0)) };
        let Self { shared, source, letter, to, from, .. } = self;
        let mut inbox = shared.mail.inbox();
        // SAFETY: the contract of `new`.
        let received = unsafe { inbox.receive(shared, (id, *source), *letter, *to) };
        drop(inbox);
        let (progress, source) = match received {
            Ok(received) => received,
            Err(error) => return Err(shared.give_up(error, 0)),
        };
        if progress == Progress::Done {
            if let (Some(from), Some(source)) = (from, source) {
                // Set once: the task is over then.
                let _ = from.set(source);
            }
        } else if word != 0 {
            // Whatever was sent before the end has been looked for, also if this receive was posted after it.
            return Err(shared.refuse(word, 0));
        }
        Ok(progress)
    }

    pub(crate) fn awaits(&mut self) -> Result<Option<Awaits>, Error> {
        let Self { shared, id: Some(id), source, is_over: false, .. } = self else { return Ok(None) };
        if shared.aborted() != 0 {
            return Ok(None);
        }
        shared.mail.inbox().awaits(shared, *id, *source)
    }

    pub(crate) fn check(&mut self, company: Company) -> Result<(), Error> {
        let checked = self.look_around(company);
        checked.map_err(|error| {
            self.end();
            self.shared.give_up(error, 0)
        })
    }

    fn look_around(&mut self, company: Company) -> Result<(), Error> {
        let Self { shared, id: Some(id), source, letter, watch, .. } = self else { return Ok(()) };
        let (heard, is_behind, (came, more)) = {
            let mut inbox = shared.mail.inbox();
            inbox.unblock(shared, *id, *source)?;
            (inbox.heard(*source), inbox.is_behind(shared, *id, *source)?, inbox.unasked(*id, *source))
        };
        // Behind a message that another receive has begun to read, it is not the source that keeps this one waiting:
        // whoever drives the other may go on.
        watch.keep_company(if is_behind { Company::Others } else { company });
        let peers = source.map_or(0..shared.nranks, |rank| rank..rank + 1);
        let duty = Duty { stage: Stage::Recv { from: *source }, limit: shared.config.timeout };
        watch.check_mail(shared, duty, Mailing { heard, peers, tags: Tags { asked: letter.tag, came, more } })
    }

    fn end(&mut self) {
        if !std::mem::replace(&mut self.is_over, true)
            && let Some(id) = self.id
        {
            self.shared.mail.inbox().withdraw(id, self.shared.aborted() != 0);
            // Another receive may have waited for this one to take its message off the ring.
            self.shared.segment.notify_self();
        }
    }
}

impl Drop for RecvTask {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(id) = self.id
            && self.shared.mail.inbox().is_reading(id)
        {
            self.shared.abandon("a receive");
        }
        self.end();
    }
}
