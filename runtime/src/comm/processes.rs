//! Descriptors of other processes, one for each however many communicators this process shares with it.
//!
//! Hundreds of communicators with eight ranks each would need thousands of descriptors otherwise.

use nix::errno::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

/// A process by its id and start time, which tells it from a later one with the same id.
type Key = (u32, u64);

/// A process that can be watched: its descriptor is readable when it has ended.
#[derive(Debug)]
pub(super) struct Process {
    key: Key,
    fd: OwnedFd,
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let mut table = table();
        // Another thread may have opened it anew after the last user of this one was gone.
        if table.get(&self.key).is_some_and(|entry| entry.strong_count() == 0) {
            table.remove(&self.key);
        }
    }
}

/// What opening a process has come to.
#[derive(Debug)]
pub(super) enum Opened {
    /// A descriptor, of this process or of a later one with the same id if this one had ended before.
    Process(Arc<Process>),
    /// There is no such process.
    Gone,
    /// No descriptor can be had.
    Nothing,
}

static TABLE: LazyLock<Mutex<HashMap<Key, Weak<Process>>>> = LazyLock::new(Mutex::default);

fn table() -> MutexGuard<'static, HashMap<Key, Weak<Process>>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The descriptor of process `pid` that started at `start_time`, shared with whoever has it open.
pub(super) fn open(pid: u32, start_time: u64) -> Opened {
    let key = (pid, start_time);
    let mut table = table();
    if let Some(process) = table.get(&key).and_then(Weak::upgrade) {
        return Opened::Process(process);
    }
    // SAFETY: the call takes two integers and returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return if Errno::last() == Errno::ESRCH { Opened::Gone } else { Opened::Nothing };
    }
    // SAFETY: the descriptor was made just now and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let process = Arc::new(Process { key, fd });
    table.insert(key, Arc::downgrade(&process));
    Opened::Process(process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmring::segment::process_start_time;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    /// A process has one descriptor for all who watch it, and none when nobody does.
    #[test]
    fn a_process_is_opened_once() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = child.id();
        let start_time = process_start_time(pid).unwrap();
        let open = || match open(pid, start_time) {
            Opened::Process(process) => process,
            other => panic!("{other:?}"),
        };
        let (first, second) = (open(), open());
        assert_eq!(first.fd.as_raw_fd(), second.fd.as_raw_fd());
        drop(first);
        assert!(table().contains_key(&(pid, start_time)));
        drop(second);
        assert!(!table().contains_key(&(pid, start_time)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(super::open(pid, start_time), Opened::Gone));
    }
}
