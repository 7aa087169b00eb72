//! `ringccl run`: N copies of a command as the ranks of one job.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use topo::Cluster;

use crate::launch::{self, Job, Rank};

/// Largest number of ranks of a job.
const RANKS_MAX: u32 = 4096;
/// Variables that name a cluster file where `--cluster` does not; the second is FakeGPU's.
const CLUSTER_VARIABLES: [&str; 2] = ["RINGCCL_CLUSTER_CONFIG", "FAKEGPU_CLUSTER_CONFIG"];

/// Options of `ringccl run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of ranks, 1 to 4096 [default: the world size of the cluster file]
    #[arg(short = 'n', long = "ranks", value_name = "N", allow_hyphen_values = true)]
    ranks: Option<String>,
    /// Cluster file (YAML) that places the ranks on virtual nodes [env: RINGCCL_CLUSTER_CONFIG]
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Time that the ranks have to find each other, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout_start: Option<Duration>,
    /// Time that ranks have to end after one of them failed, in seconds: SIGTERM at half of it,
    /// SIGKILL at its end
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    grace: Duration,
    /// Show output lines without the rank in front
    #[arg(long)]
    no_prefix: bool,
    /// The command that each rank runs, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the job and returns the exit code of the first rank that failed.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let cluster = match cluster_path(&args) {
        Some(path) => Some(Cluster::load(path)?),
        None => None,
    };
    let ranks = number_of_ranks(args.ranks.as_deref(), cluster.as_ref())?;
    let mut job = Job::new(args.command, place(ranks, cluster.as_ref()));
    job.prefix = !args.no_prefix;
    job.grace = args.grace;
    if let Some(timeout) = args.timeout_start {
        job.env.push(("RINGCCL_JOIN_TIMEOUT_MS".into(), timeout.as_millis().to_string().into()));
    }
    if let Some(cluster) = &cluster {
        job.env.push(("RINGCCL_CLUSTER_CONFIG".into(), absolute(cluster.path())?.into()));
    }
    Ok(launch::launch(&job)?.into())
}

fn cluster_path(args: &Args) -> Option<PathBuf> {
    let named = || CLUSTER_VARIABLES.iter().find_map(|name| std::env::var_os(name).filter(|v| !v.is_empty()));
    args.cluster.clone().or_else(|| named().map(PathBuf::from))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| {
        format!("cannot make `{}` absolute; does the working directory still exist?", path.display())
    })
}

/// The number of ranks that the user and the cluster file agree on.
fn number_of_ranks(asked: Option<&str>, cluster: Option<&Cluster>) -> Result<u32> {
    let asked = asked.map(parse_ranks).transpose()?;
    let Some(cluster) = cluster else {
        return asked.context("how many ranks? give -n N, or --cluster FILE to take the number from a file");
    };
    let (size, file) = (cluster.world_size(), cluster.path().display());
    if let Some(asked) = asked.filter(|&asked| asked != size) {
        bail!("-n {asked} but `{file}` has {size} ranks; leave -n out or use a file for {asked} ranks");
    }
    ensure!(
        size <= RANKS_MAX,
        "`{file}` has {size} ranks; this machine's launcher starts at most {RANKS_MAX}"
    );
    Ok(size)
}

fn parse_ranks(text: &str) -> Result<u32> {
    match text.parse::<u32>() {
        Ok(ranks) if (1..=RANKS_MAX).contains(&ranks) => Ok(ranks),
        _ => bail!("-n {text}: the number of ranks is a whole number from 1 to {RANKS_MAX}"),
    }
}

/// Where each rank lives: on the nodes of the cluster, or all on `node0`.
pub(crate) fn place(ranks: u32, cluster: Option<&Cluster>) -> Vec<Rank> {
    let rank = |rank: u32| match cluster {
        None => Rank { node: "node0".into(), node_index: 0, local_rank: rank, local_world_size: ranks },
        Some(cluster) => Rank {
            node: cluster.node_of(rank).id().into(),
            node_index: cluster.node_index(rank),
            local_rank: cluster.local_rank(rank),
            local_world_size: cluster.node_of(rank).ranks().len() as u32,
        },
    };
    (0..ranks).map(rank).collect()
}

/// A duration in seconds, with or without a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.0..=86_400.0).contains(s));
    let seconds = seconds.ok_or("seconds are a number from 0 to 86400, such as 2 or 0.5")?;
    Ok(Duration::from_secs_f64(seconds))
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
        assert!(number_of_ranks(None, None).unwrap_err().to_string().contains("-n N"));
    }

    #[test]
    fn without_a_cluster_all_ranks_share_a_node() {
        // The local numbers equal the global ones.
        let ranks = place(3, None);
        assert!(ranks.iter().all(|r| r.node == "node0" && r.node_index == 0 && r.local_world_size == 3));
        assert_eq!(ranks.iter().map(|r| r.local_rank).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn seconds_are_bounded_numbers() {
        // Fractions are fine; negative, infinite and absent numbers are not.
        assert_eq!(seconds("0.5").unwrap(), Duration::from_millis(500));
        assert_eq!(seconds("0").unwrap(), Duration::ZERO);
        for text in ["-1", "inf", "nan", "", "2s", "1e9"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
