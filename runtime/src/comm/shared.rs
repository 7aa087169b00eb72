//! What the threads that work for one rank of a communicator share.

use super::engine::Engine;
use super::health::{self, Health, Verdict};
use super::registry::{self, Entry};
use crate::config::Config;
use crate::error::Error;
use crate::mail::Mail;
use crate::plan::{Call, Choice};
use crate::settings;
use crate::task::Ahead;
use shmring::layout::{MemberRecord, MemberState};
use shmring::segment::Segment;
use shmring::sync::Ordering;
use shmring::turns::Turns;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// One rank of a communicator, for as long as its handle or an operation lives.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) segment: Segment,
    pub(crate) rank: u32,
    pub(crate) nranks: u32,
    pub(crate) job: u64,
    pub(crate) config: Config,
    /// What collectives run on; one operation at a time uses it, in the order of the calls.
    pub(crate) engine: Turns<Engine>,
    /// What point-to-point operations run on, beside the collectives.
    pub(crate) mail: Mail,
    /// Looked at only while something waits long.
    pub(super) health: Mutex<Health>,
    /// Among the communicators of this process.
    pub(crate) entry: Arc<Entry>,
    /// Why this rank has given up, if it has: for its other threads, and for later calls.
    pub(super) cause: OnceLock<String>,
}

impl Shared {
    pub(crate) fn health(&self) -> MutexGuard<'_, Health> {
        // A panic elsewhere leaves at worst a peer unwatched until the next look.
        shmring::sync::lock(&self.health)
    }

    #[inline]
    pub(crate) fn record(&self) -> &MemberRecord {
        self.segment.member_record(self.rank)
    }

    /// What was chosen for a call, for the log.
    #[cold]
    pub(super) fn told(&self, call: &Call, choice: &Choice) -> String {
        let (rank, bytes, n) = (self.rank, call.bytes(self.nranks), self.nranks);
        let Choice { algorithm, protocol, channels, chunk_bytes, .. } = choice;
        format!(
            "rank {rank} of {n}: {} of {bytes} bytes by {algorithm}/{protocol:?} on {channels} channel(s), messages of at \
             most {chunk_bytes} bytes",
            call.kind.name(),
        )
    }

    /// The reason why this communicator has ended, or 0.
    #[inline]
    pub(crate) fn aborted(&self) -> u64 {
        self.segment.header().aborted()
    }

    /// Whether messages that were sent before are still received: the communicator has not ended, or by what others did
    /// or by a rank's death.
    #[inline]
    pub(crate) fn takes_messages(&self) -> bool {
        let word = self.aborted();
        word == 0 || health::leaves_messages(&self.segment, word)
    }

    /// An error of a ring or the segment, as seen by this rank.
    pub(crate) fn segment_error(&self, cause: shmring::Error) -> Error {
        Error::Segment { rank: self.rank, cause }
    }

    /// The error for `word`, why this communicator has ended, met at operation `seqno`.
    #[cold]
    pub(crate) fn explain(&self, word: u64, seqno: u64) -> Error {
        let error = health::explain(&self.segment, word, &self.health(), seqno);
        match (error, self.cause.get()) {
            (Error::Aborted { by, rank, seqno, .. }, Some(cause)) if by == self.rank => {
                Error::Aborted { by, reason: format!("after an error of its own: {cause}"), rank, seqno }
            }
            (error, _) => error,
        }
    }

    /// As [`Shared::explain`], for a call that was not begun: whoever caused the end gets the time to say so first.
    #[cold]
    pub(crate) fn refuse(&self, word: u64, seqno: u64) -> Error {
        let error = self.explain(word, seqno);
        self.health().let_cause_go_first(&error);
        error
    }

    /// Ends the communicator on every rank if this rank cannot go on. Where several ranks fail at once, as on a full
    /// file system, the first tells what is wrong and the others refer to it.
    #[cold]
    pub(crate) fn give_up(&self, own: Error, seqno: u64) -> Error {
        let mut health = self.health();
        let verdict = Verdict::Failed(self.rank);
        let is_cause = match self.aborted() {
            0 => true,
            // A time-out has ended it before it got here, and nobody may have kept its result.
            word => word == Verdict::Timeout(self.rank).to_word() && matches!(own, Error::Timeout { .. }),
        };
        if is_cause {
            // The first counts; what comes later is often a consequence.
            let _ = self.cause.set(own.to_string());
        }
        let standing = health::end(&self.segment, verdict, &health, seqno);
        let first = self.aborted() == verdict.to_word();
        if first {
            health.report_abort(&own);
        }
        let own_stands =
            first || matches!(own, Error::PeerGone { .. } | Error::Timeout { .. } | Error::Mismatch { .. });
        let error = if own_stands { own } else { standing };
        health.let_cause_go_first(&error);
        error
    }

    /// Ends the communicator because an operation of this rank will not go on, though the others' do.
    #[cold]
    pub(crate) fn abandon(&self, what: &'static str) {
        if self.aborted() == 0 {
            let _ = self.give_up(Error::Abandoned { rank: self.rank, what }, 0);
        }
    }

    /// Ends the communicator because operations of this rank will not run, or not go on, after `error` in others that
    /// they were to run with.
    #[cold]
    pub(crate) fn abandon_after(&self, error: &Error) {
        if self.aborted() != 0 {
            return;
        }
        let _ = self.cause.set(format!("another operation of the same group or stream failed: {error}"));
        let (health, verdict) = (self.health(), Verdict::Failed(self.rank));
        health::end(&self.segment, verdict, &health, 0);
        if self.aborted() == verdict.to_word() {
            health.report_abort(error);
        }
    }

    /// The collectives before a queued one.
    pub(crate) fn turn_state(&self) -> Ahead {
        let identity = &self.record().identity;
        // ORDERING: Relaxed; only compared.
        let started = identity.started.load(Ordering::Relaxed);
        let runs = started > identity.finished.load(Ordering::Relaxed);
        Ahead { state: [self.engine.serving(), started], runs }
    }

    /// Says to the log what this rank leaves unread, from ranks that `is_source` names or that something has come from.
    pub(super) fn tell_unread(&self, is_source: impl Fn(u32) -> bool) {
        // Nobody reads what simulated ranks say, and some are dropped when their machine has gone.
        if cfg!(ringccl_sim) {
            return;
        }
        let unread = self.mail.unread(self, is_source);
        if !unread.is_empty() {
            let (rank, number) = (self.rank, self.entry.number());
            settings::warn(&format!(
                "rank {rank} leaves communicator {number} and has not received {unread}; whoever sent them may wait for \
                 an answer"
            ));
        }
    }

    fn leave(&self) {
        self.record().identity.set_state(MemberState::Left);
        if self.segment.header().sleepers.any() {
            self.segment.ring_all();
        }
    }

    /// Leaves on purpose: every operation that others need is done.
    pub(super) fn say_goodbye(&self) {
        self.leave();
        self.health().say_goodbye();
    }
}

impl Drop for Shared {
    /// A rank that goes without [`Communicator::finalize`](super::Communicator::finalize) says so, for the others not
    /// to wait.
    fn drop(&mut self) {
        registry::leave(&self.entry);
        if self.record().identity.state() != MemberState::Left {
            // Rings that were never used are not made for this: it costs memory of every communicator that is dropped.
            if self.aborted() == 0 && !std::thread::panicking() {
                self.tell_unread(|_| false);
            }
            self.leave();
        }
    }
}
