//! Streams whose ranks are threads.

use super::*;
use crate::comm::Communicator;
use crate::config::Config;
use crate::reduce::ReduceOp;
// ATOMICS: flags between threads of a test.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Instant;

fn pair() -> [Communicator; 2] {
    Communicator::init_all(2, &Config::new(2)).unwrap().try_into().unwrap()
}

/// A function that panics ends its stream: what is queued behind it says so and ends its communicator, of which the
/// other ranks would run what this one skips; other streams and communicators go on.
#[test]
fn a_panic_ends_the_stream() {
    let [mut one, mut other] = pair();
    let (stream, second) = (Stream::new(), Stream::new());
    stream.call(|| panic!("on purpose")).unwrap();
    let behind = stream.barrier(&mut one).unwrap();
    assert!(matches!(behind.wait(), Err(Error::StreamEnded { .. })));
    let error = second.barrier(&mut other).unwrap().wait().unwrap_err();
    assert!(matches!(error, Error::Aborted { by: 0, .. }), "{error}");
    let [mut one, mut other] = pair();
    let both = [second.barrier(&mut one).unwrap(), Stream::new().barrier(&mut other).unwrap()];
    assert!(both.into_iter().all(|pending| pending.wait().is_ok()));
    assert!(matches!(stream.barrier(&mut one).unwrap().wait(), Err(Error::StreamEnded { .. })));
}

/// A receive that times out although nobody has kept its result is what later calls are told of, on its own rank with
/// all that is known, and on the other one, which was late in nothing that it called.
#[test]
fn a_dropped_receive_is_named() {
    let limit = Duration::from_millis(300);
    let config = Config { timeout: limit, ..Config::new(2) };
    let [mut one, mut other] = Communicator::init_all(2, &config).unwrap().try_into().unwrap();
    drop(Stream::new().recv(&mut one, vec![0u8; 3], 1).unwrap());
    let begun = Instant::now();
    while other.async_error().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the receive has not timed out");
        std::thread::sleep(Duration::from_millis(1));
    }
    let told = other.barrier().unwrap_err().to_string();
    let theirs =
        "rank 0 has ended this communicator after a time-out of its recv from rank 1: rank 1 is in no";
    assert!(told.starts_with(theirs), "{told}");
    let own = "rank 0 has ended this communicator after an error of its own: recv from rank 1 on rank 0 did not finish";
    while !one.barrier().unwrap_err().to_string().starts_with(own) {
        // The stream's thread has ended the communicator and is about to say why.
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", one.barrier().unwrap_err());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// No call in a callback waits for other ranks, also where nothing is queued: collectives, messages and groups are
/// refused by the same text, and communicator and stream go on.
#[test]
fn a_callback_must_not_wait() {
    let [mut one, mut other] = pair();
    let stream = Stream::new();
    let (tell, told) = mpsc::channel();
    stream
        .call(move || {
            let mut got = [0u8; 3];
            let mut group = Group::new();
            group.barrier(&mut one).unwrap();
            let errors = [
                one.barrier(),
                group.run(),
                one.send(&[1u8; 3], 1),
                one.recv(&mut got, 1),
                one.all_to_all_v(&[1u8; 2], &[1, 1], &mut got[..2], &[1, 1]),
                one.duplicate().map(drop),
            ];
            tell.send((one, errors.map(|error| error.unwrap_err().to_string()))).unwrap();
        })
        .unwrap();
    let (mut one, errors) = told.recv_timeout(Duration::from_secs(20)).unwrap();
    for error in errors {
        assert!(
            error.contains("a callback of a stream must not wait for other operations or ranks"),
            "{error}"
        );
    }
    let (barrier, sent) =
        (stream.barrier(&mut one).unwrap(), stream.send(&mut one, vec![1u8; 3], 1).unwrap());
    other.barrier().unwrap();
    other.recv(&mut [0u8; 3], 0).unwrap();
    assert!(barrier.wait().is_ok() && sent.wait().is_ok());
}

/// Two ranks in one stream wait for each other for ever: nothing behind them runs, and an abort ends both.
#[test]
fn two_ranks_in_one_stream() {
    let [mut one, mut other] = pair();
    let stream = Stream::new();
    let both = [stream.barrier(&mut one).unwrap(), stream.barrier(&mut other).unwrap()];
    let both = both.map(|pending| pending.wait_for(Duration::from_millis(20)).unwrap_err());
    one.abort_handle().abort();
    assert!(both.into_iter().all(|pending| pending.wait().is_err()));
}

/// A stream whose operations can go on only by what other threads do is never forgotten: they are begun, left
/// unfinished and completed by others while its own thread goes to sleep, and nobody waits for the results.
#[test]
fn the_driver_sees_what_others_began() {
    let [mut one, mut other] = pair();
    let streams = [Stream::new(), Stream::new()];
    for round in 0..3000 {
        let (tell, told) = mpsc::channel();
        let first = streams[0].all_reduce(&mut one, vec![round; 3], ReduceOp::Sum).unwrap();
        let second = streams[1].all_reduce(&mut other, vec![round; 3], ReduceOp::Sum).unwrap();
        for pending in [first, second] {
            let tell = tell.clone();
            pending.on_done(move |result| tell.send(result.unwrap()[0]).unwrap());
        }
        for _ in 0..2 {
            assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(2 * round), "round {round}");
        }
    }
}

/// Whoever enqueues may hold a lock that callbacks of earlier operations take: those are called elsewhere, by a thread
/// that drives. Who waits may not: the callback is before what is waited for.
#[test]
fn callbacks_run_on_the_drivers_thread() {
    let [mut one, mut other] = pair();
    let streams = [Stream::new(), Stream::new()];
    let lock = std::sync::Arc::new(std::sync::Mutex::new(0u32));
    let own = std::thread::current().id();
    let mut last = None;
    for round in 1..=300 {
        let mut held = lock.lock().unwrap();
        *held += 1;
        let first = streams[0].barrier(&mut one).unwrap();
        let theirs = std::sync::Arc::clone(&lock);
        streams[0]
            .call(move || {
                assert_ne!(std::thread::current().id(), own);
                drop(theirs.lock().unwrap());
            })
            .unwrap();
        let second = streams[1].barrier(&mut other).unwrap();
        drop(held);
        if round % 2 == 0 {
            assert!(second.wait().is_ok());
        } else {
            last = Some((first, second));
        }
    }
    let (first, second) = last.unwrap();
    assert!(first.wait().is_ok() && second.wait().is_ok());
    assert!(streams[0].synchronize(Duration::from_secs(20)).unwrap());
}

/// An operation's time begins with the operation, not with the wait of the thread that drives it: one stream keeps the
/// driver busy for several time-outs without harm to what is queued in between.
#[test]
fn a_busy_driver_times_nothing_out() {
    let config = Config { timeout: Duration::from_millis(400), ..Config::new(2) };
    let mut pairs = [(); 2].map(|()| Communicator::init_all(2, &config).unwrap());
    // The streams of rank 0 always have something under way, whatever drivers they have.
    let streams = [(); 4].map(|()| Stream::new());
    let begun = Instant::now();
    let mut ahead = streams[0].barrier(&mut pairs[0][0]).unwrap();
    for round in 0.. {
        let (now, next) = (round % 2, (round + 1) % 2);
        ahead = ahead.wait_for(Duration::from_millis(100)).unwrap_err();
        let following = streams[2 * next].barrier(&mut pairs[next][0]).unwrap();
        streams[2 * now + 1].barrier(&mut pairs[now][1]).unwrap().wait().unwrap();
        ahead.wait().unwrap();
        ahead = following;
        if begun.elapsed() > 4 * config.timeout {
            streams[2 * next + 1].barrier(&mut pairs[next][1]).unwrap().wait().unwrap();
            return ahead.wait().unwrap();
        }
    }
}

/// What waits for its turn behind a collective in a group that is never run says so at the time-out; at once when the
/// communicator ends. Messages do not wait for those of a group that does not run.
#[test]
fn a_group_that_is_not_run_is_told() {
    let config = Config { timeout: Duration::from_millis(300), ..Config::new(2) };
    for abort in [false, true] {
        let mut comms = Communicator::init_all(2, &config).unwrap();
        let (sent, mut got) = ([1u8; 3], [0u8; 3]);
        let handle = comms[0].abort_handle();
        let mut group = Group::new();
        group.all_reduce(&mut comms[0], &sent, &mut got, ReduceOp::Sum).unwrap();
        group.send(&mut comms[0], &sent, 1).unwrap();
        let stream = Stream::new();
        let queued = [stream.barrier(&mut comms[0]).unwrap()];
        assert!(Stream::new().send(&mut comms[0], vec![1u8], 1).unwrap().wait().is_ok());
        if abort {
            handle.abort();
        }
        let error = comms[0].barrier().unwrap_err().to_string();
        assert!(error.contains(if abort { "abort" } else { "run or drop the group" }), "{error}");
        for pending in queued {
            assert!(pending.wait_for(Duration::from_secs(10)).unwrap().is_err());
        }
        assert!(comms.remove(0).finalize().is_err());
        drop(group);
    }
}

/// Ranks in one thread, each with a stream, reduce many buffers; the results come in order and are right.
#[test]
fn two_ranks_in_one_thread() {
    let [mut one, mut other] = pair();
    let streams = [Stream::new(), Stream::new()];
    let mut pending = Vec::new();
    for round in 0..200i32 {
        let len = [1, 7, 1000, 100_000][round as usize % 4];
        let one = streams[0].all_reduce(&mut one, vec![round; len], ReduceOp::Sum);
        let other = streams[1].all_reduce(&mut other, vec![1000; len], ReduceOp::Sum);
        pending.push((round, len, one.unwrap(), other.unwrap()));
    }
    for (round, len, one, other) in pending {
        assert_eq!(one.wait().unwrap(), vec![round + 1000; len]);
        assert_eq!(other.wait().unwrap(), vec![round + 1000; len]);
    }
}

/// Operations of one communicator keep the order of the calls, whichever stream they are in; a blocking call comes
/// after all of them.
#[test]
fn one_communicator_in_many_streams() {
    let results: Vec<_> = std::thread::scope(|scope| {
        let ranks = pair().map(|mut comm| {
            scope.spawn(move || {
                let streams: Vec<Stream> = (0..5).map(|_| Stream::new()).collect();
                let mut pending = Vec::new();
                for round in 0..100i64 {
                    let stream = &streams[(round * 7 % 5) as usize];
                    pending.push(stream.all_reduce(&mut comm, vec![round; 3], ReduceOp::Sum).unwrap());
                }
                let mut last = [100i64];
                comm.all_reduce_in_place(&mut last, ReduceOp::Sum).unwrap();
                let all = pending.into_iter().map(|pending| pending.wait().unwrap()[0]);
                all.chain(last).collect::<Vec<_>>()
            })
        });
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let expected: Vec<i64> = (0..=100).map(|round| 2 * round).collect();
    assert_eq!(results, [expected.clone(), expected]);
}

/// An event holds another stream back, callbacks get results, and a stream that is blocked keeps no other from running.
#[test]
fn events_and_callbacks() {
    let [mut one, mut other] = pair();
    let (first, second, third) = (Stream::new(), Stream::new(), Stream::new());
    let blocked = first.all_reduce(&mut one, vec![1i32], ReduceOp::Sum).unwrap();
    let event = first.record().unwrap();
    let (tell, told) = mpsc::channel();
    second.wait_for(&event).unwrap();
    let ran = tell.clone();
    second.call(move || ran.send("second").unwrap()).unwrap();
    let ran = tell.clone();
    third.call(move || ran.send("third").unwrap()).unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok("third"));
    assert!(!event.wait(Duration::from_millis(1)) && !blocked.is_done());
    blocked.on_done(move |result| {
        assert_eq!(result.unwrap(), [3]);
        tell.send("done").unwrap();
    });
    let theirs = third.all_reduce(&mut other, vec![2i32], ReduceOp::Sum).unwrap();
    assert_eq!(theirs.wait().unwrap(), [3]);
    assert!(event.wait(Duration::from_secs(10)));
    let mut said = [(); 2].map(|()| told.recv_timeout(Duration::from_secs(10)).unwrap());
    said.sort_unstable();
    assert_eq!(said, ["done", "second"]);
    assert!(second.synchronize(Duration::from_secs(10)).unwrap());
}

/// A callback that waits for a stream is told that it must not.
#[test]
fn callbacks_must_not_wait() {
    let [mut one, _other] = pair();
    let stream = Stream::new();
    let never = stream.barrier(&mut one).unwrap();
    let (tell, told) = mpsc::channel();
    let second = Stream::new();
    second.call(move || tell.send(never.wait()).unwrap()).unwrap();
    let answer = told.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(answer, Err(Error::StreamEnded { .. })), "{answer:?}");
    one.abort_handle().abort();
}

/// What is queued runs also if some thread looks whether there is work just when the stream's thread goes to sleep: the
/// look is none that would do the work.
#[test]
fn a_look_keeps_no_work_from_running() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // ATOMICS: ends a thread of the test.
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                any_work();
            }
        });
        let stream = Stream::new();
        let (tell, told) = mpsc::channel();
        let mut in_time = true;
        for _ in 0..30_000 {
            let tell = tell.clone();
            stream.call(move || tell.send(()).unwrap()).unwrap();
            // A callback is for the stream's thread alone, and nobody helps it here.
            in_time &= told.recv_timeout(Duration::from_secs(10)).is_ok();
            if !in_time {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        assert!(in_time, "a call was not made within 10 s");
    });
}
