//! Communicators made from communicators, in processes: split, shrink after deaths and stops, grow, revoke, many.

mod common;

use common::worker;
use nix::sys::signal::Signal;
use std::process::Stdio;
use verification::report::Event;
use verification::testkit::{Ended, Job, Meet, Rank, ShmDir};

fn job(nranks: u32, args: &[&str], shm: &ShmDir) -> Job {
    Job::new(worker(), Meet::launcher(), nranks, args, shm)
}

/// Two halves in reversed order, all but one rank, quarters of the halves and a twin, used in turn with their parent
/// and left in any order.
#[test]
fn children_are_used_with_their_parent() {
    let shm = ShmDir::new();
    for ended in job(8, &["split"], &shm).start_all().finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// All survivors of rank 1 have gone on in a communicator of their own; the rank itself ended by `signal`, or says that
/// the communicator has ended.
fn assert_survived(all: Vec<Ended>, killed: bool) {
    for (rank, ended) in all.into_iter().enumerate() {
        match rank {
            1 if killed => assert_eq!(ended.code, None, "{ended:?}"),
            1 => assert_eq!(ended.failure().0, "Remote", "{ended:?}"),
            _ => ended.assert_done_after_suspicion(),
        }
    }
}

/// A rank is killed in the middle of a loop: the others shrink the communicator that has ended and go on without it.
#[test]
fn survivors_of_a_killed_rank_shrink() {
    for (nranks, bytes) in [(4, "8"), (8, "4194304")] {
        let shm = ShmDir::new();
        let mut job = job(nranks, &["shrink", "--bytes", bytes], &shm).start_all();
        job.wait_running();
        job.rank(1).signal(Signal::SIGKILL);
        assert_survived(job.finish_all(), true);
        shm.assert_empty();
    }
}

/// A rank is stopped: the others shrink after their time-out and use what they have made while it wakes up in the old
/// communicator and writes to that.
#[test]
fn survivors_of_a_stopped_rank_shrink() {
    for bytes in ["8", "8388608"] {
        let shm = ShmDir::new();
        let job = job(4, &["shrink", "--bytes", bytes], &shm).with("RINGCCL_TIMEOUT_MS", 3000);
        let mut job = job.start_all();
        job.wait_running();
        job.rank(1).signal(Signal::SIGSTOP);
        for (rank, new) in [(0, 0), (2, 1), (3, 2)] {
            let made = Event::Made { new_rank: new, nranks: 3 };
            job.rank(rank).wait_for("the smaller communicator", |event| *event == made);
        }
        job.rank(1).signal(Signal::SIGCONT);
        assert_survived(job.finish_all(), false);
        shm.assert_empty();
    }
}

/// Shrinking by abort ends the wait of the excluded rank in the old communicator.
#[test]
fn shrink_aborts_the_old_communicator() {
    let shm = ShmDir::new();
    assert_survived(job(4, &["shrink-abort"], &shm).start_all().finish_all(), false);
    shm.assert_empty();
}

/// A survivor with another list is named on all others at once, long before the join time-out.
#[test]
fn lists_that_differ_are_told() {
    let shm = ShmDir::new();
    let mut job = job(4, &["shrink-unlike"], &shm).start_all();
    for rank in [0, 2, 3] {
        let ended = job.finish(rank);
        let (_, error, at_ns) = ended.failure();
        assert!(error.starts_with(&format!("shrink on rank {rank}: rank ")), "{error}");
        let joined =
            ended.reports.iter().find(|report| matches!(report.event, Event::Joined { .. })).unwrap();
        assert!(at_ns - joined.at_ns < 10_000_000_000, "after {} ns", at_ns - joined.at_ns);
    }
    drop(job);
    shm.assert_empty();
}

/// A survivor that does not come, since it does something else or is stopped, is named at the join time-out; one that
/// dies meanwhile is named at once.
#[test]
fn a_survivor_that_does_not_come_is_named() {
    for signal in [None, Some(Signal::SIGSTOP), Some(Signal::SIGKILL)] {
        let shm = ShmDir::new();
        let job = job(4, &["split-late"], &shm).with("RINGCCL_JOIN_TIMEOUT_MS", 3000);
        let mut job = job.start_all();
        job.wait_running();
        if let Some(signal) = signal {
            job.rank(1).signal(signal);
        }
        for rank in [0, 2, 3] {
            let ended = job.finish(rank);
            let error = ended.failure().1;
            let expected = match signal {
                Some(Signal::SIGKILL) => "rank 1 (process ",
                _ => "rank 1 has not called shrink (process ",
            };
            assert!(error.contains(expected) || error.contains("see its message"), "{error}");
            assert_eq!(
                error.contains("SIGCONT"),
                signal == Some(Signal::SIGSTOP) && error.contains(expected),
                "{error}"
            );
        }
        drop(job);
        shm.assert_empty();
    }
}

/// Two ranks grow to four: newcomers join by the id that a rank has made, old ranks keep their numbers, and old and new
/// communicator both work.
#[test]
fn two_ranks_grow_to_four() {
    let shm = ShmDir::new();
    let mut old = job(2, &["grow"], &shm).start_all();
    let report = old.rank(0).wait_for("the id", |event| matches!(event, Event::GrowthId { .. }));
    let Event::GrowthId { id } = report.event else { unreachable!() };
    let id: coordinator_lite::UniqueId = id.parse().unwrap();
    let new = job(4, &["check", "--id"], &shm);
    let newcomers: Vec<Rank> = [3, 2]
        .into_iter()
        .map(|rank| {
            let mut command = new.command(rank);
            command.env_remove("RINGCCL_RENDEZVOUS").env_remove("RINGCCL_SECRET").stdin(Stdio::piped());
            let mut rank = Rank::start(command);
            rank.feed(&id.to_bytes());
            rank
        })
        .collect();
    for ended in old.finish_all().into_iter().chain(newcomers.into_iter().map(Rank::finish)) {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// A rank revokes the communicator in which the others wait: all are told who, at once and ever after; all can shrink
/// it and leave it.
#[test]
fn revoke_ends_the_waits_of_all() {
    let shm = ShmDir::new();
    for ended in job(4, &["revoke"], &shm).start_all().finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// KiB of a process's own memory by which equal states may differ: what eight of three hundred communicators take.
const SLACK_KB: u64 = 256;
/// The same of shared memory; a rank maps what it looks at, which depends on who is faster.
const SHARED_SLACK_KB: u64 = 2048;

/// 300 communicators a round, made and dropped in 8 processes, leave no memory, descriptor, thread or mapping behind;
/// 300 at once take no descriptor or thread each.
#[test]
fn hundreds_of_communicators_leave_nothing() {
    let shm = ShmDir::new();
    // Freed heap goes back at once, so that it can be told from what is kept.
    let job = job(8, &["many", "--ops", "300"], &shm)
        .with("MALLOC_ARENA_MAX", 1)
        .with("MALLOC_TRIM_THRESHOLD_", 65_536)
        .with("MALLOC_MMAP_THRESHOLD_", 65_536);
    for (rank, ended) in job.start_all().finish_all().iter().enumerate() {
        ended.assert_done();
        let held: Vec<(&str, [u64; 5])> = ended
            .reports
            .iter()
            .filter_map(|report| match &report.event {
                Event::Held { after, resident_kb, shared_kb, descriptors, threads, mappings } => {
                    Some((after.as_str(), [*resident_kb, *shared_kb, *descriptors, *threads, *mappings]))
                }
                _ => None,
            })
            .collect();
        println!("rank {rank}: resident KiB, shared KiB, descriptors, threads, mappings: {held:?}");
        let [first, .., last, all, none, again, at_last] = held.as_slice() else { panic!("{held:?}") };
        // How much of its heap the allocator gives back varies, so states with the same heap are compared.
        for (now, before) in [(last, first), (again, all)] {
            let own = |state: &(&str, [u64; 5])| state.1[0] - state.1[1];
            assert!(own(now) <= own(before) + SLACK_KB, "rank {rank}: {held:?}");
            assert!(now.1[1] <= before.1[1] + SHARED_SLACK_KB, "rank {rank}: {held:?}");
            assert!(now.1[4] <= before.1[4] + 4, "rank {rank}: {held:?}");
        }
        for now in [last, all, none, again, at_last] {
            // One for each peer, which is opened when a wait first gets long, and those of the first communicator.
            assert!(now.1[2] <= 7 + 10 && now.1[3] == first.1[3], "rank {rank}: {held:?}");
        }
        for now in [none, at_last] {
            assert!(now.1[1] <= first.1[1] + SLACK_KB && now.1[4] <= first.1[4] + 4, "rank {rank}: {held:?}");
        }
    }
    shm.assert_empty();
}
