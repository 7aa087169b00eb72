//! The cluster of a process, read once.

use crate::settings::{self, Vars};
use coordinator_lite::Member;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use topo::links::{Calibration, Group, LinkKind, Pricer};
use topo::nccl::search::Env;
use topo::nccl::tuner::Environment;
use topo::{Cluster, ConfigError};

/// A cluster file, and what NCCL of the file's release would do there under this process's variables.
#[derive(Debug)]
pub struct World {
    cluster: Cluster,
    /// Without known machines there is only the file's fabric.
    pricer: Option<Pricer>,
    /// A number that differs for other files and other variables.
    mark: u64,
    /// Communicators by their ranks; all ranks of a process share them.
    groups: Mutex<HashMap<Vec<u32>, Option<Arc<Group>>>>,
    links: OnceLock<Vec<Link>>,
}

/// A link as the report names it: every node has one of this name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) kind: LinkKind,
    pub(crate) bandwidth_gbps: f64,
    pub(crate) effective_gbps: f64,
}

impl PartialEq for World {
    fn eq(&self, other: &Self) -> bool {
        self.mark == other.mark
    }
}

impl Eq for World {}

impl World {
    /// Reads the file at `path`, unless it was read already and has not changed.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn load(path: &Path, vars: &Vars) -> Result<Arc<Self>, ConfigError> {
        type Known = BTreeMap<(PathBuf, u64), Arc<World>>;
        static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());
        let variables = variables(vars);
        let text = std::fs::metadata(path).ok().and_then(|data| Some((data.len(), data.modified().ok()?)));
        let mut mark = hash(format!("{variables:?}").as_bytes(), SEED);
        mark = hash(format!("{text:?}").as_bytes(), mark);
        let key = (path.to_owned(), mark);
        let mut known = shmring::sync::lock(&KNOWN);
        if let Some(world) = known.get(&key) {
            return Ok(Arc::clone(world));
        }
        let world = Arc::new(Self::of(Cluster::load(path)?, &variables));
        // Whoever changes the file again and again needs only the last.
        known.retain(|(other, _), _| other != path);
        known.insert(key, Arc::clone(&world));
        Ok(world)
    }

    /// A cluster under these variables of NCCL; those that its release does not have are left out.
    pub fn of(cluster: Cluster, variables: &[(String, String)]) -> Self {
        let release = cluster.nccl().release;
        let takes = |(name, value): &&(String, String)| {
            let pair = [(name.as_str(), value.as_str())];
            match Environment::parse(pair, release) {
                Ok(environment) => environment.search().is_empty() || Env::from_pairs(pair).is_ok(),
                Err(_) => false,
            }
        };
        let (taken, left): (Vec<_>, Vec<_>) = variables.iter().partition(takes);
        let taken: Vec<(String, String)> = taken.into_iter().cloned().collect();
        for (name, value) in left {
            settings::detail(|| format!("{name}={value} says nothing to the model of NCCL {release}"));
        }
        let pricer = Pricer::of_cluster(&cluster, &taken, Calibration::default());
        let pricer = pricer.unwrap_or_else(|error| {
            settings::warn(&format!("{}: not modelled: {error}", cluster.path().display()));
            None
        });
        let what = format!(
            "{}{:?}{:?}{taken:?}",
            cluster.name(),
            cluster.nodes(),
            (cluster.nccl(), cluster.fabric())
        );
        let mark = hash(what.as_bytes(), SEED);
        Self { cluster, pricer, mark, groups: Mutex::default(), links: OnceLock::new() }
    }

    /// The file.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A number by which ranks compare what they model.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    /// Whether the file says enough for NCCL's tuner; otherwise operations are rings over its fabric.
    pub fn is_tuned(&self) -> bool {
        self.pricer.is_some()
    }

    /// The communicator of these ranks; `None` if NCCL cannot make it, or the machines are not known.
    pub(crate) fn group(&self, ranks: &[u32]) -> Option<Arc<Group>> {
        let pricer = self.pricer.as_ref()?;
        let mut groups = shmring::sync::lock(&self.groups);
        if let Some(known) = groups.get(ranks) {
            return known.clone();
        }
        let made = pricer.group(ranks).map_err(|error| {
            settings::detail(|| format!("ranks {ranks:?} are not modelled: {error}"));
        });
        let made = made.ok().map(Arc::new);
        groups.insert(ranks.to_vec(), made.clone());
        made
    }

    /// Most channels that a plan of the first `nranks` ranks has.
    pub(crate) fn channels(&self, nranks: u32) -> Option<u32> {
        let ranks: Vec<u32> = (0..nranks.min(self.cluster.world_size())).collect();
        let group = self.group(&ranks)?;
        let setup = group.model().tuner().setup();
        let nvls = if setup.graphs.nvls.is_some() { setup.nvls_channels() } else { 1 };
        Some(setup.channels().max(nvls))
    }

    /// The links of the report: those of the communicator of all ranks, and one for whatever others have besides.
    pub(crate) fn links(&self) -> &[Link] {
        self.links.get_or_init(|| {
            let all: Vec<u32> = (0..self.cluster.world_size()).collect();
            let Some(group) = self.group(&all) else { return Vec::new() };
            let link = |link: &topo::links::VirtualLink| Link {
                name: link.name.clone(),
                kind: link.kind,
                bandwidth_gbps: link.bandwidth_gbps,
                effective_gbps: link.effective_gbps,
            };
            let other = Link {
                name: "others".into(),
                kind: LinkKind::Pcie,
                bandwidth_gbps: 0.0,
                effective_gbps: 0.0,
            };
            group.links().iter().map(link).chain([other]).collect()
        })
    }

    /// The ranks of the file that members of a communicator are, by their nodes and their numbers there; where no
    /// launcher has told the nodes, by the numbers alone. `None` where these are no ranks of the file.
    pub(crate) fn ranks_of(&self, members: &[Member]) -> Option<Vec<u32>> {
        let world = self.cluster.world_size();
        let rank_of = |member: &Member| {
            let node = self.cluster.nodes().iter().find(|node| node.id() == member.node);
            match node {
                Some(node) => node.ranks().get(member.local_rank as usize).copied(),
                None => Some(member.local_rank).filter(|rank| *rank < world),
            }
        };
        let ranks: Vec<u32> = members.iter().map(rank_of).collect::<Option<_>>()?;
        let mut sorted = ranks.clone();
        sorted.sort_unstable();
        sorted.windows(2).all(|pair| pair[0] != pair[1]).then_some(ranks)
    }
}

/// Variables of NCCL that are set.
fn variables(vars: &Vars) -> Vec<(String, String)> {
    let ours = vars.names().filter(|name| name.starts_with("NCCL_") && !name.starts_with("NCCL_DEBUG"));
    ours.filter_map(|name| Some((name.to_owned(), vars.get(name)?.to_str()?.to_owned()))).collect()
}

const SEED: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a: the same on every machine, since ranks compare it.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
