//! Point-to-point messages: what `send` and `recv` run on, beside the collectives and without them.
//!
//! ```text
//!  mail ring 0 -> 1:   | header, 40 bytes | rest: one LL128 message, or Simple slots |  next message ...
//! ```
//!
//! A message is a line with its size, type and tag and the first bytes, then the rest. Messages from one rank to
//! another go in the order of the sends ([`Turns`] per destination). A receive names a source, or takes any, and a tag;
//! receives of one source and tag are served in the order in which they were posted ([`matching`]). A message that
//! nobody has asked for while others wait behind it is kept in memory of the receiver, up to a bound ([`inbox`]).
//!
//! Sends and receives take their places when they begin to run: those of a group all at once, in their order in it.

mod header;
mod inbox;
mod incoming;
mod matching;
mod recv;
mod send;
mod unread;

pub(crate) use recv::RecvTask;
pub(crate) use send::SendTask;
pub(crate) use unread::Unread;

use crate::comm::Shared;
use crate::error::Error;
use crate::report::Traffic;
use header::Header;
pub(crate) use inbox::AtOnce;
use inbox::Inbox;
use send::Outgoing;
use shmring::doorbell::Awaits;
use shmring::layout::RingGeometry;
use shmring::sync::{AtomicU64, Ordering};
use shmring::turns::{Issuer, Ticket, Turns};
use shmring::{Protocol, Stamp};
use std::sync::{Mutex, MutexGuard};

/// What messages of mail rings are marked with. Only they use these rings, so it tells nothing but that.
const STAMP: Stamp = Stamp(0x6d61_696c);
/// Largest rest of a message that goes in lines; above, unpacking costs more than the counter's cache line.
const LINES_BYTES: usize = 480;

/// Smallest part of a message in slots, where there are several: below it hand-overs cost more than they overlap.
const PART_LEAST: usize = 8 << 10;

/// The ends of one rank's mail rings.
#[derive(Debug)]
pub(crate) struct Mail {
    /// By destination.
    out: Vec<Way>,
    pub(crate) traffic: Traffic,
    inbox: Mutex<Inbox>,
}

/// The sending end to one destination, and who issues the turns to use it.
#[derive(Debug)]
struct Way {
    turns: Turns<Outgoing>,
    issuer: Mutex<Issuer>,
    /// Twice the parts of messages that were written, plus 1 while a message has begun and is not over. Written by who
    /// has the turn.
    parts: AtomicU64,
}

/// What a message says of itself, and what a receive expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    /// Elements.
    pub(crate) count: usize,
    pub(crate) dtype: crate::reduce::DType,
    pub(crate) tag: u32,
}

impl Letter {
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.dtype.size_bytes()
    }
}

impl std::fmt::Display for Letter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} x {}", self.count, self.dtype)?;
        if self.tag != 0 { write!(f, " with tag {}", self.tag) } else { Ok(()) }
    }
}

impl Way {
    /// How much has been written, and whether a message has begun and is not over.
    fn written(&self) -> (u64, bool) {
        // ORDERING: Relaxed; only compared and told.
        let word = self.parts.load(Ordering::Relaxed);
        (word / 2, word % 2 == 1)
    }

    /// Notes more parts, and whether the message that they are of goes on; called in its turn.
    fn note(&self, parts: u64, goes_on: bool) {
        let all = self.written().0 + parts;
        // ORDERING: Relaxed, as above; who has the turn is the only writer.
        self.parts.store(2 * all + u64::from(goes_on), Ordering::Relaxed);
    }
}

impl Mail {
    pub(crate) fn new(rank: u32, nranks: u32) -> Self {
        let way = || {
            let (turns, issuer) = Turns::new(Outgoing::default());
            Way { turns, issuer: Mutex::new(issuer), parts: AtomicU64::new(0) }
        };
        let (out, traffic) = ((0..nranks).map(|_| way()).collect(), Traffic::default());
        Self { out, traffic, inbox: Mutex::new(Inbox::new(rank, nranks)) }
    }

    /// A turn to send to `destination`.
    fn issue(&self, destination: u32) -> Ticket {
        shmring::sync::lock(&self.out[destination as usize].issuer).issue()
    }

    /// Sends a short message in the calling thread, without a task, where nothing else to that rank is under way; false
    /// if a task must do it.
    ///
    /// # Errors
    /// A corrupt ring.
    ///
    /// # Safety
    /// - `from` is readable for the letter's bytes.
    #[inline]
    pub(crate) unsafe fn send_at_once(
        &self,
        shared: &Shared,
        to: u32,
        letter: Letter,
        from: *const u8,
    ) -> Result<bool, Error> {
        let way = &self.out[to as usize];
        if to == shared.rank || letter.bytes() > Header::INLINE || shared.aborted() != 0 {
            return Ok(false);
        }
        let Ok(mut issuer) = way.issuer.try_lock() else { return Ok(false) };
        // SAFETY: this end has one issuer.
        let Some(out) = (unsafe { way.turns.idle(&mut issuer) }) else { return Ok(false) };
        // SAFETY: the caller's contract.
        let sent = unsafe { out.write_at_once(letter, from) };
        if sent.map_err(|cause| shared.give_up(shared.segment_error(cause), 0))? {
            way.note(1, false);
            shared.segment.notify();
            self.traffic.sent(letter.bytes());
            return Ok(true);
        }
        Ok(false)
    }

    /// A look for a short message from `source`, without a task: see `Inbox::take_at_once`.
    ///
    /// # Errors
    /// A corrupt ring.
    ///
    /// # Safety
    /// - `to` is writable for the letter's bytes.
    #[inline]
    pub(crate) unsafe fn take_at_once(
        &self,
        shared: &Shared,
        source: u32,
        letter: Letter,
        to: *mut u8,
    ) -> Result<AtOnce, Error> {
        if shared.aborted() != 0 {
            return Ok(AtOnce::Post);
        }
        // SAFETY: the caller's contract.
        let found = unsafe { self.inbox().take_at_once(shared, source, letter, to) };
        let found = found.map_err(|error| shared.give_up(error, 0))?;
        if found == AtOnce::Taken {
            self.traffic.received(letter.bytes());
        }
        Ok(found)
    }

    /// Opens a place where a thread waits for several receives together; to be closed.
    pub(crate) fn open_desk(&self) -> u64 {
        self.inbox().open_desk()
    }

    pub(crate) fn close_desk(&self, desk: u64) {
        self.inbox().close_desk(desk);
    }

    /// The receives of a desk whose messages have begun to arrive since the last look.
    ///
    /// # Errors
    /// A corrupt ring, too many early messages.
    pub(crate) fn look(&self, shared: &Shared, desk: u64) -> Result<Vec<u64>, Error> {
        self.inbox().look(shared, desk)
    }

    /// The first receive of each source, or of any, that waits at a desk, and whom for.
    pub(crate) fn waiting_at(&self, desk: u64) -> Vec<(u64, Awaits)> {
        self.inbox().waiting_at(desk)
    }

    /// Takes in what has come and was not received, from the ranks of which `is_source` says that they may have sent
    /// something, and those that something has come from. Nobody receives after that.
    pub(crate) fn unread(&self, shared: &Shared, is_source: impl Fn(u32) -> bool) -> Unread {
        self.inbox().unread(shared, is_source)
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        // A panic inside ends the process's use of this communicator anyway: what it held is not trusted further than
        // a peer's memory is.
        shmring::sync::lock(&self.inbox)
    }
}

/// How the rest of a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    Nothing,
    Lines,
    Slots,
}

impl Rest {
    /// Both ends compute this from the message's size and the ring.
    fn of(bytes: usize, ring: &RingGeometry) -> Self {
        match bytes.saturating_sub(Header::INLINE) {
            0 => Self::Nothing,
            rest if rest <= LINES_BYTES.min(Protocol::Ll128.capacity(ring)) => Self::Lines,
            _ => Self::Slots,
        }
    }
}

/// Bytes of a part of a message in slots, but for the last one: four at least, so that the receiver copies one while
/// the sender writes the next. Both ends compute this from the message's size and the ring.
fn part_bytes(bytes: usize, ring: &RingGeometry) -> usize {
    let slot = ring.slot_bytes as usize;
    (bytes / 4).next_multiple_of(64).clamp(PART_LEAST.min(slot), slot.max(1))
}

#[cfg(test)]
mod tests;
