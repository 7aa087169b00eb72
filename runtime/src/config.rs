//! Settings of a communicator, from the environment or from code. Equal on all ranks.

use crate::error::Error;
use crate::plan::Algorithm;
use shmring::Protocol;
use shmring::layout::{Geometry, RingGeometry};
use std::path::PathBuf;
use std::time::Duration;

/// Settings; [`Config::from_env`] documents the variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long ranks wait for each other when a communicator is made.
    pub join_timeout: Duration,
    /// How long an operation may take, waiting included.
    pub timeout: Duration,
    /// Most channels of an operation.
    pub channels: u32,
    /// The all-reduce algorithm, instead of one chosen by size.
    pub algorithm: Option<Algorithm>,
    /// The message layout, instead of one chosen by size.
    pub protocol: Option<Protocol>,
    /// Bytes of the largest message.
    pub chunk_bytes: usize,
    /// Directory of segments.
    pub shm_dir: PathBuf,
    /// Where the report goes, if anywhere.
    pub report: Option<PathBuf>,
    /// Which processor cores the ranks' communicating threads run on.
    pub bind: Bind,
    /// How long reaching the rendezvous may take; the join time-out unless set.
    pub connect_timeout: Option<Duration>,
    /// How long leaving may take; the operation time-out unless set.
    pub finalize_timeout: Option<Duration>,
    /// Where this rank is to fail, for tests: see `RINGCCL_FAIL_POINT`.
    pub fail_point: Option<String>,
}

/// How the threads that communicate are bound to processor cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    /// As the scheduler likes.
    #[default]
    None,
    /// One core each, evenly spread over those that this process may use.
    Even,
}

impl Bind {
    const ALL: [Self; 2] = [Self::None, Self::Even];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Even => "even",
        }
    }
}

/// Slots of a connection between two ranks, as NCCL_STEPS.
const PAIR_SLOTS: u32 = 8;
/// Slots of a rank's ring to all others. Two chunks and two results are in flight at most, and eight slots
/// of this size were no faster, but twice the memory.
const FAN_SLOTS: u32 = 4;
/// Largest Simple slot of a connection between two ranks.
const PAIR_SLOT_BYTES: u32 = 128 << 10;

/// Largest message when nothing else is set, in bytes.
///
/// More ranks than cores: each hand-over costs context switches, so large pieces win although they leave
/// the L2 cache (8 ranks, 16 MiB: 128 KiB pieces take 1.7 times as long as 1 MiB ones). The rings of all ranks together
/// stay within 32 MiB, half of what containers have in /dev/shm by default.
fn default_chunk(nranks: u32) -> usize {
    match nranks {
        0..=4 => 512 << 10,
        5..=8 => 1 << 20,
        _ => (8 << 20 >> nranks.next_power_of_two().ilog2()).max(16 << 10),
    }
}

impl Config {
    /// The defaults for a communicator of `nranks`.
    pub fn new(nranks: u32) -> Self {
        Self {
            join_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(600),
            channels: 1,
            algorithm: None,
            protocol: None,
            chunk_bytes: default_chunk(nranks),
            shm_dir: "/dev/shm".into(),
            report: None,
            bind: Bind::None,
            connect_timeout: None,
            finalize_timeout: None,
            fail_point: None,
        }
    }

    /// The defaults, changed by the variables that are set.
    ///
    /// | variable | value |
    /// | --- | --- |
    /// | `RINGCCL_JOIN_TIMEOUT_MS` | 1 to 86,400,000 |
    /// | `RINGCCL_TIMEOUT_MS` | 1 to 86,400,000 |
    /// | `RINGCCL_CHANNELS` | 1 to 16 |
    /// | `RINGCCL_ALGO` | `flat`, `twoshot`, `ring` |
    /// | `RINGCCL_PROTO` | `LL`, `LL128`, `Simple` |
    /// | `RINGCCL_CHUNK_BYTES` | 64 to 16 MiB, a multiple of 64 |
    /// | `RINGCCL_SHM_DIR` | a directory on a tmpfs |
    /// | `RINGCCL_BIND` | `none`, `even` |
    /// | `RINGCCL_REPORT` | a file; also `FAKEGPU_CLUSTER_REPORT_PATH` |
    ///
    /// # Errors
    /// [`Error::Setting`] for a value out of range, with what would be right.
    pub fn from_env(nranks: u32) -> Result<Self, Error> {
        Self::from_vars(nranks, |name| std::env::var(name).ok().filter(|v| !v.is_empty()))
    }

    fn from_vars(nranks: u32, var: impl Fn(&'static str) -> Option<String>) -> Result<Self, Error> {
        let mut config = Self::new(nranks);
        let number = |name: &'static str, min: u64, max: u64| -> Result<Option<u64>, Error> {
            let Some(value) = var(name) else { return Ok(None) };
            match value.parse() {
                Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
                _ => Err(Error::Setting {
                    name,
                    value,
                    expected: format!("a whole number from {min} to {max}"),
                }),
            }
        };
        if let Some(ms) = number("RINGCCL_JOIN_TIMEOUT_MS", 1, 86_400_000)? {
            config.join_timeout = Duration::from_millis(ms);
        }
        if let Some(ms) = number("RINGCCL_TIMEOUT_MS", 1, 86_400_000)? {
            config.timeout = Duration::from_millis(ms);
        }
        if let Some(ms) = number("RINGCCL_FINALIZE_TIMEOUT_MS", 1, 86_400_000)? {
            config.finalize_timeout = Some(Duration::from_millis(ms));
        }
        config.fail_point = var("RINGCCL_FAIL_POINT");
        if let Some(channels) = number("RINGCCL_CHANNELS", 1, 16)? {
            config.channels = channels as u32;
        }
        if let Some(bytes) = number("RINGCCL_CHUNK_BYTES", 64, 16 << 20)? {
            if !bytes.is_multiple_of(64) {
                let (name, value) = ("RINGCCL_CHUNK_BYTES", bytes.to_string());
                return Err(Error::Setting { name, value, expected: "a multiple of 64".into() });
            }
            config.chunk_bytes = bytes as usize;
        }
        config.algorithm = choose("RINGCCL_ALGO", &var, &Algorithm::ALL, Algorithm::name)?;
        config.protocol = choose("RINGCCL_PROTO", &var, &Protocol::ALL, Protocol::name)?;
        config.bind = choose("RINGCCL_BIND", &var, &Bind::ALL, Bind::name)?.unwrap_or_default();
        if let Some(dir) = var("RINGCCL_SHM_DIR") {
            config.shm_dir = dir.into();
        }
        config.report = var("RINGCCL_REPORT").or_else(|| var("FAKEGPU_CLUSTER_REPORT_PATH")).map(Into::into);
        Ok(config)
    }

    /// A number that differs when the ranks would choose differently: 0 where nothing is set.
    pub(crate) fn agreement(&self) -> u64 {
        let algorithm = self.algorithm.map_or(0, |a| a as u64 + 1);
        let protocol = self.protocol.map_or(0, |p| p as u64 + 1);
        algorithm << 8 | protocol
    }

    /// The segment that a communicator of `nranks` with these settings shares.
    pub(crate) fn geometry(&self, nranks: u32) -> Geometry {
        // Two lines at least, so that a ring's pieces have a grain; fewer per slot where every rank has many peers.
        let (ll_lines, ll128_lines) = if nranks <= 16 { (8, 16) } else { (2, 8) };
        let slot_bytes = self.chunk_bytes as u32;
        let fan = RingGeometry { receivers: nranks, slots: FAN_SLOTS, ll_lines, ll128_lines, slot_bytes };
        let slot_bytes = slot_bytes.min(PAIR_SLOT_BYTES);
        let pair = RingGeometry { receivers: 1, slots: PAIR_SLOTS, slot_bytes, ..fan };
        Geometry { members: nranks, channels: self.channels, fan, pair }
    }
}

/// Finds the value of a variable among `all` by name, in any case.
fn choose<T: Copy>(
    name: &'static str,
    var: impl Fn(&'static str) -> Option<String>,
    all: &[T],
    name_of: fn(T) -> &'static str,
) -> Result<Option<T>, Error> {
    let Some(value) = var(name) else { return Ok(None) };
    let found = all.iter().copied().find(|one| name_of(*one).eq_ignore_ascii_case(&value));
    match found {
        Some(one) => Ok(Some(one)),
        None => {
            let names: Vec<_> = all.iter().map(|one| name_of(*one)).collect();
            Err(Error::Setting { name, value, expected: format!("one of {}", names.join(", ")) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each bad value is refused by name with what would be right; good ones arrive.
    #[test]
    fn variables_are_checked() {
        let with = |name: &'static str, value: &'static str| {
            Config::from_vars(4, |n| (n == name).then(|| value.to_string()))
        };
        for (name, bad, expected) in [
            ("RINGCCL_TIMEOUT_MS", "0", "from 1 to 86400000"),
            ("RINGCCL_JOIN_TIMEOUT_MS", "soon", "a whole number"),
            ("RINGCCL_CHANNELS", "17", "from 1 to 16"),
            ("RINGCCL_CHUNK_BYTES", "100", "a multiple of 64"),
            ("RINGCCL_ALGO", "tree", "one of flat, twoshot, ring"),
            ("RINGCCL_BIND", "core", "one of none, even"),
            ("RINGCCL_PROTO", "LL64", "one of LL, LL128, Simple"),
        ] {
            let text = with(name, bad).unwrap_err().to_string();
            assert!(text.contains(name) && text.contains(bad) && text.contains(expected), "{text}");
        }
        assert_eq!(with("RINGCCL_ALGO", "Ring").unwrap().algorithm, Some(Algorithm::Ring));
        assert_eq!(with("RINGCCL_PROTO", "ll128").unwrap().protocol, Some(Protocol::Ll128));
        assert_eq!(with("FAKEGPU_CLUSTER_REPORT_PATH", "r.json").unwrap().report, Some("r.json".into()));
        assert_eq!(with("NOTHING", "").unwrap(), Config::new(4));
    }
}
