//! Prices of a running job: the model's answers without a search, a sort or an allocation per call.

use super::calibration::Calibration;
use super::error::LinkError;
use super::model::{Loads, Model};
use super::predict::Fixed;
use super::site::Site;
use super::wiring::{LinkKind, VirtualLink};
use crate::nccl::release::Release;
use crate::nccl::search::{Env, graphs_of_nodes};
use crate::nccl::system::Node;
use crate::nccl::tuner::{Algorithm, Collective, Environment, Operation, Protocol, Setup};

/// Prices that a group keeps; a job repeats few sizes.
const CACHED: usize = 256;
/// Most nodes of a group; more would make its set-up slow.
const NODES_MAX: u32 = 1 << 16;

/// Prices operations of a job on a site, rank `r` on GPU `r mod g` of node `r / g` where a node has `g` GPUs.
///
/// ```
/// use topo::links::{Calibration, Fabric, Pricer, Site};
/// use topo::nccl::tuner::{Collective, Environment, Operation};
/// use topo::nccl::{profiles, release::Release};
///
/// let site = Site { node: profiles::find("4xv100-nv2")?, nodes: 1, fabric: Fabric::default() };
/// let pricer = Pricer::new(site, Release::NEWEST, Environment::default(), Calibration::default());
/// let mut group = pricer.group(&[0, 1, 2, 3])?;
/// let price = group.price(Operation::new(Collective::AllReduce, 64 << 20))?;
/// assert_eq!(price.tuner_us, 867.660_767);
/// let mut bytes = vec![0.0; group.links().len()];
/// group.add_bytes(&price, &mut bytes);
/// assert!(bytes.iter().sum::<f64>() > 0.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pricer {
    site: Site,
    release: Release,
    environment: Environment,
    calibration: Calibration,
}

/// What NCCL would choose for an operation, and what it would cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Price {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Channels that carry bytes.
    pub channels: u32,
    /// The tuner's time in us.
    pub tuner_us: f32,
    /// The predicted time in us.
    pub predicted_us: f64,
    /// The costliest link by its number in [`Group::links`]; `None` if the channels are slower.
    pub bottleneck: Option<usize>,
    /// Bytes of the operation, as the tuner counts them.
    pub bytes: u64,
    plan: u32,
}

/// A communicator of a job, made once: its tuner, its links, and what each number of channels puts on them.
#[derive(Clone, Debug)]
pub struct Group {
    model: Model,
    plans: Vec<Plan>,
    cache: Vec<Option<(Operation, Price)>>,
}

/// One collective with one algorithm and protocol.
#[derive(Clone, Debug)]
struct Plan {
    key: (Collective, Algorithm, Protocol),
    fixed: Fixed,
    by_channels: Vec<Spread>,
}

/// The same for a number of channels.
#[derive(Clone, Debug)]
struct Spread {
    loads: Loads,
    /// The costliest link and what it needs for a byte of the operation, in us; then without trunks.
    slowest: (usize, f64),
    slowest_below: f64,
}

/// The numbers of the fullest node's GPUs, and the nodes with how many there are of each.
type Members = (Vec<u32>, Vec<(Node, u32)>);

impl Pricer {
    /// A pricer for a site; nothing is computed before [`Pricer::group`].
    pub fn new(site: Site, release: Release, environment: Environment, calibration: Calibration) -> Self {
        Self { site, release, environment, calibration }
    }

    /// Makes the communicator of `ranks`: the search and the tables, some milliseconds.
    ///
    /// # Errors
    ///
    /// [`LinkError::Group`] for ranks that are no group of at least two, and as [`Model::of_site`].
    pub fn group(&self, ranks: &[u32]) -> Result<Group, LinkError> {
        let (numbers, nodes) = self.by_node(ranks)?;
        let release = self.release;
        let given = self.environment.search().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let env = Env::from_pairs(given)?;
        let list: Vec<(&Node, u32)> = nodes.iter().map(|(node, count)| (node, *count)).collect();
        let found = graphs_of_nodes(&list, release, &env)?;
        let count: u32 = nodes.iter().map(|(_, count)| count).sum();
        let (first, _) = &nodes[0];
        let mut setup = Setup::of_search(first, count, release, &found, self.environment.clone());
        setup.ranks = ranks.len() as u32;
        let site = Site { node: first.clone(), nodes: count, fabric: self.site.fabric };
        let mut model = Model::of_search(setup, &site, &found, &env, self.calibration.clone())?;
        model.wiring.rename_gpus(&numbers);
        Ok(Group::new(model))
    }

    /// The nodes that have ranks, those with the same GPUs as one, the fullest first; and its GPUs' numbers.
    fn by_node(&self, ranks: &[u32]) -> Result<Members, LinkError> {
        self.site.node.check().map_err(crate::nccl::search::SearchError::from)?;
        let each = self.site.node.gpus().len() as u32;
        let nodes = self.site.nodes.min(NODES_MAX);
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        let all = u64::from(each) * u64::from(nodes);
        if let Some(rank) = sorted.last().filter(|&&rank| u64::from(rank) >= all) {
            return Err(LinkError::Group(format!("rank {rank} of {all}")));
        }
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(LinkError::Group(format!("rank {} twice", pair[0])));
        }
        if sorted.len() < 2 {
            return Err(LinkError::Group(format!("{} ranks", sorted.len())));
        }
        let mut sets: Vec<(Vec<u32>, u32)> = Vec::new();
        for on_node in sorted.chunk_by(|a, b| a / each == b / each) {
            let gpus: Vec<u32> = on_node.iter().map(|rank| rank % each).collect();
            match sets.iter_mut().find(|(known, _)| *known == gpus) {
                Some((_, count)) => *count += 1,
                None => sets.push((gpus, 1)),
            }
        }
        sets.sort_by_key(|(gpus, _)| std::cmp::Reverse(gpus.len()));
        let numbers = sets[0].0.clone();
        Ok((
            numbers,
            sets.into_iter().map(|(gpus, count)| (self.site.node.with_gpus(&gpus), count)).collect(),
        ))
    }
}

impl Group {
    /// Makes the tables of a communicator.
    pub fn new(model: Model) -> Self {
        let mut plans = Vec::new();
        for cell in
            model.tuner().cells().iter().filter(|cell| cell.is_on() || cell.algorithm == Algorithm::Ring)
        {
            let key = (cell.collective, cell.algorithm, cell.protocol);
            let Ok(flows) = model.flows(cell.collective, cell.algorithm) else { continue };
            let setup = model.tuner().setup();
            let most = if cell.algorithm.is_nvls() { setup.nvls_channels() } else { setup.channels() };
            let fixed = model.fixed(cell.collective, cell.algorithm, cell.protocol);
            let spread = |channels| {
                let loads = model.loads(&flows, channels);
                let cost =
                    |link: usize| loads.busiest[link] * model.us_per_byte(&model.links()[link], &fixed);
                let links = 0..model.links().len();
                let slowest = links.clone().max_by(|&a, &b| cost(a).total_cmp(&cost(b))).unwrap_or(0);
                let is_trunk = |link: usize| model.links()[link].kind == LinkKind::Trunk;
                let below = links.filter(|&link| !is_trunk(link)).map(cost).fold(0.0, f64::max);
                Spread { slowest: (slowest, cost(slowest)), slowest_below: below, loads }
            };
            plans.push(Plan { key, fixed, by_channels: (1..=most).map(spread).collect() });
        }
        Self { model, plans, cache: vec![None; CACHED] }
    }

    /// The model behind the prices.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The links, in the order of [`Group::add_bytes`].
    pub fn links(&self) -> &[VirtualLink] {
        self.model.links()
    }

    /// The price of an operation of this communicator, from the cache or from the tables; allocates nothing.
    ///
    /// # Errors
    ///
    /// [`LinkError::Tuner`] if NCCL has nothing to choose, [`LinkError::NoLinks`] if the machine lacks what it needs;
    /// their texts are allocated.
    pub fn price(&mut self, operation: Operation) -> Result<Price, LinkError> {
        let at = slot(operation);
        if let Some((known, price)) = self.cache[at]
            && known == operation
        {
            return Ok(price);
        }
        let price = self.computed(operation)?;
        self.cache[at] = Some((operation, price));
        Ok(price)
    }

    fn computed(&self, operation: Operation) -> Result<Price, LinkError> {
        let tuner = self.model.tuner();
        let (algorithm, protocol, tuner_us) = match tuner.best(operation) {
            Some(best) => best,
            // Everything is off: up to 2.23 a ring is kept aside.
            None => {
                let best = tuner.choose(operation)?.best;
                (best.algorithm, best.protocol, best.time)
            }
        };
        let channels = tuner.spread(operation, algorithm, protocol).last_channel + 1;
        let key = (operation.collective, algorithm, protocol);
        let Some(number) = self.plans.iter().position(|plan| plan.key == key) else {
            let missing = if algorithm.is_nvls() { "NVSwitch" } else { "network port" };
            return Err(LinkError::NoLinks { algorithm, collective: operation.collective, missing });
        };
        let plan = &self.plans[number];
        let Some(spread) = plan.by_channels.get(channels as usize - 1) else {
            return Err(LinkError::Group(format!("{channels} channels of {}", plan.by_channels.len())));
        };
        let bytes = operation.bytes as f64;
        let fixed = &plan.fixed;
        let channels_us = fixed.channels_us(bytes, channels);
        let below = bytes * spread.slowest_below;
        let transfer = (bytes * spread.slowest.1).max(below).max(channels_us);
        let steps =
            fixed.steps.inside * fixed.inside_us + fixed.steps.between * fixed.between_us + fixed.start_us;
        let sum = steps + fixed.filling_us(bytes, channels) + transfer;
        Ok(Price {
            algorithm,
            protocol,
            channels,
            tuner_us,
            predicted_us: sum.max(self.model.calibration().launch_floor_us),
            bottleneck: (channels_us <= bytes * spread.slowest.1).then_some(spread.slowest.0),
            bytes: operation.bytes,
            plan: number as u32,
        })
    }

    /// Adds the payload bytes that an operation puts on each link, of the node where the link is busiest, to
    /// `counters`: one for each of [`Group::links`]; allocates nothing.
    pub fn add_bytes(&self, price: &Price, counters: &mut [f64]) {
        let plan = self.plans.get(price.plan as usize);
        let spread = plan.and_then(|plan| plan.by_channels.get(price.channels as usize - 1));
        if let Some(spread) = spread {
            for (counter, load) in counters.iter_mut().zip(&spread.loads.busiest) {
                *counter += load * price.bytes as f64;
            }
        }
    }
}

/// Where the cache has an operation: sizes of a job are mostly powers of two or their multiples.
fn slot(operation: Operation) -> usize {
    let flags = u64::from(operation.nvls_reduces) << 1 | u64::from(operation.fp8);
    let key = operation.bytes ^ (operation.collective as u64) << 60 ^ flags << 57;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % CACHED
}
