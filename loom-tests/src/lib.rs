//! What the model checks share: the bounds of the search, small rings, messages that name their step.
//!
//! Everything here exists under `--cfg loom` only; in a normal build this crate and its tests are empty. Run
//! it by `cargo xtask loom`, and `cargo xtask loom --mutants` to see each test fail for what it guards.
#![cfg(loom)]

use loom::thread;
use shmring::doorbell::{Awaits, Bell, Sleepers};
use shmring::layout::RingGeometry;
use shmring::sync::{PayloadWord, read_words, write_words, yield_core};
use shmring::wait::{WaitPolicy, Waiter};
use shmring::{Protocol, Receiver, Sender, Stamp};

/// Two slots, so that the third message needs a credit; lines for a message of two lines.
pub const SHAPE: RingGeometry =
    RingGeometry { receivers: 1, slots: 2, ll_lines: 2, ll128_lines: 2, slot_bytes: 64 };

/// The stamp of every message, unless a test is about stamps: that of zeroed memory, which helps a mistake most.
pub const STAMP: Stamp = Stamp(0);

/// How often a thread may be interrupted in one execution. Every known ordering bug of such rings shows
/// within two; three leaves a margin and keeps each search in seconds.
const PREEMPTIONS: usize = 3;

/// Runs `model` in every interleaving and with every value that each load may return.
pub fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.max_branches = 20_000;
    builder.check(model);
}

/// Runs `other` in a second thread and `here` in this one, until both are done.
pub fn both(other: impl FnOnce() + Send + 'static, here: impl FnOnce()) {
    let handle = thread::spawn(other);
    here();
    handle.join().unwrap();
}

/// Length of a message that needs two lines in a protocol of lines, and all of a Simple slot.
pub fn full(protocol: Protocol) -> usize {
    protocol.capacity(&SHAPE)
}

/// A message whose every byte depends on its step.
pub fn message(step: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| 1 + (step as u8) * 16 + (i as u8) % 13).collect()
}

/// Sends the message of the sender's step if there is credit.
pub fn try_send(sender: &mut Sender, protocol: Protocol, len: usize) -> bool {
    if !sender.has_credit().unwrap() {
        return false;
    }
    let bytes = message(sender.step(), len);
    // SAFETY: `bytes` is live, and `len` is within the capacity of `SHAPE`, which every test uses.
    unsafe {
        if protocol == Protocol::Simple {
            sender.write_slot(|to, _| to.copy_from(bytes.as_ptr(), len));
            sender.post(STAMP);
        } else {
            sender.send_lines(protocol, STAMP, bytes.as_ptr(), len);
        }
    }
    true
}

/// Receives the next message if it is there, checks every byte, and gives the slot back.
///
/// `buffer` keeps the lines that have arrived between calls and holds `len` bytes.
pub fn try_receive(receiver: &mut Receiver, protocol: Protocol, buffer: &mut [u8]) -> bool {
    // SAFETY: `buffer` is live, and its length is within the capacity of `SHAPE`, which every test uses.
    unsafe {
        if protocol == Protocol::Simple {
            if !receiver.is_posted(STAMP).unwrap() {
                return false;
            }
            receiver.read_slot(|from, _| from.copy_to(buffer.as_mut_ptr(), buffer.len()));
        } else if !receiver.read_lines(protocol, STAMP, buffer.as_mut_ptr(), buffer.len()).unwrap() {
            return false;
        }
    }
    assert_eq!(buffer, message(receiver.step(), buffer.len()), "step {} in {protocol}", receiver.step());
    receiver.release(protocol);
    true
}

/// Sends `messages`, each a protocol and a length, and yields while there is no credit.
pub fn send_all(sender: &mut Sender, messages: &[(Protocol, usize)]) {
    for &(protocol, len) in messages {
        while !try_send(sender, protocol, len) {
            yield_core();
        }
    }
}

/// Receives `messages`, each a protocol and a length, and yields while the next is not there.
pub fn receive_all(receiver: &mut Receiver, messages: &[(Protocol, usize)]) {
    for &(protocol, len) in messages {
        let mut buffer = vec![0; len];
        while !try_receive(receiver, protocol, &mut buffer) {
            yield_core();
        }
    }
}

/// The bells of the members of a model, and the count of those that sleep.
#[derive(Debug)]
pub struct Bells<const N: usize> {
    /// One for each member.
    pub bells: [Bell; N],
    /// As in a segment's header.
    pub sleepers: Sleepers,
}

impl<const N: usize> Bells<N> {
    /// Nobody sleeps.
    pub fn new() -> Self {
        Self { bells: std::array::from_fn(|_| Bell::new()), sleepers: Sleepers::new() }
    }

    /// What member `me` does after it has moved a counter that `peer` may wait for.
    pub fn notify(&self, me: usize, peer: usize) {
        if self.sleepers.any() {
            self.bells[peer].ring(me as u32);
        }
    }

    /// Waits as `member`, asleep from the first failed look on.
    ///
    /// # Errors
    /// The first error of `poll`.
    pub fn wait<E>(&self, member: usize, mut poll: impl FnMut() -> Result<bool, E>) -> Result<(), E> {
        self.wait_for(member, || Ok((!poll()?).then_some(Awaits::Anyone)))
    }

    /// The same for a `poll` that says whom it waits for.
    ///
    /// # Errors
    /// The first error of `poll`.
    pub fn wait_for<E>(
        &self,
        member: usize,
        poll: impl FnMut() -> Result<Option<Awaits>, E>,
    ) -> Result<(), E> {
        let mut waiter = Waiter::new(WaitPolicy::sleep_at_once());
        waiter.wait(&self.bells[member], &self.sleepers, poll, |_| Ok(()))
    }
}

impl<const N: usize> Default for Bells<N> {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory that nothing but the protocol under test orders; loom reports an access that it does not order.
#[derive(Debug)]
pub struct Plain(PayloadWord);

impl Plain {
    /// Holds zero.
    pub fn new() -> Self {
        Self(PayloadWord::zeroed())
    }

    /// Writes without any synchronisation.
    pub fn set(&self, value: u64) {
        let word = std::slice::from_ref(&self.0);
        // SAFETY: eight bytes are written to a word of eight; loom checks that it is this thread's turn.
        unsafe { write_words(word, |to| to.copy_from(value.to_ne_bytes().as_ptr(), 8)) };
    }

    /// Reads without any synchronisation.
    pub fn get(&self) -> u64 {
        let mut bytes = [0; 8];
        let word = std::slice::from_ref(&self.0);
        // SAFETY: as in `set`.
        unsafe { read_words(word, |from| from.copy_to(bytes.as_mut_ptr(), 8)) };
        u64::from_ne_bytes(bytes)
    }
}

impl Default for Plain {
    fn default() -> Self {
        Self::new()
    }
}
