//! Communicators made from communicators whose ranks are threads: split, shrink, grow, revoke, and joining behind the
//! caller's back.

use ringccl::comm::{Root, Shrink};
use ringccl::{Communicator, Config, Error, ReduceOp};
use std::time::{Duration, Instant};

/// Time-outs that a mistake does not make the test wait for long.
fn config(nranks: u32) -> Config {
    let (join_timeout, timeout) = (Duration::from_secs(20), Duration::from_secs(20));
    Config { join_timeout, timeout, ..Config::new(nranks) }
}

/// Runs each communicator on a thread of its own; results in rank order.
fn on_threads<T: Send>(comms: Vec<Communicator>, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || body(comm))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The sum over a communicator of what each rank gives.
fn sum(comm: &mut Communicator, mine: i64) -> i64 {
    let mut values = [mine];
    comm.all_reduce_in_place(&mut values, ReduceOp::Sum).unwrap();
    values[0]
}

/// Colours make groups, keys order them, ranks without a colour are in none, and all communicators are usable at once.
#[test]
fn colours_make_groups_and_keys_order_them() {
    on_threads(Communicator::init_all(7, &config(7)).unwrap(), |mut world| {
        let rank = world.rank();
        let colour = (rank < 6).then_some(rank as u32 % 2);
        // Reversed, but for ranks 2 and 4, which tie.
        let key = if rank == 2 { -4 } else { -(rank as i32) };
        let child = world.split(colour, key).unwrap();
        assert_eq!(child.is_none(), rank == 6);
        assert_eq!(sum(&mut world, 1), 7);
        for round in 0..20 {
            assert_eq!(sum(&mut world, round), 7 * round);
        }
        if let Some(mut child) = child {
            let order: &[usize] = if rank % 2 == 0 { &[2, 4, 0] } else { &[5, 3, 1] };
            assert_eq!((child.nranks(), order[child.rank()]), (3, rank));
            for round in 0..20 {
                assert_eq!(sum(&mut child, round), 3 * round);
            }
            child.finalize().unwrap();
        }
        assert_eq!(sum(&mut world, 1), 7);
        world.finalize().unwrap();
    });
}

/// A duplicate has the same ranks and counts its own operations; children have children; one rank alone is a group.
#[test]
fn children_have_children() {
    on_threads(Communicator::init_all(4, &config(4)).unwrap(), |mut world| {
        let rank = world.rank();
        let mut twin = world.duplicate().unwrap();
        assert_eq!((twin.rank(), twin.nranks(), twin.seqno()), (rank, 4, 0));
        let mut half = twin.split(Some(rank as u32 / 2), 0).unwrap().unwrap();
        let mut alone = half.split(Some(rank as u32), 0).unwrap().unwrap();
        assert_eq!((half.nranks(), alone.nranks(), alone.rank()), (2, 1, 0));
        assert_eq!(sum(&mut alone, 5), 5);
        assert_eq!(sum(&mut half, 1 << rank), if rank < 2 { 3 } else { 12 });
        drop(world);
        assert_eq!(sum(&mut twin, 1), 4);
        for comm in [alone, half, twin] {
            comm.finalize().unwrap();
        }
    });
}

/// A wrong list is refused where it is passed; different lists are told on every survivor at once, by rank; the right
/// list works afterwards, in any order, also where one rank has called with it once more than the others.
#[test]
fn shrink_compares_the_lists() {
    let begun = Instant::now();
    let told = std::sync::Barrier::new(4);
    on_threads(Communicator::init_all(5, &config(5)).unwrap(), |mut world| {
        let rank = world.rank();
        for bad in [vec![rank], vec![5], vec![(rank + 1) % 5, (rank + 1) % 5]] {
            let error = world.shrink(&bad, Shrink::Keep).unwrap_err();
            assert!(matches!(error, Error::Argument { .. }), "{error}");
        }
        if rank == 4 {
            return;
        }
        let other: &[usize] = if rank == 1 { &[4, 3] } else { &[4] };
        let error = world.shrink(other, Shrink::Keep).unwrap_err();
        let other = match error {
            Error::Disagreement { other, .. } | Error::GivenUp { other, .. } => other as usize,
            other => panic!("{other}"),
        };
        assert!(other != rank && other < 4, "{error}");
        told.wait();
        if rank == 3 {
            return;
        }
        let list: &[usize] = if rank == 0 { &[3, 4] } else { &[4, 3] };
        let mut child = loop {
            match world.shrink(list, Shrink::Keep) {
                // Another survivor has not called again yet: its last word is of the first call.
                Err(Error::GivenUp { .. } | Error::Disagreement { .. })
                    if begun.elapsed() < Duration::from_secs(10) => {}
                made => break made.unwrap(),
            }
        };
        assert_eq!((child.rank(), child.nranks()), (rank, 3));
        assert_eq!(sum(&mut child, 1), 3);
        child.finalize().unwrap();
    });
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// Grown by threads: the same rendezvous as for processes, every rank keeps its number; sizes that differ, and no id or
/// two, are told to all, and the communicator goes on.
#[test]
fn grow_takes_newcomers() {
    let comms = Communicator::init_all(2, &config(2)).unwrap();
    let (to_newcomers, ids) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        for mut comm in comms {
            let to_newcomers = to_newcomers.clone();
            scope.spawn(move || {
                let rank = comm.rank();
                let error = comm.grow(3).unwrap_err().to_string();
                assert!(error.contains("ranks [] have made an id"), "{error}");
                if rank == 1 {
                    to_newcomers.send(comm.growth_id().unwrap()).unwrap();
                    assert!(matches!(comm.growth_id(), Err(Error::Argument { .. })));
                }
                let error = comm.grow(3 + rank).unwrap_err().to_string();
                assert!(error.contains("ranks, rank "), "{error}");
                let error = comm.grow(2).unwrap_err().to_string();
                assert!(error.contains("are not more than the 2"), "{error}");
                let mut grown = comm.grow(3).unwrap();
                assert_eq!((grown.rank(), grown.nranks()), (rank, 3));
                assert_eq!(sum(&mut grown, 1), 3);
                assert_eq!(sum(&mut comm, 1), 2);
                comm.finalize().unwrap();
                grown.finalize().unwrap();
            });
        }
        scope.spawn(move || {
            let id = ids.recv().unwrap();
            let mut grown = Communicator::init(&id, 2, 3, config(3)).unwrap();
            assert_eq!(sum(&mut grown, 1), 3);
            grown.finalize().unwrap();
        });
    });
}

/// A revoke by a handle ends the waits of all ranks by an error of its own class; the communicator can be shrunk and
/// left, not split.
#[test]
fn a_revoked_communicator_can_be_shrunk_and_left() {
    let comms = Communicator::init_all(3, &config(3)).unwrap();
    let handle = comms[1].abort_handle();
    std::thread::scope(|scope| {
        for mut comm in comms {
            scope.spawn(move || {
                for _ in 0..2 {
                    let error = loop {
                        if let Err(error) = comm.barrier() {
                            break error;
                        }
                    };
                    assert!(matches!(error, Error::Revoked { by: 1, .. }), "{error}");
                    assert_eq!(error.class(), ringccl::ErrorClass::InvalidUsage);
                }
                assert!(matches!(comm.split(Some(0), 0), Err(Error::Revoked { .. })));
                let mut child = comm.shrink(&[], Shrink::Keep).unwrap();
                comm.finalize().unwrap();
                assert_eq!(sum(&mut child, 1), 3);
                child.finalize().unwrap();
            });
        }
        scope.spawn(move || handle.revoke());
    });
}

/// A join behind the caller's back is polled until it is there, gives its result once, and leaves no thread.
#[test]
fn joins_can_be_polled() {
    let root = Root::new().unwrap();
    let mut joins: Vec<_> = (0..3)
        .map(|rank| Communicator::init_nonblocking(&root.unique_id(), rank, 3, config(3)).unwrap())
        .collect();
    let first = loop {
        if let Some(comm) = joins[0].poll() {
            break comm.unwrap();
        }
        std::thread::yield_now();
    };
    assert!(joins[0].poll().is_none() && joins[0].wait(Duration::ZERO).is_none());
    let mut comms = vec![first];
    for join in &mut joins[1..] {
        comms.push(join.wait(Duration::from_secs(20)).unwrap().unwrap());
    }
    drop(joins);
    on_threads(comms, |mut comm| {
        assert_eq!(sum(&mut comm, 1), 3);
        comm.finalize().unwrap();
    });
}

/// A join that waits for others ends soon when it is cancelled or dropped, and the others are told.
#[test]
fn joins_can_be_cancelled() {
    let root = Root::new().unwrap();
    let id = root.unique_id();
    let begin = |rank| Communicator::init_nonblocking(&id, rank, 3, config(3)).unwrap();
    let (mut first, second) = (begin(0), begin(1));
    assert!(first.wait(Duration::from_millis(50)).is_none());
    let begun = Instant::now();
    drop(second);
    let error = first.wait(Duration::from_secs(20)).unwrap().unwrap_err().to_string();
    assert!(error.contains("rank 1"), "{error}");
    let mut third = begin(2);
    third.cancel();
    let error = third.wait(Duration::from_secs(20)).unwrap().unwrap_err();
    assert!(matches!(error, Error::Cancelled { rank: 2 }), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Communicators of threads leave nothing behind, also where some ranks do not come.
#[test]
fn threads_make_many() {
    on_threads(Communicator::init_all(4, &config(4)).unwrap(), |mut world| {
        for round in 0..200 {
            let colour = (round % 3 != world.rank() % 3).then_some(round as u32);
            if let Some(mut child) = world.split(colour, 0).unwrap() {
                let n = child.nranks() as i64;
                assert_eq!(sum(&mut child, 1), n);
            }
        }
        world.finalize().unwrap();
    });
}

/// A child writes no report unless it is given a path of its own; settings that differ are told on every rank and the
/// parent goes on.
#[test]
fn settings_are_inherited_or_given() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| Some(dir.path().join(name));
    let world = Config { report: path("world.json"), ..config(3) };
    on_threads(Communicator::init_all(3, &world).unwrap(), |mut world| {
        let rank = world.rank();
        let channels = if rank == 1 { 2 } else { 1 };
        let odd = Config { channels, ..config(3) };
        let error = world.split_with(Some(0), 0, Some(&odd)).unwrap_err();
        assert!(matches!(error, Error::Argument { .. } | Error::GivenUp { .. }), "{error}");
        let inherited = world.duplicate().unwrap();
        inherited.finalize().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        world.barrier().unwrap();
        let own = Config { report: path("child.json"), ..config(3) };
        let mut child = world.split_with(Some(0), 0, Some(&own)).unwrap().unwrap();
        assert_eq!(sum(&mut child, 1), 3);
        child.finalize().unwrap();
        world.finalize().unwrap();
    });
    for name in ["child.json", "world.json"] {
        let text = std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(text.contains("\"world_size\": 3"), "{name}: {text}");
    }
}

/// Ranks that have all come have met, whatever one of them does next: a communicator that is revoked at once is made on
/// every rank, and says so there.
#[test]
fn revoking_at_once_is_no_failure_to_meet() {
    on_threads(Communicator::init_all(3, &config(3)).unwrap(), |mut world| {
        for _ in 0..100 {
            let mut twin = world.duplicate().unwrap();
            if world.rank() == 0 {
                twin.revoke();
            }
            let error = twin.barrier().unwrap_err();
            assert!(matches!(error, Error::Revoked { by: 0, .. }), "{error}");
        }
    });
}
