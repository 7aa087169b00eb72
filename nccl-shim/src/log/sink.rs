//! Where log lines go.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// A file, or one of the standard streams.
#[derive(Debug)]
pub(super) enum Sink {
    /// Standard output: NCCL's default.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file of `NCCL_DEBUG_FILE`.
    File(Mutex<File>),
}

impl Sink {
    /// What `NCCL_DEBUG_FILE` names; standard output if it cannot be opened.
    pub(super) fn open(pattern: Option<&str>, host: &str) -> Self {
        let Some(pattern) = pattern else { return Self::Stdout };
        match expand(pattern, host, std::process::id()).as_str() {
            "/dev/stdout" => Self::Stdout,
            "/dev/stderr" => Self::Stderr,
            path => File::create(path).map_or(Self::Stdout, |file| Self::File(Mutex::new(file))),
        }
    }

    /// Writes whole lines at once. A log that cannot be written is no reason to fail.
    pub(super) fn write(&self, lines: &str) {
        let _ = match self {
            Self::Stdout => {
                let mut out = io::stdout().lock();
                out.write_all(lines.as_bytes()).and_then(|()| out.flush())
            }
            Self::Stderr => io::stderr().lock().write_all(lines.as_bytes()),
            Self::File(file) => {
                file.lock().unwrap_or_else(PoisonError::into_inner).write_all(lines.as_bytes())
            }
        };
    }
}

/// `%h` is the host, `%p` the process, `%%` a percent sign; anything else stays.
fn expand(pattern: &str, host: &str, pid: u32) -> String {
    let mut path = String::new();
    let mut rest = pattern.chars();
    while let Some(next) = rest.next() {
        match (next, next == '%') {
            (_, false) => path.push(next),
            _ => match rest.next() {
                Some('h') => path += host,
                Some('p') => path += &pid.to_string(),
                Some('%') => path.push('%'),
                Some(other) => path.extend(['%', other]),
                None => path.push('%'),
            },
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The patterns of the file's name.
    #[test]
    fn names_have_host_and_process() {
        assert_eq!(expand("/tmp/n.%h.%p.log", "box", 7), "/tmp/n.box.7.log");
        assert_eq!(expand("100%%.%q.%", "box", 7), "100%.%q.%");
    }
}
