//! What a worker tells its test: one JSON object a line on standard output.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One line of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The worker's rank.
    pub rank: u32,
    /// When this was noted, in nanoseconds of CLOCK_MONOTONIC, which all processes of a host share.
    pub at_ns: u64,
    /// What is reported.
    #[serde(flatten)]
    pub event: Event,
}

/// What a worker reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The process runs and is about to join.
    Started,
    /// The communicator was made.
    Joined {
        /// Time from the call to its return, in milliseconds.
        init_ms: f64,
    },
    /// The first operations of a loop are through: a kill now meets a running one.
    Running,
    /// All work is done and right.
    Done {
        /// CPU time of the process during the work, in milliseconds.
        cpu_ms: f64,
        /// How often this rank slept on its bell.
        sleeps: u64,
        /// Shared memory of all ranks after a small operation, in bytes.
        shared_small: u64,
        /// The same after a large one.
        shared_large: u64,
    },
    /// A communicator was made from another one, and works.
    Made {
        /// This rank's number in it.
        new_rank: u32,
        /// How many ranks it has.
        nranks: u32,
    },
    /// The id by which newcomers join a communicator that grows.
    GrowthId {
        /// The id in hexadecimal digits.
        id: String,
    },
    /// What this process holds at the moment.
    Held {
        /// What it has just done.
        after: String,
        /// Resident memory, in KiB.
        resident_kb: u64,
        /// Of that what is shared with other processes, in KiB.
        shared_kb: u64,
        /// Open descriptors.
        descriptors: u64,
        /// Threads.
        threads: u64,
        /// Mappings.
        mappings: u64,
    },
    /// What the work consisted of.
    Covered {
        /// In words.
        what: String,
    },
    /// A call failed.
    Failed {
        /// Class of the error.
        class: String,
        /// Its text.
        error: String,
    },
}

/// CLOCK_MONOTONIC now, in nanoseconds; 0 where the system has no such clock.
pub fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map_or(0, |time| time.tv_sec().unsigned_abs() * 1_000_000_000 + time.tv_nsec().unsigned_abs())
}
