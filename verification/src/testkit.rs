//! Ranks as processes, each watched with a deadline.
//!
//! A failed expectation panics: this is the tests' own vocabulary.

mod command;
mod job;
mod rank;
mod shm;

pub use command::{Finished, run, started_by, wait_for};
pub use job::{Job, Meet, free_port};
pub use rank::{Ended, Rank};
pub use shm::ShmDir;

use std::time::Duration;

/// Longest time that any single thing may take; far above what it takes on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(60);
