//! Which message goes to which receive, and the bytes of those that came too early.
//!
//! ```text
//!  matching: receive #7 from 2, tag 0  <->  message @12 of source 2         the rules are in `matching.rs`
//!  source 2: header read: @12, being read by its receive       source 3: nothing here
//!  early:    @9 of source 1, tag 4: nobody has asked for it, and others wait for what is behind it
//! ```
//!
//! Every receive that is polled looks at the rings of its sources, until it has found its message. A header that it
//! finds on the way may be for another posted receive; then that one finds it when it is polled. If it is for none, its
//! bytes go to memory of this process, so that what is behind it can be reached; so they do if the other receive does
//! not read them while this one waits long. Together such messages take at most [`EARLY_BYTES`].
//!
//! Receives that one thread waits for together sit at a *desk*: it looks once for all of them, and then at those that
//! were served, so that what waits costs nothing.

use super::Letter;
use super::header::Header;
use super::incoming::{Arriving, Incoming};
use super::matching::Matching;
use super::unread::Unread;
use crate::comm::{Misfit, Shared};
use crate::error::Error;
use crate::executor::Progress;
use shmring::doorbell::Awaits;
use std::collections::HashMap;
use std::ops::Range;

/// Most bytes of messages that came before anybody asked for them, all sources together.
const EARLY_BYTES: usize = if cfg!(test) { 4 << 20 } else { 1 << 30 };
/// Bytes that the tables need for a message, about: one without elements is not for nothing.
const ENTRY_BYTES: usize = 256;

/// A message in memory that nobody had asked for.
#[derive(Debug)]
struct Early {
    letter: Letter,
    data: Vec<u8>,
    /// Bytes that have arrived.
    here: usize,
}

/// What a receive that was not posted found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtOnce {
    /// Its message: it is over.
    Taken,
    /// Nothing.
    NotHere,
    /// That it must be posted.
    Post,
}

/// What one rank has asked for and what has arrived.
#[derive(Debug)]
pub(super) struct Inbox {
    rank: u32,
    sources: Vec<Incoming>,
    matching: Matching,
    /// By the numbers of the messages.
    early: HashMap<u64, Early>,
    early_bytes: usize,
    /// Looks at rings and at receives.
    #[cfg(test)]
    pub(super) looks: u64,
}

/// What there is for a receive.
enum Claim {
    Nothing,
    /// An early message, by its number and source.
    Early(u64, u32),
    /// The message at the head of a source's ring.
    Ring(u32),
}

impl Inbox {
    pub(super) fn new(rank: u32, nranks: u32) -> Self {
        let sources = (0..nranks).map(|_| Incoming::default()).collect();
        Self {
            rank,
            sources,
            matching: Matching::default(),
            early: HashMap::new(),
            early_bytes: 0,
            #[cfg(test)]
            looks: 0,
        }
    }

    /// Whether no message is in memory that nobody has asked for.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.early.is_empty()
    }

    /// Entries, rings and receives that were looked at so far.
    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        self.looks + self.matching.looked_at
    }

    /// Entries of the books that were looked at so far, and receives and messages that are in them.
    #[cfg(test)]
    pub(super) fn booked(&self) -> (u64, usize) {
        (self.matching.looked_at, self.matching.entries())
    }

    fn count_look(&mut self) {
        #[cfg(test)]
        {
            self.looks += 1;
        }
    }

    /// Adds a receive, at a desk or by itself; its number.
    pub(super) fn post(&mut self, source: Option<u32>, tag: u32, desk: Option<u64>) -> u64 {
        self.matching.post(source, tag, desk)
    }

    /// Removes a receive that is over. In a communicator that `has_ended` nobody else gets the message that it has
    /// found: it did not fit, or some of it was read, or will not come.
    pub(super) fn withdraw(&mut self, id: u64, has_ended: bool) {
        if has_ended && self.matching.message_of(id).is_some() {
            self.matching.complete(id);
        } else {
            self.matching.withdraw(id);
        }
    }

    /// A place where a thread waits for several receives together; to be closed.
    pub(super) fn open_desk(&mut self) -> u64 {
        self.matching.open_desk()
    }

    pub(super) fn close_desk(&mut self, desk: u64) {
        self.matching.close_desk(desk);
    }

    /// Looks at the rings for which receives of a desk wait; those whose messages have begun to arrive since the last
    /// look, by whoever's.
    ///
    /// # Errors
    /// A corrupt ring, too many early messages.
    pub(super) fn look(&mut self, shared: &Shared, desk: u64) -> Result<Vec<u64>, Error> {
        let waiting: Vec<_> = self.matching.waiting_at(desk).map(|(source, _)| source).collect();
        for source in waiting {
            for from in self.sources_of(source) {
                // What nobody at this desk waits for stays in its ring, and holds its sender back.
                while self.matching.is_waiting_at(desk, source) && self.step(shared, from)? {}
            }
        }
        Ok(self.matching.served_at(desk))
    }

    /// The first receive of each source, or of any, that waits at a desk, and whom for.
    pub(super) fn waiting_at(&self, desk: u64) -> Vec<(u64, Awaits)> {
        self.matching.waiting_at(desk).map(|(source, id)| (id, self.awaits_of(source))).collect()
    }

    /// Whether some of the message for receive `id` has been read, but not all.
    pub(super) fn is_reading(&self, id: u64) -> bool {
        match self.found(id) {
            Claim::Ring(source) => {
                let arriving = &self.sources[source as usize].arriving;
                arriving.as_ref().is_some_and(|arriving| arriving.read.is_some())
            }
            Claim::Early(..) | Claim::Nothing => false,
        }
    }

    /// How much has arrived from a source, or from all: a number that grows with every part of a message.
    pub(super) fn heard(&self, source: Option<u32>) -> u64 {
        self.sources_of(source).map(|rank| self.sources[rank as usize].parts).sum()
    }

    /// The lowest tag of the messages from `source`, or any, that nobody has asked for, and whether there are other
    /// ones; none for receive `id` once its message has begun to arrive.
    pub(super) fn unasked(&self, id: u64, source: Option<u32>) -> (Option<u32>, bool) {
        if self.matching.message_of(id).is_some() {
            return (None, false);
        }
        self.matching.unasked_tags(source)
    }

    /// See [`Mail::unread`](super::Mail::unread).
    pub(super) fn unread(&mut self, shared: &Shared, is_source: impl Fn(u32) -> bool) -> Unread {
        for source in self.sources_of(None) {
            if self.sources[source as usize].is_connected() || is_source(source) {
                // What is too much, or cannot be read, is not counted: this is only told.
                while self.step(shared, source).unwrap_or(false) {}
            }
        }
        self.matching.unread()
    }

    /// Called when receive `id` from `source` has waited long: messages in its way that others have claimed, but do not
    /// read, go to memory. Who has claimed one may run only after this one.
    ///
    /// # Errors
    /// Too many early messages.
    pub(super) fn unblock(&mut self, shared: &Shared, id: u64, source: Option<u32>) -> Result<(), Error> {
        if self.matching.message_of(id).is_some() {
            return Ok(());
        }
        for from in self.sources_of(source) {
            let Some(arriving) = self.sources[from as usize].arriving else { continue };
            if !arriving.is_early && arriving.read.is_none() {
                self.keep_early(from)?;
                // The other one finds it there.
                shared.segment.notify_self();
            }
        }
        Ok(())
    }

    fn sources_of(&self, source: Option<u32>) -> Range<u32> {
        source.map_or(0..self.sources.len() as u32, |rank| rank..rank + 1)
    }

    /// Puts a message of the rank to itself.
    ///
    /// # Safety
    /// - `from` is readable for the letter's bytes.
    pub(super) unsafe fn put(&mut self, letter: Letter, from: *const u8) {
        let bytes = letter.bytes();
        let mut data: Vec<u8> = Vec::with_capacity(bytes);
        // SAFETY: the caller's contract; the vector has room for `bytes` and they are written before it has them.
        unsafe {
            data.as_mut_ptr().copy_from_nonoverlapping(from, bytes);
            data.set_len(bytes);
        }
        // Not counted: the rank knows what it has sent to itself, and no other rank is to blame.
        let number = self.matching.arrive(self.rank, letter.tag);
        self.early.insert(number, Early { letter, data, here: bytes });
    }

    /// Moves what has arrived of the message for receive `id` from `source`, or any, to `to`; where it came from, once
    /// that is known.
    ///
    /// # Errors
    /// A message that is not what is expected, a corrupt ring, too many early messages.
    ///
    /// # Safety
    /// - `to` is writable for the letter's bytes, the same for every call for this receive.
    pub(super) unsafe fn receive(
        &mut self,
        shared: &Shared,
        (id, source): (u64, Option<u32>),
        letter: Letter,
        to: *mut u8,
    ) -> Result<(Progress, Option<u32>), Error> {
        self.count_look();
        let claimed = match self.claim(shared, id, source)? {
            Claim::Nothing => return Ok((Progress::Blocked, None)),
            Claim::Early(number, from) => {
                if !self.early.get(&number).is_some_and(Early::is_here) {
                    return Ok((Progress::Blocked, None));
                }
                let Some(early) = self.early.remove(&number) else { return Ok((Progress::Blocked, None)) };
                self.matching.complete(id);
                if from != self.rank {
                    self.early_bytes -= Early::cost(early.letter);
                }
                if early.letter != letter {
                    return Err(Misfit::new(self.rank, from, early.letter, letter).tell(shared));
                }
                // SAFETY: the caller's contract; the letters are equal, so the bytes fit.
                unsafe { to.copy_from_nonoverlapping(early.data.as_ptr(), early.data.len()) };
                return Ok((Progress::Done, Some(from)));
            }
            Claim::Ring(from) => from,
        };
        let found = self.sources[claimed as usize].arriving.map(|arriving| arriving.letter);
        if let Some(found) = found
            && found != letter
        {
            return Err(Misfit::new(self.rank, claimed, found, letter).tell(shared));
        }
        // SAFETY: the caller's contract; the message has exactly the letter's bytes.
        let progress = unsafe { self.sources[claimed as usize].read(shared, claimed, to) };
        let progress = progress.map_err(|cause| shared.segment_error(cause))?;
        if progress == Progress::Done {
            self.matching.complete(id);
        }
        Ok((progress, Some(claimed)))
    }

    /// Whom receive `id` from `source`, or any, waits for; `None` if it can go on.
    pub(super) fn awaits(
        &mut self,
        shared: &Shared,
        id: u64,
        source: Option<u32>,
    ) -> Result<Option<Awaits>, Error> {
        match self.claim(shared, id, source)? {
            Claim::Early(number, _) => {
                // Its bytes are read by whoever looks first, in this process.
                Ok((!self.early.get(&number).is_some_and(Early::is_here)).then_some(Awaits::Anyone))
            }
            Claim::Ring(source) => {
                let is_here = self.sources[source as usize].is_here(shared, source);
                Ok((!is_here.map_err(|cause| shared.segment_error(cause))?).then_some(Awaits::Member(source)))
            }
            Claim::Nothing => Ok(Some(self.awaits_of(source))),
        }
    }

    /// Whether this process may end the wait of receive `id` by itself: it can go on, or its sources have messages
    /// under way to other receives.
    pub(super) fn is_behind(&mut self, shared: &Shared, id: u64, source: Option<u32>) -> Result<bool, Error> {
        Ok(match self.awaits(shared, id, source)? {
            None => true,
            Some(Awaits::Member(_)) => false,
            Some(Awaits::Anyone) => {
                self.sources_of(source).any(|rank| self.sources[rank as usize].arriving.is_some())
            }
        })
    }

    /// Whose doing ends the wait of a receive that has no message.
    fn awaits_of(&self, source: Option<u32>) -> Awaits {
        // Behind another receive's message, what that one does ends the wait too.
        let is_behind = |rank: u32| self.sources[rank as usize].arriving.is_some();
        match source {
            Some(rank) if !is_behind(rank) => Awaits::Member(rank),
            _ => Awaits::Anyone,
        }
    }

    /// Finds the message for receive `id`, as far as it has arrived, and moves others out of its way.
    fn claim(&mut self, shared: &Shared, id: u64, source: Option<u32>) -> Result<Claim, Error> {
        // Nothing is read that is not in its way: what stays in the rings holds its senders back.
        for from in self.sources_of(source) {
            while matches!(self.found(id), Claim::Nothing) && self.step(shared, from)? {}
        }
        let found = self.found(id);
        if let Claim::Early(number, from) = found
            && !self.early.get(&number).is_some_and(Early::is_here)
        {
            self.pump_early(shared, from)?;
        }
        Ok(found)
    }

    /// The message for receive `id`, if its header has been read.
    fn found(&self, id: u64) -> Claim {
        let number = self.matching.message_of(id);
        let source = number.and_then(|number| self.matching.source_of(number));
        match (number, source) {
            (Some(number), Some(source)) if self.early.contains_key(&number) => Claim::Early(number, source),
            (Some(_), Some(source)) => Claim::Ring(source),
            _ => Claim::Nothing,
        }
    }

    /// Reads the next header of a source and decides where its message goes, or reads more of an early message; true
    /// when there may be more to do: not when nothing has arrived, or what has is for somebody who has not read it yet.
    fn step(&mut self, shared: &Shared, source: u32) -> Result<bool, Error> {
        if source == self.rank {
            return Ok(false);
        }
        self.count_look();
        let Some(arriving) = self.sources[source as usize].arriving else {
            let Some((header, letter)) = self.next_header(shared, source)? else { return Ok(false) };
            self.arrive(source, header, letter);
            return Ok(true);
        };
        if arriving.is_early {
            return self.pump_early(shared, source);
        }
        // What was read in part when its receive was given up ends there, and nothing behind it is reached.
        if self.matching.receive_of(arriving.number).is_some() || arriving.read.is_some() {
            return Ok(false);
        }
        self.keep_early(source)?;
        Ok(true)
    }

    /// The header of a source's next message, if it has arrived, and what it says.
    #[inline]
    fn next_header(&mut self, shared: &Shared, source: u32) -> Result<Option<(Header, Letter)>, Error> {
        let header = self.sources[source as usize].read_header(shared, source);
        let Some(header) = header.map_err(|cause| shared.segment_error(cause))? else { return Ok(None) };
        let Some(letter) = header.letter() else {
            let what = "a message's count and type";
            let (found, step) = (header.count, header.dtype.into());
            return Err(shared.segment_error(shmring::Error::Corrupt { what, found, step }));
        };
        Ok(Some((header, letter)))
    }

    /// Notes a message whose header was read.
    fn arrive(&mut self, source: u32, header: Header, letter: Letter) {
        let number = self.matching.arrive(source, letter.tag);
        self.sources[source as usize].arriving =
            Some(Arriving { header, letter, number, is_early: false, read: None });
    }

    /// Takes the next message of `source` at once if it lies in its header and is what is expected, where no other
    /// receive or message is under way: nothing of it gets into the books. What is something else takes the long way.
    ///
    /// # Errors
    /// A corrupt ring.
    ///
    /// # Safety
    /// - `to` is writable for the letter's bytes.
    #[inline]
    pub(super) unsafe fn take_at_once(
        &mut self,
        shared: &Shared,
        source: u32,
        letter: Letter,
        to: *mut u8,
    ) -> Result<AtOnce, Error> {
        let is_free = source != self.rank && self.sources[source as usize].arriving.is_none();
        if !is_free || letter.bytes() > Header::INLINE || !self.matching.is_idle() {
            return Ok(AtOnce::Post);
        }
        self.count_look();
        match self.next_header(shared, source)? {
            None => Ok(AtOnce::NotHere),
            Some((header, found)) if found == letter => {
                // SAFETY: the caller's contract; the bytes are all in the header.
                unsafe { to.copy_from(header.inline.as_ptr(), letter.bytes()) };
                Ok(AtOnce::Taken)
            }
            Some((header, found)) => {
                self.arrive(source, header, found);
                Ok(AtOnce::Post)
            }
        }
    }

    /// Makes room in memory for the message whose header was read.
    fn keep_early(&mut self, source: u32) -> Result<(), Error> {
        let Some(arriving) = &mut self.sources[source as usize].arriving else { return Ok(()) };
        let letter = arriving.letter;
        if Early::cost(letter) > EARLY_BYTES.saturating_sub(self.early_bytes) {
            let (rank, letter, limit) = (self.rank, letter.to_string(), EARLY_BYTES);
            return Err(Error::EarlyMessages { rank, from: source, letter, limit });
        }
        self.early_bytes += Early::cost(letter);
        self.early.insert(arriving.number, Early { letter, data: vec![0; letter.bytes()], here: 0 });
        arriving.is_early = true;
        arriving.read = Some(0);
        Ok(())
    }

    /// Reads more of the early message of a source; true when all of it is here.
    fn pump_early(&mut self, shared: &Shared, source: u32) -> Result<bool, Error> {
        let incoming = &mut self.sources[source as usize];
        let Some(number) = incoming.arriving.filter(|arriving| arriving.is_early).map(|early| early.number)
        else {
            return Ok(true);
        };
        let Some(early) = self.early.get_mut(&number) else { return Ok(true) };
        // SAFETY: the data has exactly the message's bytes.
        let progress = unsafe { incoming.read(shared, source, early.data.as_mut_ptr()) };
        let progress = progress.map_err(|cause| shared.segment_error(cause))?;
        early.here = match incoming.arriving {
            Some(arriving) => arriving.read.unwrap_or(0),
            None => early.data.len(),
        };
        Ok(progress == Progress::Done)
    }
}

impl Early {
    /// Bytes of memory that such a message takes, about.
    fn cost(letter: Letter) -> usize {
        letter.bytes().saturating_add(ENTRY_BYTES)
    }

    fn is_here(&self) -> bool {
        self.here == self.data.len()
    }
}
