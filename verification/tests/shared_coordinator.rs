//! Several jobs at one coordinator: each under a name of its own they do not meet, without names they are told.

mod common;

use common::{ringccl, worker};
use coordinator_lite::messages::Status;
use coordinator_lite::{Access, Coordinator, Secret, status};
use std::process::Command;
use std::thread;
use std::time::Duration;
use verification::testkit::{DEADLINE, Job, Meet, ShmDir, run, wait_for};

/// A coordinator of this process that lets its user's ranks in, and where it is.
struct Shared {
    coordinator: Coordinator,
    secret: Secret,
    at: String,
    _dir: tempfile::TempDir,
}

impl Shared {
    fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = format!("unix:{}", dir.path().join("s").display());
        let secret = Secret::random().unwrap();
        let access = Access { secret: secret.clone(), trust_uid: true };
        let coordinator = Coordinator::open(&at.parse().unwrap(), access).unwrap();
        Self { coordinator, secret, at, _dir: dir }
    }

    fn status(&self) -> Status {
        status(self.coordinator.endpoint(), &(&self.secret).into(), DEADLINE).unwrap()
    }

    /// Names of the groups that wait.
    fn waiting(&self) -> Vec<String> {
        self.status().waiting.into_iter().map(|group| group.group).collect()
    }

    /// A job of two ranks that meet here.
    fn job(&self, act: &[&str], name: Option<&str>, shm: &ShmDir) -> Job {
        let job = Job::new(worker(), Meet::port(), 2, act, shm).with("FAKEGPU_COORDINATOR_ADDR", &self.at);
        match name {
            Some(name) => job.with("RINGCCL_JOB", name),
            None => job,
        }
    }
}

/// Rank 0 of one job and rank 1 of another come first and would complete a group; under their names they wait for
/// their own. The status shows the names.
#[test]
fn named_jobs_do_not_meet() {
    let (shm, shared) = (ShmDir::new(), Shared::open());
    let mut left = shared.job(&["check"], Some("left"), &shm);
    let mut right = shared.job(&["check"], None, &shm).with("SLURM_JOB_ID", "7").with("SLURM_STEP_ID", "1");
    left.start(0);
    right.start(1);
    wait_for("a rank of each", || shared.waiting() == ["left/env-1", "slurm-7.1/env-1"]);
    left.start(1);
    right.start(0);
    for ended in left.finish_all().into_iter().chain(right.finish_all()) {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// Without names the ranks of the second job are refused at once, whether the first one still forms or runs already,
/// and are told of the setting; the first job goes on.
#[test]
fn nameless_jobs_are_told_at_once() {
    let (shm, shared) = (ShmDir::new(), Shared::open());
    let mut first = shared.job(&["loop", "--ops", "500000"], None, &shm);
    let mut second = shared.job(&["check"], None, &shm);
    let refused = |second: &mut Job, rank| {
        let started_ns = verification::report::monotonic_ns();
        second.start(rank);
        let ended = second.finish(rank);
        let (class, error, at_ns) = ended.failure();
        assert_eq!(class, "System", "{error}");
        let told = format!("group `env-1`: rank {rank} joined twice");
        assert!(error.starts_with(&told) && error.contains("its own RINGCCL_JOB"), "{error}");
        assert!(Duration::from_nanos(at_ns - started_ns) < Duration::from_secs(5), "not at once: {error}");
    };
    first.start(0);
    wait_for("the first rank", || shared.waiting() == ["env-1"]);
    refused(&mut second, 0);
    first.start(1);
    first.wait_running();
    refused(&mut second, 0);
    refused(&mut second, 1);
    for ended in first.finish_all() {
        ended.assert_done();
    }
    shm.assert_empty();
}

/// `ringccl run` names each of its jobs by itself.
#[test]
fn launchers_name_their_jobs() {
    let (shm, shared) = (ShmDir::new(), Shared::open());
    let launch = || {
        let mut command = Command::new(ringccl());
        command.args(["run", "-n", "3", "--"]).arg(worker()).arg("check");
        command.env("RINGCCL_SHM_DIR", shm.path()).env("FAKEGPU_COORDINATOR_ADDR", &shared.at);
        run(command)
    };
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..4).map(|_| scope.spawn(launch)).collect();
        for job in jobs {
            let finished = job.join().unwrap();
            assert_eq!(finished.code, Some(0), "{finished:?}");
        }
    });
    shm.assert_empty();
}
