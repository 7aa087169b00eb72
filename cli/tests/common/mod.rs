//! What the tests of `ringccl run` share: jobs with a deadline, and processes looked up by pid.
#![allow(dead_code)] // each test file uses its own part

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Longest time that anything here may take; far above what it takes on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// `ringccl` with a clean environment for its jobs.
pub(crate) fn ringccl() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringccl"));
    command.env_remove("RINGCCL_CLUSTER_CONFIG").env_remove("FAKEGPU_CLUSTER_CONFIG");
    command.stdin(Stdio::null());
    command
}

/// `ringccl run OPTIONS -- /bin/sh -c SCRIPT`.
pub(crate) fn run(options: &[&str], script: &str) -> Command {
    let mut command = ringccl();
    command.arg("run").args(options).args(["--", "/bin/sh", "-c", script]);
    command
}

/// A running `ringccl` that is killed if the test gives up on it.
pub(crate) struct Job {
    child: Child,
}

impl Job {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    /// A job of which only stderr is of interest; its output goes to `stdout`.
    pub(crate) fn start_into(mut command: Command, stdout: impl Into<Stdio>) -> Self {
        command.stdout(stdout).stderr(Stdio::piped());
        Self { child: command.spawn().unwrap() }
    }

    pub(crate) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// Everything that the job printed, as far as it was piped, and how it ended, within the deadline.
    pub(crate) fn finish(mut self) -> Output {
        let out = self.child.stdout.take().map(|mut from| thread::spawn(move || read_all(&mut from)));
        let err = self.child.stderr.take().map(|mut from| thread::spawn(move || read_all(&mut from)));
        let status = self.wait();
        let [stdout, stderr] = [out, err].map(|reader| reader.map_or_else(Vec::new, |r| r.join().unwrap()));
        Output { status, stdout, stderr }
    }

    /// How the job ended, within the deadline.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the job to end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_all(from: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    bytes
}

/// Runs a command to its end within the deadline.
pub(crate) fn output(command: Command) -> Output {
    Job::start(command).finish()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Lines of stdout, sorted, since ranks print in any order.
pub(crate) fn sorted_lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Waits for a state; panics with `what` at the deadline.
pub(crate) fn wait_for(what: &str, mut state: impl FnMut() -> bool) {
    let started = Instant::now();
    while !state() {
        assert!(started.elapsed() < DEADLINE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// The pids that a job's processes have written to `dir/NAME.pid`, once there are `count` of them.
pub(crate) fn pids(dir: &Path, count: usize) -> Vec<i32> {
    let mut found = Vec::new();
    wait_for("pid files", || {
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let pid_files: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|e| e == "pid")).collect();
        found =
            pid_files.iter().filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok()).collect();
        found.len() >= count
    });
    assert_eq!(found.len(), count);
    found
}

/// Whether a process runs; a zombie that nobody reaps does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = text(&stat);
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The parent of a process.
pub(crate) fn parent(pid: i32) -> i32 {
    let stat = text(&fs::read(format!("/proc/{pid}/stat")).unwrap());
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Waits until none of `pids` runs.
pub(crate) fn assert_gone(pids: &[i32]) {
    wait_for("processes to end", || !pids.iter().any(|&pid| is_alive(pid)));
}
