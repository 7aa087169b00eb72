//! Put, signal and wait: what is put is there once the signal is, and a wait that cannot end says why.

mod common;

use common::with_ranks;
use ringccl::{Communicator, Config, Error, SharedMemory};
use std::time::Duration;

#[test]
fn what_was_put_is_there_after_the_signal() {
    // Proves the order of puts and signals over 2,000 rounds of a ring of 3 ranks, in slots that are used again.
    const SLOTS: usize = 4;
    with_ranks(3, &Config::new(3), |mut comm| {
        let (rank, n) = (comm.rank(), comm.nranks());
        let (next, before) = ((rank + 1) % n, (rank + n - 1) % n);
        let memory = SharedMemory::new(SLOTS * 1000 * 8).unwrap();
        let window = comm.register(&memory).unwrap();
        for round in 0..2000usize {
            if round >= SLOTS {
                comm.wait_signal(next, 1).unwrap(); // the slot is free again
            }
            let data: Vec<u64> = (0..1000).map(|i| (round * 1_000_000 + rank * 10_000 + i) as u64).collect();
            let at = round % SLOTS * 1000;
            // SAFETY: the next rank looks at the slot between our signal and its own, see below.
            unsafe { comm.put(&data, &window, next, at).unwrap() };
            comm.signal(next).unwrap();
            comm.wait_signal(before, 1).unwrap();
            let got = &memory.as_slice::<u64>()[at..][..1000];
            for (i, x) in got.iter().enumerate() {
                assert_eq!(*x as usize, round * 1_000_000 + before * 10_000 + i, "round {round}");
            }
            comm.signal(before).unwrap();
        }
        for _ in 0..SLOTS {
            comm.wait_signal(next, 1).unwrap();
        }
        comm.deregister(window).unwrap();
        comm.finalize().unwrap();
    });
}

#[test]
fn signals_are_counted() {
    // Proves that several signals can be waited for at once, that early ones wait for the wait, and that a rank can
    // tell itself.
    with_ranks(2, &Config::new(2), |mut comm| {
        let other = 1 - comm.rank();
        for _ in 0..1000 {
            comm.signal(other).unwrap();
        }
        comm.signal(comm.rank()).unwrap();
        comm.wait_signal(comm.rank(), 1).unwrap();
        comm.wait_signal(other, 400).unwrap();
        comm.wait_signal(other, 600).unwrap();
        comm.wait_signal(other, 0).unwrap();
        comm.finalize().unwrap();
    });
}

#[test]
fn a_put_that_does_not_fit_is_refused() {
    // Proves that no put reaches beyond the other rank's memory, and that windows know their communicator.
    with_ranks(2, &Config::new(2), |mut comm| {
        let memory = SharedMemory::new(800 * (1 + comm.rank())).unwrap();
        let window = comm.register(&memory).unwrap();
        let mut twin = comm.duplicate().unwrap();
        assert_eq!((window.len_of(0), window.len_of(1)), (800, 1600));
        let data = [0u64; 10];
        let refused = |comm: &mut Communicator, to, at| {
            // SAFETY: a refused put touches nothing.
            let error = unsafe { comm.put(&data, &window, to, at) }.unwrap_err();
            assert!(matches!(error, Error::Argument { call: "put", .. }), "{error}");
        };
        refused(&mut comm, 0, 91);
        refused(&mut comm, 1, 191);
        refused(&mut comm, 1, usize::MAX);
        refused(&mut comm, 2, 0);
        refused(&mut twin, 0, 0);
        comm.barrier().unwrap();
        let error = twin.deregister(window).unwrap_err();
        assert!(matches!(error, Error::Argument { call: "deregister", .. }), "{error}");
        comm.finalize().unwrap();
    });
}

#[test]
fn a_signal_that_does_not_come_is_told() {
    // Proves that a wait ends with the time-out, naming the rank, and at once when that rank leaves; and that what was
    // signalled before is still received then.
    let config = Config { timeout: Duration::from_millis(300), ..Config::new(2) };
    let errors = with_ranks(2, &config, |mut comm| {
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(600));
            return None;
        }
        Some(comm.wait_signal(1, 1).unwrap_err().to_string())
    });
    let error = errors[0].as_ref().unwrap();
    assert!(error.contains("wait_signal for rank 1 on rank 0 did not finish within 300ms"), "{error}");

    let errors = with_ranks(2, &Config::new(2), |mut comm| {
        if comm.rank() == 1 {
            comm.signal(0).unwrap();
            return None;
        }
        comm.wait_signal(1, 1).unwrap();
        Some(comm.wait_signal(1, 1).unwrap_err())
    });
    assert!(matches!(errors[0], Some(Error::PeerGone { dead: 1, .. })), "{errors:?}");
}

#[test]
fn signals_that_wait_for_each_other_are_a_deadlock() {
    // Proves that two waits for signals, and one for a signal of a rank that waits in a barrier, are told at once, with
    // what each waits in; and that a rank that still runs is not taken for one that waits.
    for other_waits_in_barrier in [false, true] {
        let errors = with_ranks(2, &Config::new(2), |mut comm| {
            let started = std::time::Instant::now();
            let rank = comm.rank();
            let outcome = if rank == 1 && other_waits_in_barrier {
                comm.barrier()
            } else {
                comm.wait_signal(1 - rank, 1)
            };
            assert!(started.elapsed() < Duration::from_secs(20), "only the time-out has told it");
            outcome.unwrap_err()
        });
        for error in errors {
            let text = error.to_string();
            assert!(matches!(error, Error::Deadlock { .. }), "{text}");
            assert!(text.contains("rank 0 is in wait_signal for rank 1"), "{text}");
        }
    }
    with_ranks(2, &Config::new(2), |mut comm| {
        if comm.rank() == 1 {
            std::thread::sleep(Duration::from_millis(700));
            comm.signal(0).unwrap();
        } else {
            comm.wait_signal(1, 1).unwrap();
        }
        comm.finalize().unwrap();
    });
}

#[test]
fn taking_back_different_windows_is_refused() {
    // Proves that windows are compared when they are taken back, that nothing happens to them then, and that memory
    // without a byte has none.
    with_ranks(2, &Config::new(2), |mut comm| {
        let memory = [SharedMemory::new(4096).unwrap(), SharedMemory::new(0).unwrap()];
        let [first, second] = memory.each_ref().map(|memory| comm.register(memory).unwrap());
        assert_eq!((first.len_of(1), second.len_of(1)), (4096, 0));
        let mine = if comm.rank() == 0 { first } else { second };
        let error = comm.deregister(mine).unwrap_err();
        assert!(error.to_string().contains("different windows back: "), "{error}");
        comm.finalize().unwrap();
    });
}

#[test]
fn memory_that_its_owner_frees_stays_for_those_who_read_it() {
    // Proves that freed and registered memory can still be used by collectives of the others' buffers.
    with_ranks(3, &Config::new(3), |mut comm| {
        let memory = SharedMemory::new(1 << 20).unwrap();
        let window = comm.register(&memory).unwrap();
        drop(memory);
        let data = [7u64; 4];
        // SAFETY: nobody looks at that memory any more.
        unsafe { comm.put(&data, &window, (comm.rank() + 1) % 3, 0).unwrap() };
        let mut sum = vec![1u32; 100_000];
        comm.all_reduce_in_place(&mut sum, ringccl::ReduceOp::Sum).unwrap();
        assert!(sum.iter().all(|x| *x == 3));
        comm.finalize().unwrap();
    });
}
