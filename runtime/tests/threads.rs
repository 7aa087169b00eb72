//! Ranks of one process: communicators over memory that no other process has, and ending them from outside.

use ringccl::{Communicator, Config, Error, Group, ReduceOp};
use std::time::{Duration, Instant};

/// A time-out that a mistake does not make the test wait for long.
fn config(nranks: u32) -> Config {
    Config { timeout: Duration::from_secs(20), ..Config::new(nranks) }
}

/// Runs each communicator on a thread of its own; results in rank order.
fn on_threads<T: Send>(comms: Vec<Communicator>, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || body(comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Ranks that are threads reduce and finalize as processes do, and take no memory that they do not touch.
#[test]
fn threads_are_ranks() {
    for nranks in [1, 2, 5] {
        let comms = Communicator::init_all(nranks, &config(nranks)).unwrap();
        let sums = on_threads(comms, |mut comm| {
            let mut values: Vec<i64> = (0..30_000).map(|i| i + comm.rank() as i64).collect();
            comm.all_reduce_in_place(&mut values, ReduceOp::Sum).unwrap();
            assert!(comm.shared_bytes().unwrap() < 64 << 20);
            comm.finalize().unwrap();
            values
        });
        let n = i64::from(nranks);
        let expected: Vec<i64> = (0..30_000).map(|i| n * i + n * (n - 1) / 2).collect();
        assert!(sums.iter().all(|sum| *sum == expected));
    }
    let error = Communicator::init_all(0, &Config::new(0)).unwrap_err().to_string();
    assert!(error.contains("a number of ranks from 1"), "{error}");
}

/// An abort from another thread ends the wait of every rank at once, and every later call; the rank whose handle
/// it was is named.
#[test]
fn abort_wakes_every_rank() {
    let comms = Communicator::init_all(4, &config(4)).unwrap();
    let handle = comms[2].abort_handle();
    let late = Instant::now();
    std::thread::scope(|scope| {
        let mut comms = comms.into_iter();
        let idle = comms.next_back().unwrap();
        for mut comm in comms {
            scope.spawn(move || {
                let mut value = [1.0f32];
                for _ in 0..2 {
                    let error = comm.all_reduce_in_place(&mut value, ReduceOp::Sum).unwrap_err();
                    assert!(matches!(error, Error::Aborted { by: 2, .. }), "{error}");
                    assert!(error.to_string().contains("called abort"), "{error}");
                }
                assert!(matches!(comm.async_error(), Some(Error::Aborted { by: 2, .. })));
            });
        }
        // Rank 3 never calls: the others are blocked, or will be.
        assert!(idle.async_error().is_none() && !handle.is_aborted());
        scope.spawn(move || handle.abort());
        while idle.async_error().is_none() {
            std::thread::yield_now();
        }
    });
    assert!(late.elapsed() < Duration::from_secs(5), "{:?}", late.elapsed());
}

type Call = fn(&mut Communicator) -> Result<(), Error>;

/// Calls of which no two match, each with how it is told.
const CALLS: [(&str, Call); 11] = [
    ("all_reduce of 2 x float, sum", |comm| comm.all_reduce_in_place(&mut [1.0f32; 2], ReduceOp::Sum)),
    ("all_reduce of 3 x float, sum", |comm| comm.all_reduce_in_place(&mut [1.0f32; 3], ReduceOp::Sum)),
    ("all_reduce of 0 x float, sum", |comm| comm.all_reduce_in_place(&mut [1.0f32; 0], ReduceOp::Sum)),
    ("all_reduce of 90000 x float, sum", |comm| {
        comm.all_reduce_in_place(&mut vec![1.0f32; 90_000], ReduceOp::Sum)
    }),
    ("all_reduce of 2 x float, max", |comm| comm.all_reduce_in_place(&mut [1.0f32; 2], ReduceOp::Max)),
    ("all_reduce of 2 x int32, sum", |comm| comm.all_reduce_in_place(&mut [1i32; 2], ReduceOp::Sum)),
    ("broadcast of 2 x float from rank 0", |comm| comm.broadcast(&mut [1.0f32; 2], 0)),
    ("broadcast of 2 x float from rank 1", |comm| comm.broadcast(&mut [1.0f32; 2], 1)),
    ("broadcast of 70000 x double from rank 1", |comm| comm.broadcast(&mut vec![1.0f64; 70_000], 1)),
    ("barrier", Communicator::barrier),
    ("finalize", |_| Ok(())),
];

/// Each two of them, the one on one rank and the other on the rest: every rank names both calls and the number, in
/// the call or, where a root had done its part, in the next.
#[test]
fn calls_that_do_not_match_are_told_on_every_rank() {
    for nranks in [2u32, 3] {
        for (i, (odd_name, odd)) in CALLS.iter().enumerate() {
            for (k, (even_name, even)) in CALLS.iter().enumerate() {
                if i == k {
                    continue;
                }
                let comms = Communicator::init_all(nranks, &config(nranks)).unwrap();
                let errors = on_threads(comms, |mut comm| {
                    // A rank that is slow out of the barrier may meet the end there.
                    if let Err(error) = comm.barrier() {
                        return error;
                    }
                    let is_odd = comm.rank() == 1;
                    let outcome = if is_odd { odd(&mut comm) } else { even(&mut comm) };
                    // What needs everybody fails itself, before any data of the other call is used.
                    let name = if is_odd { odd_name } else { even_name };
                    let needs_all = name.starts_with("all_reduce") && !name.contains(" 0 ");
                    assert!(outcome.is_err() || !(needs_all || *name == "barrier"), "{name} went through");
                    match outcome.and_then(|()| comm.finalize()) {
                        Ok(()) => panic!("rank 1 {odd_name}, others {even_name}: no error"),
                        Err(error) => error,
                    }
                });
                for error in errors {
                    let text = error.to_string();
                    let Error::Mismatch { seqno: 2, first_call, second_call, .. } = error else {
                        panic!("rank 1 {odd_name}, others {even_name}: {text}");
                    };
                    let mut told = [first_call.as_str(), second_call.as_str()];
                    let mut called = [*odd_name, *even_name];
                    told.sort_unstable();
                    called.sort_unstable();
                    assert_eq!(told, called, "{text}");
                }
            }
        }
    }
}

/// A rank that is only late, in a communicator that another thread of it will use, is not taken for stuck.
#[test]
fn threads_with_communicators_of_their_own_are_not_stuck() {
    let (config, late) = (config(2), Duration::from_millis(150));
    let first = Communicator::init_all(2, &config).unwrap();
    let second = Communicator::init_all(2, &config).unwrap();
    std::thread::scope(|scope| {
        for (mut a, mut b) in first.into_iter().zip(second) {
            let rank = a.rank();
            let work = move |comm: &mut Communicator, wait: bool| {
                if wait {
                    std::thread::sleep(late);
                }
                comm.all_reduce_in_place(&mut [1i32], ReduceOp::Sum).unwrap();
            };
            // On rank 0 the first communicator is used early and the second late, on rank 1 the other way round.
            scope.spawn(move || work(&mut a, rank == 1));
            scope.spawn(move || work(&mut b, rank == 0));
        }
    });
}

/// Communicators that go from thread to thread, in another order on each rank, are not taken for tangled: whoever used
/// one last says nothing of who comes next.
#[test]
fn communicators_may_change_hands() {
    const ROUNDS: u32 = 6;
    let first = Communicator::init_all(2, &config(2)).unwrap();
    let second = Communicator::init_all(2, &config(2)).unwrap();
    std::thread::scope(|scope| {
        for (rank, (a, b)) in first.into_iter().zip(second).enumerate() {
            scope.spawn(move || {
                let mut comms = [a, b];
                for round in 0..ROUNDS {
                    let [early, late] = &mut comms;
                    let work = |comm: &mut Communicator, pause: u64| {
                        std::thread::sleep(Duration::from_millis(pause));
                        comm.all_reduce_in_place(&mut [1i32], ReduceOp::Sum).unwrap();
                    };
                    // The thread that made the last call of one makes the first of the other, long after its peer.
                    std::thread::scope(|scope| {
                        let late_first = (round + rank as u32).is_multiple_of(2);
                        scope.spawn(move || work(early, if late_first { 120 } else { 0 }));
                        work(late, if late_first { 0 } else { 120 });
                    });
                    // Both ranks swap, so that the other one changes hands now.
                    comms.swap(0, 1);
                }
            });
        }
    });
}

/// Calls without elements, which wait for nobody, differ long before the end and are lost to the journals: the ranks
/// still learn that they do not match when they leave.
#[test]
fn a_difference_that_the_journals_lost_is_told_at_the_end() {
    let comms = Communicator::init_all(3, &config(3)).unwrap();
    let errors = on_threads(comms, |mut comm| {
        match comm.rank() {
            1 => comm.all_reduce_in_place::<f64>(&mut [], ReduceOp::Sum).unwrap(),
            _ => comm.all_reduce_in_place::<f32>(&mut [], ReduceOp::Sum).unwrap(),
        }
        for _ in 0..40 {
            comm.all_reduce_in_place::<f32>(&mut [], ReduceOp::Sum).unwrap();
        }
        comm.all_reduce_in_place(&mut [1.0f32], ReduceOp::Sum).and_then(|()| comm.finalize()).unwrap_err()
    });
    for error in errors {
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("no longer on record"), "{error}");
    }
}

/// Where one thread has several ranks, a rank that is missing is said to be where its thread is, as which rank, and not
/// to be in the operation that it has not called.
#[test]
fn a_missing_rank_of_the_same_thread() {
    let config = Config { timeout: Duration::from_millis(600), ..Config::new(3) };
    let mut comms = Communicator::init_all(3, &config).unwrap();
    let mut sums = [[1f32; 4]; 2];
    let mut group = Group::new();
    for (comm, sum) in comms.iter_mut().zip(&mut sums) {
        group.all_reduce_in_place(comm, sum, ReduceOp::Sum).unwrap();
    }
    let error = group.run().unwrap_err().to_string();
    let missing = error.split("rank 2 has not called operation 1").nth(1);
    assert!(
        missing.is_some_and(|text| text.contains("in operation 1") && text.contains(" as rank ")),
        "{error}"
    );
}
