//! NCCL's C types, by layout: what a caller passes and what it gets back.
//!
//! *Source*: sizes, offsets and values as in the header of NCCL 2.30.7, with which `tests/abi.rs` compares them.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// The version that this library reports: 2.30.7.
pub const VERSION: c_int = 23007;
/// What versioned structures begin with.
pub const API_MAGIC: c_uint = 0xcafe_beef;
/// What `ncclSimInfo_t` begins with.
pub const SIM_MAGIC: c_uint = 0x7468_5283;
/// An integer of a configuration that the caller has left alone.
pub const UNDEF_INT: c_int = c_int::MIN;
/// The colour of a rank that will be in no communicator.
pub const SPLIT_NOCOLOR: c_int = -1;
/// Bytes of a unique id.
pub const UNIQUE_ID_BYTES: usize = 128;
/// `NCCL_SHRINK_ABORT`.
pub const SHRINK_ABORT: c_int = 1;
/// `NCCL_SUSPEND_MEM`.
pub const SUSPEND_MEM: c_int = 1;

/// `ncclComm_t`: a number that only this library can read.
pub type CommHandle = *mut c_void;
/// `ncclWindow_t`: the same.
pub type WindowHandle = *mut c_void;
/// `cudaStream_t`.
pub type StreamHandle = *mut c_void;
/// `ncclParamHandle_t`.
pub type ParamHandle = *mut c_void;
/// `ncclResult_t` as C has it.
pub type ResultCode = c_int;

/// `ncclUniqueId`; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UniqueIdBytes {
    /// Opaque.
    pub internal: [u8; UNIQUE_ID_BYTES],
}

/// `ncclConfig_t` of 2.30.7. Callers with older headers pass a shorter one: see `config.rs`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "NCCL's guide describes the fields; config.rs what becomes of each")]
pub struct ConfigFields {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub blocking: c_int,
    pub cga_cluster_size: c_int,
    pub min_ctas: c_int,
    pub max_ctas: c_int,
    pub net_name: *const c_char,
    pub split_share: c_int,
    pub traffic_class: c_int,
    pub comm_name: *const c_char,
    pub collnet_enable: c_int,
    pub cta_policy: c_int,
    pub shrink_share: c_int,
    pub nvls_ctas: c_int,
    pub n_channels_per_net_peer: c_int,
    pub nvlink_centric_sched: c_int,
    pub graph_usage_mode: c_int,
    pub num_rma_ctx: c_int,
    pub max_p2p_peers: c_int,
    pub graph_stream_ordering: c_int,
}

/// `ncclSimInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "NCCL's guide describes the fields")]
pub struct SimInfo {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub estimated_time: f32,
}

/// `ncclWaitSignalDesc_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "NCCL's guide describes the fields")]
pub struct WaitSignalDesc {
    pub op_cnt: c_int,
    pub peer: c_int,
    pub sig_idx: c_int,
    pub ctx: c_int,
}

/// `ncclTeam_t`; passed and returned by value.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "NCCL's guide describes the fields")]
pub struct Team {
    pub n_ranks: c_int,
    pub rank: c_int,
    pub stride: c_int,
}

/// `ncclMultimemHandle`; passed by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MultimemHandle {
    /// Where the multicast mapping begins.
    pub base: *mut c_void,
}

/// `ncclCommProperties_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "NCCL's guide describes the fields")]
pub struct CommProperties {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
    pub rank: c_int,
    pub n_ranks: c_int,
    pub cuda_dev: c_int,
    pub nvml_dev: c_int,
    pub device_api_support: bool,
    pub multimem_support: bool,
    pub gin_type: c_int,
    pub n_lsa_teams: c_int,
    pub host_rma_support: bool,
    pub railed_gin_type: c_int,
}

/// The fields at the head of `ncclDevCommRequirements_t` by which a caller's header is known.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "NCCL's guide describes the fields")]
pub struct DevCommRequirementsHead {
    pub size: usize,
    pub magic: c_uint,
    pub version: c_uint,
}

/// `ncclDevResourceRequirements_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "NCCL's guide describes the fields")]
pub struct DevResourceRequirements {
    pub next: *mut DevResourceRequirements,
    pub buffer_size: usize,
    pub buffer_align: usize,
    pub out_buffer_handle: *mut u32,
    pub gin_signal_count: c_int,
    pub gin_counter_count: c_int,
    pub out_gin_signal_start: *mut u32,
    pub out_gin_counter_start: *mut u32,
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<UniqueIdBytes>() == 128);
    assert!(size_of::<ConfigFields>() == 96);
    assert!(offset_of!(ConfigFields, net_name) == 32);
    assert!(offset_of!(ConfigFields, comm_name) == 48);
    assert!(offset_of!(ConfigFields, graph_stream_ordering) == 92);
    assert!(size_of::<SimInfo>() == 24);
    assert!(size_of::<WaitSignalDesc>() == 16);
    assert!(size_of::<Team>() == 12);
    assert!(size_of::<MultimemHandle>() == 8);
    assert!(size_of::<CommProperties>() == 56);
    assert!(offset_of!(CommProperties, railed_gin_type) == 48);
    assert!(size_of::<DevResourceRequirements>() == 56);
};
