//! The receiving end from one source: the message at the head of its ring.

use super::header::Header;
use super::{Letter, Rest, STAMP, part_bytes};
use crate::comm::Shared;
use crate::executor::Progress;
use crate::reduce::{self, Dst, Store};
use shmring::layout::RingGeometry;
use shmring::{Protocol, Receiver};

/// Messages of at least this size are written past the cache.
const STREAMING_BYTES: usize = 1 << 20;

/// The message at the head of a source's ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    pub(super) header: Header,
    pub(super) letter: Letter,
    /// The number by which it is matched.
    pub(super) number: u64,
    /// Whether its bytes go to memory, and not to its receive.
    pub(super) is_early: bool,
    /// Bytes read, those in the header included; `None` before any were.
    pub(super) read: Option<usize>,
}

/// The receiving end from one source.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    end: Option<Receiver>,
    /// Whether its Simple slots have memory.
    slots: bool,
    pub(super) arriving: Option<Arriving>,
    /// Parts of messages that have arrived: so many headers, lines and slots.
    pub(super) parts: u64,
    line: Vec<u8>,
}

impl Incoming {
    fn ring(shared: &Shared) -> RingGeometry {
        shared.segment.geometry().mail()
    }

    /// Whether the end was made.
    pub(super) fn is_connected(&self) -> bool {
        self.end.is_some()
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
    pub(super) fn read_header(
        &mut self,
        shared: &Shared,
        source: u32,
    ) -> Result<Option<Header>, shmring::Error> {
        self.line.resize(Header::BYTES, 0);
        let to = self.line.as_mut_ptr();
        let end = self.end(shared, source)?;
        // SAFETY: the line has that many bytes, and stays where it is until the next call.
        if !unsafe { end.read_lines(Protocol::Ll, STAMP, to, Header::BYTES)? } {
            return Ok(None);
        }
        end.release(Protocol::Ll);
        self.parts += 1;
        shared.segment.notify();
        let line: Option<&[u8; Header::BYTES]> = self.line.as_slice().try_into().ok();
        Ok(line.map(Header::from_bytes))
    }

    /// Whether more of the message whose header was read can be read.
    pub(super) fn is_here(&mut self, shared: &Shared, source: u32) -> Result<bool, shmring::Error> {
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
    pub(super) unsafe fn read(
        &mut self,
        shared: &Shared,
        source: u32,
        to: *mut u8,
    ) -> Result<Progress, shmring::Error> {
        let Some(mut arriving) = self.arriving else { return Ok(Progress::Done) };
        let bytes = arriving.letter.bytes();
        let ring = Self::ring(shared);
        let rest = Rest::of(bytes, &ring);
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
                            let part = part_bytes(bytes, &ring).min(room).min(bytes - at);
                            reduce::copy(from, &[Dst { ptr: to.add(at), store }], part);
                            part
                        })
                    };
                    end.release(Protocol::Simple);
                    part
                }
            };
            ran = true;
            self.parts += 1;
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
