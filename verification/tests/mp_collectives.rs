//! Collectives between processes, over every way of meeting, and what goes wrong while meeting.

mod common;

use common::{ringccl, worker};
use coordinator_lite::{Deadlines, Endpoint, Hello, Member, Secret, Session, status};
use nix::sys::signal::Signal;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;
use verification::report::Event;
use verification::testkit::{Job, Meet, ShmDir, run, wait_for};

/// All-reduce, broadcast and barrier are right between processes, by port, launcher and id, and leave nothing.
#[test]
fn collectives_are_right_however_ranks_meet() {
    for nranks in [2, 3, 8] {
        for meet in [Meet::port(), Meet::launcher(), Meet::id()] {
            let shm = ShmDir::new();
            for ended in Job::new(worker(), meet, nranks, &["check"], &shm).start_all().finish_all() {
                ended.assert_done();
            }
            shm.assert_empty();
        }
    }
}

/// The same under `ringccl run`.
#[test]
fn collectives_are_right_under_the_launcher() {
    for nranks in ["2", "3", "8"] {
        let shm = ShmDir::new();
        let mut command = Command::new(ringccl());
        command.args(["run", "-n", nranks, "--"]).arg(worker()).arg("check");
        let finished = run({
            command.env("RINGCCL_SHM_DIR", shm.path());
            command
        });
        assert_eq!(finished.code, Some(0), "{finished:?}");
        let done = finished.stdout.matches(r#""event":"done""#).count();
        assert_eq!(done.to_string(), nranks, "{finished:?}");
        shm.assert_empty();
    }
}

/// The launcher blames the rank at fault and returns its code, although the others have errors about it: a panic that
/// unwinds through the communicator, with and without a slow backtrace, and a plain exit.
#[test]
fn the_launcher_blames_the_rank_at_fault() {
    for (act, backtrace, code) in [("panic", "1", 101), ("panic", "0", 101), ("quit", "0", 7)] {
        for _ in 0..4 {
            let shm = ShmDir::new();
            let mut command = Command::new(ringccl());
            command.args(["run", "-n", "3", "--"]).arg(worker()).arg(act);
            command.env("RINGCCL_SHM_DIR", shm.path()).env("RUST_BACKTRACE", backtrace);
            let finished = run(command);
            assert_eq!(finished.code, Some(code), "{act} {backtrace}: {finished:?}");
            let blamed = finished.stderr.lines().any(|line| {
                line.starts_with("ringccl: rank 1 (")
                    && line.contains(&format!("failed first: exit code {code}"))
            });
            assert!(blamed, "{act} {backtrace}: {finished:?}");
        }
    }
}

/// Rank 0 that finds MASTER_PORT busy says which port and what to do, at once.
#[test]
fn a_busy_port_is_named() {
    let shm = ShmDir::new();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port();
    let mut job = Job::new(worker(), Meet::Port(port), 2, &["check"], &shm);
    job.start(0);
    let ended = job.finish(0);
    let (_, error, _) = ended.failure();
    assert_eq!(ended.code, Some(1));
    assert!(error.contains(&port.to_string()) && error.contains("in use") && error.contains("ss -ltnp"));
    shm.assert_empty();
}

/// A rank with another WORLD_SIZE, or a rank number taken already, is refused; the others go on without it.
#[test]
fn a_wrong_rank_is_refused_alone() {
    let shm = ShmDir::new();
    let mut job = Job::new(worker(), Meet::launcher(), 3, &["check"], &shm);
    job.start(0);
    job.start(1);
    for (rank, size, expected) in [("2", "4", "same WORLD_SIZE"), ("1", "3", "joined twice")] {
        // An intruder that comes before the others is the first of a group and waits in vain; then, and only
        // then, another one is sent.
        let refused = (0..20).any(|_| {
            let mut command = job.command(1);
            command.env("RANK", rank).env("WORLD_SIZE", size).env("RINGCCL_JOIN_TIMEOUT_MS", "300");
            let ended = job.spawn(command).finish();
            assert_eq!(ended.code, Some(1));
            ended.failure().1.contains(expected)
        });
        assert!(refused, "{expected}");
    }
    job.start(2);
    for ended in job.finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// A rank that comes late within the time-out is waited for.
#[test]
fn a_late_rank_is_waited_for() {
    let shm = ShmDir::new();
    let mut job = Job::new(worker(), Meet::port(), 3, &["check"], &shm);
    for rank in [2, 1, 0] {
        job.start(rank);
        job.rank(rank).wait_for("its start", |event| *event == Event::Started);
        std::thread::sleep(std::time::Duration::from_millis(150));
    }
    for ended in job.finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// A rank that never comes is named by everybody once the time-out has passed, and not before.
#[test]
fn a_missing_rank_is_named() {
    for meet in [Meet::port(), Meet::launcher()] {
        let shm = ShmDir::new();
        let mut job = Job::new(worker(), meet, 3, &["check"], &shm).with("RINGCCL_JOIN_TIMEOUT_MS", 700);
        job.start(0);
        job.start(2);
        let mut waited_ms = 0;
        for rank in [0, 2] {
            let ended = job.finish(rank);
            let (_, error, at_ns) = ended.failure();
            waited_ms = waited_ms.max((at_ns - ended.reports[0].at_ns) / 1_000_000);
            assert!(error.contains("1 of 3 ranks missing") && error.contains(": 1;"), "{error}");
        }
        // Whoever gives up first ends it for all; it has waited for the whole time.
        assert!((650..5000).contains(&waited_ms), "{waited_ms} ms");
        shm.assert_empty();
    }
}

/// Jobs that somebody else launches take nodes from FakeGPU's cluster file, and do not start if it has another size.
#[test]
fn a_cluster_file_counts_without_the_launcher() {
    let shm = ShmDir::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../topo/testdata/lab.yaml");
    let report = shm.path().with_extension("json");
    let job = Job::new(worker(), Meet::port(), 4, &["check"], &shm)
        .with("FAKEGPU_CLUSTER_CONFIG", file)
        .with("FAKEGPU_CLUSTER_REPORT_PATH", report.display());
    for ended in job.start_all().finish_all() {
        ended.assert_done();
    }
    let text = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(&report).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["nodes"][1]["ranks"], serde_json::json!([2, 3]), "{text}");
    assert_eq!(json["ranks"][3]["node"], json["nodes"][1]["id"], "{text}");
    let job = Job::new(worker(), Meet::port(), 2, &["check"], &shm).with("FAKEGPU_CLUSTER_CONFIG", file);
    for ended in job.start_all().finish_all() {
        let (class, error, _) = ended.failure();
        assert!(class == "InvalidArgument" && error.contains("lab.yaml"), "{error}");
        assert!(error.contains('2') && error.contains('4') && !error.contains('\n'), "{error}");
    }
    shm.assert_empty();
}

/// Jobs of one user that run at the same time, in one directory of segments, do not see each other.
#[test]
fn jobs_at_once_do_not_meet() {
    let shm = ShmDir::new();
    let jobs: Vec<Job> = [Meet::launcher(), Meet::port(), Meet::id(), Meet::launcher()]
        .into_iter()
        .map(|meet| Job::new(worker(), meet, 3, &["check"], &shm).start_all())
        .collect();
    for ended in jobs.into_iter().flat_map(Job::finish_all) {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// When the process that hosts the rendezvous dies, those that wait there say so at once; those that come later say so
/// when their time is over.
#[test]
fn the_host_of_the_rendezvous_dies() {
    let shm = ShmDir::new();
    let job = Job::new(worker(), Meet::port(), 3, &["check"], &shm);
    let mut job = job.with("RINGCCL_JOIN_TIMEOUT_MS", 1500);
    job.start(0);
    job.start(1);
    let secret = Secret::from_bytes([0; 32]);
    let Meet::Port(port) = job.meet() else { unreachable!("it was chosen above") };
    let endpoint: Endpoint = SocketAddr::from(([127, 0, 0, 1], *port)).into();
    let here =
        || status(&endpoint, &(&secret).into(), Duration::from_secs(1)).ok()?.waiting.first().map(|w| w.here);
    wait_for("two ranks that wait", || here() == Some(2));
    let killed_ns = job.rank(0).signal(Signal::SIGKILL);
    let ended = job.finish(1);
    let (class, error, at_ns) = ended.failure();
    assert!(class == "System" && error.starts_with("rank 0 hosts the rendezvous"), "{class}: {error}");
    assert!(error.contains("127.0.0.1"), "{error}");
    assert!(at_ns - killed_ns < 1_000_000_000, "after {} ns", at_ns - killed_ns);
    job.start(2);
    let ended = job.finish(2);
    let (class, error, _) = ended.failure();
    assert!(class == "System" && error.starts_with("rank 0 hosts the rendezvous"), "{class}: {error}");
    assert!(error.contains("127.0.0.1"), "{error}");
    shm.assert_empty();
}

/// A rank that sees another host's shared memory is named to all.
#[test]
fn a_rank_of_another_host_is_named() {
    let shm = ShmDir::new();
    let mut job = Job::new(worker(), Meet::launcher(), 2, &["check"], &shm);
    job.start(0);
    let Meet::Launcher(server) = job.meet() else { unreachable!("it was chosen above") };
    let member = Member { host: "elsewhere".into(), ..Member::current("node0", 1).unwrap() };
    let hello = Hello { group: "env-1".into(), rank: 1, nranks: 2, member };
    let deadlines = Deadlines { connect: Duration::from_secs(10), join: Duration::from_secs(10) };
    let session = Session::join(server.endpoint(), server.unique_id().secret(), hello, deadlines).unwrap();
    let ended = job.finish(0);
    let (class, error, _) = ended.failure();
    assert!(class == "InvalidUsage" && error.starts_with("rank 1 runs on another host"), "{class}: {error}");
    drop(session);
    shm.assert_empty();
}
