//! A third party that can write anywhere in a segment: the file mapped once more, outside of the library.

use memmap2::MmapRaw;
use shmring::segment::{SegmentName, SegmentSpec};
use shmring::sync::{AtomicU64, Ordering};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tempfile::TempDir;

/// A mapping of a whole segment, whose words are written without any right.
#[derive(Debug)]
pub(crate) struct Scribbler {
    map: MmapRaw,
}

impl Scribbler {
    /// Maps the segment's file. Panics when that is not possible: the target could check nothing.
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).open(path).expect("the segment's file opens");
        Self::map(&file)
    }

    fn map(file: &File) -> Self {
        Self { map: MmapRaw::map_raw(file).expect("the segment's file can be mapped") }
    }

    /// Maps a segment of this process whose name is gone already: its file is among our open ones.
    pub(crate) fn find(dir: &Path) -> Option<Self> {
        let open = std::fs::read_dir("/proc/self/fd").ok()?;
        let mut paths = open.flatten().map(|entry| entry.path());
        let of_segment = |path: &PathBuf| std::fs::read_link(path).is_ok_and(|to| to.starts_with(dir));
        Some(Self::open(&paths.find(of_segment)?))
    }

    /// Words of the segment.
    pub(crate) fn words(&self) -> u64 {
        self.map.len() as u64 / 8
    }

    fn at(&self, offset: u64) -> &AtomicU64 {
        assert!(
            offset.is_multiple_of(8) && offset / 8 < self.words(),
            "offset {offset} of {}",
            self.map.len()
        );
        // SAFETY: the assertion keeps the word aligned and inside the mapping, which starts on a page; every
        // content is a valid atomic.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(offset as usize).cast()) }
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
