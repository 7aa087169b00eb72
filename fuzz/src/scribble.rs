//! A third party that can write anywhere in a segment: the file mapped once more, outside of the library.

use memmap2::MmapRaw;
use ringccl::comm::AbortHandle;
use shmring::segment::{SegmentName, SegmentSpec};
use shmring::sync::{AtomicU64, Ordering};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tempfile::TempDir;

/// A mapping of a whole segment, whose words are written without any right.
#[derive(Debug)]
pub(crate) struct Scribbler {
    at: Place,
}

#[derive(Debug)]
enum Place {
    /// A mapping of our own.
    Own(MmapRaw),
    /// That of a rank of this process, which the handles keep alive.
    Ranks { start: usize, bytes: usize, _alive: Vec<AbortHandle> },
}

impl Scribbler {
    /// Maps the segment's file. Panics when that is not possible: the target could check nothing.
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).expect("the segment's file opens");
        Self { at: Place::Own(MmapRaw::map_raw(&file).expect("the segment's file can be mapped")) }
    }

    /// Finds the mapping of a segment in `dir` whose name is gone already: all of its ranks live in this process, and
    /// these are their handles.
    pub(crate) fn find(dir: &Path, handles: Vec<AbortHandle>) -> Option<Self> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        // START-END PERMISSIONS OFFSET DEVICE INODE PATH (deleted)
        let line = maps.lines().find(|line| line.contains(&format!(" {}/", dir.display())))?;
        let (start, end) = line.split_once(' ')?.0.split_once('-')?;
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16));
        let start = start.ok()?;
        Some(Self { at: Place::Ranks { start, bytes: end.ok()? - start, _alive: handles } })
    }

    fn range(&self) -> (*mut u8, usize) {
        match &self.at {
            Place::Own(map) => (map.as_mut_ptr(), map.len()),
            Place::Ranks { start, bytes, .. } => (std::ptr::with_exposed_provenance_mut(*start), *bytes),
        }
    }

    /// Words of the segment.
    pub(crate) fn words(&self) -> u64 {
        self.range().1 as u64 / 8
    }

    fn at(&self, offset: u64) -> &AtomicU64 {
        let (start, bytes) = self.range();
        assert!(offset.is_multiple_of(8) && offset / 8 < self.words(), "offset {offset} of {bytes}");
        // SAFETY: the assertion keeps the word aligned and inside the mapping, which starts on a page and lives as long
        // as this; every content is a valid atomic.
        unsafe { AtomicU64::from_ptr(start.add(offset as usize).cast()) }
    }

    pub(crate) fn read(&self, offset: u64) -> u64 {
        // ORDERING: Relaxed; a word by itself.
        self.at(offset).load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, offset: u64, word: u64) {
        // ORDERING: Relaxed; who scribbles synchronises with nobody.
        self.at(offset).store(word, Ordering::Relaxed);
    }
}

/// A directory of segments on the file system that segments need.
pub(crate) fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("ringccl-fuzz-")
        .tempdir_in("/dev/shm")
        .expect("/dev/shm takes directories")
}

/// The path of the segment of `spec`.
pub(crate) fn path(spec: &SegmentSpec) -> PathBuf {
    spec.dir.join(spec.name.file_name())
}

/// A name that no other segment of this process has.
pub(crate) fn fresh_name() -> SegmentName {
    static MADE: Mutex<u64> = Mutex::new(0);
    let mut made = MADE.lock().expect("nobody panics with this lock");
    *made += 1;
    SegmentName::of_this_process(*made)
}
