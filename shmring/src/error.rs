//! Errors of segments and rings.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What can go wrong with a segment or a ring.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The geometry asks for something a segment cannot be.
    #[error("segment geometry: {what} is {found}, allowed is {allowed}")]
    Geometry {
        /// The field.
        what: &'static str,
        /// Its value.
        found: u64,
        /// What would be right, in words.
        allowed: &'static str,
    },
    /// A file of this name exists and belongs to a running job.
    #[error("segment `{}` exists already: another job uses this id; start again to get a new one", path.display())]
    Exists {
        /// The segment's file.
        path: PathBuf,
    },
    /// The file system that holds segments is full.
    #[error(
        "no room in {}: {bytes} more bytes are needed and {free} are free; free some, enlarge it \
         (mount -o remount,size=1G {}; docker run --shm-size=1g), or use fewer ranks or channels",
        dir.display(), dir.display()
    )]
    NoSpace {
        /// The directory of segments.
        dir: PathBuf,
        /// Bytes that were asked for.
        bytes: u64,
        /// Bytes that were free just after the failure.
        free: u64,
    },
    /// The operating system refused an operation on the segment's file.
    #[error("cannot {what} segment `{}`: {cause}{}", path.display(), hint(cause))]
    Io {
        /// What was tried.
        what: &'static str,
        /// The segment's file.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The operating system gave no memory for a segment inside of one process.
    #[error("cannot have {bytes} bytes of memory for a segment: {cause}; use fewer ranks or channels")]
    Memory {
        /// Bytes that were asked for.
        bytes: u64,
        /// The system's answer.
        cause: io::Error,
    },
    /// The segment was not there, not whole or not ready when the deadline passed.
    #[error(
        "segment `{}` was {state} after {waited:?}: its creator died or is slow; start again, with a longer \
         time-out if the machine is busy",
        path.display()
    )]
    NotReady {
        /// The segment's file.
        path: PathBuf,
        /// The state it was last seen in.
        state: &'static str,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A field of the header differs from what this build or this job expects.
    #[error(
        "segment `{}`: {field} is {found:#x}, this build expects {expected:#x}; remove the file or run matching \
         builds and settings on all ranks",
        path.display()
    )]
    Mismatch {
        /// The segment's file.
        path: PathBuf,
        /// The header field.
        field: &'static str,
        /// What the header holds.
        found: u64,
        /// What it should hold.
        expected: u64,
    },
    /// The segment's file belongs to another user or can be reached by one.
    #[error(
        "segment `{}` is not private to this user (owner {owner}, mode {mode:o}); remove it and look for who made it",
        path.display()
    )]
    NotPrivate {
        /// The segment's file.
        path: PathBuf,
        /// User id of the owner.
        owner: u32,
        /// Permission bits.
        mode: u32,
    },
    /// A role of a ring is taken already.
    #[error(
        "the {role} role of this ring is taken already: two ranks use one rank number, or one joined twice"
    )]
    RoleTaken {
        /// `sender` or `receiver`.
        role: &'static str,
    },
    /// A shared counter holds a value that no correct peer writes.
    #[error(
        "corrupt ring: {what} is {found} while this side is at step {step}; a peer wrote outside its memory, \
         end the job"
    )]
    Corrupt {
        /// The counter.
        what: &'static str,
        /// Its value.
        found: u64,
        /// The reader's own step.
        step: u64,
    },
}

fn hint(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::PermissionDenied => "; make the directory writable for this user (mode 1777)",
        io::ErrorKind::NotFound => "; mount a tmpfs there",
        _ => "",
    }
}

impl Error {
    #[cold]
    #[inline(never)]
    pub(crate) fn corrupt(what: &'static str, found: u64, step: u64) -> Self {
        Self::Corrupt { what, found, step }
    }
}
