//! Names of segments, and what is left when a job dies between creating one and everybody's attaching.

use nix::errno::Errno;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const PREFIX: &str = "ringccl-";

/// Name of a segment: the job, and the process that creates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentName {
    /// Random id of the job.
    pub job: u64,
    /// The creator's process id.
    pub pid: u32,
    /// The creator's start time in clock ticks since boot.
    pub start_time: u64,
    /// Inode of the creator's pid namespace, in which `pid` has a meaning.
    pub pid_namespace: u64,
}

impl SegmentName {
    /// The name for a segment of `job` made by this process.
    pub fn of_this_process(job: u64) -> Self {
        let pid = std::process::id();
        Self {
            job,
            pid,
            start_time: process_start_time(pid).unwrap_or(0),
            pid_namespace: pid_namespace().unwrap_or(0),
        }
    }

    /// The file's name: `ringccl-JOB-NAMESPACE-PID-STARTTIME`, the first in hexadecimal.
    pub fn file_name(&self) -> String {
        format!("{PREFIX}{:016x}-{}-{}-{}", self.job, self.pid_namespace, self.pid, self.start_time)
    }

    /// Reads a file name back; `None` if it is not one of ours.
    pub fn parse(file_name: &str) -> Option<Self> {
        let mut parts = file_name.strip_prefix(PREFIX)?.split('-');
        let job = u64::from_str_radix(parts.next()?, 16).ok()?;
        let pid_namespace = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let start_time = parts.next()?.parse().ok()?;
        parts.next().is_none().then_some(Self { job, pid, start_time, pid_namespace })
    }

    /// Whether the creator is known to be gone. False when that cannot be told from here.
    fn is_stale(&self, own_namespace: u64) -> bool {
        self.pid_namespace == own_namespace && process_start_time(self.pid) != Some(self.start_time)
    }
}

/// When `pid` started, in clock ticks since boot; `None` if there is no such process.
pub fn process_start_time(pid: u32) -> Option<u64> {
    // Lossy, since a process may give itself a name of any bytes.
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold spaces; start time is the 20th field after it.
    String::from_utf8_lossy(&stat).rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Inode of this process's pid namespace.
fn pid_namespace() -> Option<u64> {
    Some(std::fs::metadata("/proc/self/ns/pid").ok()?.ino())
}

/// Removes the segments in `dir` whose creators are gone. Returns how many.
///
/// Only this user's files are touched, and only names made in this pid namespace: a process of another
/// container that shares the directory cannot be judged from here.
pub fn remove_stale(dir: &Path) -> usize {
    let (Some(namespace), Ok(entries)) = (pid_namespace(), std::fs::read_dir(dir)) else { return 0 };
    let user = nix::unistd::geteuid().as_raw();
    let mut removed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(SegmentName::parse) else { continue };
        let ours = entry.metadata().is_ok_and(|meta| meta.uid() == user && meta.is_file());
        if ours && name.is_stale(namespace) && std::fs::remove_file(entry.path()).is_ok() {
            removed += 1;
        }
    }
    removed
}

/// Removes a name; one that is gone already is fine.
pub(super) fn remove(path: &Path) {
    // ENOENT means that somebody else has done it; on any other answer the next job's `remove_stale` tries again.
    let _: Result<(), Errno> = nix::unistd::unlink(path);
}

/// Removes the name when the creator gives up before everybody has attached.
#[derive(Debug)]
pub(super) struct NameGuard {
    path: PathBuf,
}

impl NameGuard {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        // Harmless after the last attach: names are never used twice.
        remove(&self.path);
    }
}
