//! Rings on the heap: fill, drain, wrap, several receivers, corrupt counters.

use super::*;
use crate::protocol::{Protocol, Stamp};
use crate::sync::Ordering;

const SHAPE: RingGeometry =
    RingGeometry { receivers: 1, slots: 8, ll_lines: 3, ll128_lines: 2, slot_bytes: 256 };

const STAMP: Stamp = Stamp(0xfee1_600d);

fn send(sender: &mut Sender, protocol: Protocol, bytes: &[u8]) {
    assert!(sender.has_credit().unwrap());
    // SAFETY: `bytes` is a live slice that fits into a slot of `SHAPE`.
    unsafe {
        if protocol == Protocol::Simple {
            sender.write_slot(|to, room| {
                assert!(bytes.len() <= room);
                to.copy_from(bytes.as_ptr(), bytes.len());
            });
            sender.post(STAMP);
        } else {
            sender.send_lines(protocol, STAMP, bytes.as_ptr(), bytes.len());
        }
    }
}

fn receive(receiver: &mut Receiver, protocol: Protocol, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    // SAFETY: `bytes` is a live slice of `len` bytes, which fit into a slot of `SHAPE`.
    unsafe {
        if protocol == Protocol::Simple {
            if !receiver.is_posted(STAMP).unwrap() {
                return None;
            }
            receiver.read_slot(|from, _| from.copy_to(bytes.as_mut_ptr(), len));
        } else if !receiver.read_lines(protocol, STAMP, bytes.as_mut_ptr(), len).unwrap() {
            return None;
        }
    }
    receiver.release(protocol);
    Some(bytes)
}

fn message(step: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (step as usize * 31 + i * 7) as u8).collect()
}

/// Any mix of protocols and lengths arrives in order, byte for byte, over many wraps of the slots.
#[test]
fn mixed_protocols_keep_order() {
    let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
    let cases: Vec<(Protocol, usize)> = (0..400)
        .map(|i| {
            let protocol = Protocol::ALL[i * 5 % 3];
            (protocol, i * 13 % (protocol.capacity(&SHAPE) + 1))
        })
        .collect();
    let mut received = 0;
    for (step, &(protocol, len)) in cases.iter().enumerate() {
        while !sender.has_credit().unwrap() {
            let (p, l) = cases[received];
            assert_eq!(receive(&mut receivers[0], p, l), Some(message(received as u64, l)));
            received += 1;
        }
        send(&mut sender, protocol, &message(step as u64, len));
    }
    assert_eq!(received, cases.len() - 8, "exactly the slots are in flight");
    for (step, &(p, l)) in cases.iter().enumerate().skip(received) {
        assert_eq!(receive(&mut receivers[0], p, l), Some(message(step as u64, l)));
    }
    assert_eq!(sender.step(), 400);
    assert!(!receivers[0].is_posted(STAMP).unwrap());
}

/// The slots-plus-first message finds no credit in any protocol until one slot is released.
#[test]
fn credit_is_the_number_of_slots() {
    for protocol in Protocol::ALL {
        let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
        for step in 0..8 {
            send(&mut sender, protocol, &message(step, 8));
        }
        assert!(!sender.has_credit().unwrap());
        assert_eq!(receive(&mut receivers[0], protocol, 8), Some(message(0, 8)));
        assert!(sender.has_credit().unwrap());
        send(&mut sender, protocol, &message(8, 8));
        assert!(!sender.has_credit().unwrap());
    }
}

/// With several receivers each gets every message, and the slowest one decides the credit.
#[test]
fn slowest_receiver_holds_the_slot() {
    let (mut sender, mut receivers) = heap_ring(RingGeometry { receivers: 3, ..SHAPE }).unwrap();
    for step in 0..8 {
        send(&mut sender, Protocol::Ll, &message(step, 100));
    }
    for receiver in &mut receivers[..2] {
        for step in 0..8 {
            assert_eq!(receive(receiver, Protocol::Ll, 100), Some(message(step, 100)));
        }
    }
    assert!(!sender.has_credit().unwrap());
    assert_eq!(receive(&mut receivers[2], Protocol::Ll, 100), Some(message(0, 100)));
    assert!(sender.has_credit().unwrap());
}

/// An empty message is delivered and must be received; it needs a flag or a counter like any other.
#[test]
fn empty_messages_exist() {
    let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
    for protocol in Protocol::ALL {
        assert_eq!(receive(&mut receivers[0], protocol, 0), None);
        send(&mut sender, protocol, &[]);
        assert_eq!(receive(&mut receivers[0], protocol, 0), Some(vec![]));
    }
}

/// Counters and flags that no correct peer writes are errors on the side that reads them, never a wrong access.
#[test]
fn corrupt_words_are_errors() {
    let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
    let lines = |s: &Sender| s.ring.clone();
    let memory = lines(&sender);
    memory.sender_line().tail.store(9, Ordering::Relaxed);
    assert!(matches!(receivers[0].is_posted(STAMP), Err(Error::Corrupt { found: 9, .. })));
    memory.ll_slot(0)[0].flag.store(STAMP.flag(1), Ordering::Relaxed);
    let mut byte = 0u8;
    // SAFETY: one byte is read into a live byte.
    let answer = unsafe { receivers[0].read_lines(Protocol::Ll, STAMP, &raw mut byte, 1) };
    assert!(matches!(answer, Err(Error::Corrupt { .. })));
    memory.receiver_lines()[0].head.store(1, Ordering::Relaxed);
    for _ in 0..8 {
        sender.tail += 1;
    }
    memory.receiver_lines()[0].head.store(99, Ordering::Relaxed);
    assert!(matches!(sender.has_credit(), Err(Error::Corrupt { found: 99, .. })));
}

/// A message with another stamp does not arrive, in any protocol; it stays where it is until its own is asked for.
#[test]
fn stamps_are_compared() {
    let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
    let receiver = &mut receivers[0];
    for protocol in Protocol::ALL {
        send(&mut sender, protocol, b"mine");
        for other in [Stamp(STAMP.0 + 1), Stamp(0), Stamp(!STAMP.0)] {
            let mut bytes = [0u8; 4];
            let here = match protocol {
                Protocol::Simple => receiver.is_posted(other),
                // SAFETY: four bytes are read into a live array of four.
                _ => unsafe { receiver.read_lines(protocol, other, bytes.as_mut_ptr(), 4) },
            };
            assert!(!here.unwrap(), "{protocol} {other:?}");
            assert_eq!(bytes, [0; 4]);
        }
        assert_eq!(receive(receiver, protocol, 4), Some(b"mine".to_vec()));
    }
}

/// Whatever a flag holds, the answer is "no", an error, or the one flag that is due: also around the 2^32nd step.
#[test]
fn flags_of_other_steps_are_told_apart() {
    for step in [0, 1, 7, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, (1 << 32) + 5] {
        let due = STAMP.flag(step);
        assert_ne!(due, STAMP.flag(step + 1));
        assert_ne!(due, STAMP.flag(step.wrapping_sub(8)));
        assert_ne!(due, Stamp(1).flag(step));
        assert_eq!(due as u32, (step as u32).wrapping_add(1));
    }
}

/// A role can be taken once.
#[test]
fn roles_are_exclusive() {
    let (sender, receivers) = heap_ring(SHAPE).unwrap();
    assert!(matches!(Sender::attach(sender.ring.clone(), None), Err(Error::RoleTaken { role: "sender" })));
    assert!(matches!(
        Receiver::attach(receivers[0].ring.clone(), 0),
        Err(Error::RoleTaken { role: "receiver" })
    ));
}

/// Answers give credit for messages that expect them, and for others only once the heads were seen.
#[test]
fn answers_prove_what_expects_them() {
    let (mut sender, mut receivers) = heap_ring(RingGeometry { slots: 4, ..SHAPE }).unwrap();
    let mut exchange = |sender: &mut Sender, reads: bool| {
        let unproven = sender.unproven();
        send(sender, Protocol::Ll, b"asked");
        sender.expect_answers(unproven);
        if reads {
            receive(&mut receivers[0], Protocol::Ll, 5).unwrap();
        }
        sender.released_before(sender.step() - 1);
    };
    for _ in 0..9 {
        exchange(&mut sender, true);
    }
    send(&mut sender, Protocol::Ll, b"one");
    // A receiver that went astray answers without having read it.
    for _ in 0..3 {
        exchange(&mut sender, false);
    }
    assert!(!sender.has_credit().unwrap(), "nothing tells that `one` was read");
}
