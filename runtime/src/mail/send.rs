//! Sending: messages to one destination in the order of the calls, each written as credit allows.

use super::header::Header;
use super::{LINES_BYTES, Letter, Rest, STAMP, part_bytes};
use crate::comm::{Duty, Mailing, Shared, Tags, UnderWay, Watch};
use crate::error::{Error, Stage};
use crate::executor::Progress;
use crate::reduce::{self, Dst, Store};
use crate::task::{Ahead, Company, TurnWatch};
use shmring::doorbell::Awaits;
use shmring::turns::Ticket;
use shmring::{Protocol, Sender};
use std::sync::Arc;

/// The sending end to one destination.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    end: Option<Sender>,
    /// Whether its Simple slots have memory.
    slots: bool,
}

/// A turn to send, from its asking to its end.
#[derive(Debug)]
enum TurnToSend {
    NotAsked,
    Has(Ticket),
    Over,
}

/// A message that is being sent.
#[derive(Debug)]
pub(crate) struct SendTask {
    shared: Arc<Shared>,
    destination: u32,
    turn_to_send: TurnToSend,
    letter: Letter,
    from: *const u8,
    /// Bytes sent; `None` before the header.
    sent: Option<usize>,
    watch: Watch,
    turn: TurnWatch,
    _under_way: UnderWay,
}

// SAFETY: the buffer may be used by whichever thread drives the task (contract of `new`).
unsafe impl Send for SendTask {}

impl SendTask {
    /// # Safety
    /// - `from` is readable for the letter's bytes, from any thread, until the task is over or dropped.
    pub(crate) unsafe fn new(shared: Arc<Shared>, destination: u32, letter: Letter, from: *const u8) -> Self {
        let (turn_to_send, watch, turn) = (TurnToSend::NotAsked, Watch::default(), TurnWatch::default());
        let _under_way = shared.entry.send();
        Self { shared, destination, turn_to_send, letter, from, sent: None, watch, turn, _under_way }
    }

    /// Gives the message its place behind those to the same rank, if it has none.
    pub(crate) fn queue(&mut self) {
        if let TurnToSend::NotAsked = self.turn_to_send {
            self.turn_to_send = TurnToSend::Has(self.shared.mail.issue(self.destination));
        }
    }

    /// The rank that it is sent to.
    pub(crate) fn destination(&self) -> u32 {
        self.destination
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn poll(&mut self) -> Result<Progress, Error> {
        let progress = self.go_on();
        match &progress {
            Ok(Progress::Blocked) => {}
            Ok(Progress::Advanced) => self.watch.waited(),
            Ok(Progress::Done) => self.end(true),
            Err(_) => self.end(false),
        }
        progress
    }

    fn go_on(&mut self) -> Result<Progress, Error> {
        self.queue();
        let Self { shared, destination, turn_to_send: TurnToSend::Has(ticket), letter, from, sent, .. } =
            self
        else {
            return Ok(Progress::Done);
        };
        let word = shared.aborted();
        if word != 0 && sent.is_none() {
            // Also before its turn, which may never come: who has it may not run any more.
            return Err(shared.refuse(word, 0));
        }
        let way = &shared.mail.out[*destination as usize];
        // SAFETY: tickets of this end come from its one issuer.
        let Some(out) = (unsafe { way.turns.enter(ticket) }) else { return Ok(Progress::Blocked) };
        if *destination == shared.rank {
            // SAFETY: the contract of `new`.
            unsafe { shared.mail.inbox().put(*letter, *from) };
            return Ok(Progress::Done);
        }
        // SAFETY: the contract of `new`.
        let written = unsafe { out.write(shared, *destination, *letter, *from, sent) };
        let (progress, parts) = written.map_err(|cause| shared.give_up(shared.segment_error(cause), 0))?;
        way.note(parts, sent.is_some() && progress != Progress::Done);
        // Who has taken most of it and ended the communicator may have left room for the rest.
        if word != 0 && progress != Progress::Done {
            return Err(shared.refuse(word, 0));
        }
        Ok(progress)
    }

    pub(crate) fn awaits(&mut self) -> Result<Option<Awaits>, Error> {
        let Self { shared, destination, turn_to_send: TurnToSend::Has(ticket), .. } = self else {
            return Ok(None);
        };
        if shared.aborted() != 0 {
            return Ok(None);
        }
        // SAFETY: tickets of this end come from its one issuer.
        let Some(out) = (unsafe { shared.mail.out[*destination as usize].turns.enter(ticket) }) else {
            return Ok(Some(Awaits::Member(shared.rank)));
        };
        let Some(end) = &mut out.end else { return Ok(None) };
        let has_credit = end.has_credit().map_err(|cause| shared.segment_error(cause))?;
        Ok((!has_credit).then_some(Awaits::Member(*destination)))
    }

    pub(crate) fn check(&mut self, company: Company) -> Result<(), Error> {
        let checked = self.look_around(company);
        checked.map_err(|error| {
            self.end(false);
            self.shared.give_up(error, 0)
        })
    }

    fn look_around(&mut self, company: Company) -> Result<(), Error> {
        let Self { shared, destination, turn_to_send: TurnToSend::Has(ticket), letter, watch, turn, .. } =
            self
        else {
            return Ok(());
        };
        let (to, limit) = (*destination, shared.config.timeout);
        let way = &shared.mail.out[to as usize];
        let (parts, runs) = way.written();
        // SAFETY: tickets of this end come from its one issuer.
        if unsafe { way.turns.enter(ticket) }.is_none() {
            // When the one before has begun is not known: it may have just as long, from its first wait on.
            let ahead = Ahead { state: [way.turns.serving(), parts], runs };
            return turn.check(shared, ahead, 2 * limit);
        }
        watch.keep_company(company);
        let mailing = Mailing { heard: parts, peers: to..to + 1, tags: Tags::of(letter.tag) };
        watch.check_mail(shared, Duty { stage: Stage::Send { to }, limit }, mailing)
    }

    fn end(&mut self, is_done: bool) {
        let turn = std::mem::replace(&mut self.turn_to_send, TurnToSend::Over);
        let TurnToSend::Has(ticket) = turn else { return };
        let way = &self.shared.mail.out[self.destination as usize];
        if is_done {
            self.shared.mail.traffic.sent(self.letter.bytes());
            way.turns.pass(ticket)
        } else {
            way.turns.give_up(ticket)
        }
        self.shared.segment.notify_self();
    }
}

impl Drop for SendTask {
    fn drop(&mut self) {
        if matches!(self.turn_to_send, TurnToSend::Has(_)) && self.sent.is_some() {
            self.shared.abandon("a send");
        }
        self.end(false);
    }
}

impl Outgoing {
    /// Writes as much of the message as there is credit for; how many parts of it: header, lines and slots.
    ///
    /// # Safety
    /// - `from` is readable for the letter's bytes.
    unsafe fn write(
        &mut self,
        shared: &Shared,
        to: u32,
        letter: Letter,
        from: *const u8,
        sent: &mut Option<usize>,
    ) -> Result<(Progress, u64), shmring::Error> {
        let bytes = letter.bytes();
        let ring = shared.segment.geometry().mail();
        let rest = Rest::of(bytes, &ring);
        let end = self.connect(shared, to, rest == Rest::Slots)?;
        let mut parts = 0;
        let progress = loop {
            if *sent == Some(bytes) {
                break Progress::Done;
            }
            if !end.has_credit()? {
                break if parts > 0 { Progress::Advanced } else { Progress::Blocked };
            }
            // SAFETY: in each case the part lies inside the caller's buffer, and the slot has credit and room.
            unsafe {
                match *sent {
                    None => {
                        let mut header = Header::new(letter);
                        let part = bytes.min(Header::INLINE);
                        header.inline.as_mut_ptr().copy_from(from, part);
                        end.send_lines(Protocol::Ll, STAMP, header.to_bytes().as_ptr(), Header::BYTES);
                        *sent = Some(part);
                    }
                    Some(at) if rest == Rest::Lines => {
                        debug_assert!(bytes - at <= LINES_BYTES);
                        end.send_lines(Protocol::Ll128, STAMP, from.add(at), bytes - at);
                        *sent = Some(bytes);
                    }
                    Some(at) => {
                        let part = end.write_slot(|to, room| {
                            let part = part_bytes(bytes, &ring).min(room).min(bytes - at);
                            reduce::copy(from.add(at), &[Dst { ptr: to, store: Store::Cached }], part);
                            part
                        });
                        end.post(STAMP);
                        // One that sleeps for it can begin to read while the next part is written.
                        shared.segment.notify();
                        *sent = Some(at + part);
                    }
                }
            }
            parts += 1;
        };
        if parts > 0 && rest != Rest::Slots {
            shared.segment.notify();
        }
        Ok((progress, parts))
    }

    /// Writes a message that lies in its header, if there is an end with credit.
    ///
    /// # Safety
    /// - `from` is readable for the letter's bytes.
    #[inline]
    pub(super) unsafe fn write_at_once(
        &mut self,
        letter: Letter,
        from: *const u8,
    ) -> Result<bool, shmring::Error> {
        let Some(end) = &mut self.end else { return Ok(false) };
        if !end.has_credit()? {
            return Ok(false);
        }
        let mut header = Header::new(letter);
        // SAFETY: the caller's contract; the slot has credit and room for a header.
        unsafe {
            header.inline.as_mut_ptr().copy_from(from, letter.bytes());
            end.send_lines(Protocol::Ll, STAMP, header.to_bytes().as_ptr(), Header::BYTES);
        }
        Ok(true)
    }

    /// The end, with memory for Simple slots if they are needed.
    fn connect(&mut self, shared: &Shared, to: u32, slots: bool) -> Result<&mut Sender, shmring::Error> {
        if slots && !self.slots {
            shared.segment.commit_mail_slots(shared.rank, to)?;
            self.slots = true;
        }
        let end = match self.end.take() {
            Some(end) => end,
            None => shared.segment.mail_sender(to)?,
        };
        Ok(self.end.insert(end))
    }
}
