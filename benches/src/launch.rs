//! Starting the ranks of a measurement and reading the JSON lines that they print.

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The `ringccl` program: the one named, or the one beside this program.
///
/// # Errors
/// When there is no such file, with how to get one.
pub fn find_ringccl(named: Option<&Path>) -> Result<PathBuf> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => {
            let own = std::env::current_exe().context("cannot find this program's own file")?;
            own.with_file_name("ringccl")
        }
    };
    ensure!(
        path.is_file(),
        "`{}` is not there: run `cargo build --release` in the workspace, or give --ringccl FILE",
        path.display()
    );
    Ok(path)
}

/// A child that does not outlive this value. Killing `ringccl` ends its ranks as well: its keeper sees to that.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            // A child that cannot be killed has ended by itself.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Runs `command` to its end and reads each line of its output as a `T`. Its error output is passed on.
///
/// # Errors
/// When it cannot be started, fails, prints something else, or is not done after `deadline`; it is killed then.
pub fn json_lines<T: DeserializeOwned>(command: &mut Command, deadline: Duration) -> Result<Vec<T>> {
    let shown = format!("{command:?}");
    let end = Instant::now() + deadline;
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut running = Running(child.with_context(|| format!("cannot start {shown}"))?);
    let output = running.0.stdout.take().context("a child without an output")?;
    let (sender, lines) = channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            if sender.send(line).is_err() {
                return; // nobody listens after the deadline
            }
        }
    });
    let mut rows = Vec::new();
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let line = line.with_context(|| format!("cannot read the output of {shown}"))?;
                let row = serde_json::from_str(&line);
                rows.push(row.with_context(|| format!("{shown} printed `{line}`, which is no row"))?);
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => bail!("{shown} was not done after {deadline:?}; killed"),
        }
    }
    // The output has ended, so the reader has, and the child is about to.
    reader.join().map_err(|_| anyhow::anyhow!("the reader of {shown} panicked"))?;
    let status = running.0.wait().with_context(|| format!("cannot wait for {shown}"))?;
    ensure!(status.success(), "{shown} failed: {status}");
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, deadline: Duration) -> Result<Vec<u32>> {
        json_lines(Command::new("sh").args(["-c", script]), deadline)
    }

    const LONG: Duration = Duration::from_secs(60);

    /// All lines arrive, in order.
    #[test]
    fn lines_arrive() {
        assert_eq!(shell("echo 1; echo 22", LONG).unwrap(), [1, 22]);
        assert_eq!(shell("true", LONG).unwrap(), [0; 0]);
    }

    /// Failure, output that is no row, and a program that is not there are errors that say so.
    #[test]
    fn failures_are_told() {
        let text = |result: Result<Vec<u32>>| format!("{:#}", result.unwrap_err());
        assert!(text(shell("echo 1; exit 3", LONG)).contains("exit status: 3"));
        assert!(text(shell("echo hello", LONG)).contains("`hello`"));
        assert!(text(json_lines(&mut Command::new("/no/such"), LONG)).contains("cannot start"));
        assert!(
            format!("{:#}", find_ringccl(Some(Path::new("/no/such"))).unwrap_err()).contains("--ringccl")
        );
    }

    /// A program that does not end is killed at the deadline, long before it would have ended.
    #[test]
    fn deadline_holds() {
        let start = Instant::now();
        let text = format!("{:#}", shell("exec sleep 60", Duration::from_millis(50)).unwrap_err());
        assert!(text.contains("not done after 50ms"), "{text}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }
}
