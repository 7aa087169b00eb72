//! A segment directory of a test's own.

use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A directory on `/dev/shm` that goes with its value; whatever a job leaves is found by looking into it.
#[derive(Debug)]
pub struct ShmDir {
    dir: TempDir,
}

impl ShmDir {
    /// A new, empty directory.
    ///
    /// # Panics
    /// When `/dev/shm` cannot be written.
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("verification-").tempdir_in("/dev/shm");
        Self { dir: dir.expect("a directory in /dev/shm") }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The files in it.
    ///
    /// # Panics
    /// When the directory cannot be read.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path()).expect("the directory is there");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    }

    /// Panics if a file is left.
    ///
    /// # Panics
    /// With the names of what is left.
    pub fn assert_empty(&self) {
        assert_eq!(self.files(), Vec::<PathBuf>::new(), "left behind");
    }
}

impl Default for ShmDir {
    fn default() -> Self {
        Self::new()
    }
}
