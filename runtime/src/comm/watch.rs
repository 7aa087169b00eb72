//! What is done between the sleeps of a long wait: looks at the clock, at the peers and at this rank's other waits.

use super::descriptor::Descriptor;
use super::health::{self, Waiting};
use super::order::Walker;
use super::registry::{Announced, Wait};
use super::shared::Shared;
use super::standing;
use super::stuck::{Call, SEVERAL};
use super::tags::Tags;
use super::tangle::OTHER_TAGS;
use crate::error::{Error, Stage};
use crate::settings;
use crate::task::Company;
use shmring::clock::now;
use shmring::doorbell::Awaits;
use shmring::sync::Ordering;
use std::time::{Duration, Instant};

/// The part of the time limit after which is told what is suspected.
pub(crate) const SUSPECTED_AFTER: u32 = 4;

/// The watch over one operation that may have begun to wait.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// When the operation began; unknown until a wait gets long, since reading the clock costs as much as a short one.
    begun: Option<Instant>,
    announced: Announced,
    walker: Walker,
    /// Whether the thread that waits may go on elsewhere meanwhile: no circle of waits goes through it for certain.
    may_go_on: bool,
    /// A peer that is gone, although this operation waits for it: to be looked at once more.
    suspect: Option<u32>,
    quiet: Option<Quiet>,
    /// Parts of messages that the awaited ranks have sent, or taken.
    heard: u64,
    /// The circle that was suspected and told when a quarter of the time limit had passed.
    suspicion: Option<String>,
    /// What was told of messages that have come in under other tags.
    other_tags: Option<String>,
    /// Whether it was told that the awaited rank calls nothing.
    told_quiet: bool,
}

/// A rank that is waited for, or [`SEVERAL`], and since when it has begun no collective, nor sent or taken any part of
/// a message.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    rank: u32,
    started: u64,
    heard: u64,
    since: Instant,
}

impl Quiet {
    fn in_words(&self, shared: &Shared, stage: Stage, time: Duration) -> Option<String> {
        if self.rank < shared.nranks {
            return standing::quiet(&shared.segment, self.rank, stage, time);
        }
        standing::all_quiet(&shared.segment, shared.health().peers(), shared.rank, stage, time)
    }
}

/// What is being waited in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duty {
    pub(crate) stage: Stage,
    pub(crate) limit: Duration,
}

/// A look at a send or receive before a sleep.
#[derive(Clone, Debug)]
pub(crate) struct Mailing {
    /// Grows with every part of a message that the peers send, or take.
    pub(crate) heard: u64,
    /// The ranks that could end the wait.
    pub(crate) peers: std::ops::Range<u32>,
    pub(crate) tags: Tags,
}

/// A look at a collective before a sleep.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) descriptor: Descriptor,
    /// How long this wait has taken.
    pub(crate) waited: Duration,
    /// By the last look; `None` before the first.
    pub(crate) awaits: Option<Awaits>,
    /// Whether the operation is a task, and not run in its call.
    pub(crate) is_task: bool,
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
        self.may_go_on = company == Company::Others;
    }

    /// This wait is over, and the next one will be another.
    #[inline]
    pub(crate) fn waited(&mut self) {
        self.announced.end();
    }

    /// Called before each sleep of a collective: an error if it cannot succeed.
    #[cold]
    pub(crate) fn check_collective(&mut self, shared: &Shared, duty: Duty, look: Look) -> Result<(), Error> {
        let Look { descriptor, waited, awaits, is_task } = look;
        self.check_time(shared, duty, waited)?;
        let seqno = duty.stage.seqno();
        shared.health().check(&shared.segment, &Waiting { seqno, descriptor, awaits })?;
        let awaits = match awaits {
            Some(Awaits::Member(member)) => member,
            // Any of several that have not come is waited for, where everybody needs everybody.
            _ if descriptor.needs_all() => absent(shared, seqno).unwrap_or(SEVERAL),
            _ => SEVERAL,
        };
        self.check_order(shared, duty, (awaits, Tags::default()), is_task)
    }

    /// Called before each sleep of a send or receive, which needs only its peers.
    #[cold]
    pub(crate) fn check_mail(&mut self, shared: &Shared, duty: Duty, mailing: Mailing) -> Result<(), Error> {
        let Mailing { heard, peers, tags } = mailing;
        self.check_time(shared, duty, Duration::ZERO)?;
        self.heard = heard;
        let gone = shared.health().check_peers(&shared.segment, peers.clone(), &shared.entry)?;
        // What it sent before it ended is here, but this rank last looked before it knew of the end.
        if gone.is_some() && gone == self.suspect {
            return Err(shared.health().tell_gone(&shared.segment, gone.unwrap_or(peers.start), 0));
        }
        self.suspect = gone;
        let awaits = if peers.len() == 1 { peers.start } else { SEVERAL };
        self.check_order(shared, duty, (awaits, tags), true)
    }

    /// Called before each sleep in a wait for signals of rank `from`.
    #[cold]
    pub(crate) fn check_signal(&mut self, shared: &Shared, duty: Duty, from: u32) -> Result<(), Error> {
        self.check_time(shared, duty, Duration::ZERO)?;
        let gone = shared.health().check_peers(&shared.segment, from..from + 1, &shared.entry)?;
        // What it told before it ended is here, but this rank last looked before it knew of the end.
        if gone.is_some() && gone == self.suspect {
            return Err(shared.health().tell_gone(&shared.segment, from, 0));
        }
        self.suspect = gone;
        self.check_order(shared, duty, (from, Tags::default()), false)
    }

    fn check_time(&mut self, shared: &Shared, duty: Duty, waited: Duration) -> Result<(), Error> {
        let begun = *self.begun.get_or_insert_with(|| now() - waited);
        if now() - begun >= duty.limit {
            let suspicion = self.suspicion.take().or(self.other_tags.take());
            return Err(health::timeout(
                &shared.segment,
                &shared.health(),
                duty.stage,
                duty.limit,
                suspicion.as_deref(),
            ));
        }
        Ok(())
    }

    fn check_order(
        &mut self,
        shared: &Shared,
        duty: Duty,
        (awaits, tags): (u32, Tags),
        is_task: bool,
    ) -> Result<(), Error> {
        let (call, seqno) = match duty.stage {
            Stage::Send { .. } => (Call::Send, 0),
            Stage::Recv { .. } => (Call::Recv, 0),
            Stage::Signal { .. } => (Call::Signal, 0),
            Stage::Finalize(seqno) => (Call::Finalize, seqno),
            Stage::Operation(_) | Stage::Join | Stage::Turn => (Call::Collective, duty.stage.seqno()),
        };
        let wait = Wait {
            job: shared.job,
            rank: shared.rank,
            call,
            seqno,
            tags,
            awaits,
            is_task,
            may_go_on: self.may_go_on,
        };
        let stuck = self.announced.tell(wait);
        if (awaits != SEVERAL || call == Call::Recv)
            && let Some(tangle) = self.walker.walk(stuck, health::end_tangled)
        {
            // A rank that has died may be the cause.
            return Err(match shared.aborted() {
                0 => tangle.into_error(shared.rank),
                word => shared.explain(word, seqno),
            });
        }
        self.suspect_something(shared, duty, (awaits, tags));
        Ok(())
    }

    /// Tells once what may keep this operation from ending, when a quarter of its time has passed.
    fn suspect_something(&mut self, shared: &Shared, duty: Duty, (awaits, tags): (u32, Tags)) {
        let now = now();
        let quarter = duty.limit / SUSPECTED_AFTER;
        let since = self.listen_to(shared, duty.stage, awaits, now);
        let waited = self.begun.map_or(Duration::ZERO, |begun| now - begun);
        if self.suspicion.is_some() || waited < quarter {
            return;
        }
        let Duty { stage, limit } = duty;
        let tell = |found: &str| {
            let rank = shared.rank;
            let so_far = format!("has not finished within {waited:.1?} (limit {limit:?})");
            settings::warn(&format!("{stage} on rank {rank} {so_far}; {found}"));
        };
        self.suspicion = self.walker.suspicion();
        if let Some(found) = &self.suspicion {
            tell(found);
        } else if let Some(others) = tags.others() {
            let found = self.other_tags.is_none().then(|| other_tags(awaits, tags.asked, &others));
            found.iter().for_each(|found| tell(found));
            self.other_tags = self.other_tags.take().or(found);
        } else if !self.told_quiet
            && let Some(quiet) = since.filter(|quiet| now - quiet.since >= quarter)
            && let Some(found) = quiet.in_words(shared, stage, now - quiet.since)
        {
            self.told_quiet = true;
            tell(&found);
        }
    }

    /// Follows what the awaited rank calls, or all of them; since when that was nothing.
    fn listen_to(&mut self, shared: &Shared, stage: Stage, awaits: u32, now: Instant) -> Option<Quiet> {
        // ORDERING: Relaxed; the number is only compared and told.
        let started = |rank| shared.segment.member_record(rank).identity.started.load(Ordering::Relaxed);
        let started = match stage {
            _ if awaits < shared.nranks => started(awaits),
            Stage::Recv { from: None } => 0,
            _ => {
                self.quiet = None;
                return None;
            }
        };
        let heard = self.heard;
        let is_same = |quiet: &Quiet| (quiet.rank, quiet.started, quiet.heard) == (awaits, started, heard);
        if !self.quiet.as_ref().is_some_and(is_same) {
            self.quiet = Some(Quiet { rank: awaits, started, heard, since: now });
        }
        self.quiet
    }
}

/// What is suspected of a receive while messages come in that nobody asks for.
fn other_tags(awaits: u32, asked: u32, others: &str) -> String {
    let from = if awaits == SEVERAL { "any rank".into() } else { format!("rank {awaits}") };
    format!(
        "suspected: no message with tag {asked} has come from {from}, but there are some with {others}, which nobody \
         has asked for; if so, {OTHER_TAGS}"
    )
}

/// A rank that has not begun operation `seqno`.
fn absent(shared: &Shared, seqno: u64) -> Option<u32> {
    // ORDERING: Relaxed; whether it counts is found out by walking on from it.
    let started = |rank: u32| shared.segment.member_record(rank).identity.started.load(Ordering::Relaxed);
    (0..shared.nranks).find(|rank| *rank != shared.rank && started(*rank) < seqno)
}
