//! A collective that waits for its turn on the engine and then runs on it.

use super::{Company, TurnWatch};
use crate::comm::{Begun, Shared, UnderWay};
use crate::error::Error;
use crate::executor::{Buffers, Progress};
use crate::plan::Call;
use shmring::doorbell::Awaits;
use shmring::sync::Ordering;
use shmring::turns::Ticket;
use std::sync::Arc;

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Earlier operations of the rank come first.
    Queued,
    Running,
    Over,
}

/// A collective of one rank.
#[derive(Debug)]
pub(crate) struct CollectiveTask {
    shared: Arc<Shared>,
    /// The turn; `None` when it was passed or given up.
    ticket: Option<Ticket>,
    call: Call,
    buffers: Buffers,
    state: State,
    turn: TurnWatch,
    _under_way: UnderWay,
}

// SAFETY: the buffers may be used by whichever thread drives the task (contract of `new`).
unsafe impl Send for CollectiveTask {}

impl CollectiveTask {
    /// # Safety
    /// - `ticket` is a turn on the engine of `shared`.
    /// - `buffers` are as [`Buffers`] says, for the call's bytes and from any thread, until the task is over or
    ///   dropped.
    pub(crate) unsafe fn new(shared: Arc<Shared>, ticket: Ticket, call: Call, buffers: Buffers) -> Self {
        let (turn, _under_way) = (TurnWatch::default(), shared.entry.collective());
        Self { shared, ticket: Some(ticket), call, buffers, state: State::Queued, turn, _under_way }
    }

    /// Where it comes among the collectives of its rank; the last of all when it is over.
    pub(super) fn place(&self) -> u64 {
        self.ticket.as_ref().map_or(u64::MAX, Ticket::number)
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn poll(&mut self) -> Result<Progress, Error> {
        let progress = self.go_on();
        match &progress {
            Ok(Progress::Blocked | Progress::Advanced) => {}
            Ok(Progress::Done) => self.end(true),
            Err(_) => self.end(false),
        }
        progress
    }

    fn go_on(&mut self) -> Result<Progress, Error> {
        let Self { shared, ticket: Some(ticket), call, buffers, state, .. } = self else {
            return Ok(Progress::Done);
        };
        let word = shared.aborted();
        // SAFETY: the ticket is one for this engine (contract of `new`).
        let Some(engine) = (unsafe { shared.engine.enter(ticket) }) else {
            // Its turn may never come: who has it may not run any more.
            return if word == 0 {
                Ok(Progress::Blocked)
            } else {
                Err(shared.refuse(word, started(shared) + 1))
            };
        };
        if *state == State::Queued {
            *state = State::Running;
            // SAFETY: the contract of `new`.
            if unsafe { engine.begin(shared, call, *buffers)? } == Begun::Done {
                engine.finish(shared, call);
                return Ok(Progress::Done);
            }
        }
        // SAFETY: the contract of `new`.
        match unsafe { engine.advance(shared) } {
            // Whoever drives this looks at its other operations meanwhile.
            Ok(Progress::Done) if word == 0 && engine.is_early(shared, call) => {
                std::thread::yield_now();
                Ok(Progress::Blocked)
            }
            Ok(Progress::Done) => {
                engine.finish(shared, call);
                Ok(Progress::Done)
            }
            // Whoever has ended the communicator may have done its part of this operation before; if anything is
            // missing, it will not come.
            Ok(Progress::Blocked) if word != 0 => {
                let seqno = engine.seqno();
                Err(shared.give_up(shared.explain(word, seqno), seqno))
            }
            Ok(progress) => Ok(progress),
            Err(error) => Err(shared.give_up(error, engine.seqno())),
        }
    }

    pub(super) fn awaits(&mut self) -> Result<Option<Awaits>, Error> {
        let Self { shared, ticket: Some(ticket), state, .. } = self else { return Ok(None) };
        if shared.aborted() != 0 {
            return Ok(None);
        }
        // SAFETY: the ticket is one for this engine (contract of `new`).
        match unsafe { shared.engine.enter(ticket) } {
            // The rank's own doing ends this wait.
            None => Ok(Some(Awaits::Member(shared.rank))),
            Some(_) if *state == State::Queued => Ok(None),
            // SAFETY: the contract of `new`.
            Some(engine) => unsafe { engine.awaits(shared) },
        }
    }

    pub(super) fn check(&mut self, company: Company) -> Result<(), Error> {
        let checked = self.look_around(company);
        if checked.is_err() {
            self.end(false);
        }
        checked
    }

    fn look_around(&mut self, company: Company) -> Result<(), Error> {
        let Self { shared, ticket: Some(ticket), turn, .. } = self else { return Ok(()) };
        // SAFETY: the ticket is one for this engine (contract of `new`).
        let Some(engine) = (unsafe { shared.engine.enter(ticket) }) else {
            let checked = turn.check(shared, shared.turn_state(), shared.config.timeout);
            return checked.map_err(|error| shared.give_up(error, started(shared)));
        };
        // SAFETY: the contract of `new`.
        let awaits = unsafe { engine.awaits(shared) };
        let checked = awaits.and_then(|awaits| engine.check(shared, company, awaits));
        checked.map_err(|error| shared.give_up(error, engine.seqno()))
    }

    /// The turn ends: by its end, or before.
    fn end(&mut self, is_done: bool) {
        self.state = State::Over;
        let Some(ticket) = self.ticket.take() else { return };
        if is_done {
            self.shared.engine.pass(ticket)
        } else {
            self.shared.engine.give_up(ticket)
        }
        self.shared.segment.notify_self();
    }
}

/// The rank's last collective that has begun.
fn started(shared: &Shared) -> u64 {
    // ORDERING: Relaxed; only told.
    shared.record().identity.started.load(Ordering::Relaxed)
}

impl Drop for CollectiveTask {
    fn drop(&mut self) {
        if self.state == State::Running {
            self.shared.abandon("a collective");
        }
        self.end(false);
    }
}
