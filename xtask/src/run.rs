//! Running other programs: from the project's root, with their output shown, kept, or both.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The project's root folder.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Cargo, as it runs us, in the project's root.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_default();
    let mut words = vec![program.to_string_lossy()];
    words.extend(command.get_args().map(|arg| arg.to_string_lossy()));
    words.join(" ")
}

/// Runs a command with its output shown.
pub(crate) fn show(command: &mut Command) -> Result<()> {
    let text = line(command);
    let status = command.status().with_context(|| format!("cannot start `{text}`; is it installed?"))?;
    if !status.success() {
        bail!("`{text}` failed: {status}");
    }
    Ok(())
}

/// What a command printed, and how it ended.
pub(crate) struct Shown {
    /// The command as one would type it.
    pub(crate) command: String,
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Standard output, then standard error.
    pub(crate) output: String,
}

/// Runs a command with its output both shown and returned.
pub(crate) fn tee(command: &mut Command) -> Result<Shown> {
    let text = line(command);
    // Escape codes would hide the numbers that are read from the output.
    command.env("CARGO_TERM_COLOR", "never");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{text}`; is it installed?"))?;
    let readers = [pipe(child.stdout.take(), Some(Echo::Out)), pipe(child.stderr.take(), Some(Echo::Err))];
    let status = child.wait()?;
    Ok(Shown { command: text, status, output: readers.into_iter().map(join).collect() })
}

/// What a command that was watched did.
pub(crate) struct Watched {
    /// Its status, or `None` when it was killed at the deadline.
    pub(crate) status: Option<ExitStatus>,
    /// Standard output and error.
    pub(crate) output: String,
}

/// Runs a command in silence and kills it when it has not ended by `deadline`.
pub(crate) fn watch(command: &mut Command, deadline: Duration) -> Result<Watched> {
    let text = line(command);
    command.env("CARGO_TERM_COLOR", "never");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start `{text}`; is it installed?"))?;
    let readers = [pipe(child.stdout.take(), None), pipe(child.stderr.take(), None)];
    let status = wait_until(&mut child, Instant::now() + deadline)?;
    if status.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(Watched { status, output: readers.into_iter().map(join).collect() })
}

fn wait_until(child: &mut Child, end: Instant) -> Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[derive(Clone, Copy)]
enum Echo {
    Out,
    Err,
}

type Reader = std::thread::JoinHandle<String>;

fn pipe<R: Read + Send + 'static>(from: Option<R>, echo: Option<Echo>) -> Option<Reader> {
    let mut from = BufReader::new(from?);
    Some(std::thread::spawn(move || {
        let mut text = String::new();
        let mut bytes = Vec::new();
        while from.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
            // A closed terminal must not end the run: the outcome still goes to the exit code.
            let _ = match echo {
                Some(Echo::Out) => std::io::stdout().write_all(&bytes),
                Some(Echo::Err) => std::io::stderr().write_all(&bytes),
                None => Ok(()),
            };
            text.push_str(&String::from_utf8_lossy(&bytes));
            bytes.clear();
        }
        text
    }))
}

fn join(reader: Option<Reader>) -> String {
    reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
}
