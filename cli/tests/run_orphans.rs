//! `ringccl run`: no process outlives its job, whoever is killed.

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Job, assert_gone, is_alive, parent, pids, ringccl, run, text, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One rank with a child, and a grandchild in a session of its own; each notes its pid. Once both
/// ranks' families are complete, the rank does what the last argument says.
const FAMILY: &str = r#"
role=$1 dir=$2
note() { echo $$ > "$dir/$RANK.$role.tmp"; mv "$dir/$RANK.$role.tmp" "$dir/$RANK.$role.pid"; }
case $role in
  daemon) note; exec sleep 3600 ;;
  child) setsid /bin/sh "$0" daemon "$dir" & note; exec sleep 3600 ;;
  rank)
    /bin/sh "$0" child "$dir" & note
    while [ "$(ls "$dir"/*.pid | wc -l)" -lt 6 ]; do sleep 0.01; done
    eval "$3" ;;
esac
"#;

/// Starts two ranks with their families and returns the six pids.
fn start(dir: &Path, last: &str) -> (Job, Vec<i32>) {
    let script = dir.join("family.sh");
    fs::write(&script, FAMILY).unwrap();
    let mut command = ringccl();
    command
        .args(["run", "-n", "2", "--grace", "0.4", "--", "/bin/sh"])
        .arg(script)
        .arg("rank")
        .arg(dir)
        .arg(last);
    let job = Job::start(command);
    let pids = pids(dir, 6);
    (job, pids)
}

#[test]
fn the_family_really_is_three_processes_per_rank() {
    // Guards the tests below: all six pids differ and live.
    let dir = tempfile::tempdir().unwrap();
    let (_job, mut family) = start(dir.path(), "sleep 3600");
    assert!(family.iter().all(|&pid| is_alive(pid)));
    family.sort_unstable();
    family.dedup();
    assert_eq!(family.len(), 6);
}

#[test]
fn killing_the_launcher_leaves_nothing() {
    // SIGKILL to the launcher: ranks, children and those that called setsid die by the keeper.
    let dir = tempfile::tempdir().unwrap();
    let (mut job, family) = start(dir.path(), "sleep 3600");
    let ranks: Vec<i32> = family.iter().copied().filter(|&pid| parent(parent(pid)) == job.pid()).collect();
    assert_eq!(ranks.len(), 2, "ranks are children of the keeper, which is the launcher's child");
    let keeper = parent(ranks[0]);
    job.signal(Signal::SIGKILL);
    job.wait();
    assert_gone(&family);
    assert_gone(&[keeper]);
}

#[test]
fn killing_the_keeper_ends_the_job() {
    // The launcher notices, says so, and ends what the keeper would have ended.
    let dir = tempfile::tempdir().unwrap();
    let (job, family) = start(dir.path(), "sleep 3600");
    let rank = family.iter().copied().find(|&pid| parent(parent(pid)) == job.pid()).unwrap();
    kill(Pid::from_raw(parent(rank)), Signal::SIGKILL).unwrap();
    let output = job.finish();
    assert_eq!(output.status.code(), Some(137));
    assert!(text(&output.stderr).contains("the keeper of the ranks was killed by SIGKILL"));
    assert_gone(&family);
}

#[test]
fn killing_launcher_and_keeper_at_once_ends_the_ranks() {
    // With nobody left to watch, the kernel still ends the ranks themselves.
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "echo $$ > {0}/$RANK.tmp; mv {0}/$RANK.tmp {0}/$RANK.pid; exec sleep 3600",
        dir.path().display()
    );
    let mut job = Job::start(run(&["-n", "2"], &script));
    let ranks = pids(dir.path(), 2);
    let keeper = Pid::from_raw(parent(ranks[0]));
    job.signal(Signal::SIGSTOP);
    kill(keeper, Signal::SIGKILL).unwrap();
    job.signal(Signal::SIGKILL);
    job.wait();
    assert_gone(&ranks);
}

#[test]
fn what_outlives_successful_ranks_is_ended_too() {
    // All ranks return 0 and leave daemons: the job is a success and the daemons are gone.
    let dir = tempfile::tempdir().unwrap();
    let (job, family) = start(dir.path(), "exit 0");
    let started = Instant::now();
    let output = job.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(!family.iter().any(|&pid| is_alive(pid)), "gone before the launcher ends, not after");
}

#[test]
fn a_failing_rank_takes_all_families_along() {
    // Also those of ranks that were killed by the launcher.
    let dir = tempfile::tempdir().unwrap();
    let (job, family) = start(dir.path(), "[ $RANK = 0 ] && exit 9; trap \"\" TERM; sleep 3600");
    let output = job.finish();
    assert_eq!(output.status.code(), Some(9), "{}", text(&output.stderr));
    assert!(!family.iter().any(|&pid| is_alive(pid)));
}

#[test]
fn a_full_output_is_told() {
    // A closed pipe ends the job silently, a full disk does not: the lines of ranks are lost.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = ringccl();
    command.args(["run", "-n", "2", "--", "/bin/sh", "-c", "echo lost"]);
    let output = command.stdout(full).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.contains("standard output: No space left") && told.lines().count() == 1, "{told}");
}

#[test]
fn a_closed_output_ends_the_job() {
    // `ringccl run ... | head -1`: the ranks do not go on for nobody.
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "echo $$ > {0}/$RANK.tmp; mv {0}/$RANK.tmp {0}/$RANK.pid; while :; do echo more; sleep 0.01; done",
        dir.path().display()
    );
    let mut command = ringccl();
    command.args(["run", "-n", "2", "--grace", "0.2", "--", "/bin/sh", "-c", &script]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let ranks = pids(dir.path(), 2);
    drop(child.stdout.take());
    let mut status = None;
    wait_for("the job to end", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(141));
    assert_gone(&ranks);
}
