//! Is a message whole when the receiver is told that it is there?
#![cfg(loom)]

use loom_tests::{SHAPE, both, check, full, receive_all, send_all};
use shmring::sync::yield_core;
use shmring::{Protocol, Stamp, heap_ring};

fn carry(messages: &'static [(Protocol, usize)]) {
    let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
    both(move || send_all(&mut sender, messages), || receive_all(&mut receivers[0], messages));
}

/// A posted tail brings all bytes of the slot with it.
#[test]
fn simple() {
    check(|| carry(&[(Protocol::Simple, 64), (Protocol::Simple, 5)]));
}

/// Each line's flag brings the line's bytes with it, for a message of two lines and one of part of a line.
#[test]
fn ll() {
    assert_eq!(full(Protocol::Ll), 112);
    check(|| carry(&[(Protocol::Ll, 112), (Protocol::Ll, 5)]));
}

/// As for LL, in lines of 128 bytes.
#[test]
fn ll128() {
    assert_eq!(full(Protocol::Ll128), 240);
    check(|| carry(&[(Protocol::Ll128, 240), (Protocol::Ll128, 5)]));
}

/// An LL message may stand before a Simple one: the tail then jumps by two and is right for both.
#[test]
fn mixed() {
    check(|| carry(&[(Protocol::Ll, 5), (Protocol::Simple, 64)]));
    check(|| carry(&[(Protocol::Simple, 64), (Protocol::Ll128, 5)]));
}

/// A Simple message is not taken for one with the stamp that its slot had before.
#[test]
fn stamps() {
    let (old, new) = (Stamp(5), Stamp(6));
    check(move || {
        let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
        let receiver = &mut receivers[0];
        for _ in 0..SHAPE.slots {
            sender.post(old);
            assert!(receiver.is_posted(old).unwrap());
            receiver.release(Protocol::Simple);
        }
        assert!(sender.has_credit().unwrap());
        both(
            move || sender.post(new),
            || {
                assert!(!receiver.is_posted(old).unwrap());
                while !receiver.is_posted(new).unwrap() {
                    yield_core();
                }
            },
        );
    });
}
