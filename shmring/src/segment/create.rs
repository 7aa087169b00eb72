//! Making a segment.

use super::mapping::{self, Mapping};
use super::name::NameGuard;
use super::{Segment, SegmentSpec};
use crate::error::Error;
use crate::layout::layout_hash;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;

impl Segment {
    /// Creates the segment and attaches as member 0.
    ///
    /// # Errors
    /// [`Error::Geometry`], [`Error::Exists`], [`Error::NoSpace`], [`Error::Io`]; no name is left then.
    pub fn create(spec: &SegmentSpec) -> Result<Self, Error> {
        spec.geometry.validate()?;
        let path = spec.path();
        let io = |what| {
            let path = path.clone();
            move |cause| Error::Io { what, path, cause }
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW)
            .open(&path)
            .map_err(|cause| match cause.kind() {
                ErrorKind::AlreadyExists => Error::Exists { path: path.clone() },
                _ => io("create")(cause),
            })?;
        let guard = NameGuard::new(path.clone());
        let total = spec.geometry.total_bytes();
        file.set_len(total).map_err(io("set the length of"))?;
        mapping::reserve(&file, &path, 0, spec.geometry.control_bytes())?;
        let mapping = Mapping::new(file, path, total)?;
        let header: std::ptr::NonNull<crate::layout::SegmentHeader> = mapping.at(0);
        // SAFETY: offset 0 is page aligned and was committed above; zeroed memory is a valid header of
        // atomics and payload words.
        unsafe { header.as_ref() }.publish(layout_hash(), spec.generation, spec.settings, &spec.geometry);
        Ok(Self::join(mapping, spec, 0, Some(guard)))
    }
}
