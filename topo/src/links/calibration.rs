//! The numbers of the link model that no data sheet has.

use super::error::LinkError;
use crate::nccl::tuner::Protocol;

/// Generation of a GPU, by which its copying threads are fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Generation {
    /// Compute capability below 8.0: Pascal, Volta, Turing.
    Volta,
    /// 8.0 to 8.9: Ampere, Ada.
    Ampere,
    /// 9.x.
    Hopper,
    /// 10.0 and up.
    Blackwell,
}

impl Generation {
    /// The generation of a compute capability such as 90.
    pub fn of(compute_capability: u32) -> Self {
        match compute_capability {
            ..80 => Self::Volta,
            80..90 => Self::Ampere,
            90..100 => Self::Hopper,
            _ => Self::Blackwell,
        }
    }
}

/// What moves bytes between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NicKind {
    /// InfiniBand or RoCE through NCCL's own transport: reaches the GPU's memory, reports no latency.
    Rdma,
    /// A plugin that reports a latency, such as the one for EFA.
    Plugin,
    /// TCP sockets, through memory of the host.
    Socket,
}

/// The calibrated constants, each for a kind of link or a generation of GPU, never for a machine.
///
/// Sources: *A100* is the published run on 8 A100-40 SXM4, *EFA* the one on 2 x 8 A100 with 4 x 100 Gb/s EFA, *4090*
/// the one on 2 RTX 4090 behind one switch without peer access (`docs/accuracy.md`). *NVIDIA* are statements of
/// NCCL's maintainers in its issues: 370 GB/s for rings of 8 H100, 480 GB/s bus bandwidth with NVLS. *Tuner* is the
/// constant of NCCL's own tables. *Assumed* is no more than plausible.
#[derive(Clone, Debug, PartialEq)]
pub struct Calibration {
    /// No operation is shorter, in us: launches of kernels follow each other no faster. 4090.
    pub launch_floor_us: f64,
    /// Kernel start and end, in us, that every operation has. 4090 (8 bytes take 9 us).
    pub start_us: f64,
    /// A step over NVLink in us, by protocol (LL, LL128, Simple), before [`Self::nvlink_step_factor`]. Tuner.
    pub nvlink_step_us: [f64; 3],
    /// How much longer steps over NVLink take, by generation. Ampere: A100; Hopper: published 8-byte runs; others
    /// assumed between.
    pub nvlink_step_factor: [f64; 4],
    /// A step over PCIe or through memory of the host in us, by protocol. Tuner, 4090.
    pub pcie_step_us: [f64; 3],
    /// A step between nodes in us, by protocol, without what the plugin reports. Tuner.
    pub net_step_us: [f64; 3],
    /// What an operation in the NVSwitch takes for its start and its barriers, in us. Tuner (25), twice: 2 MiB on
    /// 8 H100 take 41 us.
    pub nvls_start_us: f64,
    /// Part of NCCL's NVLink bandwidth that is reached, by generation. Ampere: A100; Hopper: NVIDIA; others assumed.
    pub nvlink_part: [f64; 4],
    /// Part of NVLink's bandwidth that is reached when the NVSwitch reduces, by generation. Hopper: NVIDIA;
    /// Blackwell: tuner.
    pub nvls_part: [f64; 4],
    /// Part of NCCL's PCIe bandwidth that is reached. Assumed.
    pub pcie_part: f64,
    /// Part of NCCL's PCIe bandwidth that is reached through memory of the host, where GPUs are no peers: each byte is
    /// written and read, and reading is slow. 4090.
    pub host_part: f64,
    /// Part of the bandwidth between sockets that is reached. Assumed.
    pub socket_part: f64,
    /// Part of a port's line rate that is reached, for [`NicKind`] in order. RDMA: NVIDIA (46 to 48 of 50 GB/s);
    /// plugin: EFA; sockets: assumed.
    pub nic_part: [f64; 3],
    /// What a channel moves with Simple, in 10^9 bytes per second, by generation. Lower bounds: A100 and NVIDIA;
    /// values assumed.
    pub channel_gbps: [f64; 4],
    /// What a channel moves with LL, in 10^9 bytes per second, by generation. Ampere: A100 at 1 MiB; Hopper:
    /// published 1 MiB runs; others assumed.
    pub channel_ll_gbps: [f64; 4],
    /// What a channel moves through memory of the host, where GPUs are no peers, in 10^9 bytes per second. Assumed
    /// (4090: at least 1.1).
    pub host_channel_gbps: f64,
    /// Bytes of an operation per channel in the NVSwitch and second, in 10^9. Assumed.
    pub nvls_channel_gbps: f64,
    /// Part of the bandwidth that is payload, by protocol: flags of LL and LL128. LL: 4 of 8 bytes less waiting;
    /// LL128: 120 of 128 bytes, less the tuner's 2 %.
    pub protocol_part: [f64; 3],
    /// Smallest and largest chunk in bytes that goes down a chain or a tree, by protocol. NCCL's buffers by steps.
    pub chunk_bytes: [(f64, f64); 3],
}

impl Default for Calibration {
    fn default() -> Self {
        Self {
            launch_floor_us: 7.0,
            start_us: 6.5,
            nvlink_step_us: [0.6, 1.9, 3.4],
            nvlink_step_factor: [1.5, 2.4, 1.2, 1.2],
            pcie_step_us: [1.0, 2.5, 5.7],
            net_step_us: [5.0, 7.0, 14.0],
            nvls_start_us: 50.0,
            nvlink_part: [1.05, 0.98, 0.99, 0.95],
            nvls_part: [0.8, 0.8, 0.83, 0.74],
            pcie_part: 0.95,
            host_part: 0.187,
            socket_part: 0.8,
            nic_part: [0.97, 0.85, 0.8],
            channel_gbps: [12.0, 18.0, 26.0, 36.0],
            channel_ll_gbps: [2.5, 2.5, 6.0, 8.0],
            host_channel_gbps: 2.3,
            nvls_channel_gbps: 24.0,
            protocol_part: [0.45, 0.92, 1.0],
            chunk_bytes: [(4096.0, 16384.0), (16384.0, 81920.0), (32768.0, 524_288.0)],
        }
    }
}

impl Calibration {
    /// Checks that all numbers are above 0, so that no time is endless or less than nothing.
    ///
    /// # Errors
    ///
    /// [`LinkError::Calibration`] with the first number that is not.
    pub fn check(&self) -> Result<(), LinkError> {
        let singles = [
            ("launch_floor_us", self.launch_floor_us),
            ("start_us", self.start_us),
            ("nvls_start_us", self.nvls_start_us),
            ("pcie_part", self.pcie_part),
            ("host_part", self.host_part),
            ("socket_part", self.socket_part),
            ("host_channel_gbps", self.host_channel_gbps),
            ("nvls_channel_gbps", self.nvls_channel_gbps),
        ];
        let lists: [(&'static str, &[f64]); 10] = [
            ("nvlink_step_us", &self.nvlink_step_us),
            ("nvlink_step_factor", &self.nvlink_step_factor),
            ("pcie_step_us", &self.pcie_step_us),
            ("net_step_us", &self.net_step_us),
            ("nvlink_part", &self.nvlink_part),
            ("nvls_part", &self.nvls_part),
            ("nic_part", &self.nic_part),
            ("channel_gbps", &self.channel_gbps),
            ("channel_ll_gbps", &self.channel_ll_gbps),
            ("protocol_part", &self.protocol_part),
        ];
        let chunks = self.chunk_bytes.iter().flat_map(|&(low, high)| [low, high]);
        let all = singles
            .into_iter()
            .chain(lists.into_iter().flat_map(|(what, list)| list.iter().map(move |&value| (what, value))))
            .chain(chunks.map(|value| ("chunk_bytes", value)));
        match all.into_iter().find(|&(_, value)| !(value > 0.0 && value.is_finite())) {
            Some((what, value)) => Err(LinkError::Calibration { what, value }),
            None => Ok(()),
        }
    }

    /// What a channel moves, in 10^9 bytes per second.
    pub(super) fn channel_rate(&self, generation: Generation, protocol: Protocol, through_host: bool) -> f64 {
        let part = self.protocol_part[protocol.id()];
        let own = match protocol {
            Protocol::Ll => self.channel_ll_gbps[generation as usize],
            _ => self.channel_gbps[generation as usize] * part,
        };
        if through_host { own.min(self.host_channel_gbps * part) } else { own }
    }
}
