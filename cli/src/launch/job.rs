//! What is to be started.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where one rank lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rank {
    /// Name of its node.
    pub(crate) node: String,
    /// Position of the node in the cluster file.
    pub(crate) node_index: usize,
    /// Position of the rank on its node.
    pub(crate) local_rank: u32,
    /// Number of ranks on its node.
    pub(crate) local_world_size: u32,
}

impl Rank {
    /// The variables that tell a process that it is rank `rank` of `world_size`, as torchrun sets them.
    pub(crate) fn env(&self, rank: usize, world_size: usize) -> [(&'static str, String); 6] {
        [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", world_size.to_string()),
            ("LOCAL_RANK", self.local_rank.to_string()),
            ("LOCAL_WORLD_SIZE", self.local_world_size.to_string()),
            ("GROUP_RANK", self.node_index.to_string()),
            ("RINGCCL_NODE", self.node.clone()),
        ]
    }
}

/// A command to be run once per rank.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Program and arguments; at least one element.
    pub(crate) command: Vec<OsString>,
    /// One entry per rank.
    pub(crate) ranks: Vec<Rank>,
    /// Variables for all ranks beside those that every job has.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Whether lines of output start with the rank.
    pub(crate) prefix: bool,
    /// Time from the first failure to SIGKILL; SIGTERM comes at half of it.
    pub(crate) grace: Duration,
}

impl Job {
    /// A job with the defaults of `ringccl run`.
    pub(crate) fn new(command: Vec<OsString>, ranks: Vec<Rank>) -> Self {
        Self { command, ranks, env: Vec::new(), prefix: true, grace: Duration::from_secs(2) }
    }
}

/// What the keeper is told beside its arguments and environment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) prefix: bool,
    pub(crate) grace: Duration,
    /// Limit on descriptors that the ranks get back, if the launcher raised its own.
    pub(crate) descriptors: Option<u64>,
}
