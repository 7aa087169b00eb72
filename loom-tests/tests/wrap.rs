//! Do messages keep order and content when the slots are used again and again?
#![cfg(loom)]

use loom_tests::{SHAPE, both, check, receive_all, send_all};
use shmring::{Protocol, heap_ring};

fn carry(messages: &'static [(Protocol, usize)]) {
    let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
    both(move || send_all(&mut sender, messages), || receive_all(&mut receivers[0], messages));
}

/// Five Simple messages over two slots: each slot is used at least twice, one three times.
#[test]
fn simple() {
    check(|| carry(&[(Protocol::Simple, 64); 5]));
}

/// A flag left by an earlier turn of an LL slot is never taken for the present one.
#[test]
fn ll() {
    check(|| carry(&[(Protocol::Ll, 5); 5]));
}

/// As for LL, in lines of 128 bytes.
#[test]
fn ll128() {
    check(|| carry(&[(Protocol::Ll128, 5); 5]));
}

/// A slot that changes the protocol and comes back to it: what an earlier turn left there misleads nobody.
#[test]
fn mixed() {
    use Protocol::{Ll, Ll128, Simple};
    check(|| carry(&[(Ll, 5), (Simple, 9), (Ll128, 7), (Simple, 64), (Ll, 57)]));
}
