//! Joining a segment that another process makes.

use super::mapping::Mapping;
use super::{Segment, SegmentSpec};
use crate::error::Error;
use crate::layout::{HeaderWord, LAYOUT_VERSION, MAGIC, PAGE, layout_hash};
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// What a look at the file found. The first three may change by waiting.
enum Look {
    Absent,
    TooShort,
    NotReady,
    Ready(Box<Mapping>),
}

impl Segment {
    /// Attaches as `member`, waiting until `deadline` for the creator.
    ///
    /// # Errors
    /// [`Error::NotReady`] at the deadline; [`Error::Mismatch`] when a field of the header is not what `spec`
    /// says; [`Error::NotPrivate`], [`Error::Io`], [`Error::Geometry`].
    ///
    /// # Panics
    /// If `member` is not below the number of members.
    pub fn attach(spec: &SegmentSpec, member: u32, deadline: Duration) -> Result<Self, Error> {
        spec.geometry.validate()?;
        assert!(member < spec.geometry.members, "member {member} of {}", spec.geometry.members);
        let path = spec.path();
        let start = Instant::now();
        let mut pause = Duration::from_micros(50);
        loop {
            let state = match look(spec, &path)? {
                Look::Ready(mapping) => return Ok(Self::join(*mapping, spec, member, None)),
                Look::Absent => "absent",
                Look::TooShort => "too short",
                Look::NotReady => "not ready",
            };
            if start.elapsed() >= deadline {
                return Err(Error::NotReady { path, state, waited: deadline });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }
}

fn look(spec: &SegmentSpec, path: &Path) -> Result<Look, Error> {
    let io = |what| move |cause| Error::Io { what, path: path.into(), cause };
    let opened =
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW).open(path);
    let file: File = match opened {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Look::Absent),
        Err(e) => return Err(io("open")(e)),
    };
    let meta = file.metadata().map_err(io("read the state of"))?;
    if meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        return Err(Error::NotPrivate { path: path.into(), owner: meta.uid(), mode: meta.mode() & 0o7777 });
    }
    // The creator sets the length first and commits the header next; a page that has no memory behind it
    // would read as zeros, or fault on a full file system.
    if meta.len() < PAGE || meta.blocks() == 0 {
        return Ok(Look::TooShort);
    }
    let head = Mapping::new(file.try_clone().map_err(io("open"))?, path.into(), PAGE)?;
    let header: std::ptr::NonNull<crate::layout::SegmentHeader> = head.at(0);
    // SAFETY: the first page is mapped and has memory behind it; any bytes are a valid header of atomics.
    let Some(found) = unsafe { header.as_ref() }.description() else {
        return Ok(Look::NotReady);
    };
    validate(spec, path, &found)?;
    let total = spec.geometry.total_bytes();
    if meta.len() != total {
        let field = "length of the file";
        return Err(Error::Mismatch { path: path.into(), field, found: meta.len(), expected: total });
    }
    Ok(Look::Ready(Box::new(Mapping::new(file, path.into(), total)?)))
}

/// Compares every word of the header with what this job expects; nothing of it is used afterwards.
fn validate(spec: &SegmentSpec, path: &Path, found: &[u64; HeaderWord::COUNT]) -> Result<(), Error> {
    let fixed = [
        (HeaderWord::Magic, MAGIC),
        (HeaderWord::Version, LAYOUT_VERSION),
        (HeaderWord::LayoutHash, layout_hash()),
        (HeaderWord::Generation, spec.generation),
        (HeaderWord::TotalBytes, spec.geometry.total_bytes()),
        (HeaderWord::Settings, spec.settings),
    ];
    for (word, expected) in fixed.into_iter().chain(spec.geometry.to_words()) {
        let found = found[word as usize];
        if found != expected {
            let field = HeaderWord::NAMES[word as usize];
            return Err(Error::Mismatch { path: path.into(), field, found, expected });
        }
    }
    Ok(())
}
