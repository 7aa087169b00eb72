//! With several receivers, does each get every message, and does the slowest one hold the slot?
//!
//! Three threads that wait for each other have too many executions to search, so each makes a few attempts,
//! and what is left is done when all have ended.
#![cfg(loom)]

use loom::thread;
use loom_tests::{SHAPE, check, try_receive, try_send};
use shmring::layout::RingGeometry;
use shmring::{Protocol, Receiver, Sender, heap_ring};

const MESSAGES: u64 = 3;
const LEN: usize = 5;

fn send_some(sender: &mut Sender, protocol: Protocol, attempts: usize) {
    for _ in 0..attempts {
        if sender.step() < MESSAGES {
            try_send(sender, protocol, LEN);
        }
    }
}

fn receive_some(receiver: &mut Receiver, protocol: Protocol, attempts: usize) {
    let mut buffer = [0; LEN];
    for _ in 0..attempts {
        if receiver.step() < MESSAGES {
            try_receive(receiver, protocol, &mut buffer);
        }
    }
}

fn fan(protocol: Protocol) {
    let (mut sender, receivers) = heap_ring(RingGeometry { receivers: 2, ..SHAPE }).unwrap();
    let run = move |mut receiver| {
        receive_some(&mut receiver, protocol, 2);
        receiver
    };
    let threads: Vec<_> = receivers.into_iter().map(|r| thread::spawn(move || run(r))).collect();
    send_some(&mut sender, protocol, 4);
    let mut receivers: Vec<Receiver> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    receivers.iter_mut().for_each(|receiver| receive_some(receiver, protocol, 3));
    send_some(&mut sender, protocol, 3);
    for mut receiver in receivers {
        receive_some(&mut receiver, protocol, 3);
        assert_eq!(receiver.step(), MESSAGES);
    }
}

/// Two receivers read three Simple messages out of two slots.
#[test]
fn simple() {
    check(|| fan(Protocol::Simple));
}

/// Two receivers read three LL messages out of two slots.
#[test]
fn ll() {
    check(|| fan(Protocol::Ll));
}
