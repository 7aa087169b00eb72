//! One rank's process.

use super::DEADLINE;
use crate::report::{Event, Report, monotonic_ns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A running rank, killed when dropped.
#[derive(Debug)]
pub struct Rank {
    child: Child,
    reports: Receiver<Report>,
    seen: Vec<Report>,
    stderr: Option<JoinHandle<String>>,
}

/// What a rank left when it ended.
#[derive(Debug)]
pub struct Ended {
    /// Everything it reported.
    pub reports: Vec<Report>,
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl Rank {
    /// Starts a worker; its standard input is what the command says.
    ///
    /// # Panics
    /// When the program cannot be started.
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the worker can be started");
        let out = child.stdout.take().expect("standard output is a pipe");
        let mut err = child.stderr.take().expect("standard error is a pipe");
        let (to, reports) = channel();
        // The thread ends with the pipe, which ends with the process.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let report = serde_json::from_str(&line).expect("a worker prints reports only");
                if to.send(report).is_err() {
                    return;
                }
            }
        });
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        });
        Self { child, reports, seen: Vec::new(), stderr: Some(stderr) }
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Hands bytes to the worker's standard input and closes it.
    ///
    /// # Panics
    /// When standard input is no pipe or closed.
    pub fn feed(&mut self, bytes: &[u8]) {
        use std::io::Write;
        let mut stdin = self.child.stdin.take().expect("standard input is a pipe");
        stdin.write_all(bytes).expect("the worker reads");
    }

    /// Sends a signal; returns CLOCK_MONOTONIC just before, in nanoseconds.
    ///
    /// # Panics
    /// When the process is not there.
    pub fn signal(&self, signal: Signal) -> u64 {
        let at = monotonic_ns();
        // Not reaped before `finish`, so the number is still ours.
        kill(Pid::from_raw(self.pid()), signal).expect("the worker is there");
        at
    }

    /// Waits until the process is stopped, as after SIGSTOP.
    ///
    /// # Panics
    /// At the deadline.
    pub fn wait_stopped(&self) {
        super::wait_for("the process to stop", || self.state().is_some_and(|state| state == 'T'));
    }

    /// The state letter of `/proc/PID/stat`.
    fn state(&self) -> Option<char> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// Waits for a report that `wanted` accepts.
    ///
    /// # Panics
    /// At the deadline, or when the worker ends without it.
    pub fn wait_for(&mut self, what: &str, wanted: impl Fn(&Event) -> bool) -> Report {
        if let Some(report) = self.seen.iter().find(|report| wanted(&report.event)) {
            return report.clone();
        }
        let end = Instant::now() + DEADLINE;
        loop {
            match self.reports.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(report) => {
                    self.seen.push(report.clone());
                    if wanted(&report.event) {
                        return report;
                    }
                }
                Err(why) => panic!("waited in vain for {what} ({why}); reported: {:?}", self.seen),
            }
        }
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// At the deadline.
    pub fn finish(mut self) -> Ended {
        let end = Instant::now() + DEADLINE;
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("the worker is our child") {
                break status;
            }
            assert!(Instant::now() < end, "rank still runs; reported: {:?}", self.seen);
            std::thread::sleep(Duration::from_millis(1));
        };
        loop {
            match self.reports.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(report) => self.seen.push(report),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("standard output stays open"),
            }
        }
        let stderr = self.stderr.take().map(|thread| thread.join().expect("the reader ends"));
        Ended {
            reports: std::mem::take(&mut self.seen),
            code: status.code(),
            stderr: stderr.unwrap_or_default(),
        }
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        // Both fail harmlessly when the process has been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// The error that the worker reported, with class and time.
    ///
    /// # Panics
    /// When there is none.
    pub fn failure(&self) -> (&str, &str, u64) {
        let found = self.reports.iter().find_map(|report| match &report.event {
            Event::Failed { class, error } => Some((class.as_str(), error.as_str(), report.at_ns)),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no error: {self:?}"))
    }

    /// As [`Ended::assert_done`], of a worker that has been heard to suspect a rank while it waited for it.
    ///
    /// # Panics
    /// With what it left.
    pub fn assert_done_after_suspicion(&self) {
        let is_suspicion =
            |line: &str| line.starts_with("ringccl: warning: ") && line.contains("; suspected: ");
        assert!(self.is_done() && self.stderr.lines().all(is_suspicion), "{self:?}");
    }

    fn is_done(&self) -> bool {
        self.code == Some(0) && self.reports.iter().any(|report| matches!(report.event, Event::Done { .. }))
    }

    /// Panics unless the worker did all its work and ended well.
    ///
    /// # Panics
    /// With what it left.
    pub fn assert_done(&self) {
        assert!(self.is_done() && self.stderr.is_empty(), "{self:?}");
    }
}
