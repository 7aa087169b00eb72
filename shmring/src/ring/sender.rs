//! The sending end of a ring.

use super::{RingMemory, take_role};
use crate::error::Error;
use crate::protocol::{Protocol, Stamp, write_lines};
use crate::sync::{Ordering, PayloadWord, give_back, lend_words, prefetch_for_write};

/// The one sender of a ring. `Send`, not `Clone`: the type is the role.
#[derive(Debug)]
pub struct Sender {
    pub(super) ring: RingMemory,
    /// Receivers that take part; `None` for all of them.
    active: Box<[u32]>,
    /// Steps posted.
    pub(super) tail: u64,
    /// The least head of all receivers, as last seen.
    head_cache: u64,
    /// Steps up to the last message whose reading no answer will prove.
    unproven: u64,
    carried: [u64; 3],
}

impl Sender {
    /// Takes the sender's role. With `absent`, that receiver never reads (a rank's own index in its fan ring).
    ///
    /// # Errors
    /// [`Error::RoleTaken`] if the ring has a sender.
    pub(crate) fn attach(ring: RingMemory, absent: Option<u32>) -> Result<Self, Error> {
        take_role(&ring.sender_line().taken, "sender")?;
        let active = (0..ring.geometry.receivers).filter(|r| Some(*r) != absent).collect();
        Ok(Self { ring, active, tail: 0, head_cache: 0, unproven: 0, carried: [0; 3] })
    }

    /// Steps posted since the ring was made.
    #[inline]
    pub fn step(&self) -> u64 {
        self.tail
    }

    /// Messages sent so far in each protocol, indexed by `Protocol as usize`.
    pub fn carried(&self) -> [u64; 3] {
        self.carried
    }

    /// Largest payload of one message in `protocol`, in bytes.
    #[inline]
    pub fn capacity(&self, protocol: Protocol) -> usize {
        protocol.capacity(&self.ring.geometry)
    }

    /// Whether a slot is free. Looks at the receivers' lines only when the private copy says "full".
    ///
    /// # Errors
    /// [`Error::Corrupt`] when a receiver claims steps that were never posted, or fewer than it had.
    #[inline]
    pub fn has_credit(&mut self) -> Result<bool, Error> {
        let slots = u64::from(self.ring.geometry.slots);
        if self.tail - self.head_cache < slots {
            return Ok(true);
        }
        self.reload_heads()?;
        Ok(self.tail - self.head_cache < slots)
    }

    /// Says that the last message is one that every receiver has read before it sends its next one: see
    /// [`Sender::released_before`]. `unproven` is what [`Sender::unproven`] was before the message.
    #[inline]
    pub fn expect_answers(&mut self, unproven: u64) {
        self.unproven = unproven;
    }

    /// Steps up to the last message that [`Sender::expect_answers`] was not said of.
    #[inline]
    pub fn unproven(&self) -> u64 {
        self.unproven
    }

    /// Notes that every receiver has released all messages before `step`, as messages from the receivers have told.
    ///
    /// That spares the look at their lines. Whoever calls this must have acquired something that each receiver
    /// published after its release of every message that [`Sender::expect_answers`] was said of. Of others it proves
    /// nothing, since a receiver may do something else than it should: until their heads were seen nothing is noted.
    ///
    /// # Panics
    /// If `step` has not been posted yet.
    #[inline]
    pub fn released_before(&mut self, step: u64) {
        assert!(step <= self.tail, "step {step} of {} is not out yet", self.tail);
        if self.unproven <= self.head_cache {
            self.head_cache = self.head_cache.max(step);
        }
    }

    fn reload_heads(&mut self) -> Result<(), Error> {
        let lines = self.ring.receiver_lines();
        let mut least = self.tail;
        for &receiver in &self.active {
            // ORDERING: Acquire pairs with the Release in `Receiver::release`: the receiver's reads of the
            // slot are done before this side writes it again.
            let head = lines[receiver as usize].head.load(Ordering::Acquire);
            if head > self.tail || head < self.head_cache {
                return Err(Error::corrupt("a receiver's head", head, self.tail));
            }
            least = least.min(head);
        }
        self.head_cache = least;
        Ok(())
    }

    /// Sends `len` bytes at `payload` in LL or LL128 lines; flags publish them. Needs credit.
    ///
    /// # Safety
    /// - `payload` is readable for `len` bytes.
    ///
    /// # Panics
    /// If there is no credit, or `len` exceeds the protocol's capacity, or the protocol is Simple.
    #[inline]
    pub unsafe fn send_lines(&mut self, protocol: Protocol, stamp: Stamp, payload: *const u8, len: usize) {
        assert!(self.tail - self.head_cache < u64::from(self.ring.geometry.slots), "send without credit");
        assert!(len <= self.capacity(protocol), "{len} bytes in an {protocol} slot");
        let flag = stamp.flag(self.tail);
        // SAFETY: credit makes this slot ours until the flags say otherwise (rule 2), `len` fits, and the
        // caller vouches for `payload`.
        unsafe {
            match protocol {
                Protocol::Ll => write_lines(self.ring.ll_slot(self.tail), flag, payload, len),
                Protocol::Ll128 => write_lines(self.ring.ll128_slot(self.tail), flag, payload, len),
                Protocol::Simple => panic!("Simple is sent by `write_slot` and `post`"),
            }
        }
        self.carried[protocol as usize] += 1;
        self.tail += 1;
        self.unproven = self.tail;
        // The next message's first line was last read by the receivers; fetching it back now takes place while this
        // rank waits for their answer.
        match protocol {
            Protocol::Ll => self.ring.ll_slot(self.tail).first().map(prefetch_for_write),
            _ => self.ring.ll128_slot(self.tail).first().map(prefetch_for_write),
        };
    }

    /// Runs `f` on the memory of the next Simple slot and its length in bytes. Needs credit; [`Sender::post`]
    /// publishes what was written.
    ///
    /// # Safety
    /// - `f` writes only inside the slot and does not keep the pointer beyond the next `post`.
    ///
    /// # Panics
    /// If there is no credit.
    #[inline]
    pub unsafe fn write_slot<R>(&mut self, f: impl FnOnce(*mut u8, usize) -> R) -> R {
        assert!(self.tail - self.head_cache < u64::from(self.ring.geometry.slots), "write without credit");
        let slot: &[PayloadWord] = self.ring.simple_slot(self.tail);
        // SAFETY: credit makes the slot ours until `post` (rule 2); the caller keeps `f` inside it.
        unsafe { lend_words(slot, true, |to| f(to, size_of_val(slot))) }
    }

    /// Publishes the slot that [`Sender::write_slot`] filled, as one Simple message.
    ///
    /// Non-temporal stores into the slot must have been fenced by whoever issued them.
    #[inline]
    pub fn post(&mut self, stamp: Stamp) {
        debug_assert!(
            self.tail - self.head_cache < u64::from(self.ring.geometry.slots),
            "post without credit"
        );
        give_back(self.ring.simple_slot(self.tail));
        let line = self.ring.sender_line();
        // ORDERING: Relaxed; the tail's Release publishes it. The slot is ours, so nobody looks at its stamp.
        line.stamps[self.ring.slot_index(self.tail)].store(stamp.0, Ordering::Relaxed);
        self.tail += 1;
        self.unproven = self.tail;
        // ORDERING: Release pairs with the Acquire in `Receiver::is_posted`: stamp and bytes of the slot come with it.
        line.tail.store(self.tail, Ordering::Release);
        self.carried[Protocol::Simple as usize] += 1;
    }
}
