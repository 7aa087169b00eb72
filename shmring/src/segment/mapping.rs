//! The one place that holds the base address of a segment.

use crate::error::Error;
use crate::layout::PAGE;
use memmap2::{MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// A mapping of a whole segment: of its file, or of memory that only this process has.
#[derive(Debug)]
pub(super) struct Mapping {
    map: MmapRaw,
    backing: Backing,
}

/// What is behind a mapping.
#[derive(Debug)]
enum Backing {
    /// Memory that only this process has; it takes room as it is touched.
    Private,
    /// A file that is not open any more, so that a communicator costs no descriptor: ranges are committed through the
    /// mapping.
    Mapped(PathBuf),
    /// A file kept open to commit ranges of it: kernels before 5.14 cannot do that through a mapping.
    Open(File, PathBuf),
}

impl Mapping {
    /// Maps `bytes` of `file`, which is at least that long.
    pub(super) fn new(file: File, path: PathBuf, bytes: u64) -> Result<Self, Error> {
        let io = |cause| Error::Io { what: "map", path: path.clone(), cause };
        let len = usize::try_from(bytes).map_err(|_| io(std::io::ErrorKind::OutOfMemory.into()))?;
        let map = MmapOptions::new().len(len).map_raw(&file).map_err(io)?;
        // A core dump of a rank need not contain every other rank's slots; a refusal changes nothing.
        let _ = map.advise(memmap2::Advice::DontDump);
        // Of no bytes: only an unknown advice is refused.
        let commits = map.advise_range(memmap2::Advice::PopulateWrite, 0, 0).is_ok();
        let backing = if commits { Backing::Mapped(path) } else { Backing::Open(file, path) };
        Ok(Self { map, backing })
    }

    /// `bytes` of zeroed memory, which take room as they are touched.
    pub(super) fn in_memory(bytes: u64) -> Result<Self, Error> {
        let fail = |cause| Error::Memory { bytes, cause };
        let len = usize::try_from(bytes).map_err(|_| fail(std::io::ErrorKind::OutOfMemory.into()))?;
        let map = MmapOptions::new().len(len).no_reserve_swap().map_anon().map_err(fail)?;
        Ok(Self { map: map.into(), backing: Backing::Private })
    }

    /// Whether only this process has this memory.
    pub(super) fn is_private(&self) -> bool {
        matches!(self.backing, Backing::Private)
    }

    /// The address `offset` bytes into the segment.
    ///
    /// # Panics
    /// If a `T` at that offset is misaligned or reaches beyond the mapping.
    #[inline]
    pub(super) fn at<T>(&self, offset: u64) -> NonNull<T> {
        let len = self.map.len() as u64;
        assert!(offset <= len && size_of::<T>() as u64 <= len - offset, "offset {offset} of {len}");
        // SAFETY: the assertion keeps the address inside the one mapping.
        let address = unsafe { self.map.as_mut_ptr().add(offset as usize) };
        assert!(address.addr().is_multiple_of(align_of::<T>()), "offset {offset} is misaligned");
        // A mapping is never at address 0.
        NonNull::new(address).expect("a mapping has an address").cast()
    }

    /// Makes sure that `bytes` from `offset` have memory behind them, and maps their pages.
    ///
    /// Harmless when they have some already: content stays as it is.
    pub(super) fn commit(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        // Faulting pages in later, one by one, would cost a microsecond each in the middle of an operation.
        let populate =
            || self.map.advise_range(memmap2::Advice::PopulateWrite, offset as usize, bytes as usize);
        match &self.backing {
            Backing::Private => Ok(()),
            Backing::Mapped(path) => loop {
                match populate() {
                    Ok(()) => return Ok(()),
                    Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                    // A touch would have been a SIGBUS: no room is left, or the file was cut.
                    Err(cause) if cause.raw_os_error() == Some(libc::EFAULT) => {
                        return Err(no_space(path, bytes));
                    }
                    Err(cause) => {
                        return Err(Error::Io { what: "reserve memory for", path: path.clone(), cause });
                    }
                }
            },
            Backing::Open(file, path) => {
                reserve(file, path, offset, bytes)?;
                let _ = populate();
                Ok(())
            }
        }
    }

    /// Bytes of memory behind the segment now.
    pub(super) fn committed_bytes(&self) -> Result<u64, Error> {
        let Backing::Open(file, path) = &self.backing else { return self.resident_bytes() };
        let io = |cause| Error::Io { what: "read the size of", path: path.clone(), cause };
        // st_blocks counts units of 512 bytes, whatever the file system's block size.
        Ok(file.metadata().map_err(io)?.blocks() * 512)
    }

    /// Bytes of the pages that are in memory, whichever process has touched them.
    fn resident_bytes(&self) -> Result<u64, Error> {
        let mut pages = vec![0u8; self.map.len().div_ceil(PAGE as usize)];
        // SAFETY: the range is this mapping, which is live and starts on a page; there is a byte for each page.
        let answer =
            unsafe { libc::mincore(self.map.as_mut_ptr().cast(), self.map.len(), pages.as_mut_ptr()) };
        if answer != 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::Memory { bytes: self.map.len() as u64, cause });
        }
        Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64 * PAGE)
    }
}

/// Allocates `bytes` from `offset` of the segment's file.
pub(super) fn reserve(file: &File, path: &Path, offset: u64, bytes: u64) -> Result<(), Error> {
    loop {
        let range = (offset.cast_signed(), bytes.cast_signed());
        match fallocate(file, FallocateFlags::FALLOC_FL_KEEP_SIZE, range.0, range.1) {
            Ok(()) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(Errno::ENOSPC) => return Err(no_space(path, bytes)),
            Err(errno) => {
                return Err(Error::Io { what: "reserve memory for", path: path.into(), cause: errno.into() });
            }
        }
    }
}

/// The error for `bytes` of a segment that found no room.
fn no_space(path: &Path, bytes: u64) -> Error {
    let dir = path.parent().unwrap_or(path).to_path_buf();
    let free = nix::sys::statvfs::statvfs(&dir).map_or(0, |fs| fs.blocks_available() * fs.fragment_size());
    Error::NoSpace { dir, bytes, free }
}
