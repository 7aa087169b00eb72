//! The receiving end of a ring.

use super::{RingMemory, take_role};
use crate::error::Error;
use crate::layout::ReceiverLine;
use crate::protocol::{Line, Protocol, Reading, Stamp, is_here, read_lines};
use crate::sync::{Ordering, PayloadWord, give_back, lend_words};

/// One receiver of a ring. `Send`, not `Clone`: the type is the role.
#[derive(Debug)]
pub struct Receiver {
    pub(super) ring: RingMemory,
    index: u32,
    /// Steps released.
    head: u64,
    /// The sender's tail, as last seen.
    tail_cache: u64,
    /// How much of the message at `head` has been copied out of its lines.
    reading: Reading,
    carried: [u64; 3],
}

impl Receiver {
    /// Takes the role of receiver `index`.
    ///
    /// # Errors
    /// [`Error::RoleTaken`] if the ring has this receiver.
    pub(crate) fn attach(ring: RingMemory, index: u32) -> Result<Self, Error> {
        take_role(&ring.receiver_lines()[index as usize].taken, "receiver")?;
        Ok(Self { ring, index, head: 0, tail_cache: 0, reading: Reading::default(), carried: [0; 3] })
    }

    /// Steps released since the ring was made.
    #[inline]
    pub fn step(&self) -> u64 {
        self.head
    }

    /// Messages received so far in each protocol, indexed by `Protocol as usize`.
    pub fn carried(&self) -> [u64; 3] {
        self.carried
    }

    /// Whether the next message has been posted in Simple, with this stamp.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the sender claims more steps than there are slots.
    #[inline]
    pub fn is_posted(&mut self, stamp: Stamp) -> Result<bool, Error> {
        if self.tail_cache > self.head {
            return Ok(self.is_stamped(stamp));
        }
        // ORDERING: Acquire pairs with the Release in `Sender::post`: the slot bytes written before that
        // store are visible after this load.
        let tail = self.ring.sender_line().tail.load(Ordering::Acquire);
        // A tail behind our head is no error: LL messages do not move it (rule 4).
        if tail > self.head + u64::from(self.ring.geometry.slots) {
            return Err(Error::corrupt("the sender's tail", tail, self.head));
        }
        self.tail_cache = tail;
        Ok(tail > self.head && self.is_stamped(stamp))
    }

    /// Whether the next message, which is there, has this stamp.
    #[inline]
    fn is_stamped(&self, stamp: Stamp) -> bool {
        let slot = self.ring.slot_index(self.head);
        // ORDERING: Relaxed; the tail that counts this message was acquired, and its slot's stamp stays until we
        // release it.
        self.ring.sender_line().stamps[slot].load(Ordering::Relaxed) == stamp.0
    }

    /// Runs `f` on the memory of the next Simple slot, which [`Receiver::is_posted`] has found posted.
    ///
    /// # Safety
    /// - `is_posted` answered true since the last release.
    /// - `f` reads only the given number of bytes, expects any content, and does not keep the pointer beyond
    ///   the next [`Receiver::release`].
    #[inline]
    pub unsafe fn read_slot<R>(&self, f: impl FnOnce(*const u8, usize) -> R) -> R {
        debug_assert!(self.tail_cache > self.head, "read of a slot that was not posted");
        let slot: &[PayloadWord] = self.ring.simple_slot(self.head);
        // SAFETY: the slot is ours until `release` (rule 2); the caller keeps `f` inside it.
        unsafe { lend_words(slot, false, |from| f(from.cast_const(), size_of_val(slot))) }
    }

    /// Copies the lines of the next LL or LL128 message that have arrived to `to`; true when all `len` bytes
    /// are there, with this stamp. May be called again after false, with the same arguments, and goes on where it
    /// stopped.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when a line's flag belongs to a step that the sender cannot have reached.
    ///
    /// # Safety
    /// - `to` is writable for `len` bytes.
    ///
    /// # Panics
    /// If `len` exceeds the protocol's capacity, or the protocol is Simple.
    #[inline]
    pub unsafe fn read_lines(
        &mut self,
        protocol: Protocol,
        stamp: Stamp,
        to: *mut u8,
        len: usize,
    ) -> Result<bool, Error> {
        assert!(len <= protocol.capacity(&self.ring.geometry), "{len} bytes in an {protocol} slot");
        let flag = stamp.flag(self.head);
        // SAFETY: `len` fits into the slot; the caller vouches for `to`.
        unsafe {
            match protocol {
                Protocol::Ll => read_lines(self.ring.ll_slot(self.head), flag, to, len, &mut self.reading),
                Protocol::Ll128 => {
                    read_lines(self.ring.ll128_slot(self.head), flag, to, len, &mut self.reading)
                }
                Protocol::Simple => panic!("Simple is received by `is_posted` and `read_slot`"),
            }
        }
    }

    /// Whether the next message, which is a single line of LL or LL128, has arrived with this stamp.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the line's flag belongs to a step that the sender cannot have reached.
    ///
    /// # Panics
    /// If the ring has no lines of the protocol, or the protocol is Simple.
    #[inline]
    pub fn has_line(&self, protocol: Protocol, stamp: Stamp) -> Result<bool, Error> {
        let flag = stamp.flag(self.head);
        match protocol {
            Protocol::Ll => is_here(&self.ring.ll_slot(self.head)[0], flag),
            Protocol::Ll128 => is_here(&self.ring.ll128_slot(self.head)[0], flag),
            Protocol::Simple => panic!("Simple is received by `is_posted` and `read_slot`"),
        }
    }

    /// Runs `f` on the payload of the next message's one line, which [`Receiver::has_line`] has found.
    ///
    /// # Safety
    /// - `has_line` answered true since the last release, for this protocol.
    /// - `f` reads no more than the line's payload, expects any content, and does not keep the pointer beyond the next
    ///   [`Receiver::release`].
    #[inline]
    pub unsafe fn read_line<R>(&self, protocol: Protocol, f: impl FnOnce(*const u8) -> R) -> R {
        // SAFETY: the slot is ours until `release` (rule 2); the caller keeps `f` inside it.
        unsafe { lend_words(self.message_words(protocol), false, |from| f(from.cast_const())) }
    }

    /// What may be lent of the next message.
    #[inline]
    fn message_words(&self, protocol: Protocol) -> &[PayloadWord] {
        match protocol {
            Protocol::Ll => self.ring.ll_slot(self.head).first().map_or(&[], |line| line.data()),
            Protocol::Ll128 => self.ring.ll128_slot(self.head).first().map_or(&[], |line| line.data()),
            Protocol::Simple => self.ring.simple_slot(self.head),
        }
    }

    /// Gives the slot back: one credit for the sender.
    #[inline]
    pub fn release(&mut self, protocol: Protocol) {
        self.reading = Reading::default();
        give_back(self.message_words(protocol));
        self.carried[protocol as usize] += 1;
        self.head += 1;
        // ORDERING: Release pairs with the Acquire in `Sender::reload_heads`: our reads of the slot come
        // before the sender's next write to it.
        self.line().head.store(self.head, Ordering::Release);
    }

    #[inline]
    fn line(&self) -> &ReceiverLine {
        &self.ring.receiver_lines()[self.index as usize]
    }
}
