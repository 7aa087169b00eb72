//! Bandwidths of links, in 10^9 bytes per second and direction, as each release has them.

use super::CpuKind;
use crate::nccl::release::Release;

/// Inside one device.
pub(super) const SAME_DEVICE: f32 = 5000.0;
/// Speed of a port that reports none, in 10^6 bits per second.
const UNKNOWN_MBPS: u32 = 10_000;
/// Intel's first Skylake, Sapphire Rapids and Emerald Rapids servers.
const INTEL_SKYLAKE: u32 = 0x55;
const INTEL_SAPPHIRE_RAPIDS: u32 = 0x8f;
const INTEL_EMERALD_RAPIDS: u32 = 0xcf;

/// One NVLink of a GPU with compute capability `sm`.
pub(super) fn nvlink(sm: u32, release: Release) -> f32 {
    match sm {
        100.. if release.since(28, 0) => 40.1,
        100.. if release.since(25, 0) => 40.0,
        90.. if release.since(19, 0) => 20.6,
        90.. => 20.0,
        86 => 12.0,
        70.. => 20.0,
        _ => 18.0,
    }
}

/// A PCIe link of `generation` 1 to 6 with `lanes` lanes.
pub(super) fn pcie(generation: u64, lanes: u64) -> Option<f32> {
    if !matches!(lanes, 1 | 2 | 4 | 8 | 12 | 16) {
        return None;
    }
    // Per lane in units of 0.1 GT/s, rounded as the tables of NCCL have it.
    let speed: u16 = match generation {
        1 => 15,
        2 => 30,
        3 => 60,
        4 => 120,
        5 => 240,
        6 => 480,
        _ => return None,
    };
    Some((lanes as f32) * f32::from(speed) / 80.0)
}

/// A network port.
pub(super) fn port(mbps: u32) -> f32 {
    let mbps = if mbps == 0 { UNKNOWN_MBPS } else { mbps };
    (f64::from(mbps) / 8000.0) as f32
}

/// Between two CPUs of one node.
pub(super) fn socket(cpu: CpuKind, release: Release) -> f32 {
    match cpu {
        CpuKind::Intel(model) if model >= INTEL_EMERALD_RAPIDS && release.since(26, 0) => 40.0,
        CpuKind::Intel(model) if model >= INTEL_SAPPHIRE_RAPIDS && release.since(26, 0) => 22.0,
        CpuKind::Intel(model) if model >= INTEL_SKYLAKE => 10.0,
        CpuKind::Intel(_) => 6.0,
        // The first release that knows AMD's sockets is 2.19; before, nothing limits them.
        CpuKind::Amd if release.since(19, 0) => 16.0,
        CpuKind::Amd => SAME_DEVICE,
        CpuKind::Arm => 6.0,
        CpuKind::Power => 32.0,
        CpuKind::Zhaoxin(true) => 9.0,
        CpuKind::Zhaoxin(false) => 6.0,
    }
}
