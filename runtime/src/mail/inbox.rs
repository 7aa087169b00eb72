//! Which message goes to which receive.
//!
//! ```text
//!  posted:  #7 from 2, tag 0    #8 from any, tag 5    #9 from 2, tag 0        in the order of the calls
//!  source 2: header read -> for #7, being read          source 3: nothing here
//!  early:   from 1, tag 4: nobody has asked for it, and others wait for what is behind it
//! ```
//!
//! Every receive that is polled looks at the rings of its sources. The header that it finds may be for another posted
//! receive; then that one finds it claimed. If it is for none, its bytes go to memory of this process, so that
//! what is behind it can be reached; together such messages take at most [`EARLY_BYTES`].

use super::header::Header;
use super::{Letter, Rest, STAMP, mismatch};
use crate::comm::Shared;
use crate::error::Error;
use crate::executor::Progress;
use crate::reduce::{self, Dst, Store};
use shmring::doorbell::Awaits;
use shmring::layout::RingGeometry;
use shmring::{Protocol, Receiver};
use std::collections::VecDeque;

/// Most bytes of messages that came before anybody asked for them, all sources together.
const EARLY_BYTES: usize = 1 << 30;
/// Messages of at least this size are written past the cache.
const STREAMING_BYTES: usize = 1 << 20;

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

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    /// To a posted receive.
    To(u64),
    /// To the last early message.
    Early,
}

/// The message at the head of a source's ring.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    header: Header,
    letter: Letter,
    goes: Goes,
    /// Bytes read, those in the header included; `None` before it is known where they go.
    read: Option<usize>,
}

/// The receiving end from one source.
#[derive(Debug, Default)]
struct Incoming {
    end: Option<Receiver>,
    /// Whether its Simple slots have memory.
    slots: bool,
    arriving: Option<Arriving>,
    line: Vec<u8>,
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

    /// Adds a receive; its number.
    pub(super) fn post(&mut self, source: Option<u32>, tag: u32) -> u64 {
        self.next_id += 1;
        self.posted.push_back(Posted { id: self.next_id, source, tag, claimed: None });
        self.next_id
    }

    /// Removes a receive that is over.
    pub(super) fn withdraw(&mut self, id: u64) {
        self.posted.retain(|posted| posted.id != id);
        for incoming in &mut self.sources {
            if let Some(arriving) = &mut incoming.arriving
                && arriving.goes == Goes::To(id)
                && arriving.read.is_none()
            {
                // A header that was read for one that gave up goes to whom it fits, when somebody next looks.
                arriving.goes = Goes::Early;
                arriving.read = None;
            }
        }
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
        self.early.push_back(Early { source: self.rank, letter, data, here: bytes });
        self.early_bytes += bytes;
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
                let Some(early) = self.early.get(index) else { return Ok((Progress::Blocked, None)) };
                if early.here < early.data.len() {
                    return Ok((Progress::Blocked, None));
                }
                let Some(early) = self.early.remove(index) else { return Ok((Progress::Blocked, None)) };
                self.early_bytes -= early.data.len();
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
                Ok((early.here < early.data.len()).then_some(Awaits::Member(early.source)))
            }
            Claim::Ring(source) => {
                let is_here = self.sources[source as usize].is_here(shared, source);
                Ok((!is_here.map_err(|cause| shared.segment_error(cause))?).then_some(Awaits::Member(source)))
            }
            Claim::Nothing => {
                let source =
                    self.posted.iter().find(|posted| posted.id == id).and_then(|posted| posted.source);
                Ok(Some(source.map_or(Awaits::Anyone, Awaits::Member)))
            }
        }
    }

    /// Finds the message for receive `id`, as far as it has arrived, and moves others out of its way.
    fn claim(&mut self, shared: &Shared, id: u64) -> Result<Claim, Error> {
        let Some(index) = self.posted.iter().position(|posted| posted.id == id) else {
            return Ok(Claim::Nothing);
        };
        let Posted { source, tag, claimed, .. } = self.posted[index];
        if let Some(source) = claimed {
            return Ok(Claim::Ring(source));
        }
        let sources = source.map_or(0..self.sources.len() as u32, |rank| rank..rank + 1);
        for source in sources.clone() {
            self.pump(shared, source)?;
        }
        if let Some(source) = self.posted[index].claimed {
            return Ok(Claim::Ring(source));
        }
        // An early message goes to the first receive that fits it: one before this may be it.
        let fits = |posted: &Posted, early: &Early| {
            posted.claimed.is_none()
                && posted.tag == early.letter.tag
                && posted.source.is_none_or(|source| source == early.source)
        };
        let mut earlier: Vec<&Posted> = self.posted.iter().take(index).collect();
        for (at, early) in self.early.iter().enumerate() {
            if early.letter.tag != tag || !sources.contains(&early.source) {
                continue;
            }
            match earlier.iter().position(|posted| fits(posted, early)) {
                Some(other) => drop(earlier.remove(other)),
                None => return Ok(Claim::Early(at)),
            }
        }
        Ok(Claim::Nothing)
    }

    /// Reads the headers of a source until one is for somebody who has not read it yet, and the rest of early messages.
    fn pump(&mut self, shared: &Shared, source: u32) -> Result<(), Error> {
        if source == self.rank {
            return Ok(());
        }
        loop {
            let incoming = &mut self.sources[source as usize];
            if incoming.arriving.is_none() {
                let header = incoming.read_header(shared, source);
                let Some(header) = header.map_err(|cause| shared.segment_error(cause))? else {
                    return Ok(());
                };
                let Some(letter) = header.letter() else {
                    let what = "a message's count and type";
                    let (found, step) = (header.count, header.dtype.into());
                    return Err(shared.segment_error(shmring::Error::Corrupt { what, found, step }));
                };
                let goes = Goes::Early;
                incoming.arriving = Some(Arriving { header, letter, goes, read: None });
            }
            let Some(arriving) = self.sources[source as usize].arriving else { return Ok(()) };
            match arriving.goes {
                Goes::To(_) => return Ok(()),
                Goes::Early if arriving.read.is_none() => self.assign(source, arriving.letter)?,
                Goes::Early => {
                    if !self.pump_early(shared, source)? {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Decides where the message whose header was read goes.
    fn assign(&mut self, source: u32, letter: Letter) -> Result<(), Error> {
        // Early messages of the same source and tag come first: their receives are not this message's.
        let mut before = self
            .early
            .iter()
            .filter(|early| early.source == source && early.letter.tag == letter.tag)
            .count();
        let fitting = self.posted.iter_mut().find(|posted| {
            let fits = posted.claimed.is_none()
                && posted.tag == letter.tag
                && posted.source.is_none_or(|from| from == source);
            let is_taken = fits && before > 0;
            before -= usize::from(is_taken);
            fits && !is_taken
        });
        let Some(arriving) = &mut self.sources[source as usize].arriving else { return Ok(()) };
        if let Some(posted) = fitting {
            posted.claimed = Some(source);
            arriving.goes = Goes::To(posted.id);
            return Ok(());
        }
        let bytes = letter.bytes();
        if bytes > EARLY_BYTES - self.early_bytes.min(EARLY_BYTES) {
            let (rank, letter, limit) = (self.rank, letter.to_string(), EARLY_BYTES);
            return Err(Error::EarlyMessages { rank, from: source, letter, limit });
        }
        self.early_bytes += bytes;
        self.early.push_back(Early { source, letter, data: vec![0; bytes], here: 0 });
        arriving.read = Some(0);
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

/// What there is for a receive.
enum Claim {
    Nothing,
    /// An early message, by its place.
    Early(usize),
    /// The message at the head of a source's ring.
    Ring(u32),
}

impl Incoming {
    fn ring(shared: &Shared) -> RingGeometry {
        shared.segment.geometry().mail()
    }

    /// The end, made on first use.
    fn end(&mut self, shared: &Shared, source: u32) -> Result<&mut Receiver, shmring::Error> {
        let end = match self.end.take() {
            Some(end) => end,
            None => shared.segment.mail_receiver(source)?,
        };
        Ok(self.end.insert(end))
    }

    /// The next message's header, if it has arrived.
    fn read_header(&mut self, shared: &Shared, source: u32) -> Result<Option<Header>, shmring::Error> {
        self.line.resize(Header::BYTES, 0);
        let to = self.line.as_mut_ptr();
        let end = self.end(shared, source)?;
        // SAFETY: the line has that many bytes, and stays where it is until the next call.
        if !unsafe { end.read_lines(Protocol::Ll, STAMP, to, Header::BYTES)? } {
            return Ok(None);
        }
        end.release(Protocol::Ll);
        shared.segment.notify();
        let line: Option<&[u8; Header::BYTES]> = self.line.as_slice().try_into().ok();
        Ok(line.map(Header::from_bytes))
    }

    /// Whether more of the message whose header was read can be read.
    fn is_here(&mut self, shared: &Shared, source: u32) -> Result<bool, shmring::Error> {
        let Some(arriving) = self.arriving else { return Ok(true) };
        match (arriving.read, Rest::of(arriving.letter.bytes(), &Self::ring(shared))) {
            (None, _) | (_, Rest::Nothing | Rest::Lines) => {
                Ok(arriving.read.is_none() || self.lines_here(shared, source)?)
            }
            (Some(_), Rest::Slots) => {
                self.commit(shared, source)?;
                self.end(shared, source)?.is_posted(STAMP)
            }
        }
    }

    /// Whether the lines of the rest have arrived; they are kept until they are read.
    fn lines_here(&mut self, shared: &Shared, source: u32) -> Result<bool, shmring::Error> {
        let Some(arriving) = self.arriving else { return Ok(true) };
        let len = arriving.letter.bytes().saturating_sub(Header::INLINE);
        self.line.resize(len.max(Header::BYTES), 0);
        let to = self.line.as_mut_ptr();
        let end = self.end(shared, source)?;
        // SAFETY: the line has that many bytes.
        unsafe { end.read_lines(Protocol::Ll128, STAMP, to, len) }
    }

    fn commit(&mut self, shared: &Shared, source: u32) -> Result<(), shmring::Error> {
        if !self.slots {
            shared.segment.commit_mail_slots(source, shared.rank)?;
            self.slots = true;
        }
        Ok(())
    }

    /// Reads what has arrived of the message whose header was read; done when that is all of it.
    ///
    /// # Safety
    /// - `to` is writable for the message's bytes.
    unsafe fn read(&mut self, shared: &Shared, source: u32, to: *mut u8) -> Result<Progress, shmring::Error> {
        let Some(mut arriving) = self.arriving else { return Ok(Progress::Done) };
        let bytes = arriving.letter.bytes();
        let rest = Rest::of(bytes, &Self::ring(shared));
        let mut ran = false;
        if arriving.read.unwrap_or(0) == 0 {
            let part = bytes.min(Header::INLINE);
            // SAFETY: the caller's contract.
            unsafe { to.copy_from(arriving.header.inline.as_ptr(), part) };
            arriving.read = Some(part);
            ran = true;
        }
        self.arriving = Some(arriving);
        while let Some(at) = arriving.read.filter(|at| *at < bytes) {
            let part = match rest {
                Rest::Nothing => break,
                Rest::Lines => {
                    if !self.lines_here(shared, source)? {
                        break;
                    }
                    // SAFETY: the caller's contract; the line holds the rest.
                    unsafe { to.add(at).copy_from(self.line.as_ptr(), bytes - at) };
                    self.end(shared, source)?.release(Protocol::Ll128);
                    bytes - at
                }
                Rest::Slots => {
                    self.commit(shared, source)?;
                    let end = self.end(shared, source)?;
                    if !end.is_posted(STAMP)? {
                        break;
                    }
                    let store = if bytes >= STREAMING_BYTES { Store::Streaming } else { Store::Cached };
                    // SAFETY: the slot was found posted and is released after; the part fits both.
                    let part = unsafe {
                        end.read_slot(|from, room| {
                            let part = room.min(bytes - at);
                            reduce::copy(from, &[Dst { ptr: to.add(at), store }], part);
                            part
                        })
                    };
                    end.release(Protocol::Simple);
                    part
                }
            };
            ran = true;
            // A sender that sleeps for credit can go on while this rank reads the next slot.
            shared.segment.notify();
            arriving.read = Some(at + part);
            self.arriving = Some(arriving);
        }
        if arriving.read == Some(bytes) {
            self.arriving = None;
            return Ok(Progress::Done);
        }
        Ok(if ran { Progress::Advanced } else { Progress::Blocked })
    }
}
