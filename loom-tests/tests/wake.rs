//! Can a waiter sleep on although what it waits for has happened?
//!
//! A model's sleeper has no time-out, so loom reports a lost wake-up as a deadlock.
#![cfg(loom)]

use loom::thread;
use loom_tests::{Bells, SHAPE, both, check, try_receive, try_send};
use shmring::layout::RingGeometry;
use shmring::{Error, Protocol, Receiver, Sender, heap_ring};
use std::sync::Arc;

const SENDER: usize = 0;
const RECEIVER: usize = 1;

fn send_parking<const N: usize>(bells: &Bells<N>, sender: &mut Sender, protocol: Protocol, peers: &[usize]) {
    let step = sender.step();
    bells.wait(SENDER, || Ok::<_, Error>(try_send(sender, protocol, 5))).unwrap();
    assert_eq!(sender.step(), step + 1, "the wait ended before there was credit");
    for &peer in peers {
        bells.notify(peer);
    }
}

fn receive_parking<const N: usize>(bells: &Bells<N>, me: usize, receiver: &mut Receiver, protocol: Protocol) {
    let mut buffer = [0; 5];
    let step = receiver.step();
    bells.wait(me, || Ok::<_, Error>(try_receive(receiver, protocol, &mut buffer))).unwrap();
    assert_eq!(receiver.step(), step + 1, "the wait ended before the message was there");
    bells.notify(SENDER);
}

fn messages(protocol: Protocol, count: usize) {
    let (mut sender, mut receivers) = heap_ring(SHAPE).unwrap();
    let bells = Arc::new(Bells::<2>::new());
    let theirs = Arc::clone(&bells);
    both(
        move || (0..count).for_each(|_| send_parking(&theirs, &mut sender, protocol, &[RECEIVER])),
        || (0..count).for_each(|_| receive_parking(&bells, RECEIVER, &mut receivers[0], protocol)),
    );
}

/// A receiver that sleeps, or is about to, is woken by a posted tail.
#[test]
fn post() {
    check(|| messages(Protocol::Simple, 1));
}

/// A receiver that sleeps, or is about to, is woken by the flag of an LL line.
#[test]
fn flag() {
    check(|| messages(Protocol::Ll, 1));
}

/// A sender that sleeps for credit is woken by a release, also while its receiver goes to sleep itself.
#[test]
fn credit() {
    check(|| messages(Protocol::Simple, 3));
}

/// Two sleepers with a bell each: one that gets up does not hide the other from the publisher.
#[test]
fn two_sleepers() {
    check(|| {
        let (mut sender, receivers) = heap_ring(RingGeometry { receivers: 2, ..SHAPE }).unwrap();
        let bells = Arc::new(Bells::<3>::new());
        let mut threads = Vec::new();
        for (index, mut receiver) in receivers.into_iter().enumerate() {
            let bells = Arc::clone(&bells);
            threads.push(thread::spawn(move || {
                let mut buffer = [0; 5];
                let poll = || Ok::<_, Error>(try_receive(&mut receiver, Protocol::Ll, &mut buffer));
                bells.wait(RECEIVER + index, poll).unwrap();
            }));
        }
        send_parking(&bells, &mut sender, Protocol::Ll, &[RECEIVER, RECEIVER + 1]);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}
