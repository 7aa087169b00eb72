//! What is done between the sleeps of a long wait: looks at the clock, at the peers and at this rank's other waits.

use super::descriptor::Descriptor;
use super::health::{self, Waiting};
use super::order::Walker;
use super::registry::Announced;
use super::shared::Shared;
use crate::error::{Error, Stage};
use crate::task::Company;
use shmring::clock::now;
use shmring::doorbell::Awaits;
use std::time::{Duration, Instant};

/// The watch over one operation that may have begun to wait.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// When the operation began; unknown until a wait gets long, since reading the clock costs as much as a short one.
    begun: Option<Instant>,
    announced: Announced,
    walker: Walker,
    /// The thread that waits may go on elsewhere meanwhile: no circle of waits goes through it for certain.
    in_company: bool,
    /// A peer that is gone, although this operation waits for it: to be looked at once more.
    suspect: Option<u32>,
}

/// What is being waited in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duty {
    pub(crate) stage: Stage,
    pub(crate) limit: Duration,
}

impl Watch {
    /// Forgets the last operation.
    #[inline]
    pub(crate) fn begin(&mut self) {
        if self.begun.is_some() {
            *self = Self::default();
        }
    }

    /// Says whether the thread waits for other tasks too.
    pub(crate) fn keep_company(&mut self, company: Company) {
        self.in_company = company == Company::Others;
        if self.in_company {
            self.announced.end();
        }
    }

    /// This wait is over, and the next one will be another.
    #[inline]
    pub(crate) fn waited(&mut self) {
        self.announced.end();
    }

    /// Called before each sleep of a collective, after `waited` in this wait: an error if it cannot succeed.
    #[cold]
    pub(crate) fn check_collective(
        &mut self,
        shared: &Shared,
        duty: Duty,
        descriptor: Descriptor,
        waited: Duration,
        awaits: Option<Awaits>,
    ) -> Result<(), Error> {
        self.check_time(shared, duty, waited)?;
        let seqno = duty.stage.seqno();
        shared.health().check(&shared.segment, &Waiting { seqno, descriptor, awaits })?;
        self.check_order(shared, seqno, awaits)
    }

    /// Called before each sleep of a send or receive, which needs only `peers`.
    #[cold]
    pub(crate) fn check_mail(
        &mut self,
        shared: &Shared,
        duty: Duty,
        waited: Duration,
        peers: std::ops::Range<u32>,
    ) -> Result<(), Error> {
        self.check_time(shared, duty, waited)?;
        let gone = shared.health().check_peers(&shared.segment, peers.clone())?;
        // What it sent before it ended is here, but this rank last looked before it knew of the end.
        if gone.is_some() && gone == self.suspect {
            return Err(shared.health().tell_gone(&shared.segment, gone.unwrap_or(peers.start), 0));
        }
        self.suspect = gone;
        let awaits = if peers.len() == 1 { Awaits::Member(peers.start) } else { Awaits::Anyone };
        self.check_order(shared, 0, Some(awaits))
    }

    fn check_time(&mut self, shared: &Shared, duty: Duty, waited: Duration) -> Result<(), Error> {
        let begun = *self.begun.get_or_insert_with(|| now() - waited);
        if now() - begun >= duty.limit {
            return Err(health::timeout(&shared.segment, &shared.health(), duty.stage, duty.limit));
        }
        Ok(())
    }

    fn check_order(&mut self, shared: &Shared, seqno: u64, awaits: Option<Awaits>) -> Result<(), Error> {
        let Some(Awaits::Member(member)) = awaits.filter(|_| !self.in_company) else { return Ok(()) };
        let stuck = self.announced.tell(shared.job, seqno, member);
        match self.walker.walk(shared.rank, stuck, health::end_tangled) {
            Some(tangle) => Err(tangle.into_error(shared.rank)),
            None => Ok(()),
        }
    }
}
