//! Commands that are no ranks: run to their end, and what is left of them.

use super::DEADLINE;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How a command ended.
#[derive(Debug)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

/// Runs a command to its end.
///
/// # Panics
/// At the deadline; the command is killed then.
pub fn run(mut command: Command) -> Finished {
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the command can be started");
    let readers = [child.stdout.take().map(read), child.stderr.take().map(read)];
    let status = loop {
        if let Some(status) = child.try_wait().expect("the command is our child") {
            break status;
        }
        if start.elapsed() > DEADLINE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{command:?} did not end within {DEADLINE:?}");
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let took = start.elapsed();
    let [stdout, stderr] =
        readers.map(|reader| reader.map_or_else(String::new, |r| r.join().expect("reads")));
    Finished { code: status.code(), stdout, stderr, took }
}

fn read(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Waits for a state.
///
/// # Panics
/// With `what` at the deadline.
pub fn wait_for(what: &str, mut state: impl FnMut() -> bool) {
    let start = Instant::now();
    while !state() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The living processes whose environment holds `NAME=VALUE`: what a job with that setting has started.
pub fn started_by(name: &str, value: &str) -> Vec<i32> {
    let wanted = format!("{name}={value}");
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    // A process that ends while we look has no environment any more.
    pids.filter(|pid| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    })
    .collect()
}
