//! Every setting, once.

use super::coordinator::{Address, CoordinatorAddr};
use super::form::{FailText, File, Fitted, Number, OneOf, Paces, Switch, Text};
use super::job::{JobName, Label, RunId};
use super::nccl::{self, Protocols};
use super::setting::{About, Describe, Group, Name, Ranks, Setting, Unset};
use crate::config::{Bind, Numerics, default_chunk};
use crate::model::{Pace, PlanSource};
use crate::plan::{Algorithm, Tuning};
use std::path::PathBuf;
use std::time::Duration;

/// A day, in milliseconds: a longer wait is a mistake.
const DAY_MS: u64 = 86_400_000;
const MILLIS: Number = Number { min: 1, max: DAY_MS, step: 1 };
const CHANNELS_RANGE: Number = Number { min: 1, max: 16, step: 1 };
const CHUNK_RANGE: Number = Number { min: 64, max: 16 << 20, step: 64 };
/// From eight slots of a grain to eight of the largest chunk.
const BUFFER_RANGE: Number = Number { min: 512, max: 128 << 20, step: 512 };
/// From one grain in each of NCCL's eight slots on.
const NCCL_LL_RANGE: Number = Number { min: 256, max: 1 << 30, step: 1 };
const NCCL_LL128_RANGE: Number = Number { min: 16 << 10, max: 1 << 30, step: 1 };
const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("flat", Algorithm::Flat),
    ("twoshot", Algorithm::TwoShot),
    ("ring", Algorithm::Ring),
    ("tree", Algorithm::Tree),
    ("relay", Algorithm::Relay),
];
const STAGING_RANGE: Number = Number { min: 1, max: 1 << 40, step: 1 };
/// More ranks than a communicator can hold: the number is compared with that limit where the ranks meet.
const RANK_RANGE: Number = Number { min: 0, max: 1 << 20, step: 1 };

/// Shortens the table: what most entries have in common.
const fn about(group: Group, default: &'static str, what: &'static str, reader: &'static str) -> About {
    About { group, default: Unset::Is(default), unit: "", what, reader, ranks: Ranks::Equal, secret: false }
}

const CONFIG: &str = "runtime/src/settings/collect.rs";
const INIT: &str = "runtime/src/comm/init.rs";
const JOB_NAME: &str = "runtime/src/settings/job.rs";

/// One line for each setting: what is to be said of it, then its variables with their forms, those that count most
/// first, each perhaps with what is different under that name.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $id:ident: $t:ty = $about:expr, [$($name:literal $form:expr $(, $differs:literal)?);+ $(;)?];
    )+) => {
        $($(#[$doc])* pub static $id: Setting<$t> = Setting {
            about: $about,
            names: &[$(Name { name: $name, form: &$form, differs: concat!($($differs)?) }),+],
        };)+

        /// All settings, in the order of the page.
        pub static ALL: &[&dyn Describe] = &[$(&$id),+];
    };
}

settings! {
    /// How long ranks wait for each other when a communicator is made.
    JOIN_TIMEOUT: Duration = About { unit: "ms", ..about(Group::Communicator, "60000",
        "how long ranks wait for each other when a communicator is made", CONFIG) },
        ["RINGCCL_JOIN_TIMEOUT_MS" MILLIS];
    /// How long reaching the rendezvous may take.
    CONNECT_TIMEOUT: Duration = About { unit: "ms", ..about(Group::Communicator, "`RINGCCL_JOIN_TIMEOUT_MS`",
        "how long a rank tries to reach the rendezvous; a part of the join time-out, so not above it", CONFIG) },
        ["RINGCCL_CONNECT_TIMEOUT_MS" MILLIS];
    /// How long one operation may take.
    TIMEOUT: Duration = About { unit: "ms", ..about(Group::Communicator, "600000",
        "how long one operation may take, waiting included", CONFIG) },
        ["RINGCCL_TIMEOUT_MS" MILLIS];
    /// How long leaving may take.
    FINALIZE_TIMEOUT: Duration = About { unit: "ms", ..about(Group::Communicator, "`RINGCCL_TIMEOUT_MS`",
        "how long `finalize` waits for the other ranks", CONFIG) },
        ["RINGCCL_FINALIZE_TIMEOUT_MS" MILLIS];
    /// FakeGPU's time-out of joining and of operations.
    COORDINATOR_TIMEOUT: Duration = About { unit: "ms", ..about(Group::Communicator, "not set",
        "FakeGPU's time-out of joining and of every operation: the default of `RINGCCL_JOIN_TIMEOUT_MS` and \
         `RINGCCL_TIMEOUT_MS` where it is set (FakeGPU's own default, 1000, does not count)", CONFIG) },
        ["FAKEGPU_COORDINATOR_TIMEOUT_MS" MILLIS];
    /// Most channels of an operation.
    CHANNELS: u32 = About { ranks: Ranks::Compared, ..about(Group::Communicator, "1",
        "most channels of an operation; small operations use fewer", CONFIG) },
        ["RINGCCL_CHANNELS" CHANNELS_RANGE;
         "NCCL_MAX_NCHANNELS" Fitted(CHANNELS_RANGE), "above 16: 16"];
    /// Least channels of an operation that has something for each.
    MIN_CHANNELS: u32 = About { ranks: Ranks::Compared, ..about(Group::Communicator, "1",
        "least channels of an operation that has a line of 64 bytes for each; raises the most channels where these \
         are not set", CONFIG) },
        ["RINGCCL_MIN_CHANNELS" CHANNELS_RANGE;
         "NCCL_MIN_NCHANNELS" Fitted(CHANNELS_RANGE), "above 16: 16"];
    /// The algorithm of collectives that have it.
    ALGO: Algorithm = About { ranks: Ranks::Compared, ..about(Group::Communicator, "by size",
        "the algorithm of collectives that have it: all of all-reduce, the first three of reduce, the first and the third \
         of broadcast, all-gather and reduce-scatter; the others choose by size. `tree` uses two channels unless their \
         number is set", CONFIG) },
        ["RINGCCL_ALGO" OneOf(ALGORITHMS);
         "NCCL_ALGO" nccl::Algo, "a list with `Ring` takes `ring`, another one with `Tree` `tree`; any other list \
          leaves the choice by size"];
    /// The table that the choice by size goes by.
    TUNING: PathBuf = About { ranks: Ranks::Compared, ..about(Group::Communicator, "the user's or built in",
        "the table of which algorithm is the fastest from which size on, as `ringccl tune` writes it; where this is not \
         set, the user's, `ringccl/tuning.yaml` in `$XDG_CONFIG_HOME` or `~/.config`, if it is there", CONFIG) },
        ["RINGCCL_TUNING" File("a file, or `none` for the table that is built in")];
    /// The message layouts that may be used.
    PROTO: Protocols = About { ranks: Ranks::Compared, ..about(Group::Communicator, "by size",
        "the message layout; two-shot and relay use Simple whatever is set", CONFIG) },
        ["RINGCCL_PROTO" nccl::OneProtocol;
         "NCCL_PROTO" nccl::Proto, "of several the choice is by size"];
    /// Bytes of the largest message.
    CHUNK_BYTES: u64 = About { unit: "bytes", ranks: Ranks::Compared,
        default: Unset::ByRanks(|n| default_chunk(n, &Tuning::shipped()).to_string(), "by ranks, below"),
        ..about(Group::Communicator, "", "bytes of the largest message", CONFIG) },
        ["RINGCCL_CHUNK_BYTES" CHUNK_RANGE;
         "FAKEGPU_STAGING_CHUNK_BYTES" Fitted(CHUNK_RANGE), "rounded down to a multiple of 64, at least 64, at most \
          16777216"];
    /// Bytes of the Simple slots of one ring.
    BUFFER_BYTES: u64 = About { unit: "bytes", ranks: Ranks::Compared, ..about(Group::Communicator, "no bound",
        "most bytes of the Simple slots of one ring: 4 slots of a chunk, or 8 of at most 128 KiB between two ranks",
        CONFIG) },
        ["RINGCCL_BUFFER_BYTES" BUFFER_RANGE;
         "NCCL_BUFFSIZE" Fitted(BUFFER_RANGE), "rounded down to a multiple of 512, at least 512"];
    /// Bound on the shared memory of one rank's rings.
    STAGING_MAX_BYTES: u64 = About { unit: "bytes", ranks: Ranks::Compared, ..about(Group::Communicator, "no bound",
        "most bytes of shared memory that the rings of one rank may take, counters included; chunks shrink until they \
         fit, and buffers of any size pass through them", CONFIG) },
        ["RINGCCL_STAGING_MAX_BYTES" STAGING_RANGE;
         "FAKEGPU_STAGING_MAX_BYTES" Fitted(STAGING_RANGE), "bounds the staging and refuses nothing"];
    /// In which order reductions add up.
    NUMERICS: Numerics = About { ranks: Ranks::Compared, ..about(Group::Communicator, "`host`",
        "in which order reductions add up: `nccl` runs all-reduce, reduce and reduce-scatter as NCCL's ring with NCCL's \
         cut of the buffer, for the same last bits; see below", CONFIG) },
        ["RINGCCL_NUMERICS" OneOf(&[("host", Numerics::Host), ("nccl", Numerics::Nccl)])];
    /// Bytes of NCCL's buffer of the protocol LL.
    LL_BUFFER_BYTES: u64 = About { unit: "bytes", ranks: Ranks::Compared, ..about(Group::Communicator, "524288",
        "bytes of NCCL's buffer of the protocol LL; cuts with `RINGCCL_NUMERICS=nccl`, else without effect", CONFIG) },
        ["NCCL_LL_BUFFSIZE" NCCL_LL_RANGE];
    /// Bytes of NCCL's buffer of the protocol LL128.
    LL128_BUFFER_BYTES: u64 = About { unit: "bytes", ranks: Ranks::Compared, ..about(Group::Communicator, "4915200",
        "the same of LL128", CONFIG) },
        ["NCCL_LL128_BUFFSIZE" NCCL_LL128_RANGE];
    /// Whether payloads must go through sockets.
    FORCE_SOCKET: bool = about(Group::Communicator, "off",
        "payloads by socket; `on` is an error, since this version has no socket transport", CONFIG),
        ["FAKEGPU_STAGING_FORCE_SOCKET" Switch];
    /// Which plan the host executes.
    PLAN: PlanSource = About { ranks: Ranks::Compared, ..about(Group::Communicator, "`host`",
        "`model` has the host execute the algorithm, protocol and number of channels that NCCL would choose on the cluster \
         of `RINGCCL_CLUSTER_CONFIG`; what the host does not have (NVLS, CollNet, PAT) becomes what is nearest, which \
         `RINGCCL_LOG=debug` tells", CONFIG) },
        ["RINGCCL_PLAN" OneOf(&[("host", PlanSource::Host), ("model", PlanSource::Model)])];
    /// Whether operations take their modelled time.
    PACE: Pace = About { ranks: Ranks::Compared, ..about(Group::Communicator, "no delay",
        "`model` has operations really take their modelled time, `model:FACTOR` so many times that; none takes longer than \
         its time limit", CONFIG) },
        ["RINGCCL_PACE" Paces];
    /// Directory of segments.
    SHM_DIR: PathBuf = about(Group::Communicator, "`/dev/shm`", "where the segment is made", CONFIG),
        ["RINGCCL_SHM_DIR" File("a directory on a tmpfs")];
    /// Binding to cores.
    BIND: Bind = About { ranks: Ranks::Own, ..about(Group::Communicator, "`none`",
        "`even` binds each rank's communicating thread to one core", CONFIG) },
        ["RINGCCL_BIND" OneOf(&[("none", Bind::None), ("even", Bind::Even)]);
         "RINGCCL_PIN" OneOf(&[("0", Bind::None), ("1", Bind::Even)]), "as `none` and `even`"];
    /// Whether the scheduler is asked for anything.
    SCHED: bool = About { ranks: Ranks::Own, ..about(Group::Communicator, "on",
        "`0`: the scheduler is asked for nothing, neither for the short time slices that ranks get which share cores, \
         nor for cores, whatever `RINGCCL_BIND` says", CONFIG) },
        ["RINGCCL_SCHED" Switch];
    /// Where something is made to go wrong.
    FAIL_POINT: String = About { ranks: Ranks::Own, ..about(Group::Communicator, "none",
        "for tests: the point at which this rank dies or stops, and at which time of passing it; the points are in \
         `runtime/src/fail.rs`", CONFIG) },
        ["RINGCCL_FAIL_POINT" FailText];

    /// Compute mode.
    MODE: Mode = about(Group::Mode, "`simulate`",
        "where buffers live; this version has `simulate` (host memory), the others are errors that say so", CONFIG),
        ["RINGCCL_MODE" MODES; "FAKEGPU_MODE" MODES];
    /// Communication mode.
    DIST_MODE: DistMode = about(Group::Mode, "`simulate`",
        "who moves data between ranks; this version has `simulate`. `disabled` refuses communicators of more than one \
         rank; it is FakeGPU's default, which counts only when set", CONFIG),
        ["RINGCCL_DIST_MODE" DIST_MODES; "FAKEGPU_DIST_MODE" DIST_MODES];

    /// This rank.
    RANK: u32 = About { ranks: Ranks::Own, ..about(Group::Joining, "required", "this rank, below `WORLD_SIZE`", INIT) },
        ["RANK" RANK_RANGE];
    /// Number of ranks.
    WORLD_SIZE: u32 = About { ranks: Ranks::Compared, ..about(Group::Joining, "required",
        "number of ranks, at most 1024", INIT) },
        ["WORLD_SIZE" RANK_RANGE];
    /// Address of the rendezvous.
    RENDEZVOUS: String = about(Group::Joining, "not set",
        "address of the rendezvous; where it is set, `MASTER_*` is not read", INIT),
        ["RINGCCL_RENDEZVOUS" Text("`HOST:PORT`")];
    /// Proof of belonging to the job.
    SECRET: String = About { secret: true, ..about(Group::Joining, "required with the line above",
        "proof of belonging to the job; never shown", INIT) },
        ["RINGCCL_SECRET" Text("64 hexadecimal digits")];
    /// Host of the rendezvous.
    MASTER_ADDR: String = about(Group::Joining, "required otherwise",
        "where rank 0 hosts the rendezvous, without a secret", INIT),
        ["MASTER_ADDR" Text("a host name or address")];
    /// Port of the rendezvous.
    MASTER_PORT: u32 = about(Group::Joining, "required otherwise", "its port", INIT),
        ["MASTER_PORT" Number { min: 0, max: 65535, step: 1 }];
    /// Number of this rank on its node.
    LOCAL_RANK: u32 = About { ranks: Ranks::Own, ..about(Group::Joining, "`RANK`",
        "this rank's number on its node; told to the peers", INIT) },
        ["LOCAL_RANK" RANK_RANGE];
    /// Name of this rank's node.
    NODE: String = About { ranks: Ranks::Own, ..about(Group::Joining, "`node0`",
        "name of this rank's node, for the report", INIT) },
        ["RINGCCL_NODE" Text("a name")];
    /// Address of a coordinator.
    COORDINATOR_ADDR: CoordinatorAddr = about(Group::Joining, "not set",
        "address of a coordinator that runs already", INIT),
        ["RINGCCL_COORDINATOR_ADDR" Address; "FAKEGPU_COORDINATOR_ADDR" Address];
    /// How a coordinator is reached.
    COORDINATOR_TRANSPORT: CoordinatorTransport = about(Group::Joining, "by the address",
        "how the coordinator is reached; must fit the address", INIT),
        ["RINGCCL_COORDINATOR_TRANSPORT" TRANSPORTS; "FAKEGPU_COORDINATOR_TRANSPORT" TRANSPORTS];
    /// Name of the job.
    JOB: String = about(Group::Joining, "the launcher's",
        "name of this job at a coordinator that several jobs share; each needs its own", JOB_NAME),
        ["RINGCCL_JOB" JobName];
    /// torchrun's name of the job.
    RUN_ID: String = about(Group::Joining, "not set",
        "torchrun's name of the job (`--rdzv-id`), which counts where `RINGCCL_JOB` is not set", JOB_NAME),
        ["TORCHELASTIC_RUN_ID" RunId];
    /// Slurm's number of the job.
    SLURM_JOB: String = about(Group::Joining, "not set",
        "Slurm's number of the job, the same where the line above is not set", JOB_NAME),
        ["SLURM_JOB_ID" Label];
    /// Slurm's number of the step.
    SLURM_STEP: String = about(Group::Joining, "not set",
        "number of the step in that job, a part of the name", JOB_NAME),
        ["SLURM_STEP_ID" Label];
    /// PMIx's name of the job.
    PMIX_NAMESPACE: String = about(Group::Joining, "not set",
        "an MPI launcher's name of the job, where nothing above is set", JOB_NAME),
        ["PMIX_NAMESPACE" Label];
    /// Open MPI's number of the job.
    PRTE_JOB: String = about(Group::Joining, "not set",
        "Open MPI's number of the job, where nothing above is set", JOB_NAME),
        ["OMPI_MCA_ess_base_jobid" Label];

    /// Where the report goes.
    REPORT: PathBuf = about(Group::Output, "no report",
        "rank 0 writes the report there in `finalize`; the directory must exist. Of several communicators of a process \
         the last to finalize stands", CONFIG),
        ["RINGCCL_REPORT" File("a file"); "FAKEGPU_CLUSTER_REPORT_PATH" File("a file")];
    /// Where traces go.
    TRACE: PathBuf = about(Group::Output, "no trace",
        "made if only its last part is missing; each rank writes `trace-RANK.json` there in `finalize`",
        "runtime/src/trace.rs"),
        ["RINGCCL_TRACE" File("a directory")];
    /// The cluster file.
    CLUSTER_CONFIG: PathBuf = about(Group::Output, "no file",
        "the launcher places ranks on its nodes where `--cluster` is not given; every collective is priced as NCCL would \
         run it there, for the report's `model`, `RINGCCL_PLAN` and `RINGCCL_PACE`",
        CONFIG),
        ["RINGCCL_CLUSTER_CONFIG" File("a cluster file"); "FAKEGPU_CLUSTER_CONFIG" File("a cluster file")];
    /// Which log lines are shown.
    LOG: LogLevel = About { ranks: Ranks::Own, ..about(Group::Output, "`warn`",
        "which log lines the `ringccl` command prints to stderr. A program with a `tracing` subscriber chooses by that; \
         without one it prints by this level what there is to say of settings",
        "cli/src/main.rs") },
        ["RINGCCL_LOG" OneOf(&LOG_LEVELS);
         "NCCL_DEBUG" OneOf(&NCCL_LEVELS), "`VERSION` is `warn`, `ABORT` is `info`"];

    /// Devices that FakeGPU shows.
    DEVICE_COUNT: u64 = About { ranks: Ranks::Own, ..about(Group::NoEffect, "8",
        "devices that FakeGPU shows; this version has no devices", "nothing yet") },
        ["FAKEGPU_DEVICE_COUNT" Number { min: 1, max: 1024, step: 1 }];
    /// The real NCCL.
    REAL_NCCL_PATH: PathBuf = about(Group::NoEffect, "search",
        "the real NCCL, for the modes `proxy` and `passthrough`, which this version does not have", "nothing yet"),
        ["FAKEGPU_REAL_NCCL_PATH" File("a library")];
    /// Entries of the report's timeline.
    REPORT_MAX_OPERATIONS: u64 = about(Group::NoEffect, "4096",
        "entries of the report's timeline, which this version does not write", "nothing yet"),
        ["FAKEGPU_CLUSTER_REPORT_MAX_OPERATIONS" Number { min: 0, max: 1 << 32, step: 1 }];
    /// The report's Markdown twin.
    REPORT_MARKDOWN: PathBuf = about(Group::NoEffect, "beside the report",
        "the report as Markdown, which this version does not write", "nothing yet"),
        ["FAKEGPU_CLUSTER_REPORT_MARKDOWN_PATH" File("a file, or `0`, `off`, `none`")];
}

/// Names that begin like ours and belong to scripts of this project and to the Python package.
pub(super) const OF_SCRIPTS: [&str; 4] =
    ["RINGCCL_BIN", "RINGCCL_AS", "RINGCCL_TORCH_SHIM", "RINGCCL_TEST_TORCH"];

/// Where buffers live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In host memory.
    Simulate,
    /// On real GPUs, staged through host memory.
    Hybrid,
    /// As without us.
    Passthrough,
}

const MODES: OneOf<Mode> =
    OneOf(&[("simulate", Mode::Simulate), ("hybrid", Mode::Hybrid), ("passthrough", Mode::Passthrough)]);

/// Who moves data between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DistMode {
    /// Nobody.
    Disabled,
    /// RingCCL.
    Simulate,
    /// Real NCCL, watched by RingCCL.
    Proxy,
    /// Real NCCL alone.
    Passthrough,
}

const DIST_MODES: OneOf<DistMode> = OneOf(&[
    ("disabled", DistMode::Disabled),
    ("simulate", DistMode::Simulate),
    ("proxy", DistMode::Proxy),
    ("passthrough", DistMode::Passthrough),
]);

/// How a coordinator is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoordinatorTransport {
    /// By a host and a port.
    Tcp,
    /// By a socket in the file system.
    Unix,
}

const TRANSPORTS: OneOf<CoordinatorTransport> =
    OneOf(&[("tcp", CoordinatorTransport::Tcp), ("unix", CoordinatorTransport::Unix)]);

/// Which log lines are shown: those of this level and of the levels before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// None.
    Off,
    /// What has failed.
    Error,
    /// What may be wrong.
    Warn,
    /// What happens.
    Info,
    /// Why.
    Debug,
    /// Everything.
    Trace,
}

const LOG_LEVELS: [(&str, LogLevel); 6] = [
    ("off", LogLevel::Off),
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];

const NCCL_LEVELS: [(&str, LogLevel); 6] = [
    ("NONE", LogLevel::Off),
    ("VERSION", LogLevel::Warn),
    ("WARN", LogLevel::Warn),
    ("INFO", LogLevel::Info),
    ("ABORT", LogLevel::Info),
    ("TRACE", LogLevel::Trace),
];
