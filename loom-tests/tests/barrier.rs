//! Is everything that any member wrote before a barrier visible to every member after it?
//!
//! The barrier is what communicators use: each member posts an empty message in its own ring and waits for
//! everybody else's.
#![cfg(loom)]

use loom::thread;
use loom_tests::{Bells, Plain, SHAPE, check, try_receive, try_send};
use shmring::layout::RingGeometry;
use shmring::{Error, Protocol, Receiver, Sender, heap_ring};
use std::sync::Arc;

struct Shared<const N: usize> {
    bells: Bells<N>,
    plain: [Plain; N],
}

/// One member's ends: its own ring, and its place in every other member's.
struct Member {
    me: usize,
    sender: Sender,
    receivers: Vec<Receiver>,
}

impl Member {
    fn barrier<const N: usize>(&mut self, bells: &Bells<N>) {
        bells.wait(self.me, || Ok::<_, Error>(try_send(&mut self.sender, Protocol::Ll, 0))).unwrap();
        for peer in (0..N).filter(|&peer| peer != self.me) {
            bells.notify(peer);
        }
        for receiver in &mut self.receivers {
            bells.wait(self.me, || Ok::<_, Error>(try_receive(receiver, Protocol::Ll, &mut []))).unwrap();
        }
    }
}

fn members<const N: usize>() -> Vec<Member> {
    let mut receivers: Vec<Vec<Receiver>> = (0..N).map(|_| Vec::new()).collect();
    let mut senders = Vec::new();
    for source in 0..N {
        let shape = RingGeometry { receivers: N as u32 - 1, ..SHAPE };
        let (sender, others) = heap_ring(shape).unwrap();
        senders.push(sender);
        for (receiver, member) in others.into_iter().zip((0..N).filter(|&member| member != source)) {
            receivers[member].push(receiver);
        }
    }
    let ends = senders.into_iter().zip(receivers).enumerate();
    ends.map(|(me, (sender, receivers))| Member { me, sender, receivers }).collect()
}

/// Runs `act` for each of `N` members at once, with what they share.
fn meet<const N: usize>(act: fn(&mut Member, &Shared<N>)) {
    let shared = Arc::new(Shared::<N> { bells: Bells::new(), plain: std::array::from_fn(|_| Plain::new()) });
    let mut members = members::<N>();
    let mut first = members.remove(0);
    let threads: Vec<_> = members
        .into_iter()
        .map(|mut member| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || act(&mut member, &shared))
        })
        .collect();
    act(&mut first, &shared);
    for thread in threads {
        thread.join().unwrap();
    }
}

impl<const N: usize> Shared<N> {
    fn write(&self, me: usize) {
        self.plain[me].set(50 + me as u64);
    }

    fn check_all_written(&self) {
        for (member, plain) in self.plain.iter().enumerate() {
            assert_eq!(plain.get(), 50 + member as u64);
        }
    }
}

/// Two members, each asleep while it waits: both get through, and see what the other wrote before.
#[test]
fn two_members() {
    check(|| {
        meet::<2>(|member, shared| {
            shared.write(member.me);
            member.barrier(&shared.bells);
            shared.check_all_written();
        });
    });
}

/// Three members that look once instead of waiting: whoever finds all the others there sees what they wrote.
#[test]
fn three_members() {
    check(|| {
        meet::<3>(|member, shared| {
            shared.write(member.me);
            assert!(try_send(&mut member.sender, Protocol::Ll, 0));
            if member.receivers.iter_mut().all(|receiver| try_receive(receiver, Protocol::Ll, &mut [])) {
                shared.check_all_written();
            }
        });
    });
}
