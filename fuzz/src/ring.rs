//! A sender and a receiver whose shared words somebody scribbles on, against a model of what they must answer.
//!
//! The model reads the same words through a mapping of its own just before each call and says what the call must
//! answer. An answer that differs is a check that is missing, or one too many.

use crate::input::Input;
use crate::scribble::{Scribbler, directory, fresh_name, path};
use shmring::doorbell::Awaits;
use shmring::layout::{Geometry, LL_PAYLOAD, LL128_PAYLOAD, MemberRecord, PAGE, RingGeometry};
use shmring::protocol::Stamp;
use shmring::segment::{Segment, SegmentSpec};
use shmring::wait::{WaitPolicy, Waiter};
use shmring::{Error, Protocol, Receiver, Sender};
use std::time::Duration;

const SLOTS: u64 = 4;
/// Bytes before and behind what a call may write.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xc5;
/// What both ends mark their messages with.
const STAMP: Stamp = Stamp(0x51);
/// Flags of so many steps ahead are nonsense; other flags are old ones.
const FLAGS_AHEAD: u32 = 64;
/// Most steps of one input.
const STEPS_MAX: usize = 200;

/// Two members of a segment of three, a ring between them, and who scribbles on it.
struct World {
    scribbler: Scribbler,
    sides: [Segment; 2],
    shape: RingGeometry,
    /// Offset of the ring in the segment.
    ring: u64,
    /// Receivers whose heads the sender looks at.
    active: &'static [u64],
    sender: Sender,
    receiver: Receiver,
    /// The receiver's line in the ring.
    index: u64,
    model: Model,
}

/// What both ends keep privately.
#[derive(Debug, Default)]
struct Model {
    tail: u64,
    head_cache: u64,
    head: u64,
    tail_cache: u64,
    /// Lines of the current message that have been read.
    lines: u64,
    /// Protocol and length of the message that is being read.
    reading: Option<(Protocol, usize)>,
}

/// First byte: which ring. Then what happens, step by step.
pub(crate) fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let Some(mut world) = World::new(input.byte()) else { return };
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.below(8) {
            0 => world.send(&mut input),
            1 => world.receive_simple(),
            2 | 3 => world.receive_lines(&mut input),
            4 => world.scribble_on_lines(&mut input),
            5 => world.scribble_on_counters(&mut input),
            6 => world.scribble_on_control(&mut input),
            _ => world.look_around(&mut input),
        }
    }
    world.finish();
}

impl World {
    /// `None` when the first byte has taken a role that the ring needs.
    fn new(mode: u8) -> Option<Self> {
        let ring = |receivers| RingGeometry {
            receivers,
            slots: SLOTS as u32,
            ll_lines: 2,
            ll128_lines: 2,
            slot_bytes: 128,
        };
        let geometry = Geometry { members: 3, channels: 1, fan: ring(3), pair: ring(1) };
        let name = fresh_name();
        // Its segment has lost its name, or its ranks, when this is dropped.
        let directory = directory();
        let dir = directory.path().to_owned();
        let spec = SegmentSpec { dir, generation: name.job, name, settings: 0, geometry };
        let first = Segment::create(&spec).expect("a small segment can be made");
        // By its path, before the last member attaches and the name goes.
        let scribbler = Scribbler::open(&path(&spec));
        let second = Segment::attach(&spec, 1, Duration::ZERO).expect("the segment is ready");
        let fan = mode & 1 == 0;
        let (shape, offset, active, index): (_, _, &[u64], _) = if fan {
            (geometry.fan, geometry.fan_offset(0, 0), &[1, 2], 1)
        } else {
            (geometry.pair, geometry.pair_offset(0, 0, 1), &[0], 0)
        };
        let taken = [offset + 8, offset + 128 * (index + 1) + 8];
        let words = [u64::from(mode & 2 != 0), u64::from(mode & 4 != 0)];
        let sender = Self::join(&scribbler, taken[0], words[0], || {
            if fan { first.fan_sender(0) } else { first.pair_sender(0, 1) }
        });
        let receiver = Self::join(&scribbler, taken[1], words[1], || {
            if fan { second.fan_receiver(0, 0) } else { second.pair_receiver(0, 0) }
        });
        for side in [&first, &second] {
            if fan { side.commit_fan_slots(0, 0) } else { side.commit_pair_slots(0, 0, 1) }
                .expect("a small ring has room");
        }
        let (sender, receiver) = (sender?, receiver?);
        let sides = [first, second];
        let model = Model::default();
        Some(Self { scribbler, sides, shape, ring: offset, active, sender, receiver, index, model })
    }

    /// Takes a role whose word holds `word`, which must fail exactly if that is not 0.
    fn join<T>(at: &Scribbler, offset: u64, word: u64, take: impl Fn() -> Result<T, Error>) -> Option<T> {
        if word != 0 {
            at.write(offset, word);
        }
        match take() {
            Ok(end) => {
                assert_eq!(word, 0, "a taken role was given away");
                assert!(matches!(take(), Err(Error::RoleTaken { .. })), "a role was given twice");
                Some(end)
            }
            Err(Error::RoleTaken { .. }) if word != 0 => None,
            Err(other) => panic!("a role was refused: {other}"),
        }
    }

    fn tail_word(&self) -> u64 {
        self.scribbler.read(self.ring)
    }

    /// The stamp of the slot of a step: halves of the words behind the tail, after the role's.
    fn stamp_word(&self, step: u64) -> u32 {
        let offset = 12 + 4 * (step % SLOTS);
        let word = self.scribbler.read(self.ring + offset / 8 * 8);
        (word >> (offset % 8 * 8)) as u32
    }

    /// The flag of a line of the message at the receiver's head.
    fn flag(&self) -> u64 {
        u64::from(STAMP.0) << 32 | u64::from((self.model.head as u32).wrapping_add(1))
    }

    fn head_offset(&self, receiver: u64) -> u64 {
        self.ring + 128 * (receiver + 1)
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let expected = self.expect_credit();
        let found = self.sender.has_credit();
        assert!(same(&found, expected), "has_credit: {found:?}, expected {expected:?}, {:?}", self.model);
        if found.unwrap_or(false) {
            self.send_one(input);
        }
        assert_eq!(self.sender.step(), self.model.tail);
    }

    /// What `has_credit` must answer; `None` stands for `Corrupt`.
    fn expect_credit(&mut self) -> Option<bool> {
        let Model { tail, head_cache, .. } = self.model;
        if tail - head_cache >= SLOTS {
            let heads = self.active.iter().map(|&receiver| self.scribbler.read(self.head_offset(receiver)));
            let least = heads.min().expect("there are receivers");
            let wrong = |head: u64| head > tail || head < head_cache;
            if self.active.iter().any(|&receiver| wrong(self.scribbler.read(self.head_offset(receiver)))) {
                return None;
            }
            self.model.head_cache = least;
        }
        Some(tail - self.model.head_cache < SLOTS)
    }

    fn send_one(&mut self, input: &mut Input<'_>) {
        let protocol = Protocol::ALL[input.below(Protocol::ALL.len())];
        let length = input.below(protocol.capacity(&self.shape) + 1);
        let fill = input.byte();
        let step = self.model.tail;
        self.model.tail += 1;
        if protocol == Protocol::Simple {
            let slot = self.slot(0, step);
            // SAFETY: `has_credit` has answered true; the closure writes `length` bytes, which fit.
            let place = unsafe {
                self.sender.write_slot(|to, room| {
                    assert!(length <= room, "{length} bytes do not fit into {room}");
                    to.write_bytes(fill, length);
                    (to.addr(), room)
                })
            };
            assert_eq!(place, slot, "a slot of another place or size");
            self.sender.post(STAMP);
            assert_eq!(self.tail_word(), self.model.tail, "post stores the tail");
        } else {
            let payload = vec![fill; length];
            // SAFETY: the payload is a live slice of `length` bytes.
            unsafe { self.sender.send_lines(protocol, STAMP, payload.as_ptr(), length) };
        }
    }

    /// Address and size that the slot of a step has for one side.
    fn slot(&self, side: usize, step: u64) -> (usize, usize) {
        let base = std::ptr::from_ref(self.sides[side].header()).addr() as u64;
        let size = u64::from(self.shape.slot_bytes);
        let offset = self.ring + self.shape.simple_offset() + step % SLOTS * size;
        ((base + offset) as usize, size as usize)
    }

    fn receive_simple(&mut self) {
        // Reading on in another protocol in the middle of a message is no use that the ring allows.
        if self.model.reading.is_some() {
            return;
        }
        let Model { head, tail_cache, .. } = self.model;
        let tail = self.tail_word();
        let expected = if tail_cache > head {
            Some(true)
        } else if tail > head + SLOTS {
            None
        } else {
            self.model.tail_cache = tail;
            Some(tail > head)
        };
        let expected = expected.map(|posted| posted && self.stamp_word(head) == STAMP.0);
        let found = self.receiver.is_posted(STAMP);
        assert!(same(&found, expected), "is_posted: {found:?}, expected {expected:?}, {:?}", self.model);
        if found.unwrap_or(false) {
            let slot = self.slot(1, head);
            let mut copy = [0u8; 128];
            // SAFETY: `is_posted` has answered true; the closure reads the slot's bytes only.
            let place = unsafe {
                self.receiver.read_slot(|from, length| {
                    from.copy_to_nonoverlapping(copy.as_mut_ptr(), length.min(copy.len()));
                    (from.addr(), length)
                })
            };
            assert_eq!(place, slot, "a slot of another place or size");
            self.release(Protocol::Simple);
        }
    }

    fn receive_lines(&mut self, input: &mut Input<'_>) {
        let (protocol, length) = match self.model.reading {
            Some(reading) => reading,
            None => {
                let protocol = [Protocol::Ll, Protocol::Ll128][input.below(2)];
                (protocol, input.below(protocol.capacity(&self.shape) + 1))
            }
        };
        self.model.reading = Some((protocol, length));
        let expected = self.expect_lines(protocol, length);
        let mut buffer = vec![GUARD_BYTE; GUARD + length + GUARD];
        // SAFETY: `length` bytes from the guard on are inside the buffer.
        let found = unsafe {
            let to = buffer.as_mut_ptr().add(GUARD);
            self.receiver.read_lines(protocol, STAMP, to, length)
        };
        assert!(same(&found, expected), "read_lines: {found:?}, expected {expected:?}, {:?}", self.model);
        let guards = buffer[..GUARD].iter().chain(&buffer[GUARD + length..]);
        assert!(guards.copied().all(|byte| byte == GUARD_BYTE), "bytes outside of the buffer were written");
        if found.unwrap_or(false) {
            self.release(protocol);
        }
    }

    /// Offset, payload and whole size of a line of the message at the receiver's head.
    fn line(&self, protocol: Protocol, step: u64, line: u64) -> (u64, usize) {
        let (area, lines, payload) = match protocol {
            Protocol::Ll => (self.shape.ll_offset(), self.shape.ll_lines, LL_PAYLOAD),
            _ => (self.shape.ll128_offset(), self.shape.ll128_lines, LL128_PAYLOAD),
        };
        let index = step % SLOTS * u64::from(lines) + line;
        (self.ring + area + index * (payload as u64 + 8), payload)
    }

    fn expect_lines(&mut self, protocol: Protocol, length: usize) -> Option<bool> {
        let (_, payload) = self.line(protocol, 0, 0);
        let lines = length.div_ceil(payload).max(1) as u64;
        while self.model.lines < lines {
            let (offset, payload) = self.line(protocol, self.model.head, self.model.lines);
            let flag = self.scribbler.read(offset + payload as u64);
            if flag != self.flag() {
                let ahead = (flag as u32).wrapping_sub(self.flag() as u32);
                return if (1..=FLAGS_AHEAD).contains(&ahead) { None } else { Some(false) };
            }
            self.model.lines += 1;
        }
        Some(true)
    }

    fn release(&mut self, protocol: Protocol) {
        self.receiver.release(protocol);
        self.model.head += 1;
        self.model.lines = 0;
        self.model.reading = None;
        assert_eq!(
            self.scribbler.read(self.head_offset(self.index)),
            self.model.head,
            "release stores the head"
        );
        assert_eq!(self.receiver.step(), self.model.head);
    }

    /// A flag or a word of payload of any line.
    fn scribble_on_lines(&mut self, input: &mut Input<'_>) {
        let protocol = [Protocol::Ll, Protocol::Ll128][input.below(2)];
        let (step, line) = (input.below(SLOTS as usize) as u64, input.below(2) as u64);
        let (offset, payload) = self.line(protocol, step, line);
        let word = [payload, 0, 8][input.below(3)] as u64;
        let value = input.word(self.flag());
        self.scribbler.write(offset + word, value);
    }

    fn scribble_on_counters(&mut self, input: &mut Input<'_>) {
        let lines = u64::from(self.shape.receivers) + 1;
        let line = input.below(lines as usize) as u64;
        // The counter, or what stands behind it: the role, which nobody reads again, and stamps.
        let word = 8 * (u64::from(input.byte()) & 7).saturating_sub(4);
        let value = input.word(if line == 0 { self.model.head } else { self.model.tail });
        self.scribbler.write(self.ring + 128 * line + word, value);
    }

    /// The header, and the members' bells and records.
    fn scribble_on_control(&mut self, input: &mut Input<'_>) {
        let records = 3 * size_of::<MemberRecord>();
        let offset = match input.below(2) {
            0 => 8 * input.below(640 / 8) as u64,
            _ => PAGE + 8 * input.below(records / 8) as u64,
        };
        let value = input.word(0);
        self.scribbler.write(offset, value);
    }

    /// Everything else that reads what others write.
    fn look_around(&mut self, input: &mut Input<'_>) {
        let side = &self.sides[input.below(2)];
        match input.below(6) {
            0 => side.notify(),
            1 => side.ring_all(),
            2 => {
                let before = side.header().aborted();
                let reason = side.header().abort(7);
                assert_eq!(reason, if before == 0 { 7 } else { before }, "the first reason stands");
                assert_eq!(side.header().aborted(), reason);
            }
            3 => {
                let _ = (side.header().description(), side.is_complete(), side.committed_bytes());
            }
            4 => {
                let member = input.below(3) as u32;
                let _ = side.member_record(member).identity.state();
            }
            _ => self.wait_shortly(input),
        }
    }

    /// A wait that nobody ends: it must end by its own deadline, whatever the bell's words hold.
    fn wait_shortly(&self, input: &mut Input<'_>) {
        let side = &self.sides[0];
        let nap = Duration::from_micros(50);
        let mut waiter = Waiter::new(WaitPolicy { nap, ..WaitPolicy::sleep_at_once() });
        let awaits = if input.byte() & 1 == 0 { Awaits::Anyone } else { Awaits::Member(1) };
        let mut checks = 0;
        let outcome = waiter.wait(
            &side.member_record(0).bell,
            &side.header().sleepers,
            || Ok(Some(awaits)),
            |_| {
                checks += 1;
                if checks > 2 { Err(()) } else { Ok(()) }
            },
        );
        assert_eq!(outcome, Err(()), "a wait ended without a reason");
    }

    /// Nothing outside of the ring and the control range was touched.
    fn finish(self) {
        let geometry = *self.sides[0].geometry();
        let most = geometry.control_bytes() + self.shape.total_bytes();
        let committed = self.sides[1].committed_bytes().expect("the system knows its pages");
        assert!(committed <= most, "{committed} bytes are in use, {most} were asked for");
    }
}

/// Whether an answer is the expected one; `None` stands for `Corrupt`.
fn same(found: &Result<bool, Error>, expected: Option<bool>) -> bool {
    match (found, expected) {
        (Ok(found), Some(expected)) => *found == expected,
        (Err(Error::Corrupt { .. }), None) => true,
        _ => false,
    }
}
