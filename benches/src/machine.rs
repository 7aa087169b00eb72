//! What a measurement ran on, and whether anybody else used it meanwhile.

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};
use std::process::Command;
use std::time::Instant;

/// Other programs' use of the processor above which a figure is noise, in cores; as in `peers/run.py`.
pub const QUIET_CORES: f64 = 0.10;

/// Cores that this process may use.
pub fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Watches how much processor time others take while this process and its children measure.
#[derive(Debug)]
pub struct Neighbours {
    start: Instant,
    others: f64,
}

impl Neighbours {
    /// Starts to watch.
    ///
    /// # Errors
    /// When the system does not tell processor times.
    pub fn watch() -> Result<Self> {
        Ok(Self { start: Instant::now(), others: others_seconds()? })
    }

    /// Cores that other programs kept busy since [`Neighbours::watch`]. Children count once they have ended.
    ///
    /// # Errors
    /// As [`Neighbours::watch`].
    pub fn cores(&self) -> Result<f64> {
        let taken = others_seconds()? - self.others;
        Ok((taken / self.start.elapsed().as_secs_f64()).max(0.0))
    }
}

/// Processor time of everything but this process and its ended children since boot, in seconds.
fn others_seconds() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let ticks = busy_ticks(&stat).context("/proc/stat has no line `cpu` of numbers")?;
    let rate = sysconf(SysconfVar::CLK_TCK)?.context("the system does not tell its clock rate")?;
    let mut ours = 0.0;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who).context("cannot read the CPU time of this process")?;
        ours += (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6;
    }
    Ok(ticks as f64 / rate as f64 - ours)
}

/// User, nice, system, irq and softirq of the first line; what is stolen was never this machine's.
fn busy_ticks(stat: &str) -> Option<u64> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let numbers = fields.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
    [0, 1, 2, 5, 6].iter().map(|&field| numbers.get(field)).sum()
}

/// The columns of a record that say where it was made: machine, cores, kernel, compiler, commit.
pub fn describe() -> [String; 5] {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let commit = said("git", &["rev-parse", "--short=12", "HEAD"]);
    let dirty = if said("git", &["status", "--porcelain"]).is_empty() { "" } else { "-dirty" };
    [
        model,
        usable_cores().to_string(),
        kernel.trim().to_owned(),
        said("rustc", &["--version"]),
        commit + dirty,
    ]
}

/// The first line that a command prints; empty if it cannot run.
pub fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Idle, waiting and stolen time are not busy; a file of another form is no number.
    #[test]
    fn busy_time_is_counted() {
        assert_eq!(busy_ticks("cpu  1 20 300 9999 9999 4000 50000 9999 0 0\ncpu0 1\n"), Some(54321));
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
        assert_eq!(busy_ticks("intr 1\n"), None);
    }

    /// Work of this process is not anybody else's.
    #[test]
    fn own_work_is_not_foreign() {
        let before = others_seconds().unwrap();
        assert!(before > 0.0);
        assert!(Neighbours::watch().unwrap().cores().unwrap() <= usable_cores() as f64 + 1.0);
    }
}
