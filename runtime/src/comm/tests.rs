//! Communicators whose ranks are threads.

use super::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::executor::{Buffers, Progress};
use crate::mail::Letter;
use crate::plan::Call;
use crate::reduce::{DType, ReduceOp};
use crate::task::Task;

fn pair() -> [Communicator; 2] {
    Communicator::init_all(2, &Config::new(2)).unwrap().try_into().unwrap()
}

fn barrier(comm: &mut Communicator) -> Task {
    let nowhere = std::ptr::dangling_mut::<u64>().cast();
    // SAFETY: the call has no elements.
    unsafe { comm.task(Call::BARRIER, Buffers { input: nowhere, output: nowhere }) }.unwrap()
}

/// A rank that has done its part and ends the communicator takes nothing away from those that have all their data: what
/// they had begun succeeds, as a task or in a call; what they have not, and what comes later, fails.
#[test]
fn an_end_after_success_takes_nothing_away() {
    let [mut one, mut other] = pair();
    let mut got = [[0u8; 3]; 2];
    let [first, second] = &mut got;
    let mut receive = |buffer: &mut [u8; 3]| {
        let letter = Letter { count: 3, dtype: DType::U8, tag: 0 };
        // SAFETY: the buffers outlive the tasks.
        unsafe { one.recv_task(buffer.as_mut_ptr(), letter, Some(1)) }.unwrap()
    };
    let mut messages = [receive(first), receive(second)];
    let [mut begun, mut queued] = [(); 2].map(|()| barrier(&mut one));
    assert_ne!(begun.poll().unwrap(), Progress::Done);
    for message in &mut messages {
        assert_eq!(message.poll().unwrap(), Progress::Blocked);
    }
    other.send(&[7u8; 3], 0).unwrap();
    other.barrier().unwrap();
    other.abort_handle().abort();
    assert_eq!(begun.poll().unwrap(), Progress::Done);
    assert_eq!(messages[0].poll().unwrap(), Progress::Done);
    for task in [&mut messages[1], &mut queued] {
        assert!(matches!(task.poll(), Err(Error::Aborted { by: 1, .. })));
    }
    drop((messages, begun, queued));
    assert_eq!(got, [[7; 3], [0; 3]]);
    assert!(one.barrier().is_err() && one.recv(&mut [0u8; 3], 1).is_err());
}

/// The same for calls that wait in their own thread, at whatever moment the end comes.
#[test]
fn a_call_with_all_its_data_succeeds() {
    for round in 0..300 {
        let [mut one, mut other] = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                other.barrier().unwrap();
                other.abort_handle().abort();
            });
            one.barrier().unwrap_or_else(|error| panic!("round {round}: {error}"));
        });
    }
}

/// A rank that fails by itself tells its own error; the others are told who it was and to look there.
#[test]
fn an_error_of_one_rank_ends_all() {
    let comms = Communicator::init_all(3, &Config::new(3)).unwrap();
    let _role = comms[1].shared.segment.fan_sender(0).unwrap();
    std::thread::scope(|scope| {
        for mut comm in comms {
            scope.spawn(move || {
                let error = comm.all_reduce_in_place(&mut [1.0f32], ReduceOp::Sum).unwrap_err();
                match comm.rank() {
                    1 => {
                        let cause = shmring::Error::RoleTaken { role: "sender" };
                        assert_eq!(error.to_string(), format!("rank 1: {cause}"));
                    }
                    _ => {
                        assert!(matches!(error, Error::Aborted { by: 1, .. }), "{error}");
                        assert!(
                            error.to_string().contains("an error of its own, see its message"),
                            "{error}"
                        );
                    }
                }
            });
        }
    });
}
