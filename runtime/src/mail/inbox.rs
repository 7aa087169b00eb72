//! Which message goes to which receive.
//!
//! ```text
//!  posted:  #7 from 2, tag 0    #8 from any, tag 5    #9 from 2, tag 0        in the order of the calls
//!  source 2: header read -> for #7, being read          source 3: nothing here
//!  early:   from 1, tag 4: nobody has asked for it, and others wait for what is behind it
//! ```
//!
//! Every receive that is polled looks at the rings of its sources, until it has found its message. A header that it
//! finds on the way may be for another posted receive; then that one finds it claimed. If it is for none, its bytes go
//! to memory of this process, so that what is behind it can be reached; so they do if the other receive does not read
//! them while this one waits long. Together such messages take at most [`EARLY_BYTES`].

use super::incoming::{Arriving, Goes, Incoming};
use super::{Letter, mismatch};
use crate::comm::Shared;
use crate::error::Error;
use crate::executor::Progress;
use shmring::doorbell::Awaits;
use std::collections::VecDeque;
use std::ops::Range;

/// Most bytes of messages that came before anybody asked for them, all sources together.
const EARLY_BYTES: usize = if cfg!(test) { 4 << 20 } else { 1 << 30 };

/// A receive that has not got all of its message yet.
#[derive(Debug)]
struct Posted {
    id: u64,
    source: Option<u32>,
    tag: u32,
    /// Whose message it gets, once that has begun to arrive.
    claimed: Option<u32>,
}

/// A message in memory that nobody had asked for.
#[derive(Debug)]
struct Early {
    source: u32,
    letter: Letter,
    data: Vec<u8>,
    /// Bytes that have arrived.
    here: usize,
}

/// What one rank has asked for and what has arrived.
#[derive(Debug)]
pub(super) struct Inbox {
    rank: u32,
    sources: Vec<Incoming>,
    posted: VecDeque<Posted>,
    early: VecDeque<Early>,
    early_bytes: usize,
    next_id: u64,
}

impl Inbox {
    pub(super) fn new(rank: u32, nranks: u32) -> Self {
        let sources = (0..nranks).map(|_| Incoming::default()).collect();
        let (posted, early) = (VecDeque::new(), VecDeque::new());
        Self { rank, sources, posted, early, early_bytes: 0, next_id: 0 }
    }

    /// Whether no message is in memory that nobody has asked for.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.early.is_empty()
    }

    /// Adds a receive; its number.
    pub(super) fn post(&mut self, source: Option<u32>, tag: u32) -> u64 {
        self.next_id += 1;
        self.posted.push_back(Posted { id: self.next_id, source, tag, claimed: None });
        self.next_id
    }

    /// Removes a receive that is over.
    pub(super) fn withdraw(&mut self, id: u64) {
        self.posted.retain(|posted| posted.id != id);
        for source in 0..self.sources.len() as u32 {
            self.unclaim(source, |goes| goes == Goes::To(id));
        }
    }

    /// Lets a message that nobody has begun to read go to whom it fits, when somebody next looks.
    fn unclaim(&mut self, source: u32, which: impl Fn(Goes) -> bool) {
        let Some(arriving) = &mut self.sources[source as usize].arriving else { return };
        if arriving.read.is_none() && which(arriving.goes) {
            let claimed = std::mem::replace(&mut arriving.goes, Goes::Unknown);
            for posted in self.posted.iter_mut().filter(|posted| claimed == Goes::To(posted.id)) {
                posted.claimed = None;
            }
        }
    }

    /// Whether some of the message for receive `id` has been read, but not all.
    pub(super) fn is_reading(&self, id: u64) -> bool {
        let mut arriving = self.sources.iter().filter_map(|incoming| incoming.arriving);
        arriving.any(|arriving| arriving.goes == Goes::To(id) && arriving.read.is_some())
    }

    /// Called when receive `id` has waited long: messages in its way that others have claimed, but do not read, go to
    /// memory. Who has claimed one may run only after this one.
    ///
    /// # Errors
    /// Too many early messages.
    pub(super) fn unblock(&mut self, shared: &Shared, id: u64) -> Result<(), Error> {
        let Some(Posted { source, claimed: None, .. }) = self.posted.iter().find(|posted| posted.id == id)
        else {
            return Ok(());
        };
        for source in self.sources_of(*source) {
            let Some(arriving) = self.sources[source as usize].arriving else { continue };
            let Goes::To(other) = arriving.goes else { continue };
            if arriving.read.is_none() {
                self.unclaim(source, |goes| goes == Goes::To(other));
                self.keep_early(source, arriving.letter)?;
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
        self.early.push_back(Early { source: self.rank, letter, data, here: bytes });
    }

    /// Moves what has arrived of the message for receive `id` to `to`; where it came from, once that is known.
    ///
    /// # Errors
    /// A message that is not what is expected, a corrupt ring, too many early messages.
    ///
    /// # Safety
    /// - `to` is writable for the letter's bytes, the same for every call for this receive.
    pub(super) unsafe fn receive(
        &mut self,
        shared: &Shared,
        id: u64,
        letter: Letter,
        to: *mut u8,
    ) -> Result<(Progress, Option<u32>), Error> {
        let claimed = match self.claim(shared, id)? {
            Claim::Nothing => return Ok((Progress::Blocked, None)),
            Claim::Early(index) => {
                if !self.early.get(index).is_some_and(Early::is_here) {
                    return Ok((Progress::Blocked, None));
                }
                let Some(early) = self.early.remove(index) else { return Ok((Progress::Blocked, None)) };
                if early.source != self.rank {
                    self.early_bytes -= Early::cost(early.letter);
                }
                if early.letter != letter {
                    return Err(mismatch(self.rank, early.source, &early.letter.to_string(), letter));
                }
                // SAFETY: the caller's contract; the letters are equal, so the bytes fit.
                unsafe { to.copy_from_nonoverlapping(early.data.as_ptr(), early.data.len()) };
                return Ok((Progress::Done, Some(early.source)));
            }
            Claim::Ring(source) => source,
        };
        let found = self.sources[claimed as usize].arriving.map(|arriving| arriving.letter);
        if let Some(found) = found
            && found != letter
        {
            return Err(mismatch(self.rank, claimed, &found.to_string(), letter));
        }
        // SAFETY: the caller's contract; the message has exactly the letter's bytes.
        let progress = unsafe { self.sources[claimed as usize].read(shared, claimed, to) };
        Ok((progress.map_err(|cause| shared.segment_error(cause))?, Some(claimed)))
    }

    /// Whom receive `id` waits for; `None` if it can go on.
    pub(super) fn awaits(&mut self, shared: &Shared, id: u64) -> Result<Option<Awaits>, Error> {
        match self.claim(shared, id)? {
            Claim::Early(index) => {
                let early = &self.early[index];
                // Its bytes are read by whoever looks first, in this process.
                Ok((!early.is_here()).then_some(Awaits::Anyone))
            }
            Claim::Ring(source) => {
                let is_here = self.sources[source as usize].is_here(shared, source);
                Ok((!is_here.map_err(|cause| shared.segment_error(cause))?).then_some(Awaits::Member(source)))
            }
            Claim::Nothing => {
                let source =
                    self.posted.iter().find(|posted| posted.id == id).and_then(|posted| posted.source);
                // Behind another receive's message, what that one does ends the wait too.
                let is_behind = |rank: u32| self.sources[rank as usize].arriving.is_some();
                Ok(Some(match source {
                    Some(rank) if !is_behind(rank) => Awaits::Member(rank),
                    _ => Awaits::Anyone,
                }))
            }
        }
    }

    /// Finds the message for receive `id`, as far as it has arrived, and moves others out of its way.
    fn claim(&mut self, shared: &Shared, id: u64) -> Result<Claim, Error> {
        let Some(source) = self.posted.iter().find(|posted| posted.id == id).map(|posted| posted.source)
        else {
            return Ok(Claim::Nothing);
        };
        // Nothing is read that is not in its way: what stays in the rings holds its senders back.
        if let Some(found) = self.found(id) {
            if let Claim::Early(index) = found
                && !self.early[index].is_here()
            {
                self.pump_early(shared, self.early[index].source)?;
            }
            return Ok(found);
        }
        for source in self.sources_of(source) {
            while self.step(shared, source)? {
                if let Some(found) = self.found(id) {
                    return Ok(found);
                }
            }
        }
        Ok(Claim::Nothing)
    }

    /// The message for receive `id`, if its header has been read.
    fn found(&self, id: u64) -> Option<Claim> {
        let index = self.posted.iter().position(|posted| posted.id == id)?;
        if let Some(source) = self.posted[index].claimed {
            return Some(Claim::Ring(source));
        }
        self.takers().position(|taker| taker == Some(index)).map(Claim::Early)
    }

    /// Which posted receive each early message is for: in the order of arrival each takes the first that it fits.
    fn takers(&self) -> impl Iterator<Item = Option<usize>> {
        let mut taken = vec![false; if self.early.is_empty() { 0 } else { self.posted.len() }];
        self.early.iter().map(move |early| {
            let mut posted = self.posted.iter().enumerate();
            let taker =
                posted.find(|(index, posted)| !taken[*index] && posted.fits(early.source, early.letter));
            taker.map(|(index, _)| {
                taken[index] = true;
                index
            })
        })
    }

    /// Reads the next header of a source and decides where its message goes, or reads more of an early message; true
    /// when there may be more to do: not when nothing has arrived, or what has is for somebody who has not read it yet.
    fn step(&mut self, shared: &Shared, source: u32) -> Result<bool, Error> {
        if source == self.rank {
            return Ok(false);
        }
        let incoming = &mut self.sources[source as usize];
        let Some(arriving) = incoming.arriving else {
            let header = incoming.read_header(shared, source);
            let Some(header) = header.map_err(|cause| shared.segment_error(cause))? else { return Ok(false) };
            let Some(letter) = header.letter() else {
                let what = "a message's count and type";
                let (found, step) = (header.count, header.dtype.into());
                return Err(shared.segment_error(shmring::Error::Corrupt { what, found, step }));
            };
            incoming.arriving = Some(Arriving { header, letter, goes: Goes::Unknown, read: None });
            return Ok(true);
        };
        match arriving.goes {
            Goes::To(_) => Ok(false),
            Goes::Unknown => {
                self.assign(source, arriving.letter)?;
                Ok(true)
            }
            Goes::Early => self.pump_early(shared, source),
        }
    }

    /// Decides where the message whose header was read goes.
    fn assign(&mut self, source: u32, letter: Letter) -> Result<(), Error> {
        // Early messages came first: their receives are not this message's.
        let taken: Vec<usize> = self.takers().flatten().collect();
        let mut posted = self.posted.iter_mut().enumerate();
        let fitting = posted.find(|(index, posted)| !taken.contains(index) && posted.fits(source, letter));
        let Some((_, posted)) = fitting else { return self.keep_early(source, letter) };
        posted.claimed = Some(source);
        if let Some(arriving) = &mut self.sources[source as usize].arriving {
            arriving.goes = Goes::To(posted.id);
        }
        Ok(())
    }

    /// Makes room in memory for the message whose header was read.
    fn keep_early(&mut self, source: u32, letter: Letter) -> Result<(), Error> {
        if Early::cost(letter) > EARLY_BYTES.saturating_sub(self.early_bytes) {
            let (rank, letter, limit) = (self.rank, letter.to_string(), EARLY_BYTES);
            return Err(Error::EarlyMessages { rank, from: source, letter, limit });
        }
        self.early_bytes += Early::cost(letter);
        self.early.push_back(Early { source, letter, data: vec![0; letter.bytes()], here: 0 });
        if let Some(arriving) = &mut self.sources[source as usize].arriving {
            arriving.goes = Goes::Early;
            arriving.read = Some(0);
        }
        Ok(())
    }

    /// Reads more of the early message of a source; true when all of it is here.
    fn pump_early(&mut self, shared: &Shared, source: u32) -> Result<bool, Error> {
        // Of one source only the last can be incomplete.
        let Some(early) = self.early.iter_mut().rev().find(|early| early.source == source) else {
            return Ok(true);
        };
        let incoming = &mut self.sources[source as usize];
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

impl Posted {
    /// Whether it gets this message, unless another one does.
    fn fits(&self, source: u32, letter: Letter) -> bool {
        self.claimed.is_none() && self.tag == letter.tag && self.source.is_none_or(|from| from == source)
    }
}

impl Early {
    /// Bytes of memory that such a message takes, about: messages without elements are not for nothing.
    fn cost(letter: Letter) -> usize {
        letter.bytes().saturating_add(size_of::<Self>())
    }

    fn is_here(&self) -> bool {
        self.here == self.data.len()
    }
}

/// What there is for a receive.
enum Claim {
    Nothing,
    /// An early message, by its place.
    Early(usize),
    /// The message at the head of a source's ring.
    Ring(u32),
}
