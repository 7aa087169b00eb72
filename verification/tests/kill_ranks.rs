//! Ranks that are killed, stopped or leave while others need them: every survivor says who, and soon.

mod common;

use common::worker;
use nix::sys::signal::Signal;
use std::sync::Arc;
// ATOMICS: a flag between threads of the test; nothing of the library depends on it.
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use verification::report::Event;
use verification::testkit::{Job, Meet, ShmDir};

/// Longest time from a kill to a survivor's error.
const WITHIN: Duration = Duration::from_secs(1);

/// Kills `victim` in the middle of a loop of all-reduces; the milliseconds to each survivor's error.
fn kill_one(nranks: u32, victim: u32, bytes: usize, algorithm: Option<&str>, pause: Duration) -> Vec<f64> {
    let shm = ShmDir::new();
    let bytes_text = bytes.to_string();
    let args = ["loop", "--bytes", bytes_text.as_str()];
    let mut job = Job::new(worker(), Meet::launcher(), nranks, &args, &shm);
    if let Some(algorithm) = algorithm {
        job = job.with("RINGCCL_ALGO", algorithm);
    }
    job = job.start_all();
    job.wait_running();
    // The moment within an operation is what varies; nothing is waited for.
    std::thread::sleep(pause);
    let pid = job.rank(victim).pid();
    let killed_ns = job.rank(victim).signal(Signal::SIGKILL);
    let mut took = Vec::new();
    for (rank, ended) in (0..nranks).zip(job.finish_all()) {
        if rank == victim {
            assert_eq!(ended.code, None, "{ended:?}");
            continue;
        }
        let (class, error, at_ns) = ended.failure();
        assert!(class == "Remote" && ended.code == Some(1), "{ended:?}");
        assert!(error.starts_with(&format!("rank {victim} (process {pid}, it died) is gone")), "{error}");
        let ms = (at_ns - killed_ns) as f64 / 1e6;
        println!(r#"{{"rank":{rank},"victim":{victim},"bytes":{bytes},"ms":{ms:.1},"error":"{error}"}}"#);
        assert!(ms < WITHIN.as_secs_f64() * 1e3, "rank {rank} needed {ms} ms");
        took.push(ms);
    }
    shm.assert_empty();
    took
}

/// One combination of ranks, victim, size and algorithm; every number brings another.
fn kill_number(i: u32) -> Vec<f64> {
    let nranks = [2, 3, 4, 8][i as usize / 3 % 4];
    let bytes = [8, 1 << 20, 64 << 20][i as usize % 3];
    let algorithm = [None, Some("ring")][i as usize / 2 % 2];
    // 64 MiB are an operation of a tenth of a second and more: any moment of it.
    kill_one(
        nranks,
        (i * 7 + i / 5) % nranks,
        bytes,
        algorithm,
        Duration::from_millis(u64::from(i * 13 % 40)),
    )
}

fn summary(mut ms: Vec<f64>) {
    ms.sort_by(f64::total_cmp);
    let (median, max) = (ms[ms.len() / 2], ms[ms.len() - 1]);
    println!("{} survivors: from the signal to the error median {median:.1} ms, max {max:.1} ms", ms.len());
}

/// Whoever is killed, at any size and with any algorithm: all survivors name it within a second, nothing is left.
#[test]
fn kill_names_the_dead_rank() {
    summary((0..10).flat_map(kill_number).collect());
}

/// Threads that compute as long as this lives, so that ranks have to wait for a core.
struct Load {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// `LOAD` threads; none unless it is set.
    fn from_env() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = std::env::var("LOAD").map_or(0, |text| text.parse().unwrap());
        let burn = |over: Arc<AtomicBool>| move || while !over.load(Ordering::Relaxed) {};
        let threads = (0..threads).map(|_| std::thread::spawn(burn(Arc::clone(&over)))).collect();
        Self { over, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Stops a rank at some moment of a loop, lets it go on after the others have ended, and waits for it: how long after
/// the stop each of the others had its error, in milliseconds.
fn stop_number(i: u32) -> Vec<f64> {
    const LIMIT_MS: u64 = 1500;
    let nranks = [2, 3, 4][i as usize % 3];
    let bytes = [8, 1 << 20, 4 << 20][i as usize / 3 % 3];
    let victim = (i * 7 + i / 5) % nranks;
    let shm = ShmDir::new();
    let bytes = bytes.to_string();
    let job = Job::new(worker(), Meet::launcher(), nranks, &["loop", "--bytes", &bytes], &shm);
    let mut job = job.with("RINGCCL_TIMEOUT_MS", LIMIT_MS).start_all();
    job.wait_running();
    std::thread::sleep(Duration::from_millis(u64::from(i * 13 % 40)));
    let stopped_ns = job.rank(victim).signal(Signal::SIGSTOP);
    let mut took = Vec::new();
    for rank in (0..nranks).filter(|rank| *rank != victim) {
        let ended = job.finish(rank);
        let (class, error, at_ns) = ended.failure();
        assert!(matches!(class, "Timeout" | "Remote"), "{error}");
        assert!(error.contains(&format!("rank {victim} ")) && error.contains(" is stopped: "), "{error}");
        let ms = (at_ns - stopped_ns) as f64 / 1e6;
        assert!(ms < LIMIT_MS as f64 + WITHIN.as_secs_f64() * 1e3, "rank {rank} needed {ms} ms");
        took.push(ms);
    }
    job.rank(victim).signal(Signal::SIGCONT);
    assert_eq!(job.finish(victim).failure().0, "Remote");
    shm.assert_empty();
    took
}

/// `KILLS` ranks (100 unless it is set) are stopped, with `LOAD` threads that compute beside them.
#[test]
#[ignore = "campaign: cargo xtask kill --times 100"]
fn stop_campaign() {
    let _load = Load::from_env();
    let times = std::env::var("KILLS").map_or(100, |text| text.parse().unwrap());
    summary((0..times).flat_map(stop_number).collect());
}

/// As `kill_names_the_dead_rank`, `KILLS` times (100 unless it is set), with `LOAD` threads that compute beside them.
#[test]
#[ignore = "campaign: cargo xtask kill --times 100"]
fn kill_campaign() {
    let _load = Load::from_env();
    let times = std::env::var("KILLS").map_or(100, |text| text.parse().unwrap());
    summary((0..times).flat_map(kill_number).collect());
    let shm = ShmDir::new();
    for ended in Job::new(worker(), Meet::launcher(), 8, &["check"], &shm).start_all().finish_all() {
        ended.assert_done();
    }
}

/// After a kill the next job in the same directory works.
#[test]
fn kill_then_the_next_job_works() {
    let shm = ShmDir::new();
    let mut job = Job::new(worker(), Meet::launcher(), 3, &["loop"], &shm).start_all();
    job.wait_running();
    job.rank(1).signal(Signal::SIGKILL);
    assert_eq!(job.finish_all().len(), 3);
    for ended in Job::new(worker(), Meet::launcher(), 3, &["check"], &shm).start_all().finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// A stopped rank is named by the time-out of the others; when it goes on, it learns that all is over.
#[test]
fn stop_is_a_timeout() {
    let shm = ShmDir::new();
    let job = Job::new(worker(), Meet::launcher(), 3, &["loop"], &shm).with("RINGCCL_TIMEOUT_MS", 500);
    let mut job = job.start_all();
    job.wait_running();
    let stopped_ns = job.rank(1).signal(Signal::SIGSTOP);
    let mut named = 0;
    for rank in [0, 2] {
        let ended = job.finish(rank);
        let (class, error, at_ns) = ended.failure();
        match class {
            "Timeout" => {
                assert!(error.contains("rank 1 ") && error.contains(" is stopped: "), "{error}");
                assert!(error.contains("RINGCCL_TIMEOUT_MS"), "{error}");
                assert!(at_ns - stopped_ns >= 450_000_000, "after {} ns", at_ns - stopped_ns);
                named += 1;
            }
            _ => assert!(class == "Remote" && error.contains("a time-out"), "{error}"),
        }
    }
    assert!(named > 0, "nobody named the stopped rank");
    job.rank(1).signal(Signal::SIGCONT);
    let ended = job.finish(1);
    let (class, error, _) = ended.failure();
    assert!(class == "Remote" && error.contains("has ended this communicator"), "{error}");
    shm.assert_empty();
}

/// The survivors of a stopped rank go on in a new communicator: what the rank writes when it wakes up in the middle of
/// its old operation reaches only memory that nobody uses any more.
#[test]
fn a_stopped_rank_cannot_disturb_its_successors() {
    for bytes in ["8", "8388608"] {
        let shm = ShmDir::new();
        let args = ["regroup", "--bytes", bytes];
        let job = Job::new(worker(), Meet::launcher(), 4, &args, &shm).with("RINGCCL_TIMEOUT_MS", 3000);
        let mut job = job.start_all();
        job.wait_running();
        job.rank(1).signal(Signal::SIGSTOP);
        for rank in [0, 2, 3] {
            // The second join is reported with a time of 0.
            let again = Event::Joined { init_ms: 0.0 };
            job.rank(rank).wait_for("a second communicator", |event| *event == again);
        }
        job.rank(1).signal(Signal::SIGCONT);
        for (rank, ended) in job.finish_all().into_iter().enumerate() {
            match rank {
                1 => assert_eq!(ended.failure().0, "Remote", "{ended:?}"),
                _ => ended.assert_done_after_suspicion(),
            }
        }
        shm.assert_empty();
    }
}

/// A rank that drops its communicator, or exits, while others need it is named, and not as a time-out.
#[test]
fn leaving_early_is_an_error_of_the_others() {
    let shm = ShmDir::new();
    let mut job = Job::new(worker(), Meet::launcher(), 3, &["leave", "--late-ms", "3000"], &shm).start_all();
    for rank in [0, 2] {
        let ended = job.finish(rank);
        let (class, error, _) = ended.failure();
        assert!(class == "Remote" && error.starts_with("rank 1 (process "), "{error}");
        assert!(error.contains("it left the communicator"), "{error}");
    }
    drop(job);
    let mut job = Job::new(worker(), Meet::launcher(), 3, &["exit"], &shm);
    let mut quitter = job.command(1);
    quitter.args(["--ops", "5"]);
    job.start(0);
    job.start(2);
    let quitter = job.spawn(quitter);
    for rank in [0, 2] {
        let error = job.finish(rank).failure().1.to_owned();
        assert!(error.starts_with("rank 1 (process "), "{error}");
    }
    drop(quitter);
    shm.assert_empty();
}

/// A rank that finalizes while the others go on: nobody hangs, and every rank says who called what.
#[test]
fn finalizing_early_does_not_match() {
    let shm = ShmDir::new();
    let mut job = Job::new(worker(), Meet::launcher(), 3, &["loop"], &shm).with("RINGCCL_TIMEOUT_MS", 5000);
    let mut quitter = job.command(1);
    quitter.args(["--ops", "5"]);
    job.start(0);
    job.start(2);
    let quitter = job.spawn(quitter);
    for rank in [0, 2] {
        let ended = job.finish(rank);
        let (class, error, _) = ended.failure();
        assert!(class == "InvalidUsage" && error.starts_with("operation 6 does not match"), "{error}");
        assert!(error.contains("rank 1 called finalize"), "{error}");
    }
    let error = quitter.finish().failure().1.to_owned();
    assert!(error.contains("called all_reduce of 2 x int32, sum"), "{error}");
    assert!(error.contains("rank 1 called finalize"), "{error}");
    shm.assert_empty();
}

/// A rank that exits right after its last operation, without finalize, fails nobody. On a long ring the first
/// ranks are gone while the last ones still wait for their neighbours.
#[test]
fn exit_after_the_last_operation_is_fine() {
    for (nranks, bytes, algorithm) in [(4, "8", "flat"), (4, "1048576", "twoshot"), (8, "16777216", "ring")] {
        let shm = ShmDir::new();
        for _ in 0..4 {
            let args = ["exit", "--ops", "3", "--bytes", bytes];
            let job = Job::new(worker(), Meet::launcher(), nranks, &args, &shm);
            for ended in job.with("RINGCCL_ALGO", algorithm).start_all().finish_all() {
                ended.assert_done();
            }
        }
        shm.assert_empty();
    }
}

/// Starts all ranks, `stopped` of which is stopped while it waits for the last one.
fn stop_while_meeting(shm: &ShmDir, stopped: u32) -> Job {
    let job = Job::new(worker(), Meet::launcher(), 4, &["check"], shm);
    let mut job = job.with("RINGCCL_JOIN_TIMEOUT_MS", 4000);
    for rank in 0..3 {
        job.start(rank);
        job.wait_meeting(rank + 1);
    }
    job.rank(stopped).signal(Signal::SIGSTOP);
    job.rank(stopped).wait_stopped();
    job.start(3);
    job.wait_met();
    job
}

/// Killed after the rendezvous and before it attaches: the others name it, and the name is gone.
#[test]
fn kill_before_attach() {
    let shm = ShmDir::new();
    let mut job = stop_while_meeting(&shm, 2);
    verification::testkit::wait_for("the segment", || !shm.files().is_empty());
    job.rank(2).signal(Signal::SIGKILL);
    for rank in [0, 1, 3] {
        let ended = job.finish(rank);
        let (class, error, _) = ended.failure();
        assert!(class == "Remote" && error.starts_with("rank 2 (process "), "{error}");
    }
    shm.assert_empty();
}

/// Rank 0 killed after the rendezvous and before it creates the segment: the others name it at once.
#[test]
fn kill_before_create() {
    let shm = ShmDir::new();
    let mut job = stop_while_meeting(&shm, 0);
    let killed_ns = job.rank(0).signal(Signal::SIGKILL);
    for rank in [1, 2, 3] {
        let ended = job.finish(rank);
        let (_, error, at_ns) = ended.failure();
        assert!(error.starts_with("rank 0 (process "), "{error}");
        assert!(at_ns - killed_ns < 1_000_000_000, "after {} ns", at_ns - killed_ns);
    }
    shm.assert_empty();
}

/// The creator and a rank that has not attached are killed: the others end, and the next job removes the name.
#[test]
fn kill_the_creator_before_all_attach() {
    let shm = ShmDir::new();
    let mut job = stop_while_meeting(&shm, 2);
    verification::testkit::wait_for("the segment", || !shm.files().is_empty());
    job.rank(0).signal(Signal::SIGKILL);
    job.rank(2).signal(Signal::SIGKILL);
    for rank in [1, 3] {
        let ended = job.finish(rank);
        let error = ended.failure().1;
        assert!(error.starts_with("rank 0 (process ") || error.starts_with("rank 2 (process "), "{error}");
    }
    drop(job);
    for ended in Job::new(worker(), Meet::launcher(), 2, &["check"], &shm).start_all().finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
}
