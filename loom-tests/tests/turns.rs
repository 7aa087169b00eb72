//! Is a value that is used in turns ever used by two at a time, or out of order, and does everybody get a turn?
//!
//! Loom reports two accesses to the value that no turn orders, and a turn that never comes as a deadlock or a loop
//! without end.
#![cfg(loom)]

use loom::thread;
use loom_tests::{Plain, both, check};
use shmring::sync::yield_core;
use shmring::turns::{Issuer, Ticket, Turns};
use std::sync::Arc;

fn turns() -> (Arc<Turns<Plain>>, Issuer) {
    let (turns, issuer) = Turns::new(Plain::new());
    (Arc::new(turns), issuer)
}

/// Waits for the turn, changes what is `before` it to `after`, and passes on.
fn use_turn(turns: &Turns<Plain>, mut ticket: Ticket, before: u64, after: u64) {
    loop {
        // SAFETY: each model has one value and one issuer.
        if let Some(value) = unsafe { turns.enter(&mut ticket) } {
            assert_eq!(value.get(), before, "out of order");
            value.set(after);
            break;
        }
        yield_core();
    }
    turns.pass(ticket);
}

fn wait_idle(turns: &Turns<Plain>, issuer: &mut Issuer, value: u64) {
    loop {
        // SAFETY: each model has one value and one issuer.
        if let Some(found) = unsafe { turns.idle(issuer) } {
            assert_eq!(found.get(), value);
            found.set(value + 1);
            return;
        }
        yield_core();
    }
}

/// Threads use the value one after the other in the order of their tickets, and then the issuer.
#[test]
fn in_order() {
    check(|| {
        let (turns, mut issuer) = turns();
        let [first, second] = [(); 2].map(|()| issuer.issue());
        let theirs = Arc::clone(&turns);
        let other = thread::spawn(move || use_turn(&theirs, first, 0, 1));
        use_turn(&turns, second, 1, 2);
        other.join().unwrap();
        let theirs = Arc::clone(&turns);
        let third = issuer.issue();
        both(move || use_turn(&theirs, third, 2, 3), || wait_idle(&turns, &mut issuer, 3));
    });
}

/// A ticket that is given up while the one before it is passed is skipped, by exactly one of the two; who comes after
/// sees what was done before.
#[test]
fn give_up_beside_pass() {
    check(|| {
        let (turns, mut issuer) = turns();
        let [first, second, third] = [(); 3].map(|()| issuer.issue());
        let (passes, gives_up) = (Arc::clone(&turns), Arc::clone(&turns));
        let passer = thread::spawn(move || use_turn(&passes, first, 0, 1));
        both(move || gives_up.give_up(second), || use_turn(&turns, third, 1, 2));
        passer.join().unwrap();
        wait_idle(&turns, &mut issuer, 2);
    });
}

/// Two tickets in a row are given up at the same time, while the one before them is passed.
#[test]
fn give_up_beside_give_up() {
    check(|| {
        let (turns, mut issuer) = turns();
        let [first, second, third] = [(); 3].map(|()| issuer.issue());
        let (one, other) = (Arc::clone(&turns), Arc::clone(&turns));
        let givers =
            [thread::spawn(move || one.give_up(third)), thread::spawn(move || other.give_up(second))];
        use_turn(&turns, first, 0, 1);
        wait_idle(&turns, &mut issuer, 1);
        for giver in givers {
            giver.join().unwrap();
        }
    });
}

/// A turn that is given up by who has used the value is a turn passed.
#[test]
fn give_up_in_turn() {
    check(|| {
        let (turns, mut issuer) = turns();
        let [mut first, second] = [(); 2].map(|()| issuer.issue());
        let theirs = Arc::clone(&turns);
        both(
            move || {
                // SAFETY: each model has one value and one issuer.
                unsafe { theirs.enter(&mut first) }.unwrap().set(1);
                theirs.give_up(first);
            },
            || use_turn(&turns, second, 1, 2),
        );
        wait_idle(&turns, &mut issuer, 2);
    });
}
