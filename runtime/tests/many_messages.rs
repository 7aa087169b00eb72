//! Groups and mailboxes with very many messages: what they hold is right, and what they cost does not explode.

mod common;

use common::with_ranks;
use ringccl::{Communicator, Config, Group};
use std::time::{Duration, Instant};

fn config() -> Config {
    Config { timeout: Duration::from_secs(300), ..Config::new(2) }
}

/// Sends `count` messages to the other rank and receives as many, all in one group; tags repeat after `tags`.
fn exchange(comm: &mut Communicator, count: usize, tags: usize) {
    let other = 1 - comm.rank();
    let sent: Vec<[u64; 2]> = (0..count as u64).map(|k| [k, comm.rank() as u64]).collect();
    let mut got = vec![[0u64; 2]; count];
    let mut group = Group::new();
    for (k, (sent, got)) in sent.iter().zip(&mut got).enumerate() {
        let tag = (k % tags) as u32;
        group.send_tagged(comm, sent, other, tag).unwrap();
        group.recv_tagged(comm, got, Some(other), tag).unwrap();
    }
    group.run().unwrap();
    assert!(got.iter().enumerate().all(|(k, got)| *got == [k as u64, other as u64]));
}

/// One rank sends `count` messages with a tag each, the other asks for the last one first, down to the first.
fn last_first(comm: &mut Communicator, count: u32) {
    if comm.rank() == 0 {
        for tag in 0..count {
            comm.send_tagged(&[tag; 2], 1, tag).unwrap();
        }
        return;
    }
    for tag in (0..count).rev() {
        let mut got = [0u32; 2];
        let from = (tag % 2 == 0).then_some(0);
        comm.recv_tagged(&mut got, from, tag).unwrap();
        assert_eq!(got, [tag; 2]);
    }
}

/// Every message of a large group arrives where it belongs, with one tag, with some and with one for each.
#[test]
fn large_groups_keep_their_order() {
    with_ranks(2, &config(), |mut comm| {
        for tags in [1, 7, 2000] {
            exchange(&mut comm, 2000, tags);
        }
        comm.finalize().unwrap();
    });
}

/// Messages that nobody has asked for are found by their tags, whichever is asked for first.
#[test]
fn early_messages_are_found_by_tag() {
    with_ranks(2, &config(), |mut comm| {
        last_first(&mut comm, 3000);
        comm.finalize().unwrap();
    });
}

/// How long `act` takes on two ranks.
fn time(act: impl Fn(&mut Communicator) + Sync) -> Duration {
    let took = with_ranks(2, &config(), |mut comm| {
        comm.barrier().unwrap();
        let begun = Instant::now();
        act(&mut comm);
        comm.barrier().unwrap();
        let took = begun.elapsed();
        comm.finalize().unwrap();
        took
    });
    took.into_iter().max().unwrap()
}

/// Time of a send and a receive of one rank to itself: what the calls cost without another rank.
fn to_itself() -> Duration {
    let mut comms = Communicator::init_all(1, &Config::new(1)).unwrap();
    let mut buffer = [0u8; 8];
    let rounds = (0..50).map(|_| {
        let begun = Instant::now();
        for _ in 0..2000 {
            comms[0].send(&buffer, 0).unwrap();
            comms[0].recv(&mut buffer, 0).unwrap();
        }
        begun.elapsed() / 2000
    });
    rounds.min().unwrap()
}

/// A figure, not a check: run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "takes long where it is slow; prints figures"]
fn figures() {
    let counts: Vec<usize> = std::env::var("MESSAGES")
        .map_or(vec![8_000, 100_000], |list| list.split(',').map(|count| count.parse().unwrap()).collect());
    println!("a send and a receive of a rank to itself: {:.3?}", to_itself());
    for count in counts {
        for tags in [1, count] {
            let took = time(|comm| exchange(comm, count, tags));
            println!("{count} sends and receives in one group, {tags} tags: {took:.3?}");
        }
        let took = time(|comm| last_first(comm, count as u32));
        println!("{count} messages with a tag each, the last received first: {took:.3?}");
    }
}
