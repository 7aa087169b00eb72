//! Sends, receives and groups between ranks that are threads, or one thread.

mod common;

use common::with_ranks;
use ringccl::{Communicator, Config, Error, Group, ReduceOp};
use std::time::{Duration, Instant};

/// Element `i` of message number `k` from one rank to another.
fn value(from: usize, to: usize, k: usize, i: usize) -> i64 {
    ((from * 31 + to) * 1000 + k) as i64 * 1_000_003 + i as i64
}

fn message(from: usize, to: usize, k: usize, len: usize) -> Vec<i64> {
    (0..len).map(|i| value(from, to, k, i)).collect()
}

/// Lengths around every limit: header only, one line message, several slots.
const LENGTHS: [usize; 12] = [0, 1, 4, 5, 6, 30, 60, 65, 66, 5000, 70_000, 300_001];

/// Messages of all lengths between two ranks arrive in order and whole, in both directions.
#[test]
fn messages_arrive_in_order() {
    with_ranks(2, &Config::new(2), |mut comm| {
        let (rank, other) = (comm.rank(), 1 - comm.rank());
        for (k, len) in LENGTHS.into_iter().enumerate() {
            let mut got = vec![0; len];
            if rank == 0 {
                comm.send(&message(0, 1, k, len), other).unwrap();
                comm.recv(&mut got, other).unwrap();
            } else {
                comm.recv(&mut got, other).unwrap();
                comm.send(&message(1, 0, k, len), other).unwrap();
            }
            assert_eq!(got, message(other, rank, k, len));
        }
        comm.finalize().unwrap();
    });
}

/// A group of sends and receives between all ranks, itself included, completes in any order of its parts, with a
/// collective among them.
#[test]
fn a_group_runs_all_together() {
    with_ranks(4, &Config::new(4), |mut comm| {
        let (rank, n) = (comm.rank(), comm.nranks());
        for (round, len) in LENGTHS.into_iter().enumerate() {
            let sent: Vec<_> = (0..n).map(|to| message(rank, to, round, len)).collect();
            let mut got = vec![vec![0; len]; n];
            let mut sum = [rank as i64 + round as i64];
            let mut group = Group::new();
            // Every rank has another order.
            for shift in 0..n {
                group.send(&mut comm, &sent[(rank + shift) % n], (rank + shift) % n).unwrap();
            }
            group.all_reduce_in_place(&mut comm, &mut sum, ReduceOp::Sum).unwrap();
            for (from, buffer) in got.iter_mut().enumerate().rev() {
                group.recv(&mut comm, buffer, from).unwrap();
            }
            group.run().unwrap();
            for (from, buffer) in got.iter().enumerate() {
                assert_eq!(*buffer, message(from, rank, round, len));
            }
            assert_eq!(sum, [(6 + 4 * round) as i64]);
        }
        comm.finalize().unwrap();
    });
}

/// One thread runs collectives and messages of all ranks in groups, nested ones too.
#[test]
fn one_thread_runs_all_ranks() {
    let mut comms = Communicator::init_all(3, &Config::new(3)).unwrap();
    for len in [1usize, 100, 200_000] {
        let mut sums = [vec![1i64; len], vec![2; len], vec![3; len]];
        let sent = message(2, 0, len, len);
        let mut got = vec![0; len];
        let mut outer = Group::new();
        for (comm, sum) in comms.iter_mut().zip(&mut sums) {
            let mut inner = Group::new();
            inner.all_reduce_in_place(comm, sum, ReduceOp::Sum).unwrap();
            outer.append(inner);
        }
        outer.recv(&mut comms[0], &mut got, 2).unwrap();
        outer.send(&mut comms[2], &sent, 0).unwrap();
        assert_eq!(outer.len(), 5);
        outer.run().unwrap();
        assert!(sums.iter().all(|sum| *sum == vec![6; len]));
        assert_eq!(got, sent);
    }
}

/// A wrong call makes the whole group fail before anything is run; one that is dropped has called nothing.
#[test]
fn a_wrong_call_fails_the_group() {
    with_ranks(2, &Config::new(2), |mut comm| {
        let (one, mut two) = ([1i32], [0i32]);
        let mut group = Group::new();
        group.all_reduce(&mut comm, &one, &mut two, ReduceOp::Sum).unwrap();
        assert!(group.send(&mut comm, &one, 9).is_err());
        let error = group.run().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::GroupRefused { .. }) && text.contains("there is no rank 9"), "{text}");
        assert_eq!(two, [0]);
        let mut dropped = Group::new();
        dropped.barrier(&mut comm).unwrap();
        drop(dropped);
        comm.all_reduce_in_place(&mut two, ReduceOp::Sum).unwrap();
        comm.finalize().unwrap();
    });
}

/// Tags decide which receive gets a message, whatever the order of the sends; a receive from any rank tells the source.
#[test]
fn tags_and_any_source() {
    with_ranks(3, &Config::new(3), |mut comm| {
        if comm.rank() > 0 {
            for tag in [7, 3, 5] {
                comm.send_tagged(&message(comm.rank(), 0, tag as usize, 20_000), 0, tag).unwrap();
            }
        } else {
            let mut buffer = vec![0; 20_000];
            for tag in [5, 7, 3] {
                let mut seen = [false; 3];
                for _ in 0..2 {
                    let from = comm.recv_tagged(&mut buffer, None, tag).unwrap();
                    assert_eq!(buffer, message(from, 0, tag as usize, 20_000));
                    assert!(!std::mem::replace(&mut seen[from], true));
                }
                assert_eq!(seen, [false, true, true]);
            }
        }
        comm.finalize().unwrap();
    });
}

/// Uneven exchanges between all ranks, empty parts included.
#[test]
fn all_to_all_v_exchanges_parts() {
    with_ranks(4, &Config::new(4), |mut comm| {
        let (rank, n) = (comm.rank(), comm.nranks());
        for round in 0..8 {
            let count = |from: usize, to: usize| (from * 7 + to * 3 + round) % 5 * [1, 40, 3000][round % 3];
            let send_counts: Vec<_> = (0..n).map(|to| count(rank, to)).collect();
            let recv_counts: Vec<_> = (0..n).map(|from| count(from, rank)).collect();
            let send: Vec<_> = (0..n).flat_map(|to| message(rank, to, round, count(rank, to))).collect();
            let mut recv = vec![0; recv_counts.iter().sum()];
            comm.all_to_all_v(&send, &send_counts, &mut recv, &recv_counts).unwrap();
            let expected: Vec<_> =
                (0..n).flat_map(|from| message(from, rank, round, count(from, rank))).collect();
            assert_eq!(recv, expected);
        }
        comm.finalize().unwrap();
    });
}

/// A receive that expects something else than what is sent ends the communicator with an error that names both calls,
/// on the sender, on the receiver and on whoever else is there.
#[test]
fn what_does_not_fit_is_told() {
    for len in [10, 500_000] {
        with_ranks(3, &Config::new(3), |mut comm| {
            let outcome = match comm.rank() {
                0 => comm.send(&vec![1i64; len], 1).and_then(|()| comm.barrier()),
                1 => comm.recv(&mut [0f32; 20], 0).and_then(|()| comm.barrier()),
                _ => comm.barrier(),
            };
            let error = outcome.unwrap_err();
            let told = format!(
                "rank 0 called send of {len} x int64 to rank 1, rank 1 called recv of 20 x float from"
            );
            assert!(matches!(error, Error::Mismatch { .. }) && error.to_string().contains(&told), "{error}");
        });
    }
}

/// Both ranks send first: nobody goes on, and the time-out names the call and the rank.
#[test]
fn sends_that_wait_for_each_other_end() {
    let config = Config { timeout: Duration::from_millis(300), ..Config::new(2) };
    with_ranks(2, &config, |mut comm| {
        let other = 1 - comm.rank();
        let error = comm.send(&vec![0i64; 1_000_000], other).unwrap_err().to_string();
        assert!(error.contains("send to rank") || error.contains("time-out"), "{error}");
    });
}

/// A rank that leaves without sending ends a receive from it, and one that has sent everything does not.
#[test]
fn leaving_before_and_after_sending() {
    with_ranks(2, &Config::new(2), |mut comm| {
        if comm.rank() == 1 {
            comm.send(&[5i32; 3], 0).unwrap();
            return;
        }
        let mut got = [0; 3];
        comm.recv(&mut got, 1).unwrap();
        assert_eq!(got, [5; 3]);
        let error = comm.recv(&mut got, 1).unwrap_err();
        assert!(matches!(error, Error::PeerGone { dead: 1, .. }), "{error}");
    });
}

/// A group over two communicators returns the first error of either without waiting for the other, whose operations it
/// gives up: that one ends too, and its ranks are told why. What was done before stays done.
#[test]
fn the_first_error_ends_a_group() {
    let config = Config { timeout: Duration::from_secs(30), ..Config::new(2) };
    with_ranks(2, &config, |mut one| {
        let mut other = one.duplicate().unwrap();
        let mut done = other.duplicate().unwrap();
        let begun = Instant::now();
        if one.rank() == 1 {
            done.barrier().unwrap();
            one.abort_handle().abort();
            let error = other.barrier().unwrap_err();
            assert!(matches!(error, Error::Aborted { by: 0, .. }), "{error}");
        } else {
            let mut got = [[0i32; 3]; 2];
            let [first, second] = &mut got;
            let mut group = Group::new();
            group.barrier(&mut done).unwrap();
            group.recv(&mut other, first, 1).unwrap();
            group.recv(&mut other, second, 1).unwrap();
            group.barrier(&mut one).unwrap();
            let error = group.run().unwrap_err();
            assert!(matches!(error, Error::Aborted { by: 1, .. }), "{error}");
            let error = other.barrier().unwrap_err().to_string();
            assert!(
                error.contains("another operation of the same group or stream failed: rank 1 "),
                "{error}"
            );
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        done.barrier().unwrap();
    });
}

/// Ranks that all receive from any rank wait for ever, and are told so at once; where one of them is only late, and
/// sends then, nobody is accused.
#[test]
fn receives_from_any_rank_by_all_are_a_deadlock() {
    let config = Config { timeout: Duration::from_secs(60), ..Config::new(3) };
    with_ranks(3, &config, |mut comm| {
        let mut got = [0i32; 3];
        if comm.rank() == 2 {
            // What it waits for comes later than any verdict would.
            std::thread::park_timeout(Duration::from_millis(500));
            comm.send(&[1; 3], 0).unwrap();
        } else if comm.rank() == 0 {
            assert_eq!(comm.recv_tagged(&mut got, None, 0).unwrap(), 2);
            comm.send(&[1; 3], 1).unwrap();
        } else {
            assert_eq!(comm.recv_tagged(&mut got, None, 0).unwrap(), 0);
        }
        comm.barrier().unwrap();
        let begun = Instant::now();
        let error = comm.recv_tagged(&mut got, None, 0).unwrap_err();
        assert!(matches!(error, Error::Deadlock { .. }), "{error}");
        assert!(error.to_string().contains("nobody is left to send; one of them must send first"), "{error}");
        assert!(begun.elapsed() < config.timeout / 4, "{:?}", begun.elapsed());
    });
}
