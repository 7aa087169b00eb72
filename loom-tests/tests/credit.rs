//! Is a slot rewritten only after its reader is done with it?
#![cfg(loom)]

use loom_tests::{SHAPE, both, check, receive_all, send_all, try_send};
use shmring::{Protocol, heap_ring};

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
