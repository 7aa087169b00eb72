//! What was sent before a communicator ended reaches ranks that ask for it after the end.

use ringccl::{Algorithm, Communicator, Config, Error, Group, ReduceOp, Stream};
use std::time::Duration;

/// Ranks of this process, which the test's thread drives one after the other.
fn ranks(nranks: u32) -> Vec<Communicator> {
    let config = Config { timeout: Duration::from_secs(20), ..Config::new(nranks) };
    Communicator::init_all(nranks, &config).unwrap()
}

/// Ends the communicator of ranks 0 and 1 by the leaving of rank 2.
fn third_leaves(comms: &mut Vec<Communicator>) {
    drop(comms.pop());
    let error = comms[0].barrier().unwrap_err();
    assert!(matches!(error, Error::PeerGone { dead: 2, .. }), "{error}");
}

/// Messages of all forms that were sent before an uninvolved rank left are received after it, by calls, groups and
/// streams, in any order of their tags; what was not sent is not.
#[test]
fn messages_outlive_a_third_rank() {
    let mut comms = ranks(3);
    let large: Vec<u32> = (0..3000).collect();
    for tag in 0..3 {
        comms[0].send_tagged(&large[..3 + tag as usize], 1, tag).unwrap();
    }
    comms[0].send_tagged(&large, 1, 9).unwrap();
    comms[0].send_tagged(&large[..1], 1, 10).unwrap();
    third_leaves(&mut comms);
    let late = &mut comms[1];
    let (mut first, mut second, mut third, mut all) = ([9; 3], [9; 4], [9; 5], vec![0; large.len()]);
    assert_eq!(late.recv_tagged(&mut second, None, 1).unwrap(), 0);
    late.recv(&mut first, 0).unwrap();
    let mut group = Group::new();
    group.recv_tagged(late, &mut all, Some(0), 9).unwrap();
    group.recv_tagged(late, &mut third, None, 2).unwrap();
    group.run().unwrap();
    let fourth = Stream::new().recv(late, vec![9u32; 6], 0);
    assert!(
        matches!(fourth.unwrap().wait(), Err(Error::PeerGone { dead: 2, .. })),
        "none has tag 0 any more"
    );
    assert_eq!((&first[..], &second[..], &third[..]), (&large[..3], &large[..4], &large[..5]));
    assert_eq!(all, large);
    let mut last = [9u32];
    late.recv_tagged(&mut last, Some(0), 10).unwrap();
    assert_eq!(last, large[..1]);
    assert!(matches!(late.recv_tagged(&mut last, Some(0), 10), Err(Error::PeerGone { dead: 2, .. })));
    assert!(matches!(late.send(&last, 0), Err(Error::PeerGone { dead: 2, .. })));
}

/// A late receive that expects something else than was sent is told so.
#[test]
fn a_late_receive_may_not_fit() {
    let mut comms = ranks(3);
    comms[0].send(&[1u8], 1).unwrap();
    third_leaves(&mut comms);
    let error = comms[1].recv(&mut [0u8; 2], 0).unwrap_err().to_string();
    assert!(error.starts_with("a message does not match: "), "{error}");
    assert!(matches!(comms[1].recv(&mut [0u8], 0), Err(Error::PeerGone { dead: 2, .. })), "it was taken");
}

/// A message of which not all was sent before the end is an error, and so is what lies behind it.
#[test]
fn half_a_message_is_none() {
    let mut comms = ranks(3);
    let large = vec![7u8; 64 << 20];
    let stream = Stream::new();
    let sent = stream.send(&mut comms[0], large, 1).unwrap();
    third_leaves(&mut comms);
    assert!(sent.wait().is_err());
    let mut got = vec![0u8; 64 << 20];
    for _ in 0..2 {
        assert!(matches!(comms[1].recv(&mut got, 0), Err(Error::PeerGone { dead: 2, .. })));
    }
}

/// A program that asks for the end gets it: nothing is received any more.
#[test]
fn abort_leaves_no_messages() {
    let mut comms = ranks(2);
    comms[0].send(&[1u8], 1).unwrap();
    comms[0].abort_handle().abort();
    assert!(matches!(comms[1].recv(&mut [0u8], 0), Err(Error::Aborted { by: 0, .. })));
}

/// A late rank gets what a root had sent to all before another rank left, by a call and in a group; what the others did
/// not do is an error.
#[test]
fn finished_operations_outlive_a_rank() {
    for grouped in [false, true] {
        let mut comms = ranks(4);
        drop(comms.pop());
        for root in [0, 1] {
            comms[root].broadcast(&mut [root as i32 + 5], root).unwrap();
            comms[1 - root].broadcast(&mut [0], root).unwrap();
        }
        assert!(matches!(comms[0].barrier(), Err(Error::PeerGone { dead: 3, .. })));
        let late = &mut comms[2];
        let mut got = [[0], [0]];
        if grouped {
            let mut group = Group::new();
            for (root, got) in got.iter_mut().enumerate() {
                group.broadcast(late, got, root).unwrap();
            }
            group.run().unwrap();
        } else {
            got.iter_mut().enumerate().for_each(|(root, got)| late.broadcast(got, root).unwrap());
        }
        assert_eq!(got, [[5], [6]]);
        assert!(matches!(late.broadcast(&mut [0], 0), Err(Error::PeerGone { dead: 3, .. })));
        // A late root has nobody to send to.
        assert!(matches!(late.broadcast(&mut [0], 2), Err(Error::PeerGone { dead: 3, .. })));
    }
}

/// In a chain a late rank needs those before it and has some to pass the data on to: it is told at once who has gone.
#[test]
fn a_late_rank_of_a_chain_is_told() {
    let config =
        Config { algorithm: Some(Algorithm::Ring), timeout: Duration::from_secs(20), ..Config::new(4) };
    let mut comms = Communicator::init_all(4, &config).unwrap();
    drop(comms.pop());
    comms[0].broadcast(&mut [5], 0).unwrap();
    assert!(matches!(comms[0].barrier(), Err(Error::PeerGone { dead: 3, .. })));
    for rank in [2, 1] {
        let error = comms[rank].broadcast(&mut [0], 0).unwrap_err();
        assert!(matches!(error, Error::PeerGone { dead: 3, .. }), "rank {rank}: {error}");
    }
}

/// Ranks 0 and 1 finish a broadcast and then call different things; what `late` makes of the last of `nranks`.
fn after_a_mismatch(nranks: u32, late: impl FnOnce(&mut Communicator)) {
    let mut comms = ranks(nranks);
    comms[0].broadcast(&mut [7], 0).unwrap();
    comms[1].broadcast(&mut [0], 0).unwrap();
    let [first, second, .., last] = &mut comms[..] else { unreachable!("three ranks at least") };
    std::thread::scope(|scope| {
        let one = scope.spawn(|| first.barrier().unwrap_err());
        let two = scope.spawn(|| second.all_reduce_in_place(&mut [1i32], ReduceOp::Sum).unwrap_err());
        for error in [one, two].map(|thread| thread.join().unwrap()) {
            assert!(error.to_string().starts_with("operation 2 does not match: "), "{error}");
        }
    });
    late(last);
}

/// A rank that comes late to a broadcast gets its data, not the mismatch of the operation after it; that it gets then.
#[test]
fn a_late_rank_gets_its_broadcast() {
    for nranks in [3, 4] {
        after_a_mismatch(nranks, |late| {
            let mut got = [0];
            late.broadcast(&mut got, 0).unwrap();
            assert_eq!(got, [7]);
            let error = late.barrier().unwrap_err().to_string();
            assert!(error.starts_with("operation 2 does not match: "), "{error}");
        });
    }
}

/// A rank that comes late with a wrong call hears of that one, whether or not the others had finished theirs.
#[test]
fn a_late_rank_gets_its_own_mismatch() {
    for (nranks, is_barrier) in [(3, false), (3, true), (4, false), (4, true)] {
        after_a_mismatch(nranks, |late| {
            let wrong = if is_barrier { late.barrier() } else { late.broadcast(&mut [0; 2], 0) };
            let wrong = wrong.unwrap_err().to_string();
            let told = format!(
                "rank {} called {}",
                nranks - 1,
                if is_barrier { "barrier" } else { "broadcast of 2 x" }
            );
            assert!(
                wrong.starts_with("operation 1 does not match: rank 0 called broadcast of 1 x")
                    && wrong.contains(&told),
                "{nranks}: {wrong}"
            );
            let next = late.barrier().unwrap_err().to_string();
            assert!(next.contains(" does not match: rank 0 called"), "{next}");
        });
    }
}
