//! `ncclConfig_t` of every version, and the settings of a communicator that it comes to.
//!
//! A caller passes the structure of its own header, with its size and version in front. New integers have often landed
//! in bytes that were padding before, so the version decides which fields are read, not the size alone.
//!
//! ```text
//!  header   2.14   2.17   2.18   2.26   2.27   2.28   2.29   2.30.3   2.30.5
//!  bytes      24     40     48     48     72     80     88       96       96
//! ```

use crate::env;
use crate::failure::Failure;
use crate::log::{self, Subsys};
use crate::result::Code;
use crate::types::{API_MAGIC, ConfigFields, UNDEF_INT, VERSION};
use ringccl::Config;
use ringccl::settings::Vars;
use std::ffi::{CStr, c_char, c_int};

/// Most CTAs that NCCL has: what an undefined maximum stands for.
const CTAS_MAX: c_int = 64;

/// What a communicator was configured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Whether calls wait.
    pub blocking: bool,
    /// Least and most channels, if the caller or the environment says.
    pub channels: (Option<u32>, Option<u32>),
    /// The caller's name of it.
    pub name: Option<String>,
    /// Contexts for one-sided operations; 0 switches them off.
    pub rma_contexts: c_int,
}

impl Default for Settings {
    fn default() -> Self {
        Self { blocking: true, channels: (None, None), name: None, rma_contexts: 1 }
    }
}

/// A structure in which the caller has defined nothing.
const UNDEFINED: ConfigFields = ConfigFields {
    size: size_of::<ConfigFields>(),
    magic: API_MAGIC,
    version: VERSION as u32,
    blocking: UNDEF_INT,
    cga_cluster_size: UNDEF_INT,
    min_ctas: UNDEF_INT,
    max_ctas: UNDEF_INT,
    net_name: std::ptr::null(),
    split_share: UNDEF_INT,
    traffic_class: UNDEF_INT,
    comm_name: std::ptr::null(),
    collnet_enable: UNDEF_INT,
    cta_policy: UNDEF_INT,
    shrink_share: UNDEF_INT,
    nvls_ctas: UNDEF_INT,
    n_channels_per_net_peer: UNDEF_INT,
    nvlink_centric_sched: UNDEF_INT,
    graph_usage_mode: UNDEF_INT,
    num_rma_ctx: UNDEF_INT,
    max_p2p_peers: UNDEF_INT,
    graph_stream_ordering: UNDEF_INT,
};

/// Bytes up to the version.
const HEAD: usize = 16;

/// Reads a caller's structure.
///
/// # Safety
/// - `config` is null, or readable for [`HEAD`] bytes and for as many as its size field says.
pub(crate) unsafe fn read(config: *const ConfigFields) -> Result<ConfigFields, Failure> {
    let mut fields = UNDEFINED;
    if config.is_null() {
        return Ok(fields);
    }
    let into: *mut u8 = (&raw mut fields).cast();
    // SAFETY: the head is readable by the caller's contract, and all of it fits; any bytes are integers.
    unsafe { std::ptr::copy_nonoverlapping(config.cast::<u8>(), into, HEAD) };
    if fields.magic != API_MAGIC {
        return Err(Failure::argument(format!(
            "the configuration does not begin as one does (its magic number is {:#x}): set it to \
             NCCL_CONFIG_INITIALIZER before changing fields",
            fields.magic
        )));
    }
    let size = fields.size.min(size_of::<ConfigFields>());
    if size > HEAD {
        // SAFETY: the structure is readable for its own size, of which what fits is copied; its pointers are not
        // followed here, and any bytes are integers and pointers.
        unsafe { std::ptr::copy_nonoverlapping(config.cast::<u8>(), into, size) };
    }
    let version = fields.version;
    forget_what_came_later(&mut fields, version);
    check(&fields)?;
    Ok(fields)
}

/// `x.y.z` as a number, since 2.9.
const fn since(minor: u32, patch: u32) -> u32 {
    20_000 + 100 * minor + patch
}

/// Undefines the fields that a header of `version` did not have: their bytes were padding.
fn forget_what_came_later(fields: &mut ConfigFields, version: u32) {
    let forget = |first: u32, field: &mut c_int| {
        if version < first {
            *field = UNDEF_INT;
        }
    };
    forget(since(14, 0), &mut fields.blocking);
    for field in [&mut fields.cga_cluster_size, &mut fields.min_ctas, &mut fields.max_ctas] {
        forget(since(17, 0), field);
    }
    if version < since(17, 0) {
        fields.net_name = std::ptr::null();
    }
    // NCCL reads it from 2.25 on, whose header did not have it: what it reads there is padding.
    forget(since(26, 0), &mut fields.traffic_class);
    let of_27 =
        [&mut fields.collnet_enable, &mut fields.cta_policy, &mut fields.shrink_share, &mut fields.nvls_ctas];
    for field in of_27 {
        forget(since(27, 0), field);
    }
    for field in [&mut fields.n_channels_per_net_peer, &mut fields.nvlink_centric_sched] {
        forget(since(28, 0), field);
    }
    for field in [&mut fields.graph_usage_mode, &mut fields.num_rma_ctx] {
        forget(since(29, 0), field);
    }
    forget(since(30, 0), &mut fields.max_p2p_peers);
    forget(since(30, 5), &mut fields.graph_stream_ordering);
}

/// Whether each field that is defined has a value that it can have.
fn check(fields: &ConfigFields) -> Result<(), Failure> {
    let limits: [(&str, c_int, c_int, c_int); 16] = [
        ("blocking", fields.blocking, 0, 1),
        ("cgaClusterSize", fields.cga_cluster_size, 0, c_int::MAX),
        ("minCTAs", fields.min_ctas, 1, c_int::MAX),
        ("maxCTAs", fields.max_ctas, 1, c_int::MAX),
        ("splitShare", fields.split_share, 0, 1),
        ("collnetEnable", fields.collnet_enable, 0, 1),
        ("CTAPolicy", fields.cta_policy, 0, 3),
        ("shrinkShare", fields.shrink_share, 0, 1),
        ("nvlsCTAs", fields.nvls_ctas, 1, c_int::MAX),
        ("nChannelsPerNetPeer", fields.n_channels_per_net_peer, 1, 64),
        ("nvlinkCentricSched", fields.nvlink_centric_sched, 0, 1),
        ("graphUsageMode", fields.graph_usage_mode, 0, 2),
        ("numRmaCtx", fields.num_rma_ctx, 0, c_int::MAX),
        ("maxP2pPeers", fields.max_p2p_peers, 1, c_int::MAX),
        ("graphStreamOrdering", fields.graph_stream_ordering, 0, 1),
        ("trafficClass", fields.traffic_class, c_int::MIN, c_int::MAX),
    ];
    for (name, value, least, most) in limits {
        if value != UNDEF_INT && !(least..=most).contains(&value) {
            let range = if most == c_int::MAX {
                format!("at least {least}")
            } else {
                format!("from {least} to {most}")
            };
            return Err(Failure::argument(format!(
                "the configuration's {name} is {value}; it is {range}, or left alone"
            )));
        }
    }
    let most = if fields.max_ctas == UNDEF_INT { CTAS_MAX } else { fields.max_ctas };
    if fields.min_ctas != UNDEF_INT && fields.min_ctas > most {
        let least = fields.min_ctas;
        return Err(Failure::argument(format!(
            "the configuration's minCTAs, {least}, is above its maxCTAs, {most}"
        )));
    }
    Ok(())
}

impl Settings {
    /// What the caller's fields come to, upon what is inherited, under these variables.
    ///
    /// # Safety
    /// - `fields.comm_name` is null or a string of C.
    pub(crate) unsafe fn of(fields: &ConfigFields, inherited: &Self, vars: &Vars) -> Self {
        let count = |value: c_int| u32::try_from(value).ok();
        // SAFETY: the caller's contract.
        let name = unsafe { string(fields.comm_name) };
        let mut settings = Self {
            blocking: match fields.blocking {
                UNDEF_INT => inherited.blocking,
                value => value == 1,
            },
            channels: (
                count(fields.min_ctas).or(inherited.channels.0),
                count(fields.max_ctas).or(inherited.channels.1),
            ),
            name,
            rma_contexts: if fields.num_rma_ctx == UNDEF_INT {
                inherited.rma_contexts
            } else {
                fields.num_rma_ctx
            },
        };
        settings.override_by(vars);
        settings
    }

    /// The environment counts more than the program.
    fn override_by(&mut self, vars: &Vars) {
        if let Some(value) = env::number_in(vars, "NCCL_COMM_BLOCKING", 0, 1) {
            self.blocking = value == 1;
        }
        let ctas = i64::from(CTAS_MAX);
        let count = |name| env::number_in(vars, name, 1, ctas).and_then(|value| u32::try_from(value).ok());
        self.channels.0 = count("NCCL_MIN_CTAS").or(self.channels.0);
        self.channels.1 = count("NCCL_MAX_CTAS").or(self.channels.1);
        if let Some(value) = env::number_in(vars, "NCCL_NUM_RMA_CTX", 0, i64::from(c_int::MAX)) {
            self.rma_contexts = value as c_int;
        }
    }

    /// The settings of the library for a communicator of `nranks`.
    pub(crate) fn config(&self, nranks: u32, vars: &Vars) -> Result<Config, Failure> {
        let mut config = resolve(nranks, vars)?;
        let (least, most) = self.channels;
        if let Some(most) = most {
            config.channels = config.channels.min(most);
            config.min_channels = config.min_channels.min(config.channels);
        }
        if let Some(least) = least.map(|least| least.min(CHANNELS_MAX)) {
            config.min_channels = config.min_channels.max(least);
            config.channels = config.channels.max(config.min_channels);
        }
        Ok(config)
    }
}

/// Most channels that the library has.
const CHANNELS_MAX: u32 = 16;

/// Reads the variables; a bad value of one of NCCL's own fails no start, except where it chooses algorithms.
fn resolve(nranks: u32, vars: &Vars) -> Result<Config, Failure> {
    let mut vars = vars.clone();
    loop {
        match Config::from_vars(nranks, &vars) {
            Ok(config) => return Ok(config),
            Err(ringccl::Error::Setting { name, value, expected }) if name.starts_with("NCCL_") => {
                let text = format!("{name}={value}: not {expected}");
                if matches!(name, "NCCL_ALGO" | "NCCL_PROTO") {
                    return Err(Failure::new(Code::InvalidUsage, text));
                }
                log::warn(&format!("{text}; the default is used"));
                vars = without(&vars, name);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn without(vars: &Vars, left_out: &str) -> Vars {
    let kept = vars.names().filter(|name| *name != left_out);
    Vars::from_pairs(kept.filter_map(|name| Some((name.to_owned(), vars.get(name)?.to_owned()))))
}

/// Tells the log what has no effect here.
pub(crate) fn announce(fields: &ConfigFields) {
    let set = [
        ("cgaClusterSize", fields.cga_cluster_size),
        ("trafficClass", fields.traffic_class),
        ("collnetEnable", fields.collnet_enable),
        ("CTAPolicy", fields.cta_policy),
        ("nvlsCTAs", fields.nvls_ctas),
        ("nChannelsPerNetPeer", fields.n_channels_per_net_peer),
        ("nvlinkCentricSched", fields.nvlink_centric_sched),
        ("graphUsageMode", fields.graph_usage_mode),
        ("maxP2pPeers", fields.max_p2p_peers),
        ("graphStreamOrdering", fields.graph_stream_ordering),
    ];
    for (name, value) in set.into_iter().filter(|(_, value)| *value != UNDEF_INT) {
        log::info(Subsys::INIT, 0, format_args!("config {name}={value} has no effect on host memory"));
    }
}

/// A string of C, as text; bytes that are no text are replaced.
///
/// # Safety
/// - `text` is null or a string of C.
pub(crate) unsafe fn string(text: *const c_char) -> Option<String> {
    // SAFETY: the caller's contract.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests;
