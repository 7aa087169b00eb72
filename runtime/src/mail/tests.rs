//! Receives that are polled in an order of the test's choice, and tasks that are dropped half-way.

use super::Letter;
use crate::comm::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::executor::Progress;
use crate::group::Group;
use crate::reduce::DType;
use crate::stream::Stream;
use crate::task::{Batch, Task, drive};
use std::time::Duration;

fn ranks(nranks: u32) -> Vec<Communicator> {
    let config = Config { timeout: Duration::from_secs(10), ..Config::new(nranks) };
    Communicator::init_all(nranks, &config).unwrap()
}

/// A receive into a buffer that outlives it, posted.
fn receive(comm: &mut Communicator, buffer: &mut [u8], from: Option<usize>, tag: u32) -> Task {
    let letter = Letter { count: buffer.len(), dtype: DType::U8, tag };
    // SAFETY: each test keeps the buffer until the task is over or dropped.
    let mut task = unsafe { comm.recv_task(buffer.as_mut_ptr(), letter, from) }.unwrap();
    if let Task::Recv(receive) = &mut task {
        assert!(receive.post(None).is_some());
    }
    task
}

fn send(comm: &mut Communicator, buffer: &[u8], to: usize, tag: u32) -> Task {
    let letter = Letter { count: buffer.len(), dtype: DType::U8, tag };
    // SAFETY: as in `receive`.
    unsafe { comm.send_task(buffer.as_ptr(), letter, to) }.unwrap()
}

/// Sends a small message whole: rings have room for it.
fn post(comm: &mut Communicator, value: u8, to: usize, tag: u32) {
    assert_eq!(send(comm, &[value; 3], to, tag).poll().unwrap(), Progress::Done);
}

/// A receive that waits alone takes a small message out of its header, and the books stay empty; where another message
/// comes first, or a large one, it is posted, and gets what is its own.
#[test]
fn small_messages_skip_the_books() {
    let mut comms = ranks(2);
    let mut got = [0u8; 3];
    for value in 0..9 {
        post(&mut comms[1], value, 0, 0);
        assert_eq!(comms[0].recv_tagged(&mut got, Some(1), 0).unwrap(), 1);
        assert_eq!(got, [value; 3]);
        assert_eq!(comms[0].shared.mail.inbox().booked(), (0, 0), "message {value}");
    }
    post(&mut comms[1], 10, 0, 7);
    post(&mut comms[1], 11, 0, 0);
    comms[0].recv(&mut got, 1).unwrap();
    assert_eq!(got, [11; 3]);
    assert_eq!(comms[0].shared.mail.inbox().booked().1, 1, "the other tag's");
    comms[0].recv_tagged(&mut got, Some(1), 7).unwrap();
    assert_eq!(got, [10; 3]);
    let large = vec![12u8; 5000];
    let mut room = vec![0u8; 5000];
    let mut task = send(&mut comms[1], &large, 0, 0);
    assert_eq!(task.poll().unwrap(), Progress::Done);
    comms[0].recv(&mut room, 1).unwrap();
    assert_eq!(room, large);
    assert_eq!(comms[0].shared.mail.inbox().booked().1, 0);
    // What does not fit is an error by either way.
    post(&mut comms[1], 13, 0, 0);
    let error = comms[0].recv(&mut [0u8; 2], 1).unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
}

/// Two messages of one source reach its receives in order, also when a receive from any rank is before them that an
/// early message of another rank is for.
#[test]
fn early_messages_keep_their_order() {
    let mut comms = ranks(3);
    post(&mut comms[1], 10, 0, 0);
    post(&mut comms[1], 19, 0, 9);
    post(&mut comms[2], 20, 0, 0);
    post(&mut comms[2], 29, 0, 9);
    let mut got = [0u8; 3];
    for from in [1, 2] {
        assert_eq!(comms[0].recv_tagged(&mut got, Some(from), 9).unwrap(), from);
    }
    // Both 10 and 20 are in memory now, and 21 is in the ring.
    post(&mut comms[2], 21, 0, 0);
    let mut buffers = [[0u8; 3]; 3];
    let [any, second, third] = &mut buffers;
    let mut tasks = [
        receive(&mut comms[0], any, None, 0),
        receive(&mut comms[0], second, Some(2), 0),
        receive(&mut comms[0], third, Some(2), 0),
    ];
    for at in [2, 1, 0] {
        assert_eq!(tasks[at].poll().unwrap(), Progress::Done);
    }
    drop(tasks);
    assert_eq!(buffers, [[10; 3], [20; 3], [21; 3]]);
}

/// What nobody asks for is kept up to a bound; beyond that the receiver says what came, and the sender hears of it.
#[test]
fn early_messages_are_bounded() {
    let mut comms = ranks(2);
    let large = vec![1u8; 3 << 20];
    let (mut got, mut other) = ([0u8; 3], [0u8; 3]);
    for tag in [1, 2] {
        let mut sent = send(&mut comms[0], &large, 1, tag);
        let mut wanted = receive(&mut comms[1], if tag == 1 { &mut got } else { &mut other }, Some(0), 7);
        let outcome = loop {
            let progress = wanted.poll();
            if progress.is_err() || sent.poll().is_ok_and(|progress| progress == Progress::Done) {
                break progress;
            }
        };
        let Err(error) = outcome else {
            assert_eq!(tag, 1, "6 MiB are kept");
            continue;
        };
        let text = error.to_string();
        assert!(matches!(error, Error::EarlyMessages { rank: 1, from: 0, .. }), "{text}");
        assert!(tag == 2 && text.contains("3145728 x uint8 with tag 2"), "{text}");
        assert!(matches!(sent.poll(), Err(Error::Aborted { by: 1, .. })));
        return;
    }
    panic!("nothing was refused");
}

/// A receive from any rank takes one message and leaves those of other ranks in their rings, where they hold the
/// senders back.
#[test]
fn any_source_reads_one_message() {
    let mut comms = ranks(4);
    for comm in &mut comms[1..] {
        post(comm, 5, 0, 0);
    }
    let mut got = [0u8; 3];
    comms[0].recv_tagged(&mut got, None, 0).unwrap();
    assert!(comms[0].shared.mail.inbox().is_empty());
    for _ in 0..2 {
        comms[0].recv_tagged(&mut got, None, 0).unwrap();
    }
    assert_eq!(got, [5; 3]);
}

/// A message that another receive has claimed, but does not read, keeps nobody from what is behind it; that receive
/// gets it in the end, and not the one that was posted after it.
#[test]
fn a_receive_that_is_not_polled_blocks_nobody() {
    let mut comms = ranks(2);
    for (value, tag) in [(1, 0), (2, 0), (3, 1)] {
        post(&mut comms[1], value, 0, tag);
    }
    let mut buffers = [[0u8; 3]; 3];
    let [first, second, other] = &mut buffers;
    let tasks = vec![receive(&mut comms[0], first, Some(1), 0), receive(&mut comms[0], second, Some(1), 0)];
    drive(vec![receive(&mut comms[0], other, Some(1), 1)]).unwrap();
    drive(tasks).unwrap();
    assert_eq!(buffers, [[1; 3], [2; 3], [3; 3]]);
}

/// A receive that is withdrawn before it was served leaves its message, also one that it had claimed, to the next.
#[test]
fn withdrawn_receives_leave_their_messages() {
    let mut comms = ranks(2);
    let mut buffers = [[0u8; 3]; 3];
    let [first, second, other] = &mut buffers;
    let withdrawn = receive(&mut comms[0], first, Some(1), 0);
    let mut waits = receive(&mut comms[0], other, Some(1), 1);
    post(&mut comms[1], 1, 0, 0);
    // This one reads the header and finds that it is for the first.
    assert_eq!(waits.poll().unwrap(), Progress::Blocked);
    drop(withdrawn);
    assert_eq!(receive(&mut comms[0], second, Some(1), 0).poll().unwrap(), Progress::Done);
    post(&mut comms[1], 2, 0, 1);
    assert_eq!(waits.poll().unwrap(), Progress::Done);
    drop(waits);
    assert_eq!(buffers, [[0; 3], [1; 3], [2; 3]]);
}

/// The work of a rank for `count` messages of each of two others, which repeat so many tags: received in one batch that
/// is polled after every send, or one by one with the last of them first.
fn work(count: u32, tags: u32, in_batch: bool) -> u64 {
    let mut comms = ranks(3);
    let mut buffers = vec![[0u8; 3]; 2 * count as usize];
    let tasks = (0..).zip(&mut buffers).map(|(at, buffer)| {
        let (letter, from) = (Letter { count: 3, dtype: DType::U8, tag: at / 2 % tags }, 1 + at as usize % 2);
        // A tenth takes from whichever of the two.
        let from = (letter.tag % 10 != 0).then_some(from);
        // SAFETY: the buffers outlive the tasks.
        unsafe { comms[0].recv_task(buffer.as_mut_ptr(), letter, from) }.unwrap()
    });
    let mut tasks: Vec<Task> = tasks.collect();
    // Places are taken when a batch is made.
    let mut batch =
        Batch::new(if in_batch { std::mem::take(&mut tasks) } else { tasks.split_off(tasks.len() - 2) });
    for k in 0..count {
        post(&mut comms[1], k as u8, 0, k % tags);
        post(&mut comms[2], k as u8, 0, k % tags);
        batch.poll();
    }
    let rest = tasks.into_iter().rev().map(|task| Batch::new(vec![task]));
    for mut batch in std::iter::once(batch).chain(rest) {
        batch.poll();
        assert!(batch.is_over());
    }
    comms[0].shared.mail.inbox().work()
}

/// What a message costs does not depend on how many others wait or are waited for: four times as many take four times
/// the work, up to a tenth.
#[test]
fn work_grows_with_the_messages_alone() {
    for in_batch in [true, false] {
        let [one, four] = [499, 1996].map(|count| work(count, if in_batch { 49 } else { count }, in_batch));
        assert!(four <= 4 * one + 4 * one / 10, "{one} and {four} looks, in a batch: {in_batch}");
        assert!(one <= 20 * 1000, "{one} looks for 998 messages");
    }
}

/// A receive in a group that is not run yet takes no message: calls that are made before get what comes.
#[test]
fn a_group_takes_its_places_when_it_is_run() {
    let mut comms = ranks(2);
    let [mut grouped, mut called] = [[0u8; 3]; 2];
    let mut group = Group::new();
    group.recv(&mut comms[0], &mut grouped, 1).unwrap();
    group.send(&mut comms[0], &[1u8; 3], 1).unwrap();
    post(&mut comms[1], 5, 0, 0);
    comms[0].recv(&mut called, 1).unwrap();
    // Nor does its send hold up another one.
    comms[0].send(&[2u8; 3], 1).unwrap();
    post(&mut comms[1], 6, 0, 0);
    group.run().unwrap();
    assert_eq!((called, grouped), ([5; 3], [6; 3]));
    for expected in [2, 1] {
        comms[1].recv(&mut called, 0).unwrap();
        assert_eq!(called, [expected; 3]);
    }
}

/// A rank that waits for the task that another rank has dropped half-way is told at once.
fn assert_ended(comm: &mut Communicator) {
    let error = comm.barrier().unwrap_err();
    assert!(matches!(error, Error::Aborted { .. }), "{error}");
}

/// Operations that are dropped half-way end their communicator: the rings hold half of a message then. Those that have
/// not begun end nothing.
#[test]
fn what_is_dropped_half_way_ends_the_communicator() {
    let large = vec![1u8; 8 << 20];
    let mut got = large.clone();

    let mut comms = ranks(2);
    drop(send(&mut comms[0], &large, 1, 0));
    drop(receive(&mut comms[1], &mut got, Some(0), 0));
    let mut sent = send(&mut comms[0], &large, 1, 0);
    assert_eq!(sent.poll().unwrap(), Progress::Advanced);
    assert!(comms[1].async_error().is_none());
    drop(sent);
    assert_ended(&mut comms[1]);

    let mut comms = ranks(2);
    let mut sent = send(&mut comms[0], &large, 1, 0);
    let mut received = receive(&mut comms[1], &mut got, Some(0), 0);
    assert_eq!(sent.poll().unwrap(), Progress::Advanced);
    assert_eq!(received.poll().unwrap(), Progress::Advanced);
    drop(received);
    assert!(sent.poll().is_err());
    assert_ended(&mut comms[0]);

    let mut comms = ranks(2);
    let stream = Stream::new();
    let never = stream.barrier(&mut comms[0]).unwrap();
    let nowhere = std::ptr::dangling_mut::<u64>().cast();
    let buffers = crate::executor::Buffers { input: nowhere, output: nowhere };
    // SAFETY: the call has no elements.
    let mut queued = unsafe { comms[0].task(crate::plan::Call::BARRIER, buffers) }.unwrap();
    assert_eq!(queued.poll().unwrap(), Progress::Blocked);
    drop(queued);
    assert!(comms[1].async_error().is_none());
    comms[1].barrier().unwrap();
    never.wait().unwrap();
    // SAFETY: as above.
    let mut begun = unsafe { comms[0].task(crate::plan::Call::BARRIER, buffers) }.unwrap();
    assert_ne!(begun.poll().unwrap(), Progress::Done);
    drop(begun);
    assert_ended(&mut comms[1]);
}
