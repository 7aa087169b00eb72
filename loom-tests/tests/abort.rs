//! Does an abort reach a rank that is asleep, with all that was said about it?
#![cfg(loom)]

use loom_tests::{Bells, Plain, SHAPE, both, check, try_receive};
use shmring::layout::SegmentHeader;
use shmring::{Protocol, heap_ring};
use std::sync::Arc;

/// What a rank waits in: the header, its bell, and words about the abort that are not atomic.
struct Job {
    header: SegmentHeader,
    bells: Bells<1>,
    about: [Plain; 2],
}

impl Job {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            header: SegmentHeader::new(),
            bells: Bells::new(),
            about: [Plain::new(), Plain::new()],
        })
    }

    fn check_running(&self) -> Result<(), u64> {
        match self.header.aborted() {
            0 => Ok(()),
            reason => Err(reason),
        }
    }
}

/// A receiver of a message that never comes is woken by an abort and sees its reason and what belongs to it.
#[test]
fn wakes_a_parked_rank() {
    check(|| {
        let job = Job::new();
        let theirs = Arc::clone(&job);
        let (_sender, mut receivers) = heap_ring(SHAPE).unwrap();
        both(
            move || {
                theirs.about[0].set(40);
                assert_eq!(theirs.header.abort(7), 7);
                theirs.bells.bells[0].ring_always();
            },
            || {
                let mut buffer = [0; 5];
                let outcome: Result<(), u64> = job.bells.wait(0, || {
                    job.check_running()?;
                    Ok(try_receive(&mut receivers[0], Protocol::Simple, &mut buffer))
                });
                assert_eq!((outcome, job.about[0].get()), (Err(7), 40));
            },
        );
    });
}

/// Of two ranks that abort at once one wins, and the other sees what the winner wrote about it.
#[test]
fn first_reason_holds() {
    check(|| {
        let job = Job::new();
        let theirs = Arc::clone(&job);
        let abort = |job: &Job, me: u64| {
            job.about[me as usize].set(40 + me);
            let holds = job.header.abort(1 + me);
            assert!(holds == 1 || holds == 2, "{holds}");
            assert_eq!(job.about[holds as usize - 1].get(), 40 + holds - 1);
            assert_eq!(job.header.aborted(), holds);
        };
        both(move || abort(&theirs, 0), || abort(&job, 1));
    });
}
