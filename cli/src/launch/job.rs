//! What is to be started.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use topo::Cluster;

/// Largest number of ranks of a job.
pub(crate) const RANKS_MAX: u32 = 4096;

/// Reads a number of ranks as users write it behind `-n`.
///
/// # Errors
///
/// With the range, if `text` is not a number from 1 to [`RANKS_MAX`].
pub(crate) fn parse_ranks(text: &str) -> Result<u32> {
    match text.parse::<u32>() {
        Ok(ranks) if (1..=RANKS_MAX).contains(&ranks) => Ok(ranks),
        _ => bail!("-n {text}: the number of ranks is a whole number from 1 to {RANKS_MAX}"),
    }
}

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
    /// `ranks` ranks without a cluster file: all on `node0`.
    pub(crate) fn on_one_node(ranks: u32) -> Vec<Self> {
        (0..ranks)
            .map(|rank| Self {
                node: "node0".into(),
                node_index: 0,
                local_rank: rank,
                local_world_size: ranks,
            })
            .collect()
    }

    /// All ranks of a cluster file on their nodes.
    pub(crate) fn on_cluster(cluster: &Cluster) -> Vec<Self> {
        let place = |rank| Self {
            node: cluster.node_of(rank).id().into(),
            node_index: cluster.node_index(rank),
            local_rank: cluster.local_rank(rank),
            local_world_size: cluster.node_of(rank).ranks().len() as u32,
        };
        (0..cluster.world_size()).map(place).collect()
    }

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
    /// Whether the ranks say in a line of their own why they fail, so that no summary is needed unless one is killed.
    pub(crate) ranks_explain: bool,
}

impl Job {
    /// A job with the defaults of `ringccl run`.
    pub(crate) fn new(command: Vec<OsString>, ranks: Vec<Rank>) -> Self {
        let grace = Duration::from_secs(2);
        Self { command, ranks, env: Vec::new(), prefix: true, grace, ranks_explain: false }
    }
}

/// What the keeper is told beside its arguments and environment.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Orders {
    pub(crate) ranks: Vec<Rank>,
    pub(crate) prefix: bool,
    pub(crate) grace: Duration,
    pub(crate) ranks_explain: bool,
    /// Limit on descriptors that the ranks get back, if the launcher raised its own.
    pub(crate) descriptors: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_ranks_are_checked() {
        // Both ends of the range, what lies beyond, and what is no number.
        assert_eq!(parse_ranks("1").unwrap(), 1);
        assert_eq!(parse_ranks("4096").unwrap(), 4096);
        for text in ["0", "4097", "100000", "-1", "1.5", "", "99999999999999999999"] {
            assert!(parse_ranks(text).unwrap_err().to_string().contains("1 to 4096"), "{text}");
        }
    }

    #[test]
    fn without_a_cluster_all_ranks_share_a_node() {
        // The local numbers equal the global ones.
        let ranks = Rank::on_one_node(3);
        assert!(ranks.iter().all(|r| r.node == "node0" && r.node_index == 0 && r.local_world_size == 3));
        assert_eq!(ranks.iter().map(|r| r.local_rank).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
