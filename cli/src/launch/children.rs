//! The processes below this one: found, killed and reaped until none is left.

use std::fs;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Longest sleep between two looks for orphans that have become ours.
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(Signal),
}

impl Exit {
    /// The code that a shell would report.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code).unwrap_or(1),
            Self::Signal(signal) => 128 + u8::try_from(signal as i32).unwrap_or(0),
        }
    }

    /// Whether this counts as success.
    pub(crate) fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

/// What reaping found.
#[derive(Debug, Default)]
pub(crate) struct Reaped {
    /// Children that have ended, in no particular order.
    pub(crate) ended: Vec<(Pid, Exit)>,
    /// Whether this process has no child left.
    pub(crate) none_left: bool,
}

/// Reaps every child that has ended, orphans that became ours included, without waiting.
pub(crate) fn reap() -> Reaped {
    let mut reaped = Reaped::default();
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => reaped.ended.push((pid, Exit::Code(code))),
            Ok(WaitStatus::Signaled(pid, signal, _)) => reaped.ended.push((pid, Exit::Signal(signal))),
            Ok(WaitStatus::StillAlive) => return reaped,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => {
                reaped.none_left = true;
                return reaped;
            }
        }
    }
}

/// Sends `signal` to every direct child.
///
/// Their own children become ours as soon as their parent is reaped: killing generation by
/// generation needs no pid of a process that somebody else could have reaped meanwhile.
pub(crate) fn signal_children(signal: Signal) {
    for child in children() {
        // A child that has ended already stays a zombie until we reap it; no stranger is hit.
        let _ = kill(child, signal);
    }
}

/// Kills everything below this process; names what is left at the deadline.
///
/// # Errors
///
/// The children that did not end, which only a hung kernel or device can cause.
pub(crate) fn end_all(deadline: Instant) -> Result<(), Vec<Pid>> {
    let mut pause = Duration::from_millis(1);
    loop {
        signal_children(Signal::SIGKILL);
        let reaped = reap();
        if reaped.none_left {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(children());
        }
        // With progress, orphans are ours already: look again at once.
        pause = if reaped.ended.is_empty() { (pause * 2).min(PAUSE_MAX) } else { Duration::from_millis(1) };
        std::thread::sleep(pause);
    }
}

/// The direct children of this process, zombies included.
pub(crate) fn children() -> Vec<Pid> {
    let own = std::process::id();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pid_of = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<i32>().ok();
    entries
        .flatten()
        .filter_map(pid_of)
        .filter(|pid| {
            // Bytes, not text: a process may call itself anything.
            let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
            parent(&String::from_utf8_lossy(&stat)) == Some(own)
        })
        .map(Pid::from_raw)
        .collect()
}

/// Field 4 of a `/proc/PID/stat` line; the command in field 2 may hold blanks and parentheses.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_a_shells() {
        // 128 is added for signals; codes outside of a byte cannot come from the system.
        assert_eq!((Exit::Code(3).code(), Exit::Signal(Signal::SIGKILL).code()), (3, 137));
        assert!(Exit::Code(0).is_success() && !Exit::Code(1).is_success());
        assert!(!Exit::Signal(Signal::SIGTERM).is_success());
    }

    #[test]
    fn parents_are_found_behind_hostile_names() {
        // The name of a command may look like the fields that follow it.
        assert_eq!(parent("12 (sh) S 34 5 6"), Some(34));
        assert_eq!(parent("12 (a) S 99 (b)) R 34 5 6"), Some(34));
        assert_eq!(parent("12 (cut"), None);
    }
}
