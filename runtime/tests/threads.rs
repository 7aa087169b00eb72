//! Ranks of one process: communicators over memory that no other process has, and ending them from outside.

use ringccl::{Communicator, Config, Error, ReduceOp};
use std::time::{Duration, Instant};

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
        let comms = Communicator::init_all(nranks, &Config::new(nranks)).unwrap();
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
    let comms = Communicator::init_all(4, &Config::new(4)).unwrap();
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
