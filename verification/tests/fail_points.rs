//! A rank is killed or stopped at every named point of its life: what each survivor says, and what is left.

mod common;

use common::worker;
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};
use verification::testkit::{Ended, Job, Meet, ShmDir};

const NRANKS: u32 = 3;
const JOIN: Duration = Duration::from_millis(800);
const OPERATION: Duration = Duration::from_millis(400);
/// What a survivor may need beyond its deadlines: on two busy cores a process first has to get one.
const SLACK: Duration = Duration::from_secs(5);

/// What the survivors of a rank that fails at a point come to.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expect {
    /// The join time-out, which lists the rank as missing.
    Missing,
    /// The rank is gone.
    Gone,
    /// The rank is named as stopped.
    Stopped,
    /// Nothing: they need the rank no more.
    Done,
}
use Expect::{Done, Gone, Missing, Stopped};

/// Every point, with what a kill and a stop there mean for the others.
const POINTS: [(&str, Expect, Expect); 14] = [
    ("init.join", Missing, Missing),
    ("init.welcome", Gone, Stopped),
    ("init.attached", Gone, Stopped),
    ("init.barrier", Gone, Stopped),
    ("init.done", Gone, Stopped),
    ("op.begin@3", Gone, Stopped),
    ("op.called@4", Gone, Stopped),
    ("op.sent@5", Gone, Stopped),
    ("op.blocked", Gone, Stopped),
    ("op.done@3", Gone, Stopped),
    ("finalize.begin", Gone, Stopped),
    ("finalize.met", Done, Done),
    ("finalize.reported", Done, Done),
    ("finalize.left", Done, Done),
];

fn job(point: &str, action: &str, victim: u32, bytes: u32, shm: &ShmDir) -> Job {
    let bytes = bytes.to_string();
    let args: &[&str] = match point {
        // Somebody must be late for anybody to wait long.
        "op.blocked" => &["late", "--late-ms", "300"],
        point if point.starts_with("finalize") => &["loop", "--ops", "6", "--bytes", &bytes],
        _ => &["loop", "--bytes", &bytes],
    };
    Job::new(worker(), Meet::launcher(), NRANKS, args, shm)
        .with("RINGCCL_JOIN_TIMEOUT_MS", JOIN.as_millis())
        .with("RINGCCL_TIMEOUT_MS", OPERATION.as_millis())
        .with("RINGCCL_FINALIZE_TIMEOUT_MS", OPERATION.as_millis())
        .with_rank(victim, "RINGCCL_FAIL_POINT", format!("{point}:{action}"))
}

fn check(ended: &Ended, expect: Expect, victim: u32, what: &str) {
    if expect == Done {
        ended.assert_done();
        return;
    }
    let (class, error, _) = ended.failure();
    let right = match expect {
        Missing => class == "System" && error.contains(&format!("1 of {NRANKS} ranks missing")),
        Gone => class == "Remote" && error.starts_with(&format!("rank {victim} (process ")),
        Stopped => {
            matches!(class, "Timeout" | "Remote")
                && error.contains(&format!("rank {victim} "))
                && error.contains(" is stopped: send it SIGCONT")
        }
        Done => unreachable!("handled above"),
    };
    assert!(right, "{what}: {class}: {error}");
    assert!(!error.contains('\n'), "{what}: {error}");
}

/// Fails one rank at each point, in each role; afterwards nothing is left and the next job works.
fn at_every_point(action: &str) {
    for (i, (point, kill, stop)) in POINTS.into_iter().enumerate() {
        for victim in [0, 2] {
            let what = format!("{point}:{action} on rank {victim}");
            let bytes = [8, 1 << 20][(i + victim as usize / 2) % 2];
            let expect = if action == "kill" { kill } else { stop };
            let shm = ShmDir::new();
            let start = Instant::now();
            let mut job = job(point, action, victim, bytes, &shm).start_all();
            for rank in (0..NRANKS).filter(|rank| *rank != victim) {
                check(&job.finish(rank), expect, victim, &format!("{what}, rank {rank}"));
            }
            let took = start.elapsed();
            assert!(took < JOIN + OPERATION + SLACK, "{what}: {took:?}");
            println!("{what}: {expect:?} after {took:?}");
            if action == "stop" {
                job.rank(victim).wait_stopped();
                job.rank(victim).signal(Signal::SIGCONT);
                // It goes on by itself and ends by itself, whatever it finds.
                job.finish(victim);
            } else {
                assert_eq!(job.finish(victim).code, None, "{what}: the rank did not fail");
            }
            shm.assert_empty();
            for ended in Job::new(worker(), Meet::launcher(), 2, &["check"], &shm).start_all().finish_all() {
                ended.assert_done();
            }
        }
    }
}

/// Killed at every point: the survivors name the rank, or succeed if they need it no more.
#[test]
fn killed_at_every_point() {
    at_every_point("kill");
}

/// Stopped at every point: the survivors time out and name the stopped rank; awake again, it ends by itself.
#[test]
fn stopped_at_every_point() {
    at_every_point("stop");
}
