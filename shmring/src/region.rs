//! Regions: memory of one process that others of the same user map, so that data need not pass through rings.
//!
//! ```text
//!  owner   Region::new      an anonymous file (memfd), sealed against shrinking, mapped here
//!          Region::address  process, descriptor, file, length: 48 bytes, sent to others in any way
//!  other   Foreign::map     opens /proc/PID/fd/N, checks that it is that very file, maps it
//! ```
//!
//! The file has no name, takes nothing of the room in `/dev/shm`, and lives for as long as anybody maps it: an owner
//! that frees its memory, or dies, takes nothing away from those who still read it. The seal makes sure that no mapped
//! page can vanish, which would be a SIGBUS.

use crate::segment::process_start_time;
use memmap2::{MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the files are called in listings of a process's memory; nobody opens them by it.
const NAME: &std::ffi::CStr = c"ringccl-region";

/// Memory of this process that other processes of this user can map. Zeroed, and committed from the start.
#[derive(Debug)]
pub struct Region {
    map: MmapRaw,
    file: File,
    address: Address,
}

/// Where another process finds a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pid: u32,
    start_time: u64,
    descriptor: u32,
    device: u64,
    inode: u64,
    bytes: u64,
}

/// Why a region of another process cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The address makes no sense.
    #[error("an address that no process sends")]
    Malformed,
    /// The process that had it has ended.
    #[error("process {0} has ended")]
    Gone(u32),
    /// Its descriptors cannot be looked at.
    #[error(
        "cannot {what} memory of process {pid}: {cause}; the ranks must run as one user, in one PID namespace, with /proc"
    )]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The process.
        pid: u32,
        /// The system's answer.
        cause: std::io::Error,
    },
    /// The descriptor leads to another file by now, or to one that could shrink.
    #[error("process {0} has freed this memory, or another file is where it was")]
    Changed(u32),
}

impl Region {
    /// `bytes` of memory, at least one page.
    ///
    /// # Errors
    /// What the system answers; [`std::io::ErrorKind::OutOfMemory`] when it has not as much.
    pub fn new(bytes: usize) -> std::io::Result<Self> {
        let len = bytes.max(1);
        let none = || std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        let end = i64::try_from(len).map_err(|_| none())?;
        // The kernel would try: page by page, until it kills somebody.
        if available_bytes().is_some_and(|available| len as u64 > available) {
            return Err(none());
        }
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = File::from(memfd_create(NAME, flags)?);
        file.set_len(len as u64)?;
        // Without memory behind it a first touch could be a SIGBUS.
        loop {
            match fallocate(&file, FallocateFlags::empty(), 0, end) {
                Ok(()) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let map = map(&file, len)?;
        let meta = file.metadata()?;
        let pid = std::process::id();
        let address = Address {
            pid,
            start_time: process_start_time(pid).unwrap_or(0),
            descriptor: file.as_raw_fd().cast_unsigned(),
            device: meta.dev(),
            inode: meta.ino(),
            bytes: len as u64,
        };
        Ok(Self { map, file, address })
    }

    /// Where other processes find it, for as long as it lives here.
    pub fn address(&self) -> Address {
        debug_assert_eq!(self.file.as_raw_fd().cast_unsigned(), self.address.descriptor);
        self.address
    }

    /// The first byte, on a page; valid for [`Region::len`] bytes, which other processes may write too.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it has no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Address {
    /// Words of an address on its way.
    pub const WORDS: usize = 6;

    /// For another process to read.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.pid.into(), self.start_time, self.descriptor.into(), self.device, self.inode, self.bytes]
    }

    /// As another process wrote it; `None` for what none writes.
    #[must_use]
    pub fn from_words(words: [u64; Self::WORDS]) -> Option<Self> {
        let [pid, start_time, descriptor, device, inode, bytes] = words;
        let fits = bytes > 0 && isize::try_from(bytes).is_ok();
        let (pid, descriptor) = (u32::try_from(pid).ok()?, u32::try_from(descriptor).ok()?);
        fits.then_some(Self { pid, start_time, descriptor, device, inode, bytes })
    }

    /// Bytes of the region.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.bytes
    }

    /// Whether its process lives; also where the system does not tell.
    fn is_alive(self) -> bool {
        process_start_time(self.pid).map_or_else(
            || Path::new("/proc").join(self.pid.to_string()).exists(),
            |start_time| start_time == self.start_time,
        )
    }

    fn path(self) -> PathBuf {
        Path::new("/proc").join(self.pid.to_string()).join("fd").join(self.descriptor.to_string())
    }
}

/// Another process's region, mapped here.
#[derive(Debug)]
pub struct Foreign {
    map: MmapRaw,
}

impl Foreign {
    /// Maps the region at `address`.
    ///
    /// # Errors
    /// [`MapError`]: why it cannot be had.
    pub fn map(address: Address) -> Result<Self, MapError> {
        let pid = address.pid;
        let refused = |what| move |cause| MapError::Refused { what, pid, cause };
        // Should it lead to a pipe by now, opening that must not wait.
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(address.path())
            .map_err(|cause| match cause.kind() {
                std::io::ErrorKind::NotFound if !address.is_alive() => MapError::Gone(pid),
                _ => refused("open")(cause),
            })?;
        let meta = file.metadata().map_err(refused("look at"))?;
        let is_it = meta.is_file() && (meta.dev(), meta.ino()) == (address.device, address.inode);
        if !is_it || meta.len() != address.bytes || !is_sealed(&file) {
            return Err(MapError::Changed(pid));
        }
        let len = usize::try_from(address.bytes).map_err(|_| MapError::Malformed)?;
        Ok(Self { map: map(&file, len).map_err(refused("map"))? })
    }

    /// The first byte, on a page; valid for [`Foreign::len`] bytes, which its owner reads and writes.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it has no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Maps all `len` bytes of a region's file, in huge pages where the system has them for shared memory.
fn map(file: &File, len: usize) -> std::io::Result<MmapRaw> {
    let map = MmapOptions::new().len(len).map_raw(file)?;
    // A refusal changes nothing but speed, and the size of a core dump.
    let _ = map.advise(memmap2::Advice::HugePage);
    let _ = map.advise(memmap2::Advice::DontDump);
    // Page by page in the middle of an operation would cost a microsecond each.
    let _ = map.advise(memmap2::Advice::PopulateWrite);
    Ok(map)
}

/// Bytes of memory that can be had without taking them from others; `None` where the system does not tell.
fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes.saturating_mul(1024).min(room_in_group().unwrap_or(u64::MAX)))
}

/// What a container's limit leaves.
fn room_in_group() -> Option<u64> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(name)).ok()?;
        text.trim().parse::<u64>().ok()
    };
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

fn is_sealed(file: &File) -> bool {
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain);
    seals.is_ok_and(|seals| seals.contains(SealFlag::F_SEAL_SHRINK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_mapping_writes_the_other_reads() {
        // Proves that a region and its foreign mapping are the same bytes, and that the latter outlives the former.
        let region = Region::new(10_000).unwrap();
        let foreign = Foreign::map(region.address()).unwrap();
        assert_eq!((region.len(), foreign.len()), (10_000, 10_000));
        // SAFETY: both mappings have 10,000 bytes, and no other thread knows of them.
        unsafe {
            assert_eq!(foreign.as_ptr().add(9_999).read(), 0);
            region.as_ptr().add(9_999).write(7);
            drop(region);
            assert_eq!(foreign.as_ptr().add(9_999).read(), 7);
        }
    }

    #[test]
    fn an_address_survives_the_way() {
        // Proves that the words of an address make that address, and that impossible ones make none.
        let address = Region::new(4096).unwrap().address();
        let words = address.to_words();
        assert_eq!(Address::from_words(words), Some(address));
        for (word, value) in [(0, 1 << 32), (2, 1 << 32), (5, 0), (5, 1 << 63)] {
            let mut broken = words;
            broken[word] = value;
            assert_eq!(Address::from_words(broken), None, "word {word}");
        }
    }

    #[test]
    fn what_is_not_that_region_is_refused() {
        // Proves each check of a mapping: process, file, length, seal.
        let region = Region::new(8192).unwrap();
        let right = region.address();
        let other = Region::new(8192).unwrap();
        let unsealed = File::from(memfd_create(NAME, MFdFlags::MFD_CLOEXEC).unwrap());
        unsealed.set_len(8192).unwrap();
        let meta = unsealed.metadata().unwrap();
        let descriptor = unsealed.as_raw_fd().cast_unsigned();
        let gone = Address { start_time: right.start_time + 1, descriptor: u32::MAX, ..right };
        assert!(matches!(Foreign::map(gone), Err(MapError::Gone(_))));
        let closed = Address { descriptor: u32::MAX, ..right };
        assert!(matches!(Foreign::map(closed), Err(MapError::Refused { .. })));
        for wrong in [
            Address { descriptor: other.address().descriptor, ..right },
            Address { bytes: 4096, ..right },
            Address { bytes: 16384, ..right },
            Address { descriptor, inode: meta.ino(), device: meta.dev(), ..right },
        ] {
            assert!(matches!(Foreign::map(wrong), Err(MapError::Changed(_))), "{wrong:?}");
        }
        let freed = right;
        drop(region);
        let error = Foreign::map(freed);
        // Another test may have opened something there meanwhile.
        assert!(matches!(error, Err(MapError::Refused { .. } | MapError::Changed(_))), "{error:?}");
    }

    #[test]
    fn a_pipe_in_its_place_does_not_hold_anybody_up() {
        // Proves that opening what is no file comes back, and is refused.
        let (reader, _writer) = std::io::pipe().unwrap();
        let region = Region::new(4096).unwrap();
        let address = Address { descriptor: reader.as_raw_fd().cast_unsigned(), ..region.address() };
        assert!(Foreign::map(address).is_err());
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        // Proves that a length no machine has is refused in words, before the system begins to look for it.
        for bytes in [isize::MAX as usize, 1 << 46] {
            let error = Region::new(bytes).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
        }
    }
}
