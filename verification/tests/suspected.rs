//! What the texts of time-outs suspect: communicators used, or made and used, in different orders.

mod common;

use common::worker;
use verification::testkit::{Ended, Job, Meet, ShmDir};

/// A limit that is to pass, and one that is not, in milliseconds.
const SHORT: u32 = 1500;
const LONG: u32 = 50_000;

/// The errors of class `Timeout`, of which there is at least one.
fn timeouts(ended: &[Ended]) -> Vec<&str> {
    let failures = ended.iter().map(Ended::failure);
    let texts: Vec<&str> =
        failures.filter(|(class, ..)| *class == "Timeout").map(|(_, text, _)| text).collect();
    assert!(!texts.is_empty(), "{ended:?}");
    texts
}

/// Each process has a second thread, which might come with the missing call: nothing is said before the time-out, on
/// whichever rank it passes first, and then both waits are told as a suspicion.
#[test]
fn orders_with_more_threads_than_one() {
    for nranks in [2, 3] {
        for first in 0..nranks {
            let shm = ShmDir::new();
            let args = ["threaded-calls", "--calls", "barrier 2:barrier", "--odd-calls", "2:barrier barrier"];
            let job = Job::new(worker(), Meet::launcher(), nranks, &args, &shm)
                .with("RINGCCL_TIMEOUT_MS", LONG)
                .with_rank(first, "RINGCCL_TIMEOUT_MS", SHORT);
            for text in timeouts(&job.start_all().finish_all()) {
                assert!(
                    text.contains("; suspected: communicators used in different orders: rank "),
                    "{text}"
                );
                for communicator in [1, 2] {
                    let told = format!("is in operation 2 of communicator {communicator}");
                    assert!(text.contains(&told), "{nranks}: {text}");
                }
            }
            shm.assert_empty();
        }
    }
}

/// A rank that is merely late is not suspected of anything.
#[test]
fn a_late_rank_is_no_suspicion() {
    let shm = ShmDir::new();
    let args = ["late", "--late-ms", "20000"];
    let mut job =
        Job::new(worker(), Meet::launcher(), 2, &args, &shm).with("RINGCCL_TIMEOUT_MS", SHORT).start_all();
    let ended = [job.finish(0)];
    let texts = timeouts(&ended);
    assert!(
        texts[0].contains("rank 1 has not called operation 2") && !texts[0].contains("suspected"),
        "{texts:?}"
    );
    drop(job);
    shm.assert_empty();
}

/// Rank 1 makes a second communicator while the others use the first: the operation's time-out names what it makes.
#[test]
fn the_operation_names_the_communicator_that_is_made() {
    for nranks in [2, 3] {
        let shm = ShmDir::new();
        let mut job = Job::new(worker(), Meet::launcher(), nranks, &["remake"], &shm)
            .with("RINGCCL_TIMEOUT_MS", SHORT)
            .with("RINGCCL_JOIN_TIMEOUT_MS", LONG)
            .start_all();
        let others: Vec<Ended> = (0..nranks).filter(|rank| *rank != 1).map(|rank| job.finish(rank)).collect();
        for text in timeouts(&others) {
            let suspected = "; suspected: communicators made and used in different orders: rank 1 is making its \
                             communicator 2 and waits for the other ranks to make it, while this one is used: \
                             communicator 1";
            assert!(text.starts_with("operation 2 on rank ") && text.contains(suspected), "{text}");
        }
        drop(job);
        shm.assert_empty();
    }
}

/// The same with the other limit first: the time-out of joining names the operation that waits for this rank, with a
/// coordinator and where rank 0 would have to host the second rendezvous.
#[test]
fn joining_names_the_operation_that_waits() {
    for nranks in [2, 3] {
        for meet in [Meet::launcher(), Meet::port()] {
            let shm = ShmDir::new();
            let mut job = Job::new(worker(), meet, nranks, &["remake"], &shm)
                .with("RINGCCL_JOIN_TIMEOUT_MS", 2 * SHORT)
                .with("RINGCCL_TIMEOUT_MS", LONG)
                .start_all();
            let ended = [job.finish(1)];
            for text in timeouts(&ended) {
                let suspected = "; suspected: communicators made and used in different orders: this rank is making \
                                 its communicator 2, and rank ";
                assert!(text.starts_with("joining on rank 1 ") && text.contains(suspected), "{text}");
                assert!(text.contains(" waits for it in operation 2 of communicator 1; "), "{text}");
            }
            drop(job);
            shm.assert_empty();
        }
    }
}
