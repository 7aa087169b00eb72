//! Settings of a communicator, from the environment or from code. Equal on all ranks.

use crate::error::Error;
use crate::model::{Pace, PlanSource, World};
use crate::plan::{Algorithm, Call, Choice, Kind, NcclCut, Tuning, nccl, select};
use crate::reduce::{DType, ReduceOp};
use crate::settings::{self, Resolved, Vars, staging};
use crate::transport::shm::Shm;
use shmring::Protocol;
use shmring::layout::Geometry;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Settings; [`Config::from_env`] documents the variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long ranks wait for each other when a communicator is made.
    pub join_timeout: Duration,
    /// How long reaching the rendezvous may take, within the join time-out; all of that if `None`. See
    /// [`Config::connect_limit`].
    pub connect_timeout: Option<Duration>,
    /// How long an operation may take, waiting included.
    pub timeout: Duration,
    /// How long leaving may take; as long as an operation if `None`. See [`Config::finalize_limit`].
    pub finalize_timeout: Option<Duration>,
    /// Most channels of an operation.
    pub channels: u32,
    /// Least channels of an operation that has something for each; at least 1.
    pub min_channels: u32,
    /// The algorithm, for collectives that have it, instead of one chosen by size.
    pub algorithm: Option<Algorithm>,
    /// The message layout, instead of one chosen by size.
    pub protocol: Option<Protocol>,
    /// What the choice by size goes by: which algorithm is the fastest from which size on.
    pub tuning: Arc<Tuning>,
    /// Which message layouts a choice by size may take, by `Protocol as usize`.
    pub protocols: [bool; Protocol::ALL.len()],
    /// Bytes of the largest message.
    pub chunk_bytes: usize,
    /// Most bytes of the Simple slots of one ring.
    pub buffer_bytes: Option<u64>,
    /// Most bytes of shared memory that the rings of one rank may take; messages shrink below
    /// [`Config::chunk_bytes`] until they fit.
    pub staging_max_bytes: Option<u64>,
    /// Directory of segments.
    pub shm_dir: PathBuf,
    /// The cluster on which collectives are priced, if there is one.
    pub cluster: Option<Arc<World>>,
    /// Which plan is executed; [`PlanSource::Model`] needs a cluster.
    pub plan: PlanSource,
    /// Whether operations take their modelled time, and how many times that.
    pub pace: Option<Pace>,
    /// Where the report goes, if anywhere.
    pub report: Option<PathBuf>,
    /// In which order reductions add up.
    pub numerics: Numerics,
    /// Bytes of NCCL's buffer of the protocol LL, for [`Numerics::Nccl`]; NCCL's default if `None`.
    pub ll_buffer_bytes: Option<u64>,
    /// The same of LL128.
    pub ll128_buffer_bytes: Option<u64>,
    /// Which processor cores the ranks' communicating threads run on.
    pub bind: Bind,
    /// Whether the scheduler is asked for anything: short slices where ranks share cores, and what `bind` says.
    pub scheduling: bool,
    /// For tests: the point at which this rank is made to fail, as in `RINGCCL_FAIL_POINT`.
    pub fail_point: Option<String>,
}

/// In which order the contributions of ranks enter a sum: whether its last bits are those of NCCL's ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numerics {
    /// That of the algorithm that suits this host.
    #[default]
    Host,
    /// That of NCCL's ring, for all-reduce, reduce and reduce-scatter.
    Nccl,
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

/// What the rings of all ranks to all others may take together, with chunks of the default size: half of what
/// containers have in /dev/shm by default.
const RINGS_BYTES: u64 = 32 << 20;
/// Slots of such a ring, see `settings/staging.rs`.
const RING_SLOTS: u64 = 4;
/// The least default.
const CHUNK_LEAST: u64 = 16 << 10;

/// Largest message when nothing else is set, in bytes: what the table says, as far as all ranks' rings stay small.
pub(crate) fn default_chunk(nranks: u32, tuning: &Tuning) -> usize {
    // Beyond 512 ranks it is the least anyway, and a number without a power of two above it is no number of ranks.
    let rings = RING_SLOTS << nranks.min(1 << 16).next_power_of_two().ilog2();
    (RINGS_BYTES / rings).min(tuning.row(nranks).chunk).max(CHUNK_LEAST) as usize
}

impl Config {
    /// The defaults for a communicator of `nranks`.
    pub fn new(nranks: u32) -> Self {
        Self::with_tuning(nranks, Tuning::shipped())
    }

    /// The defaults where this table says what is the fastest.
    pub fn with_tuning(nranks: u32, tuning: Arc<Tuning>) -> Self {
        Self {
            join_timeout: Duration::from_secs(60),
            connect_timeout: None,
            timeout: Duration::from_secs(600),
            finalize_timeout: None,
            channels: 1,
            min_channels: 1,
            algorithm: None,
            protocol: None,
            protocols: [true; Protocol::ALL.len()],
            chunk_bytes: default_chunk(nranks, &tuning),
            tuning,
            buffer_bytes: None,
            staging_max_bytes: None,
            numerics: Numerics::Host,
            ll_buffer_bytes: None,
            ll128_buffer_bytes: None,
            cluster: None,
            plan: PlanSource::Host,
            pace: None,
            shm_dir: "/dev/shm".into(),
            report: None,
            bind: Bind::None,
            scheduling: true,
            fail_point: None,
        }
    }

    /// The defaults, changed by the variables that are set, of which `docs/settings.md` is the list. Tells the log,
    /// once per process, of names that look like settings and are none.
    ///
    /// # Errors
    /// [`Error::Setting`] for a bad value, with the good ones, and for settings that contradict each other.
    pub fn from_env(nranks: u32) -> Result<Self, Error> {
        let vars = Vars::of_process();
        let Resolved { config, problems, notes } = settings::resolve(nranks, &vars);
        settings::announce(&vars, &notes);
        problems.into_iter().next().map_or(Ok(config), Err)
    }

    /// The defaults, changed by these variables.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn from_vars(nranks: u32, vars: &Vars) -> Result<Self, Error> {
        let Resolved { config, problems, .. } = settings::resolve(nranks, vars);
        problems.into_iter().next().map_or(Ok(config), Err)
    }

    /// How long reaching the rendezvous may take.
    pub fn connect_limit(&self) -> Duration {
        self.connect_timeout.unwrap_or(self.join_timeout).min(self.join_timeout)
    }

    /// How long leaving may take.
    pub fn finalize_limit(&self) -> Duration {
        self.finalize_timeout.unwrap_or(self.timeout)
    }

    /// Most bytes of shared memory that the rings of one rank of `nranks` can take.
    ///
    /// # Errors
    /// [`Error::Setting`] where [`Config::staging_max_bytes`] is below what the least rings take.
    pub fn staging_bytes(&self, nranks: u32) -> Result<u64, Error> {
        Ok(staging::bytes_per_rank(&self.geometry(nranks)?))
    }

    /// Bytes of shared memory that all of `nranks` ranks need before they have made a ring.
    ///
    /// # Errors
    /// As [`Config::staging_bytes`].
    pub fn control_bytes(&self, nranks: u32) -> Result<u64, Error> {
        Ok(self.geometry(nranks)?.control_bytes())
    }

    /// Bytes of shared memory that all of `nranks` ranks together take once every ring that they use is made.
    ///
    /// # Errors
    /// As [`Config::staging_bytes`].
    pub fn segment_bytes(&self, nranks: u32) -> Result<u64, Error> {
        Ok(staging::segment_bytes(self, &self.geometry(nranks)?))
    }

    /// What an all-reduce of `bytes` (an even number) on `nranks` ranks (at least 2) runs with.
    ///
    /// # Errors
    /// As [`Config::staging_bytes`].
    pub fn choice(&self, nranks: u32, bytes: usize) -> Result<Choice, Error> {
        let limits = Shm::limits(&self.geometry(nranks)?);
        let call = Call::new(Kind::AllReduce, bytes / 2, DType::F16, ReduceOp::Sum);
        Ok(select(&call, self, &limits))
    }

    /// A number that differs when ranks of a communicator of `nranks` would choose differently: 0 where nothing is set.
    pub(crate) fn agreement(&self, nranks: u32) -> u64 {
        let algorithm = self.algorithm.map_or(0, |a| a as u64 + 1);
        let protocol = self.protocol.map_or(0, |p| p as u64 + 1);
        let without = self.protocols.iter().rev().fold(0, |bits, allowed| bits << 1 | u64::from(!allowed));
        let chosen =
            u64::from(self.min_channels.saturating_sub(1)) << 24 | without << 16 | algorithm << 8 | protocol;
        let chosen = chosen ^ u64::from(self.tuning.mark(nranks)) << 32 ^ self.modelled();
        match self.nccl_cut() {
            None => chosen,
            // The buffer of a protocol decides where sums begin. Two different sizes are told apart by 31 bits.
            Some(cut) => {
                let sizes = cut.buffer_bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (sizes >> 32 | 1) << 32 ^ chosen
            }
        }
    }

    /// The same of what is modelled.
    fn modelled(&self) -> u64 {
        let Some(world) = &self.cluster else { return 0 };
        let pace = self.pace.map_or(0, |pace| u64::from(pace.thousandths));
        let plan = u64::from(self.plan == PlanSource::Model);
        (world.mark() ^ pace << 1 ^ plan).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// What NCCL's cut of a ring depends on; `None` where sums need not follow it.
    ///
    /// NCCL's tuner would choose protocol and channels by size. It is not modelled here: the protocol is the one that
    /// the settings leave, Simple if they leave it, and the channels are the most that they allow.
    pub(crate) fn nccl_cut(&self) -> Option<NcclCut> {
        if self.numerics == Numerics::Host {
            return None;
        }
        let may = |p: Protocol| self.protocols[p as usize];
        let first = [Protocol::Simple, Protocol::Ll128, Protocol::Ll].into_iter().find(|p| may(*p));
        let protocol = self.protocol.or(first).unwrap_or(Protocol::Simple);
        let buffer = match protocol {
            Protocol::Simple => self.buffer_bytes,
            Protocol::Ll => self.ll_buffer_bytes,
            Protocol::Ll128 => self.ll128_buffer_bytes,
        };
        let buffer_bytes = buffer.unwrap_or_else(|| nccl::default_buffer(protocol));
        Some(NcclCut { protocol, channels: self.channels.max(1), buffer_bytes })
    }

    /// The segment that a communicator of `nranks` with these settings shares.
    ///
    /// # Errors
    /// As [`Config::staging_bytes`].
    pub(crate) fn geometry(&self, nranks: u32) -> Result<Geometry, Error> {
        staging::geometry(self, nranks)
    }
}
