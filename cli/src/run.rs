//! `ringccl run`: N copies of a command as the ranks of one job.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ::topo::Cluster;
use anyhow::{Context, Result, bail, ensure};

use crate::launch::{self, Job, RANKS_MAX, Rank, parse_ranks};
use crate::topo::Source;

/// Options of `ringccl run`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Number of ranks, 1 to 4096 [default: the world size of the cluster file]
    #[arg(short = 'n', long = "ranks", value_name = "N", allow_hyphen_values = true)]
    ranks: Option<String>,
    /// Cluster file (YAML) that places the ranks on virtual nodes
    /// [env: RINGCCL_CLUSTER_CONFIG, FAKEGPU_CLUSTER_CONFIG]
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Time that the ranks have to find each other, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout_start: Option<Duration>,
    /// Time that ranks have to end after one of them failed, in seconds: SIGTERM at half of it,
    /// SIGKILL at its end
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "2")]
    grace: Duration,
    /// Processor cores of the ranks' communicating threads: `even` gives each one core [default: none]
    #[arg(long, value_name = "HOW", value_parser = ["none", "even"])]
    bind: Option<String>,
    /// The same as `--bind even`
    #[arg(long, conflicts_with = "bind")]
    pin: bool,
    /// Have the ranks find RingCCL's libnccl.so.2 in place of NVIDIA's, as `ringccl env` does
    #[arg(long)]
    nccl: bool,
    /// Names under which PyTorch scripts get RingCCL's backend on the CPU, of `nccl` and `gloo`, separated by commas;
    /// the Python package must be installed
    #[arg(long = "as", value_name = "NAMES", value_delimiter = ',', value_parser = ["nccl", "gloo"])]
    aliases: Vec<String>,
    /// Show output lines without the rank in front
    #[arg(long)]
    no_prefix: bool,
    /// The command that each rank runs, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the job and returns the exit code of the first rank that failed.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    let source = Source::find(args.cluster.as_deref());
    let cluster = source.as_ref().map(Source::load).transpose()?;
    let ranks = number_of_ranks(args.ranks.as_deref(), source.as_ref().zip(cluster.as_ref()))?;
    let mut job = Job::new(args.command, place(ranks, cluster.as_ref()));
    job.prefix = !args.no_prefix;
    job.grace = args.grace;
    if args.nccl {
        job.env.extend(crate::preload::variables(None)?);
    }
    if !args.aliases.is_empty() {
        job.env.push(("RINGCCL_AS".into(), args.aliases.join(",").into()));
    }
    if let Some(bind) = args.bind.or_else(|| args.pin.then(|| "even".to_owned())) {
        job.env.push(("RINGCCL_BIND".into(), bind.into()));
    }
    if let Some(timeout) = args.timeout_start {
        job.env.push(("RINGCCL_JOIN_TIMEOUT_MS".into(), timeout.as_millis().to_string().into()));
    }
    if let Some(cluster) = &cluster {
        job.env.push(("RINGCCL_CLUSTER_CONFIG".into(), absolute(cluster.path())?.into()));
    }
    Ok(launch::launch(&job)?.into())
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| {
        format!("cannot make `{}` absolute; does the working directory still exist?", path.display())
    })
}

/// The number of ranks that the user and the cluster file agree on.
fn number_of_ranks(asked: Option<&str>, cluster: Option<(&Source, &Cluster)>) -> Result<u32> {
    let asked = asked.map(parse_ranks).transpose()?;
    let Some((source, cluster)) = cluster else {
        return asked.context("how many ranks? give -n N, or --cluster FILE to take the number from a file");
    };
    let (size, file) = (cluster.world_size(), source.describe());
    if let Some(asked) = asked.filter(|&asked| cluster.check_world_size(asked).is_err()) {
        bail!("-n {asked} but {file} has {size} ranks; leave -n out or use a file for {asked} ranks");
    }
    ensure!(size <= RANKS_MAX, "{file} has {size} ranks; this machine's launcher starts at most {RANKS_MAX}");
    Ok(size)
}

/// Where each rank lives: on the nodes of the cluster, or all on `node0`.
pub(crate) fn place(ranks: u32, cluster: Option<&Cluster>) -> Vec<Rank> {
    cluster.map_or_else(|| Rank::on_one_node(ranks), Rank::on_cluster)
}

/// A duration in seconds, with or without a fraction.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.0..=86_400.0).contains(s));
    let seconds = seconds.ok_or("seconds are a number from 0 to 86400, such as 2 or 0.5")?;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_ranks_is_needed() {
        // Neither -n nor a file: the message names both ways.
        let error = number_of_ranks(None, None).unwrap_err().to_string();
        assert!(error.contains("-n N") && error.contains("--cluster"), "{error}");
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
