//! Two rings between two threads, one each way, and messages through them.
//!
//! For suites, which end by a panic when something is wrong.

use shmring::layout::{Geometry, RingGeometry};
use shmring::segment::{Segment, SegmentName, SegmentSpec};
use shmring::{Protocol, Receiver, Sender, Stamp, heap_ring};
use std::time::{Duration, Instant};

/// The stamp of every message.
pub const STAMP: Stamp = Stamp(1);

/// A wait as long as this means that the other thread has failed.
const DEADLINE: Duration = Duration::from_secs(20);
/// Looks before the core is given away. A wait for a thread on another core ends within them.
const LOOKS: u32 = 10_000;

/// Where a ring's memory is.
#[derive(Clone, Copy, Debug)]
pub enum Memory {
    /// This process's heap.
    Heap,
    /// A shared segment, mapped once for each thread.
    Segment,
}

impl Memory {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Heap, Self::Segment];

    /// Its name in the names of cases.
    pub fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Segment => "segment",
        }
    }
}

/// One thread's ends of the two rings.
#[derive(Debug)]
pub struct Side {
    /// Leads to the other thread.
    pub sender: Sender,
    /// Comes from the other thread.
    pub receiver: Receiver,
}

/// A pair of rings of one shape: the first side's sender leads to the second side's receiver, and back.
///
/// # Panics
/// When the shape is impossible, or `/dev/shm` has no room.
pub fn link(memory: Memory, shape: RingGeometry) -> [Side; 2] {
    match memory {
        Memory::Heap => {
            let ring = || {
                let (sender, mut receivers) = heap_ring(shape).expect("a valid shape");
                (sender, receivers.pop().expect("a receiver"))
            };
            let ((to_second, at_second), (to_first, at_first)) = (ring(), ring());
            [Side { sender: to_second, receiver: at_first }, Side { sender: to_first, receiver: at_second }]
        }
        Memory::Segment => {
            let members = segment_pair(shape);
            let side = |own: u32| {
                let segment = &members[own as usize];
                let other = 1 - own;
                for (source, destination) in [(own, other), (other, own)] {
                    segment.commit_pair_slots(0, source, destination).expect("room in /dev/shm");
                }
                Side {
                    sender: segment.pair_sender(0, other).expect("a free role"),
                    receiver: segment.pair_receiver(0, other).expect("a free role"),
                }
            };
            [side(0), side(1)]
        }
    }
}

/// A segment with rings of this shape, mapped by both of its members; its name is gone again.
///
/// # Panics
/// As [`link`].
pub fn segment_pair(pair: RingGeometry) -> [Segment; 2] {
    let fan = RingGeometry { receivers: 2, slots: 1, ll_lines: 0, ll128_lines: 0, slot_bytes: 64 };
    let geometry = Geometry { members: 2, channels: 1, fan, pair };
    let name = SegmentName::of_this_process(0xbe9c);
    let spec = SegmentSpec { dir: "/dev/shm".into(), name, generation: 1, settings: 0, geometry };
    let first = Segment::create(&spec).expect("a new segment in /dev/shm");
    let second = Segment::attach(&spec, 1, DEADLINE).expect("the segment made just now");
    [first, second]
}

/// Looks until `ready` answers true.
///
/// # Panics
/// After 20 seconds.
#[inline]
pub fn wait(mut ready: impl FnMut() -> Result<bool, shmring::Error>) {
    for _ in 0..LOOKS {
        if ready().expect("a ring that nobody has corrupted") {
            return;
        }
    }
    wait_long(&mut ready);
}

#[cold]
#[inline(never)]
fn wait_long(ready: &mut dyn FnMut() -> Result<bool, shmring::Error>) {
    let start = Instant::now();
    while !ready().expect("a ring that nobody has corrupted") {
        assert!(start.elapsed() < DEADLINE, "the other thread did not answer for {DEADLINE:?}");
        std::thread::yield_now();
    }
}

/// Sends `payload`, in as many messages as the slots of `protocol` make necessary.
///
/// # Panics
/// As [`wait`].
#[inline]
pub fn send(sender: &mut Sender, protocol: Protocol, payload: &[u8]) {
    for part in payload.chunks(sender.capacity(protocol)) {
        wait(|| sender.has_credit());
        if protocol == Protocol::Simple {
            // SAFETY: the part is no longer than a slot, which nobody else uses until `post`.
            unsafe { sender.write_slot(|to, _| part.as_ptr().copy_to_nonoverlapping(to, part.len())) };
            sender.post(STAMP);
        } else {
            // SAFETY: the part is a live slice.
            unsafe { sender.send_lines(protocol, STAMP, part.as_ptr(), part.len()) };
        }
    }
}

/// Receives what [`send`] sent, into a buffer of the same length; `slot` is the capacity of a slot in bytes.
///
/// # Panics
/// As [`wait`].
#[inline]
pub fn receive(receiver: &mut Receiver, protocol: Protocol, slot: usize, buffer: &mut [u8]) {
    for part in buffer.chunks_mut(slot) {
        let (to, len) = (part.as_mut_ptr(), part.len());
        if protocol == Protocol::Simple {
            wait(|| receiver.is_posted(STAMP));
            // SAFETY: the slot was posted, and holds at least `len` bytes.
            unsafe { receiver.read_slot(|from, _| from.copy_to_nonoverlapping(to, len)) };
        } else {
            // SAFETY: the part is a live slice of `len` bytes.
            wait(|| unsafe { receiver.read_lines(protocol, STAMP, to, len) });
        }
        receiver.release(protocol);
    }
}
