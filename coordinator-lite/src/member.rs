//! What ranks say about themselves, and what they get to know about each other.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process;

use serde::{Deserialize, Serialize};

use crate::Error;

/// One process of a group as its peers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Process id in the namespace `pid_namespace`.
    pub pid: u32,
    /// Start of the process in clock ticks since boot, which tells it from a later one with the same pid.
    pub start_time: u64,
    /// Opaque name of the host's shared memory: members share a segment if this text is equal.
    pub host: String,
    /// Inode of the pid namespace; pids mean the same process only where this number is equal.
    pub pid_namespace: u64,
    /// Name of the (virtual) node this rank belongs to.
    pub node: String,
    /// Position of this rank on its node.
    pub local_rank: u32,
    /// Version of the library that this rank runs.
    pub version: String,
}

impl Member {
    /// Describes the calling process as rank `local_rank` of `node`.
    ///
    /// The host text joins the boot id with the device number of `/dev/shm`, so that two containers
    /// on one machine count as one host only if they really see the same shared memory.
    ///
    /// # Errors
    ///
    /// [`Error::Identity`] if `/proc` or `/dev/shm` cannot be read.
    pub fn current(node: &str, local_rank: u32) -> Result<Self, Error> {
        let boot = read("/proc/sys/kernel/random/boot_id")?;
        let stat = read("/proc/self/stat")?;
        let start_time = start_ticks(&stat).ok_or_else(|| Error::Identity {
            path: "/proc/self/stat",
            cause: std::io::Error::new(std::io::ErrorKind::InvalidData, "no start time in field 22"),
        })?;
        Ok(Self {
            pid: process::id(),
            start_time,
            host: format!("{}/{:x}", boot.trim(), metadata("/dev/shm")?.dev()),
            pid_namespace: metadata("/proc/self/ns/pid")?.ino(),
            node: node.to_owned(),
            local_rank,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}

/// A communicator as its coordinator numbers them, from 1; numbers are not used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommId(pub u64);

impl fmt::Display for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Request of one rank to become part of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the group; the ranks of one communicator use the same.
    pub group: String,
    /// Position of the caller in the group, `0 .. nranks`.
    pub rank: u32,
    /// Number of ranks of the group.
    pub nranks: u32,
    /// The caller itself.
    pub member: Member,
}

/// Answer to every rank of a complete group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Number of the communicator at its coordinator.
    pub comm: CommId,
    /// Name of the group as in the hello; for a child, its root's name and the child's number: `world#3`.
    pub group: String,
    /// 16 random hex digits, the same for all members and new for every instance of a group.
    pub job: String,
    /// All members in rank order; `nranks` elements.
    pub members: Vec<Member>,
}

/// Field 22 of a `/proc/PID/stat` line; the command in field 2 may hold blanks and parentheses.
fn start_ticks(stat: &str) -> Option<u64> {
    let after_command = stat.rsplit_once(')')?.1;
    after_command.split_ascii_whitespace().nth(19)?.parse().ok()
}

fn read(path: &'static str) -> Result<String, Error> {
    // Lossy, since the name of a command in /proc may be any bytes.
    let bytes = fs::read(path).map_err(|cause| Error::Identity { path, cause })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn metadata(path: &'static str) -> Result<fs::Metadata, Error> {
    fs::metadata(path).map_err(|cause| Error::Identity { path, cause })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_found_behind_a_hostile_command_name() {
        // The command may contain ") 1 2", so fields are counted from the last parenthesis.
        let tail: Vec<String> = (3..=52).map(|field| field.to_string()).collect();
        let stat = format!("7 (a) b ) c) {}", tail.join(" "));
        assert_eq!(start_ticks(&stat), Some(22));
        assert_eq!(start_ticks("7 no parenthesis"), None);
        assert_eq!(start_ticks("7 (short) S 1"), None);
    }

    #[test]
    fn current_process_is_described_the_same_twice() {
        // Two members of one process agree in everything that identifies the process.
        let a = Member::current("n0", 1).unwrap();
        assert_eq!(a, Member::current("n0", 1).unwrap());
        assert_eq!(a.pid, process::id());
        assert!(a.start_time > 0 && a.pid_namespace > 0 && a.host.len() > 36);
    }
}
