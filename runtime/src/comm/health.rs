//! Whether the peers of a waiting rank are alive, and what ends a job.

use super::clash::Clash;
use super::descriptor::Descriptor;
use super::misfit::Misfit;
use super::order;
use super::overdue;
use super::peers::Peers;
use super::registry::Entry;
use super::roll::Roll;
use super::standing::standing;
use super::tangle::Tangle;
use crate::error::{Error, Stage};
use coordinator_lite::{Cancel, Member, Notice, Session};
use shmring::clock;
use shmring::doorbell::Awaits;
use shmring::layout::{JOURNAL_ENTRIES, MemberState, Record};
use shmring::segment::Segment;
use shmring::sync::{Ordering, fence};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Why a communicator has ended, packed into the segment's abort word: kind above, rank + 1 below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A process is gone.
    Dead(u32),
    /// A rank left on purpose although others still needed it.
    Left(u32),
    /// A rank's operation timed out.
    Timeout(u32),
    /// A rank gave up for another reason.
    Failed(u32),
    /// A rank's program asked for the end.
    Aborted(u32),
    /// Two ranks called different things, or one sent what the other did not expect; this one has found it, and its
    /// record says which.
    Mismatch(u32),
    /// Ranks wait for each other in a circle; this one has found it, and its record says where.
    Order(u32),
    /// A rank's program has revoked the communicator.
    Revoked(u32),
}

impl Verdict {
    pub(crate) fn to_word(self) -> u64 {
        let (kind, rank) = match self {
            Self::Dead(rank) => (1, rank),
            Self::Left(rank) => (2, rank),
            Self::Timeout(rank) => (3, rank),
            Self::Failed(rank) => (4, rank),
            Self::Aborted(rank) => (5, rank),
            Self::Mismatch(rank) => (6, rank),
            Self::Order(rank) => (7, rank),
            Self::Revoked(rank) => (8, rank),
        };
        (kind << 32) | u64::from(rank + 1)
    }

    /// Whether what was sent before a communicator ended so is still received: not where the program has asked for the
    /// end, nor by the rank that has ended it itself.
    fn leaves_messages(self, rank: u32) -> bool {
        match self {
            Self::Dead(_) | Self::Left(_) => true,
            Self::Timeout(by) | Self::Failed(by) | Self::Mismatch(by) | Self::Order(by) => by != rank,
            Self::Aborted(_) | Self::Revoked(_) => false,
        }
    }

    /// Reads the word back, whatever it holds: a rank that cannot be reads as the last one, a kind that does not
    /// exist as a failure.
    pub(crate) fn from_word(word: u64, nranks: u32) -> Self {
        let rank = (word as u32).wrapping_sub(1).min(nranks - 1);
        match word >> 32 {
            1 => Self::Dead(rank),
            2 => Self::Left(rank),
            3 => Self::Timeout(rank),
            5 => Self::Aborted(rank),
            6 => Self::Mismatch(rank),
            7 => Self::Order(rank),
            8 => Self::Revoked(rank),
            _ => Self::Failed(rank),
        }
    }
}

/// What a waiting rank finds out about its peers, and how it says so.
#[derive(Debug)]
pub(crate) struct Health {
    peers: Peers,
    /// The connection to the coordinator, as long as that lives: it tells of peers that cannot be seen from here.
    session: Option<Session>,
    rank: u32,
    /// Whether this rank has held back an error for its cause already.
    held_back: bool,
    /// What else ends the wait for others to attach.
    meeting: Meeting,
    /// The operation and the rank that was far ahead in the last check, although this rank waits for it.
    suspect: Option<(u64, u32)>,
}

/// What else than a death ends the wait of a rank for others to attach.
#[derive(Debug, Default)]
pub(super) enum Meeting {
    /// Nothing.
    #[default]
    Plain,
    /// The call of a rank's program from another thread.
    Cancellable(Cancel),
    /// What the members of a communicator to be say of it in the one that it is made from.
    Called(Arc<Roll>),
}

/// Where in a member's record the sum over its calls lies.
pub(super) const HISTORY_WORD: usize = 63;

/// What a rank waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) seqno: u64,
    pub(crate) descriptor: Descriptor,
    /// By the last look; `None` before the first.
    pub(crate) awaits: Option<Awaits>,
}

/// How long an error about another rank is held back for that rank to end by itself.
const CAUSE_ENDS: Duration = Duration::from_millis(200);
/// How long after that, so that whoever watches the processes sees them end in this order.
const CAUSE_IS_SEEN: Duration = Duration::from_millis(20);

impl Health {
    pub(crate) fn new(members: Vec<Member>, rank: u32, session: Option<Session>) -> Self {
        let (peers, meeting) = (Peers::new(members, rank), Meeting::Plain);
        Self { peers, session, rank, held_back: false, meeting, suspect: None }
    }

    /// The same, with more that ends the wait for others to attach.
    pub(super) fn with(mut self, meeting: Meeting) -> Self {
        self.meeting = meeting;
        self
    }

    /// Everybody has attached, or nobody waits for that any more.
    pub(super) fn has_met(&mut self) {
        self.meeting = Meeting::Plain;
    }

    pub(super) fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The error for a wait for others that must end, whoever is alive.
    pub(super) fn check_meeting(&self) -> Result<(), Error> {
        match &self.meeting {
            Meeting::Plain => Ok(()),
            Meeting::Cancellable(cancel) if cancel.is_cancelled() => {
                Err(Error::Cancelled { rank: self.rank })
            }
            Meeting::Cancellable(_) => Ok(()),
            Meeting::Called(roll) => roll.check(),
        }
    }

    pub(crate) fn members(&self) -> &[Member] {
        self.peers.members()
    }

    fn nranks(&self) -> u32 {
        self.members().len() as u32
    }

    /// Called now and then by a rank that waits in an operation: ends the job if a peer that it still needs is gone,
    /// or has called something else.
    ///
    /// A peer that has finished this operation may be gone: nothing of it is missing.
    #[cold]
    pub(crate) fn check(&mut self, segment: &Segment, waiting: &Waiting) -> Result<(), Error> {
        // First, since a rank that ended after a wrong call is better explained by the call.
        if let Some(clash) = self.compare(segment, waiting) {
            return Err(self.tell(segment, clash));
        }
        self.check_processes_in(segment, waiting.seqno)
    }

    /// Compares the calls up to `seqno` that are still on record, with nobody waiting.
    pub(crate) fn compare_all(&self, segment: &Segment, seqno: u64) -> Result<(), Error> {
        let clash = self.compare_journals(segment, seqno).or_else(|| self.compare_histories(segment, seqno));
        clash.map_or(Ok(()), |clash| Err(self.tell(segment, clash)))
    }

    /// Compares the sums over all calls that the ranks have left in their records before they met.
    fn compare_histories(&self, segment: &Segment, seqno: u64) -> Option<Clash> {
        // ORDERING: Relaxed; the barrier that comes before this has brought the peers' words.
        let of = |rank| segment.member_record(rank).words[HISTORY_WORD].load(Ordering::Relaxed);
        let other = (0..self.nranks()).find(|rank| of(*rank) != of(self.rank))?;
        Some(Clash { seqno, ranks: [self.rank, other], calls: [None, None] })
    }

    /// Ends the communicator because two ranks called different things.
    fn tell(&self, segment: &Segment, clash: Clash) -> Error {
        let clash = clash.sorted();
        clash.publish(segment.member_record(self.rank));
        end(segment, Verdict::Mismatch(self.rank), self, clash.seqno)
    }

    /// Called now and then by a rank that waits for others to attach.
    #[cold]
    pub(crate) fn check_attached(&mut self, segment: &Segment) -> Result<(), Error> {
        let (meeting, heard) = (self.check_meeting(), self.listen(segment, 1));
        // Who has died or left has finished nothing, whatever is asked for.
        let gone = self.gone(segment, 1);
        // Looked at last: a member that has met the others and is at its next call already, or has left at once, has
        // seen that all have attached, and so does this rank, once it has seen the other's doing.
        if segment.is_complete() {
            return Ok(());
        }
        meeting.and(heard)?;
        gone.map_or(Ok(()), |rank| Err(self.tell_gone(segment, rank, 1)))
    }

    fn check_processes_in(&mut self, segment: &Segment, seqno: u64) -> Result<(), Error> {
        self.listen(segment, seqno)?;
        self.gone(segment, seqno).map_or(Ok(()), |rank| Err(self.tell_gone(segment, rank, seqno)))
    }

    /// A rank that has died or left and has not finished operation `seqno`.
    fn gone(&mut self, segment: &Segment, seqno: u64) -> Option<u32> {
        let ended = self.peers.gone();
        // The state's Acquire comes first; a member that has left changes nothing after it.
        let has_left = |rank: &u32| segment.member_record(*rank).identity.state() == MemberState::Left;
        let left = (0..self.nranks()).filter(|rank| *rank != self.rank).filter(has_left);
        ended.into_iter().chain(left).find(|rank| !has_finished(segment, *rank, seqno))
    }

    /// Called now and then by a rank that waits for messages of `peers`, or for one of them to take its own: the first
    /// of them that is gone, if all others are gone too or there is no other. Who has died is noted in `entry`.
    #[cold]
    pub(super) fn check_peers(
        &mut self,
        segment: &Segment,
        peers: Range<u32>,
        entry: &Entry,
    ) -> Result<Option<u32>, Error> {
        self.listen(segment, 0)?;
        let ended = self.peers.gone();
        entry.note_dead(&ended);
        let own = self.rank;
        let is_gone = |rank: u32| {
            ended.contains(&rank) || segment.member_record(rank).identity.state() == MemberState::Left
        };
        let mut others = peers.filter(|rank| *rank != own);
        let first = others.clone().find(|rank| is_gone(*rank));
        Ok(first.filter(|_| others.all(is_gone)))
    }

    /// Ends the communicator because a rank that is still needed is gone.
    pub(crate) fn tell_gone(&self, segment: &Segment, rank: u32, seqno: u64) -> Error {
        // One that said good-bye and ended has not died.
        let left = segment.member_record(rank).identity.state() == MemberState::Left;
        let verdict = if left { Verdict::Left(rank) } else { Verdict::Dead(rank) };
        end(segment, verdict, self, seqno)
    }

    /// Takes what the coordinator has to say. That it is gone means nothing.
    fn listen(&mut self, segment: &Segment, seqno: u64) -> Result<(), Error> {
        let notices = self.session.as_ref().map_or_else(Vec::new, Session::poll);
        for notice in notices {
            match notice {
                Notice::PeerGone { rank, .. } if rank < self.nranks() && rank != self.rank => {
                    self.peers.told_gone(rank);
                }
                Notice::Aborted { by, .. } if by < self.nranks() => {
                    return Err(end(segment, Verdict::Failed(by), self, seqno));
                }
                Notice::CoordinatorGone => self.session = None,
                Notice::PeerGone { .. } | Notice::Aborted { .. } => {}
            }
        }
        Ok(())
    }

    /// Tells the coordinator that this rank has ended the communicator, for those that share no memory with it.
    pub(crate) fn report_abort(&self, error: &Error) {
        if let Some(session) = &self.session {
            // Whoever shares the segment knows already; a coordinator that is gone has nobody to tell.
            let _ = session.abort(&error.to_string());
        }
    }

    /// Tells the coordinator that this rank is done, so that its end is no news.
    pub(crate) fn say_goodbye(&mut self) {
        if let Some(session) = self.session.take() {
            session.destroy();
        }
    }

    /// Compares what the other ranks have called with what this one has called and waits in.
    fn compare(&mut self, segment: &Segment, waiting: &Waiting) -> Option<Clash> {
        let Waiting { seqno, descriptor, awaits } = *waiting;
        if let Some(clash) = self.compare_journals(segment, seqno) {
            return Some(clash);
        }
        let awaited = match awaits {
            Some(Awaits::Member(rank)) => Some(rank),
            _ => None,
        };
        // A rank far ahead is right if its messages are all here, but not if this rank still waits for it. Once is
        // no proof: its last message may have come after this rank last looked. The second time it has looked again.
        let suspect = awaited.map(|rank| (seqno, rank)).filter(|(_, rank)| {
            segment.member_record(*rank).journal.read(seqno) == Record::Overwritten
                && has_finished(segment, *rank, seqno)
        });
        if let Some((_, rank)) = suspect
            && self.suspect == suspect
        {
            return Some(Clash { seqno, ranks: [self.rank, rank], calls: [Some(descriptor), None] });
        }
        self.suspect = suspect;
        None
    }

    /// The error for a call that this rank makes too late as operation `seqno`, if another rank has called something
    /// else there, and a later clash has ended the communicator.
    pub(super) fn clash_of_late(
        &self,
        segment: &Segment,
        word: u64,
        (seqno, mine): (u64, Descriptor),
    ) -> Option<Error> {
        let Verdict::Mismatch(by) = Verdict::from_word(word, self.nranks()) else { return None };
        if !Clash::read(segment.member_record(by), self.nranks()).is_after(seqno) {
            return None;
        }
        let clash = (0..self.nranks()).filter(|rank| *rank != self.rank).find_map(|rank| {
            let Record::Here(theirs) = segment.member_record(rank).journal.read(seqno) else { return None };
            let calls = [Some(mine), Some(Descriptor::from_words(theirs))];
            (theirs != mine.to_words()).then_some(Clash { seqno, ranks: [self.rank, rank], calls })
        });
        clash.map(|clash| clash.sorted().into_error(self.rank))
    }

    /// The first of this rank's last calls that another rank has entered differently.
    ///
    /// Earlier operations count too: one that sends and does not wait, as a broadcast's root does, may have been a
    /// different one on another rank, and only the next one gets stuck.
    fn compare_journals(&self, segment: &Segment, seqno: u64) -> Option<Clash> {
        // ORDERING: SeqCst; this rank's own entry was stored before, and of two ranks that look at each other's
        // journals the one whose fence is second sees the other's entry. Both could miss it otherwise, and sleep.
        fence(Ordering::SeqCst);
        let own = &segment.member_record(self.rank).journal;
        let peers = || (0..self.nranks()).filter(|rank| *rank != self.rank);
        for number in seqno.saturating_sub(JOURNAL_ENTRIES as u64 - 1).max(1)..=seqno {
            let Record::Here(mine) = own.read(number) else { continue };
            let different = peers().find_map(|rank| match segment.member_record(rank).journal.read(number) {
                Record::Here(theirs) if theirs != mine => Some((rank, theirs)),
                _ => None,
            });
            if let Some((rank, theirs)) = different {
                let calls = [Some(Descriptor::from_words(mine)), Some(Descriptor::from_words(theirs))];
                return Some(Clash { seqno: number, ranks: [self.rank, rank], calls });
            }
        }
        None
    }

    /// The error for a peer that has died before there was a segment in which to say so.
    pub(super) fn check_processes(&mut self) -> Result<(), Error> {
        match self.peers.gone().first() {
            Some(&dead) => {
                Err(Error::PeerGone { dead, how: self.describe(dead, "it died"), rank: self.rank, seqno: 0 })
            }
            None => Ok(()),
        }
    }

    /// The error for a peer whose process has ended without leaving; the communicator goes on, as what it has sent may
    /// still be received.
    pub(super) fn died(&mut self, segment: &Segment) -> Option<Error> {
        let has_left = |rank: u32| segment.member_record(rank).identity.state() == MemberState::Left;
        let dead = self.peers.gone().into_iter().find(|rank| !has_left(*rank))?;
        Some(Error::PeerGone { dead, how: self.describe(dead, "it died"), rank: self.rank, seqno: 0 })
    }

    /// Holds back an error that another rank has caused, once, until that rank's process has had the time to say what
    /// is wrong and end: a launcher takes the first to end for the cause.
    #[cold]
    pub(crate) fn let_cause_go_first(&mut self, error: &Error) {
        if matches!(error, Error::Order { .. } | Error::Deadlock { .. }) {
            // The other communicators of the tangle end meanwhile, before this rank leaves them.
            clock::sleep(CAUSE_IS_SEEN);
        }
        let (Error::PeerGone { dead: cause, .. } | Error::Aborted { by: cause, .. }) = *error else { return };
        if self.peers.is_own(cause) || std::mem::replace(&mut self.held_back, true) {
            return;
        }
        self.peers.wait_gone(cause, CAUSE_ENDS);
        clock::sleep(CAUSE_IS_SEEN);
    }

    pub(super) fn is_stopped(&self, rank: u32) -> bool {
        self.peers.is_stopped(rank)
    }

    /// The error for a segment that did not come because rank 0, which makes it, is stopped.
    pub(super) fn creator_is_stopped(&self, limit: Duration) -> Error {
        let pid = self.peers.pid(0);
        let standing = format!(
            "rank 0 has not made the segment and its process {pid} is stopped: send it SIGCONT, or look who stopped it"
        );
        Error::Timeout { rank: self.rank, stage: Stage::Join, limit, standing }
    }

    fn describe(&self, rank: u32, how: &str) -> String {
        format!("process {}, {how}", self.peers.pid(rank))
    }
}

/// Whether messages that were sent before are still received in a communicator that has ended by `word`, or has not.
pub(super) fn leaves_messages(segment: &Segment, word: u64) -> bool {
    word == 0 || Verdict::from_word(word, segment.geometry().members).leaves_messages(segment.member())
}

/// Whether operation `seqno`, for which this rank needs messages of `needed`, can be done although the communicator has
/// ended by `word`: they had all finished it, so it is this rank alone that is late.
pub(super) fn was_sent_before(segment: &Segment, word: u64, seqno: u64, needed: Range<u32>) -> bool {
    let (nranks, rank) = (segment.geometry().members, segment.member());
    let verdict = Verdict::from_word(word, nranks);
    // What ranks called differently is told to all of them.
    let is_before = match verdict {
        Verdict::Mismatch(by) => Clash::read(segment.member_record(by), nranks).is_after(seqno),
        _ => true,
    };
    let mut others = needed.filter(|other| *other != rank);
    is_before && verdict.leaves_messages(rank) && others.all(|other| has_finished(segment, other, seqno))
}

/// Whether a rank has finished operation `seqno`; then all its messages of it can be seen.
fn has_finished(segment: &Segment, rank: u32, seqno: u64) -> bool {
    // ORDERING: Acquire pairs with the Release in `Communicator::run`.
    segment.member_record(rank).identity.finished.load(Ordering::Acquire) >= seqno
}

/// Ends the job, wakes everybody, and says why it has really ended: an earlier verdict stands.
pub(crate) fn end(segment: &Segment, verdict: Verdict, health: &Health, seqno: u64) -> Error {
    let word = segment.header().abort(verdict.to_word());
    segment.ring_all();
    explain(segment, word, health, seqno)
}

/// Ends a communicator of this process that is part of a tangle; the caller wakes its ranks afterwards.
pub(crate) fn end_tangled(entry: &Entry, tangle: &Tangle) {
    let view = &entry.view;
    // Where any rank could have sent, one that has died is why nobody does.
    let has_left = |rank: &u32| view.member_record(*rank).identity.state() == MemberState::Left;
    if tangle.is_for_any()
        && let Some(dead) = entry.dead().into_iter().find(|rank| !has_left(rank))
    {
        view.header().abort(Verdict::Dead(dead).to_word());
        return;
    }
    tangle.publish(view.member_record(view.member()));
    view.header().abort(Verdict::Order(view.member()).to_word());
}

/// The error for an abort word that is not 0.
pub(crate) fn explain(segment: &Segment, word: u64, health: &Health, seqno: u64) -> Error {
    let rank = health.rank;
    let nranks = health.nranks();
    match Verdict::from_word(word, nranks) {
        Verdict::Mismatch(by) => {
            let record = segment.member_record(by);
            match Misfit::read(record, nranks) {
                Some(misfit) => misfit.into_error(rank),
                None => {
                    let clash = Clash::read(record, nranks);
                    // An earlier call of this rank that nobody has compared is what this rank must hear of.
                    let own = health.compare_journals(segment, seqno).filter(|own| clash.is_after(own.seqno));
                    own.map_or(clash, Clash::sorted).into_error(rank)
                }
            }
        }
        Verdict::Order(by) => Tangle::read(segment.member_record(by)).into_error(rank),
        Verdict::Dead(dead) => Error::PeerGone { dead, how: health.describe(dead, "it died"), rank, seqno },
        Verdict::Left(dead) => {
            Error::PeerGone { dead, how: health.describe(dead, "it left the communicator"), rank, seqno }
        }
        Verdict::Timeout(by) => {
            let reason = after_timeout(segment, health, by, seqno);
            Error::Aborted { by, reason, rank, seqno }
        }
        Verdict::Failed(by) => {
            Error::Aborted { by, reason: "after an error of its own, see its message".into(), rank, seqno }
        }
        Verdict::Revoked(by) => Error::Revoked { by, rank, seqno },
        Verdict::Aborted(by) => {
            Error::Aborted { by, reason: "because its program called abort".into(), rank, seqno }
        }
    }
}

/// Why rank `by` has ended the communicator when its time limit passed, as told at operation `seqno` of this rank.
fn after_timeout(segment: &Segment, health: &Health, by: u32, seqno: u64) -> String {
    let own = match seqno {
        0 if !segment.is_complete() => Stage::Join,
        // Met in a send or receive, which have no numbers.
        0 => Stage::Recv { from: None },
        seqno => Stage::Operation(seqno),
    };
    // What is late there may be something else than what this rank is at.
    let theirs = overdue::read(segment.member_record(by), health.nranks()).filter(|theirs| *theirs != own);
    let (rank, stage) = theirs.map_or((health.rank, own), |theirs| (by, theirs));
    let of = theirs.map(|theirs| format!(" of its {theirs}")).unwrap_or_default();
    let late = standing(segment, &health.peers, rank, stage);
    format!("after a time-out{of}: {}", late.unwrap_or_else(|| "this rank was late".into()))
}

/// The error of a rank for which a stage takes longer than `limit`: who is behind, and where. If the communicator has
/// ended meanwhile, that is the error: a rank that was stopped would otherwise blame those that waited for it.
///
/// `told` is what was suspected before.
pub(crate) fn timeout(
    segment: &Segment,
    health: &Health,
    stage: Stage,
    limit: Duration,
    told: Option<&str>,
) -> Error {
    let standing = standing(segment, &health.peers, health.rank, stage);
    let mut standing = standing.unwrap_or_else(|| "all other ranks have finished it".into());
    // Before the end is told: who wakes up waits no longer.
    let suspicion = order::suspicion(segment);
    if let Some(suspicion) = suspicion.as_deref().or(told) {
        standing = format!("{standing}; {suspicion}");
    }
    let verdict = Verdict::Timeout(health.rank);
    if segment.header().aborted() == 0 {
        overdue::publish(segment.member_record(health.rank), stage);
    }
    let ended = end(segment, verdict, health, stage.seqno());
    if segment.header().aborted() != verdict.to_word() {
        return ended;
    }
    Error::Timeout { rank: health.rank, stage, limit, standing }
}

#[cfg(test)]
mod tests;
