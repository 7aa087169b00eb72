//! What a rank does between the sleeps of a long wait: looks at the clock, at its peers and at its other waits.

use super::descriptor::Descriptor;
use super::health::{self, Health, Waiting};
use super::order::Walker;
use super::registry::Announced;
use crate::error::{Error, Stage};
use crate::fail::{self, FailPoint};
use shmring::clock::now;
use shmring::doorbell::Awaits;
use shmring::segment::Segment;
use std::time::{Duration, Instant};

/// The watch over one operation that has begun to wait.
#[derive(Debug)]
pub(super) struct Vigil<'a> {
    segment: &'a Segment,
    health: &'a mut Health,
    fail: &'a mut Option<FailPoint>,
    stage: Stage,
    limit: Duration,
    descriptor: Descriptor,
    job: u64,
    /// When the operation began; unknown until a wait gets long, since reading the clock costs as much as a short one.
    begun: Option<Instant>,
    announced: Announced,
    walker: Walker,
}

/// What is being waited in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    pub(super) stage: Stage,
    pub(super) limit: Duration,
    pub(super) descriptor: Descriptor,
    pub(super) job: u64,
}

impl<'a> Vigil<'a> {
    pub(super) fn new(
        segment: &'a Segment,
        health: &'a mut Health,
        fail: &'a mut Option<FailPoint>,
        task: Task,
    ) -> Self {
        let Task { stage, limit, descriptor, job } = task;
        let (announced, walker) = (Announced::new(), Walker::default());
        Self { segment, health, fail, stage, limit, descriptor, job, begun: None, announced, walker }
    }

    /// The operation has sent what it could and must wait.
    #[inline]
    pub(super) fn blocked(&mut self) {
        fail::at(self.fail, fail::OP_SENT);
    }

    /// This wait is over, and the next one will be another.
    #[inline]
    pub(super) fn waited(&mut self) {
        self.announced.end();
    }

    /// Called before each sleep, after `waited` in this wait: ends the operation by an error if it cannot succeed.
    #[cold]
    pub(super) fn check(&mut self, waited: Duration, awaits: Option<Awaits>) -> Result<(), Error> {
        fail::at(self.fail, fail::OP_BLOCKED);
        let begun = *self.begun.get_or_insert_with(|| now() - waited);
        if now() - begun >= self.limit {
            return Err(health::timeout(self.segment, self.health, self.stage, self.limit));
        }
        let seqno = self.stage.seqno();
        self.health.check(self.segment, &Waiting { seqno, descriptor: self.descriptor, awaits })?;
        let Some(Awaits::Member(member)) = awaits else { return Ok(()) };
        let rank = self.segment.member();
        let stuck = self.announced.tell(self.job, seqno, member);
        match self.walker.walk(rank, stuck, health::end_tangled) {
            Some(tangle) => Err(tangle.into_error(rank)),
            None => Ok(()),
        }
    }

    /// The error for an abort word that was found while waiting.
    pub(super) fn explain(&self, word: u64) -> Error {
        health::explain(self.segment, word, self.health, self.stage.seqno())
    }
}
