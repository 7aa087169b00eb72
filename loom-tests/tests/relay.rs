//! Do the members of a relay add to a piece one after the other, and rewrite it only after all have read it?
#![cfg(loom)]

use loom_tests::{STAMP, both, check};
use shmring::layout::RelayGeometry;
use shmring::sync::yield_core;
use shmring::{Relay, heap_relay};

/// One block at a time, so that the second one needs credit from both members.
const SHAPE: RelayGeometry = RelayGeometry { members: 2, blocks: 1, piece_bytes: 64 };

/// What a member adds to a piece.
fn input(member: u32, block: u64, piece: u32) -> u64 {
    1 + u64::from(member) * 100 + block * 10 + u64::from(piece)
}

/// Adds to the first word of a piece, or sets it, and ends the turn.
fn add(relay: &mut Relay, block: u64, piece: u32, turn: u32, value: u64) {
    let ready = |relay: &mut Relay| match turn {
        0 => relay.has_credit(block).unwrap(),
        _ => relay.has_passed(block, piece, turn - 1, STAMP).unwrap(),
    };
    while !ready(relay) {
        yield_core();
    }
    // SAFETY: it is this member's turn; the pointer is used here only, for one word.
    unsafe {
        relay.piece(block, piece, true, |at, _| {
            let word: *mut u64 = at.cast();
            *word = if turn == 0 { value } else { *word + value };
        });
    }
    relay.pass(block, piece, turn, STAMP);
}

/// What `member` does in an operation of `blocks` blocks.
fn operate(relay: &mut Relay, member: u32, blocks: u64) {
    relay.begin();
    for block in 0..blocks {
        let other = 1 - member;
        add(relay, block, member, 0, input(member, block, member));
        add(relay, block, other, 1, input(member, block, other));
        for piece in [member, other] {
            while !relay.has_passed(block, piece, 1, STAMP).unwrap() {
                yield_core();
            }
            // SAFETY: the last turn has passed, and the block is finished below; one word of the piece.
            let sum: u64 =
                unsafe { relay.piece(block, piece, false, |at, _| at.cast::<u64>().read_unaligned()) };
            relay.give_back(block, piece);
            assert_eq!(sum, input(0, block, piece) + input(1, block, piece));
        }
        relay.finish();
    }
}

/// Two members, one operation of two blocks: every piece has both contributions when it is read.
#[test]
fn blocks() {
    check(|| {
        let mut members = heap_relay(SHAPE).unwrap();
        let mut second = members.pop().unwrap();
        both(move || operate(&mut second, 1, 2), || operate(&mut members[0], 0, 2));
    });
}

/// The same over two operations of one block: the second begins where the first ended.
#[test]
fn operations() {
    check(|| {
        let mut members = heap_relay(SHAPE).unwrap();
        let mut second = members.pop().unwrap();
        both(
            move || (0..2).for_each(|_| operate(&mut second, 1, 1)),
            || (0..2).for_each(|_| operate(&mut members[0], 0, 1)),
        );
    });
}
