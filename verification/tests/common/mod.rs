//! What the test files share: where the programs are.
#![allow(dead_code)] // each test file uses its own part

use std::path::{Path, PathBuf};

/// The rank program.
pub(crate) fn worker() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_worker"))
}

/// The `ringccl` command, which cargo builds next to the worker when it builds the workspace.
pub(crate) fn ringccl() -> PathBuf {
    let path = worker().with_file_name("ringccl");
    assert!(path.exists(), "{} is missing: run `cargo build --package ringccl-cli` first", path.display());
    path
}
