//! NCCL's variables that change the tuner's outcome, in NCCL's syntax.

mod lists;

use super::constants::Constants;
use super::error::TunerError;
use super::names::{Algorithm, Collective, Protocol};
use crate::nccl::release::Release;
use crate::near::near;

use lists::Lists;

/// Longest value that is read, in bytes.
const VALUE_MAX: usize = 4096;

/// Variables that the tuner reads.
const TUNER: &[&str] = &[
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_CTAS",
    "NCCL_MAX_CTAS",
    "NCCL_NTHREADS",
    "NCCL_LL128_NTHREADS",
    "NCCL_THREAD_THRESHOLDS",
    "NCCL_NET_OVERHEAD",
    "NCCL_NVLS_ENABLE",
    "NCCL_COLLNET_ENABLE",
    "NCCL_PAT_ENABLE",
    "NCCL_LL128_C2C",
];
/// Variables that change what the search finds, not what the tuner makes of it.
const SEARCH: &[&str] = &[
    "NCCL_P2P_LEVEL",
    "NCCL_P2P_DISABLE",
    "NCCL_NVB_DISABLE",
    "NCCL_NET_GDR_LEVEL",
    "NCCL_PXN_DISABLE",
    "NCCL_CROSS_NIC",
];
/// Variables that replace or bypass a part of the model, and what to do instead.
const OUTSIDE: &[(&str, &str)] = &[
    ("NCCL_TOPO_FILE", "its file describes a machine; import that and give the machine instead"),
    ("NCCL_GRAPH_FILE", "its file has the graphs; read these and give them instead"),
    ("NCCL_TUNER_PLUGIN", "a plugin's choices are not modelled; leave it out"),
    ("NCCL_TUNER_CONFIG_FILE", "a plugin's choices are not modelled; leave it out"),
    ("NCCL_SHM_DISABLE", "the search does not model it; give the graphs as a log prints them"),
    ("NCCL_IB_HCA", "it chooses network cards; describe a machine with these alone"),
    ("NCCL_SOCKET_IFNAME", "it chooses network cards; describe a machine with these alone"),
    ("NCCL_NETDEVS_POLICY", "it chooses network cards; describe a machine with these alone"),
];

/// Whether a protocol may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Never.
    Off,
    /// Always.
    On,
    /// LL128 where its rule allows it.
    Decide,
}

/// The variables in effect; the default is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Environment {
    algorithms: Option<Lists>,
    protocols: Option<Lists>,
    min_channels: Option<u32>,
    max_channels: Option<u32>,
    threads: Option<u32>,
    ll128_threads: Option<u32>,
    thresholds: [Option<u64>; 6],
    net_overhead_ns: Option<u64>,
    nvls: Option<u64>,
    collnet: Option<u64>,
    pat: Option<u64>,
    ll128_c2c: Option<u64>,
    search: Vec<(String, String)>,
}

impl Environment {
    /// Reads pairs of name and value as `release` would; a later pair replaces an earlier one of its name.
    ///
    /// # Errors
    ///
    /// [`TunerError::Variable`] for names that are no variables of NCCL's model, [`TunerError::Value`] for values
    /// with the forms that are accepted.
    pub fn parse<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
        release: Release,
    ) -> Result<Self, TunerError> {
        let mut last: Vec<(&str, &str)> = Vec::new();
        for (name, value) in pairs {
            last.retain(|(earlier, _)| *earlier != name);
            last.push((name, value));
        }
        let mut environment = Self::default();
        for (name, value) in last {
            environment.set(name, value, release)?;
        }
        Ok(environment)
    }

    fn set(&mut self, name: &str, value: &str, release: Release) -> Result<(), TunerError> {
        if let Some(&known) = SEARCH.iter().find(|known| **known == name) {
            check_length(known, value)?;
            self.search.push((name.to_owned(), value.to_owned()));
            return Ok(());
        }
        let Some(&known) = TUNER.iter().find(|known| **known == name) else {
            return Err(unknown(name));
        };
        check_length(known, value)?;
        let channels_max = u64::from(Constants::of(release).channels_max);
        let channels = || number(known, value, 1, channels_max).map(|count| Some(count as u32));
        let threads = |least, most| multiple_of_32(known, value, least, most);
        match known {
            "NCCL_ALGO" => {
                let names = Algorithm::ALL.map(Algorithm::name);
                // PAT is the last and came with 2.23.
                let known_names =
                    if release.since(23, 0) { &names[..] } else { &names[..Algorithm::Pat.id()] };
                self.algorithms = Some(Lists::parse(known, value, known_names, release)?);
            }
            "NCCL_PROTO" => {
                self.protocols =
                    Some(Lists::parse(known, value, &Protocol::ALL.map(Protocol::name), release)?);
            }
            "NCCL_MIN_NCHANNELS" | "NCCL_MIN_CTAS" => self.min_channels = self.min_channels.max(channels()?),
            "NCCL_MAX_NCHANNELS" | "NCCL_MAX_CTAS" => {
                let asked = channels()?;
                self.max_channels = self.max_channels.map_or(asked, |other| asked.map(|one| one.min(other)));
            }
            "NCCL_NTHREADS" => self.threads = Some(threads(64, 512)?),
            "NCCL_LL128_NTHREADS" => self.ll128_threads = Some(threads(160, 640)?),
            "NCCL_THREAD_THRESHOLDS" => self.thresholds = thresholds(known, value)?,
            "NCCL_NET_OVERHEAD" => self.net_overhead_ns = Some(number(known, value, 0, 1_000_000_000)?),
            "NCCL_NVLS_ENABLE" => self.nvls = Some(number(known, value, 0, 2)?),
            "NCCL_COLLNET_ENABLE" => self.collnet = Some(number(known, value, 0, 2)?),
            "NCCL_PAT_ENABLE" => self.pat = Some(number(known, value, 0, 2)?),
            _ => self.ll128_c2c = Some(number(known, value, 0, 1)?),
        }
        Ok(())
    }

    /// Variables that only the search reads, with their values as they are.
    pub fn search(&self) -> &[(String, String)] {
        &self.search
    }

    /// Whether `NCCL_ALGO` leaves the algorithm on for a collective.
    pub fn allows(&self, collective: Collective, algorithm: Algorithm) -> bool {
        let listed = self.algorithms.as_ref().and_then(|lists| lists.of(collective));
        listed.is_none_or(|bits| bits & (1 << algorithm.id()) != 0)
    }

    /// What `NCCL_PROTO` says of a protocol; any list for the collective ends [`Permission::Decide`].
    pub fn permission(&self, collective: Collective, protocol: Protocol) -> Permission {
        match self.protocols.as_ref().and_then(|lists| lists.of(collective)) {
            Some(bits) if bits & (1 << protocol.id()) != 0 => Permission::On,
            Some(_) => Permission::Off,
            None if protocol == Protocol::Ll128 => Permission::Decide,
            None => Permission::On,
        }
    }

    /// Least and most channels asked for.
    pub(crate) fn channels(&self) -> (Option<u32>, Option<u32>) {
        (self.min_channels, self.max_channels)
    }

    /// Threads asked for, of LL and Simple, or of LL128.
    pub(crate) fn threads(&self, protocol: Protocol) -> Option<u32> {
        if protocol == Protocol::Ll128 { self.ll128_threads } else { self.threads }
    }

    /// Threshold asked for in bytes per thread and channel; there are some for trees and rings only.
    pub(crate) fn threshold(&self, algorithm: Algorithm, protocol: Protocol) -> Option<u64> {
        (algorithm.id() < 2).then(|| self.thresholds[3 * algorithm.id() + protocol.id()]).flatten()
    }

    /// `NCCL_NET_OVERHEAD` in nanoseconds.
    pub fn net_overhead_ns(&self) -> Option<u64> {
        self.net_overhead_ns
    }

    /// Whether NVLS may be used.
    pub fn nvls_enabled(&self) -> bool {
        self.nvls != Some(0)
    }

    /// Whether the network's reduction may be used.
    pub fn collnet_enabled(&self) -> bool {
        self.collnet != Some(0)
    }

    /// Whether PAT may be used.
    pub fn pat_enabled(&self) -> bool {
        self.pat != Some(0)
    }

    /// Whether LL128 may go through peers and chip-to-chip links to the network.
    pub(crate) fn ll128_c2c(&self) -> bool {
        self.ll128_c2c != Some(0)
    }
}

fn unknown(name: &str) -> TunerError {
    let shown: String = name.chars().take(48).collect();
    let problem = match OUTSIDE.iter().find(|(outside, _)| *outside == name) {
        Some((_, problem)) => (*problem).to_owned(),
        None => {
            let all: Vec<&str> = [TUNER, SEARCH].concat();
            match near(name, &all).first() {
                Some(meant) => format!("no variable of the model; did you mean {meant}?"),
                None => format!("no variable of the model; those are {}", all.join(", ")),
            }
        }
    };
    TunerError::Variable { name: shown, problem }
}

/// The error about a value.
fn bad(name: &'static str, value: &str, problem: String) -> TunerError {
    TunerError::Value { name, value: value.chars().take(64).collect(), problem }
}

fn check_length(name: &'static str, value: &str) -> Result<(), TunerError> {
    match value.len() {
        0..=VALUE_MAX => Ok(()),
        length => Err(bad(name, value, format!("{length} bytes; at most {VALUE_MAX} are read"))),
    }
}

/// A whole number in range, in digits alone.
fn number(name: &'static str, value: &str, least: u64, most: u64) -> Result<u64, TunerError> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.then(|| value.parse().ok()).flatten();
    number
        .filter(|number| (least..=most).contains(number))
        .ok_or_else(|| bad(name, value, format!("write a whole number from {least} to {most}")))
}

fn multiple_of_32(name: &'static str, value: &str, least: u64, most: u64) -> Result<u32, TunerError> {
    let refuse = || bad(name, value, format!("write a multiple of 32 from {least} to {most}"));
    let threads = number(name, value, least, most).map_err(|_| refuse())?;
    if threads % 32 == 0 { Ok(threads as u32) } else { Err(refuse()) }
}

/// Up to six numbers: tree's LL, LL128 and Simple, then ring's; a negative one leaves the default.
fn thresholds(name: &'static str, value: &str) -> Result<[Option<u64>; 6], TunerError> {
    let refuse = || {
        let problem = "write one to six whole numbers with blanks between them: bytes per thread for LL, LL128, Simple \
                       of trees, then of rings; -1 keeps a default";
        bad(name, value, problem.to_owned())
    };
    let words: Vec<&str> = value.split_ascii_whitespace().collect();
    if !(1..=6).contains(&words.len()) {
        return Err(refuse());
    }
    let mut thresholds = [None; 6];
    for (slot, word) in thresholds.iter_mut().zip(words) {
        let threshold: i64 = word.parse().map_err(|_| refuse())?;
        if threshold > 1 << 40 {
            return Err(refuse());
        }
        *slot = u64::try_from(threshold).ok();
    }
    Ok(thresholds)
}

#[cfg(test)]
mod tests;
