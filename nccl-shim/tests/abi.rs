//! The finished file: its names, their bindings, and the layout of what is passed, against NVIDIA's header.

mod common;

use nccl::types::{ConfigFields, SimInfo, WaitSignalDesc};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The names of NCCL 2.30.7, without their twins.
const NAMES: &str = include_str!("names.txt");
/// The one name that has no twin, and is strong.
const ALONE: &str = "ncclResetDebugInitInternal";

fn readelf(option: &str) -> String {
    let library = common::library().join("libnccl.so.2");
    let output = common::run(Command::new("readelf").args([option, "-W"]).arg(library), LIMIT);
    assert!(output.status.success(), "readelf: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Binding and value of each name that the library defines.
fn defined() -> BTreeMap<String, (String, String)> {
    let symbols = readelf("--dyn-syms");
    let rows = symbols.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row.len() == 8 && row[6] != "UND" && row[6] != "Ndx");
    rows.map(|row| (row[7].to_owned(), (row[4].to_owned(), row[1].to_owned()))).collect()
}

/// All names are there, weak, with a strong twin at the same address, and nothing else is.
#[test]
fn names_are_those_of_nccl() {
    let mut defined = defined();
    for name in NAMES.lines() {
        let weak = defined.remove(name).unwrap_or_else(|| panic!("{name} is missing"));
        let twin = format!("p{name}");
        let strong = defined.remove(&twin).unwrap_or_else(|| panic!("{twin} is missing"));
        assert_eq!((weak.0.as_str(), strong.0.as_str()), ("WEAK", "GLOBAL"), "{name}");
        assert_eq!(weak.1, strong.1, "{name} and its twin are two functions");
    }
    assert_eq!(defined.remove(ALONE).map(|it| it.0).as_deref(), Some("GLOBAL"));
    assert!(defined.is_empty(), "more than NCCL's names: {defined:?}");
    assert_eq!(NAMES.lines().count(), 82);
}

/// Programs find the library by its soname; it needs no library of CUDA, and its names have no versions.
#[test]
fn soname_and_needs() {
    let dynamic = readelf("--dynamic");
    assert!(dynamic.contains("Library soname: [libnccl.so.2]"), "{dynamic}");
    let needed: Vec<&str> = dynamic.lines().filter(|line| line.contains("(NEEDED)")).collect();
    for line in &needed {
        let is_of_system =
            ["libc.so", "libgcc_s.so", "ld-linux", "libm.so", "libpthread.so", "libdl.so", "librt.so"]
                .iter()
                .any(|name| line.contains(name));
        assert!(is_of_system, "{line}");
    }
    assert!(!dynamic.contains("VERDEF"), "{dynamic}");
}

/// Every function that the header declares is exported.
#[test]
fn header_declares_nothing_else() {
    let Some(headers) = common::headers() else { return };
    let header = std::fs::read_to_string(headers[0].join("nccl.h")).expect("header");
    let words = header.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '(');
    let called = words.filter_map(|word| word.split_once('(')).map(|(name, _)| name);
    let declared: Vec<&str> =
        called.filter(|name| name.starts_with("nccl") || name.starts_with("pnccl")).collect();
    assert!(declared.len() >= 2 * 64, "only {} declarations found", declared.len());
    let defined = defined();
    for name in declared {
        assert!(defined.contains_key(name), "{name} is declared and not exported");
    }
}

/// Sizes, offsets and values of this library are the header's.
#[test]
fn layouts_are_the_headers() {
    let Some(program) = common::compile("abi", &[]) else { return };
    let output = common::run(&mut common::with_library(program), LIMIT);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let theirs: BTreeMap<&str, i64> = text
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, value)| (name, value.parse().expect("number")))
        .collect();
    let ours = ours();
    assert_eq!(theirs.len(), ours.len(), "the program prints what is not compared");
    for (name, value) in ours {
        assert_eq!(theirs.get(name.as_str()), Some(&value), "{name}");
    }
}

macro_rules! offsets {
    ($list:ident, $type:ty as $name:literal: $($field:ident $theirs:literal),*) => {
        $($list.push((format!("offset {}.{}", $name, $theirs), offset_of!($type, $field) as i64));)*
    };
}

fn ours() -> Vec<(String, i64)> {
    let mut list = Vec::new();
    let mut size = |name: &str, bytes: usize| list.push((format!("sizeof {name}"), bytes as i64));
    size("ncclUniqueId", size_of::<nccl::types::UniqueIdBytes>());
    size("ncclConfig_t", size_of::<ConfigFields>());
    size("ncclSimInfo_t", size_of::<SimInfo>());
    size("ncclWaitSignalDesc_t", size_of::<WaitSignalDesc>());
    let enums =
        ["ncclResult_t", "ncclDataType_t", "ncclRedOp_t", "ncclScalarResidence_t", "ncclCommMemStat_t"];
    enums.iter().for_each(|name| size(name, size_of::<i32>()));
    offsets!(list, ConfigFields as "ncclConfig_t": size "size", magic "magic", version "version", blocking "blocking",
        cga_cluster_size "cgaClusterSize", min_ctas "minCTAs", max_ctas "maxCTAs", net_name "netName",
        split_share "splitShare", traffic_class "trafficClass", comm_name "commName", collnet_enable "collnetEnable",
        cta_policy "CTAPolicy", shrink_share "shrinkShare", nvls_ctas "nvlsCTAs",
        n_channels_per_net_peer "nChannelsPerNetPeer", nvlink_centric_sched "nvlinkCentricSched",
        graph_usage_mode "graphUsageMode", num_rma_ctx "numRmaCtx", max_p2p_peers "maxP2pPeers",
        graph_stream_ordering "graphStreamOrdering");
    offsets!(list, SimInfo as "ncclSimInfo_t": size "size", magic "magic", version "version",
        estimated_time "estimatedTime");
    offsets!(list, WaitSignalDesc as "ncclWaitSignalDesc_t": op_cnt "opCnt", peer "peer", sig_idx "sigIdx", ctx "ctx");
    let mut value = |name: &str, value: i64| list.push((format!("value {name}"), value));
    value("NCCL_VERSION_CODE", nccl::types::VERSION.into());
    value("NCCL_UNIQUE_ID_BYTES", nccl::types::UNIQUE_ID_BYTES as i64);
    value("NCCL_CONFIG_UNDEF_INT", nccl::types::UNDEF_INT.into());
    value("NCCL_SPLIT_NOCOLOR", nccl::types::SPLIT_NOCOLOR.into());
    value("NCCL_SHRINK_ABORT", nccl::types::SHRINK_ABORT.into());
    value("NCCL_SUSPEND_MEM", nccl::types::SUSPEND_MEM.into());
    value("NCCL_API_MAGIC", nccl::types::API_MAGIC.into());
    value("config_magic", nccl::types::API_MAGIC.into());
    value("sim_magic", nccl::types::SIM_MAGIC.into());
    let mut numbered = |names: &[&str]| (0..).zip(names).for_each(|(number, name)| value(name, number));
    numbered(&[
        "ncclSuccess",
        "ncclUnhandledCudaError",
        "ncclSystemError",
        "ncclInternalError",
        "ncclInvalidArgument",
        "ncclInvalidUsage",
        "ncclRemoteError",
        "ncclInProgress",
        "ncclTimeout",
        "ncclNumResults",
    ]);
    numbered(&[
        "ncclInt8",
        "ncclUint8",
        "ncclInt32",
        "ncclUint32",
        "ncclInt64",
        "ncclUint64",
        "ncclFloat16",
        "ncclFloat32",
        "ncclFloat64",
        "ncclBfloat16",
        "ncclFloat8e4m3",
        "ncclFloat8e5m2",
        "ncclNumTypes",
    ]);
    numbered(&["ncclSum", "ncclProd", "ncclMax", "ncclMin", "ncclAvg", "ncclNumOps"]);
    numbered(&["ncclScalarDevice", "ncclScalarHostImmediate"]);
    numbered(&[
        "ncclStatGpuMemSuspend",
        "ncclStatGpuMemSuspended",
        "ncclStatGpuMemPersist",
        "ncclStatGpuMemTotal",
    ]);
    list
}
