//! Streams whose ranks are threads.

use super::*;
use crate::config::Config;
use std::sync::mpsc;

fn pair() -> [Communicator; 2] {
    Communicator::init_all(2, &Config::new(2)).unwrap().try_into().unwrap()
}

/// A function that panics ends its stream: what is queued behind it says so, and other streams go on.
#[test]
fn a_panic_ends_the_stream() {
    let [mut one, mut other] = pair();
    let (stream, second) = (Stream::new(), Stream::new());
    stream.call(|| panic!("on purpose")).unwrap();
    let behind = stream.barrier(&mut one).unwrap();
    assert!(matches!(behind.wait(), Err(Error::StreamEnded { .. })));
    let both = [second.barrier(&mut one).unwrap(), second.barrier(&mut other).unwrap()];
    // Both are in one stream, so the first waits for the second for ever: only streams of their own help.
    assert!(both.into_iter().all(|pending| pending.wait_for(Duration::from_millis(20)).is_err()));
    one.abort_handle().abort();
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
