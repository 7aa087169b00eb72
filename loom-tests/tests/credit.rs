//! Is a slot rewritten only after its reader is done with it?
#![cfg(loom)]

use loom_tests::{SHAPE, STAMP, both, check, message, receive_all, send_all, try_send};
use shmring::sync::yield_core;
use shmring::{Protocol, Receiver, Sender, heap_ring};

/// The third message goes into the slot of the first, while the receiver may still be reading that one.
fn third_message(protocol: Protocol, len: usize) {
    let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
    let messages = [(protocol, len); 3];
    both(move || send_all(&mut sender, &messages), || receive_all(&mut receivers[0], &messages));
}

/// A Simple slot is written again only after the receiver has released it.
#[test]
fn simple() {
    check(|| third_message(Protocol::Simple, 64));
}

/// Both lines of an LL slot are written again only after the receiver has released the slot.
#[test]
fn ll() {
    check(|| third_message(Protocol::Ll, 112));
}

/// Both lines of an LL128 slot are written again only after the receiver has released the slot.
#[test]
fn ll128() {
    check(|| third_message(Protocol::Ll128, 240));
}

/// With both slots in use and nothing released, the sender finds no credit, in every protocol.
#[test]
fn none_without_release() {
    check(|| {
        for protocol in Protocol::ALL {
            let (mut sender, receivers) = heap_ring(SHAPE).unwrap();
            let sent = (0..3).filter(|_| try_send(&mut sender, protocol, 1)).count();
            assert_eq!((sent, receivers[0].step()), (2, 0));
        }
    });
}

/// Sends one line and reads one, then takes the other's line for the news that it has read all before.
fn exchange(to: &mut Sender, from: &mut Receiver) {
    let unproven = to.unproven();
    while !try_send(to, Protocol::Ll, 8) {
        yield_core();
    }
    to.expect_answers(unproven);
    while !from.has_line(Protocol::Ll, STAMP).unwrap() {
        yield_core();
    }
    let mut got = [0; 8];
    // SAFETY: the line is here, and 8 bytes of it are copied.
    unsafe { from.read_line(Protocol::Ll, |line| line.copy_to(got.as_mut_ptr(), 8)) };
    assert_eq!(got[..], message(from.step(), 8)[..]);
    from.release(Protocol::Ll);
    to.released_before(to.step() - 1);
}

/// Members that answer each other know from the answers which slots are free; what follows without an answer looks at
/// the heads again.
#[test]
fn by_answers() {
    check(|| {
        let (mut to, mut others) = heap_ring(SHAPE).unwrap();
        let (mut from_other, mut from) = heap_ring(SHAPE).unwrap();
        let rest = [(Protocol::Ll, 8); 2];
        both(
            move || {
                (0..2).for_each(|_| exchange(&mut from_other, &mut others[0]));
                receive_all(&mut others[0], &rest);
            },
            || {
                (0..2).for_each(|_| exchange(&mut to, &mut from[0]));
                send_all(&mut to, &rest);
            },
        );
    });
}
