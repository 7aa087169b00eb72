//! Environment variables of NCCL that change paths and graphs.

use crate::nccl::graph::PathType;

/// What the environment says about paths, graphs and the number of channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Env {
    /// `NCCL_NVB_DISABLE`: no NVLink paths through another GPU.
    pub nvb_disable: bool,
    /// `NCCL_P2P_LEVEL` or `NCCL_P2P_DISABLE`: the worst path over which GPUs read each other's memory.
    pub p2p_level: Option<PathType>,
    /// `NCCL_PXN_DISABLE`: no paths to a card through another GPU.
    pub pxn_disable: bool,
    /// `NCCL_NET_GDR_LEVEL`: the worst path over which a card reads a GPU's memory.
    pub gdr_level: Option<PathType>,
    /// `NCCL_CROSS_NIC`: 0 never, 1 always, 2 where it helps.
    pub cross_nic: u8,
    /// `NCCL_NVLS_ENABLE`: 0 for no NVLS graph.
    pub nvls_enable: bool,
    /// Whether the network reduces: not a variable, but what NCCL learns from its plugin.
    pub collnet: bool,
    /// `NCCL_MIN_NCHANNELS`.
    pub channels_min: Option<u32>,
    /// `NCCL_MAX_NCHANNELS`.
    pub channels_max: Option<u32>,
}

impl Default for Env {
    fn default() -> Self {
        Self {
            nvb_disable: false,
            p2p_level: None,
            pxn_disable: false,
            gdr_level: None,
            cross_nic: 2,
            nvls_enable: true,
            collnet: false,
            channels_min: None,
            channels_max: None,
        }
    }
}

/// A value that a variable cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is `{value}`; write {expected}")]
pub struct EnvError {
    /// The variable.
    pub variable: &'static str,
    /// The beginning of its value.
    pub value: String,
    /// What it can be.
    pub expected: &'static str,
}

/// Names of levels as `NCCL_P2P_LEVEL` and `NCCL_NET_GDR_LEVEL` take them.
const LEVELS: &str = "LOC, NVL, NVB, PIX, PXB, PXN, PHB or SYS, or a number from 0 (LOC) to 5 (SYS)";
/// The levels that numbers stand for; larger ones are as the last.
const NUMBERED: [PathType; 6] =
    [PathType::Loc, PathType::Pix, PathType::Pxb, PathType::Phb, PathType::Sys, PathType::Sys];
const SWITCH: &str = "0 or 1";
/// What a release has no room for is cut off later.
const COUNT: &str = "a number from 1 to 255";
const CROSS: &str = "0, 1 or 2";

impl Env {
    /// The variables that are read; others are somebody else's.
    pub const VARIABLES: [&str; 9] = [
        "NCCL_NVB_DISABLE",
        "NCCL_P2P_LEVEL",
        "NCCL_P2P_DISABLE",
        "NCCL_PXN_DISABLE",
        "NCCL_NET_GDR_LEVEL",
        "NCCL_CROSS_NIC",
        "NCCL_NVLS_ENABLE",
        "NCCL_MIN_NCHANNELS",
        "NCCL_MAX_NCHANNELS",
    ];

    /// Reads names and values; names that are not among [`Env::VARIABLES`] are passed over.
    ///
    /// # Errors
    ///
    /// [`EnvError`] for the first value that its variable cannot have.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, EnvError> {
        let mut env = Self::default();
        let mut p2p_off = false;
        for (name, value) in pairs {
            let Some(&variable) = Self::VARIABLES.iter().find(|&&variable| variable == name) else {
                continue;
            };
            let value = value.trim();
            match variable {
                "NCCL_NVB_DISABLE" => env.nvb_disable = switch(variable, value)?,
                "NCCL_P2P_LEVEL" => env.p2p_level = Some(level(variable, value)?),
                "NCCL_P2P_DISABLE" => p2p_off = switch(variable, value)?,
                "NCCL_PXN_DISABLE" => env.pxn_disable = switch(variable, value)?,
                "NCCL_NET_GDR_LEVEL" => env.gdr_level = Some(level(variable, value)?),
                "NCCL_CROSS_NIC" => env.cross_nic = number(variable, value, 0..=2, CROSS)?,
                "NCCL_NVLS_ENABLE" => env.nvls_enable = number(variable, value, 0..=2, CROSS)? != 0,
                "NCCL_MIN_NCHANNELS" => {
                    env.channels_min = Some(number(variable, value, 1..=255, COUNT)?.into())
                }
                _ => env.channels_max = Some(number(variable, value, 1..=255, COUNT)?.into()),
            }
        }
        if p2p_off {
            env.p2p_level = Some(PathType::Loc);
        }
        Ok(env)
    }
}

fn wrong(variable: &'static str, value: &str, expected: &'static str) -> EnvError {
    EnvError { variable, value: value.chars().take(32).collect(), expected }
}

fn switch(variable: &'static str, value: &str) -> Result<bool, EnvError> {
    number(variable, value, 0..=1, SWITCH).map(|value| value == 1)
}

fn number(
    variable: &'static str,
    value: &str,
    range: std::ops::RangeInclusive<u8>,
    expected: &'static str,
) -> Result<u8, EnvError> {
    let number = value.parse::<u8>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| wrong(variable, value, expected))
}

fn level(variable: &'static str, value: &str) -> Result<PathType, EnvError> {
    if let Ok(number) = value.parse::<usize>() {
        return Ok(NUMBERED[number.min(NUMBERED.len() - 1)]);
    }
    let known = value.parse::<PathType>().ok();
    known
        .filter(|kind| !matches!(kind, PathType::Net | PathType::Dis))
        .ok_or_else(|| wrong(variable, value, LEVELS))
}
