//! `ringccl run`: signals on their way to the ranks.

mod common;

use std::fs;
use std::path::Path;
use std::time::Instant;

use common::{Job, assert_gone, pids, run, text, wait_for};
use nix::sys::signal::Signal;

/// A script that says `ready` by a pid file and then waits for signals with `traps` set.
fn waiting(dir: &Path, traps: &str) -> String {
    format!(
        "{traps}; echo $$ > {0}/$RANK.tmp; mv {0}/$RANK.tmp {0}/$RANK.pid; \
         while [ ! -e {0}/stop ]; do sleep 0.01; done; exit 0",
        dir.display()
    )
}

#[test]
fn signals_are_forwarded_to_every_rank() {
    // Each signal reaches both ranks; the user's own two leave the job running.
    let dir = tempfile::tempdir().unwrap();
    let traps =
        format!("for s in USR1 USR2 HUP; do trap \"touch {}/$RANK.$s\" $s; done", dir.path().display());
    let job = Job::start(run(&["-n", "2"], &waiting(dir.path(), &traps)));
    pids(dir.path(), 2);
    for (signal, name) in [(Signal::SIGUSR1, "USR1"), (Signal::SIGUSR2, "USR2"), (Signal::SIGHUP, "HUP")] {
        job.signal(signal);
        wait_for(name, || (0..2).all(|rank| dir.path().join(format!("{rank}.{name}")).exists()));
    }
    fs::write(dir.path().join("stop"), "").unwrap();
    let output = job.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn sigterm_and_sigint_end_the_job_with_their_code() {
    // The code is that of the ranks' deaths; the summary is one line, without last lines.
    for (signal, code, name) in [(Signal::SIGTERM, 143, "SIGTERM"), (Signal::SIGINT, 130, "SIGINT")] {
        let dir = tempfile::tempdir().unwrap();
        let job = Job::start(run(&["-n", "3"], &waiting(dir.path(), "echo up")));
        let ranks = pids(dir.path(), 3);
        job.signal(signal);
        let output = job.finish();
        assert_eq!(output.status.code(), Some(code));
        let error = text(&output.stderr);
        assert!(error.starts_with(&format!("ringccl: ended after {name}; rank ")), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert_gone(&ranks);
    }
}

#[test]
fn a_rank_may_finish_its_work_on_sigterm() {
    // No deadline is set for ranks that answer the user's own SIGTERM with an orderly end.
    let dir = tempfile::tempdir().unwrap();
    let traps = "trap 'sleep 0.3; echo saved; exit 0' TERM";
    let job = Job::start(run(&["-n", "2", "--grace", "0.1"], &waiting(dir.path(), traps)));
    pids(dir.path(), 2);
    job.signal(Signal::SIGTERM);
    let output = job.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).matches("saved").count(), 2);
}

#[test]
fn the_second_sigint_kills() {
    // Ranks that ignore SIGINT end at the second one, without any grace.
    let dir = tempfile::tempdir().unwrap();
    let traps = format!("trap 'touch {}/$RANK.INT' INT TERM", dir.path().display());
    let job = Job::start(run(&["-n", "2", "--grace", "600"], &waiting(dir.path(), &traps)));
    let ranks = pids(dir.path(), 2);
    job.signal(Signal::SIGINT);
    wait_for("the first SIGINT", || (0..2).all(|rank| dir.path().join(format!("{rank}.INT")).exists()));
    // Two within 20 ms count as one; the files above take longer only by chance.
    std::thread::sleep(std::time::Duration::from_millis(25));
    let started = Instant::now();
    job.signal(Signal::SIGINT);
    let output = job.finish();
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stderr).contains("interrupted twice"), "{}", text(&output.stderr));
    assert!(started.elapsed().as_secs() < 10);
    assert_gone(&ranks);
}

#[test]
fn ranks_have_the_signal_mask_of_their_caller() {
    // A shell clears its mask when it starts; every other program would be deaf to what the launcher blocks for itself.
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ringccl"));
    command.args(["run", "-n", "2", "--no-prefix", "--", "grep", "SigBlk", "/proc/self/status"]);
    let output = command.current_dir(dir.path()).output().unwrap();
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find(|line| line.starts_with("SigBlk")).unwrap();
    assert_eq!(text(&output.stdout).lines().collect::<Vec<_>>(), [own, own]);

    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ringccl"));
    let job = Job::start({
        command.args(["run", "-n", "2", "--", "sleep", "600"]);
        command
    });
    // Each rank is a `sleep` once both have been executed.
    wait_for("two sleepers", || sleepers(job.pid()) == 2);
    job.signal(Signal::SIGTERM);
    assert_eq!(job.finish().status.code(), Some(143));
}

/// How many processes called `sleep` there are below a launcher.
fn sleepers(launcher: i32) -> usize {
    let children = |pid: i32| -> Vec<i32> {
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    };
    let name = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let ranks = children(launcher).into_iter().flat_map(children);
    ranks.filter(|pid| name(*pid).trim() == "sleep").count()
}
