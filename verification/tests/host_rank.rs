//! Rank 0 hosts the rendezvous (MASTER_ADDR) and is dead, stopped or silent before the others are connected.

mod common;

use common::worker;
use coordinator_lite::{Endpoint, Secret, status};
use nix::sys::signal::Signal;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;
use verification::report::monotonic_ns;
use verification::testkit::{Job, Meet, ShmDir, wait_for};

/// How long ranks try to reach rank 0; joining may take far longer.
const CONNECT: Duration = Duration::from_millis(700);
/// What starting a process, one look through the others, and a busy machine may add.
const SLACK: Duration = Duration::from_secs(5);

/// A job of three ranks that give up connecting long before they give up joining.
fn job(meet: Meet, shm: &ShmDir) -> Job {
    let job = Job::new(worker(), meet, 3, &["check"], shm);
    job.with("RINGCCL_JOIN_TIMEOUT_MS", 30_000).with("RINGCCL_CONNECT_TIMEOUT_MS", CONNECT.as_millis())
}

/// Waits until rank 0 answers at its port.
fn wait_host(port: u16) {
    let key = (&Secret::from_bytes([0; 32])).into();
    let endpoint: Endpoint = SocketAddr::from(([127, 0, 0, 1], port)).into();
    wait_for("rank 0 at its port", || status(&endpoint, &key, Duration::from_secs(1)).is_ok());
}

/// Starts ranks 1 and 2, which both fail at the connect limit with this class and all of these texts.
fn others_fail(job: &mut Job, port: u16, class: &str, texts: &[&str]) {
    let started_ns = monotonic_ns();
    job.start(1);
    job.start(2);
    for rank in [1, 2] {
        let ended = job.finish(rank);
        let (found, error, at_ns) = ended.failure();
        let took = Duration::from_nanos(at_ns - started_ns);
        assert_eq!(found, class, "{error}");
        assert!(error.starts_with("rank 0 hosts the rendezvous (MASTER_ADDR, MASTER_PORT) and "), "{error}");
        let at = format!("at tcp:127.0.0.1:{port} for 0.");
        for text in [&at, "RINGCCL_CONNECT_TIMEOUT_MS"].iter().chain(texts) {
            assert!(error.contains(text), "{text}: {error}");
        }
        // A pause between two attempts that would end later is not begun.
        assert!(
            took >= CONNECT - Duration::from_millis(60) && took < CONNECT + SLACK,
            "after {took:?}: {error}"
        );
    }
}

/// One that has died, or never started, is told at the connect limit as what it is: nobody listens.
#[test]
fn dead_before_the_others_come() {
    let shm = ShmDir::new();
    let meet = Meet::port();
    let Meet::Port(port) = meet else { unreachable!("it was chosen above") };
    let mut job = job(meet, &shm);
    let refused = ["nobody has listened", "has not started yet or has ended", "see what it printed last"];
    others_fail(&mut job, port, "System", &refused);
    job.start(0);
    wait_host(port);
    job.rank(0).signal(Signal::SIGKILL);
    job.ranks[0].take();
    others_fail(&mut job, port, "System", &refused);
    shm.assert_empty();
}

/// One that is stopped still has its connections taken by the kernel: at the connect limit its process is named.
#[test]
fn stopped_before_the_others_come() {
    let shm = ShmDir::new();
    let meet = Meet::port();
    let Meet::Port(port) = meet else { unreachable!("it was chosen above") };
    let mut job = job(meet, &shm);
    job.start(0);
    wait_host(port);
    job.rank(0).signal(Signal::SIGSTOP);
    let stopped = format!("its process {} is stopped: send it SIGCONT", job.rank(0).pid());
    others_fail(&mut job, port, "Timeout", &["although the connection was taken", &stopped]);
    job.rank(0).signal(Signal::SIGKILL);
    job.ranks[0].take();
    shm.assert_empty();
}

/// One that hangs, here a listener of this process that never answers, is named and not called stopped.
#[test]
fn silent_when_the_others_come() {
    let shm = ShmDir::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut job = job(Meet::Port(port), &shm);
    let hangs = format!("process {} listens there, is not stopped, and hangs", std::process::id());
    others_fail(&mut job, port, "Timeout", &["although the connection was taken", &hangs]);
    shm.assert_empty();
}
