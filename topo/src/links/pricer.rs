//! Prices of a running job: the model's answers without a search, a sort or an allocation per call.

use super::calibration::Calibration;
use super::error::LinkError;
use super::exchange::{Exchange, Move};
use super::model::{Loads, Model};
use super::places::Places;
use super::predict::Fixed;
use super::site::Site;
use super::wiring::{LinkKind, VirtualLink};
use crate::Cluster;
use crate::nccl::release::Release;
use crate::nccl::search::{Env, graphs_of_nodes};
use crate::nccl::system::Node;
use crate::nccl::tuner::{Algorithm, Collective, Environment, Operation, Protocol, Setup};

/// Prices that a group keeps; a job repeats few sizes.
const CACHED: usize = 256;

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
    places: Places,
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

/// What a link has carried.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Booked {
    /// Bytes of payload, of all nodes together.
    pub bytes: f64,
    /// Of the node where the link was busiest, operation by operation.
    pub busiest_bytes: f64,
    /// How long the link needs for those, in us.
    pub busy_us: f64,
}

/// A communicator of a job, made once: its tuner, its links, and what each number of channels puts on them.
#[derive(Clone, Debug)]
pub struct Group {
    model: Model,
    plans: Vec<Plan>,
    moves: Vec<Option<Move>>,
    cache: Vec<Option<(Operation, Price)>>,
    /// The nodes with ranks, by their numbers in the job, and the GPUs of each that it uses.
    pub(super) members: Vec<(u32, Vec<u32>)>,
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

impl Pricer {
    /// A pricer for a site; nothing is computed before [`Pricer::group`].
    pub fn new(site: Site, release: Release, environment: Environment, calibration: Calibration) -> Self {
        Self { places: Places::of_site(site), release, environment, calibration }
    }

    /// A pricer for the ranks of a cluster file, with `more` variables behind the file's; `None` if the file says too
    /// little of its machines, see `Places::of_cluster`.
    ///
    /// # Errors
    ///
    /// [`LinkError::Tuner`] for a variable that the file's release does not have.
    pub fn of_cluster(
        cluster: &Cluster,
        more: &[(String, String)],
        calibration: Calibration,
    ) -> Result<Option<Self>, LinkError> {
        Self::of_cluster_as(cluster, cluster.nccl().release, more, calibration)
    }

    /// The same under another release than the file's.
    ///
    /// # Errors
    ///
    /// As [`Pricer::of_cluster`], for a variable that this release does not have.
    pub fn of_cluster_as(
        cluster: &Cluster,
        release: Release,
        more: &[(String, String)],
        calibration: Calibration,
    ) -> Result<Option<Self>, LinkError> {
        let Some(places) = Places::of_cluster(cluster) else { return Ok(None) };
        let pairs = cluster.nccl().variables.iter().chain(more);
        let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str()));
        let environment = Environment::parse(pairs, release)?;
        Ok(Some(Self { places, release, environment, calibration }))
    }

    /// The release whose choices are priced.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Makes the communicator of `ranks`: the search and the tables, some milliseconds.
    ///
    /// # Errors
    ///
    /// [`LinkError::Group`] for ranks that are no group of at least two, and as [`Model::of_site`].
    pub fn group(&self, ranks: &[u32]) -> Result<Group, LinkError> {
        Ok(Group::of_members(self.model(ranks)?, self.places.members(ranks)?))
    }

    /// The model of the communicator of `ranks`, without the tables that make its prices cheap.
    ///
    /// # Errors
    ///
    /// As [`Pricer::group`].
    pub fn model(&self, ranks: &[u32]) -> Result<Model, LinkError> {
        let members = self.places.members(ranks)?;
        let kinds = self.places.kinds(&members);
        if let Some(setup) = self.places.given(ranks, &members, self.release, &self.environment) {
            return Model::of_graphs(setup, self.places.fabric(), self.calibration.clone());
        }
        let given = self.environment.search().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let env = self.places.env(Env::from_pairs(given)?);
        let list: Vec<(&Node, u32)> = kinds.iter().map(|kind| (&kind.node, kind.count)).collect();
        let found = graphs_of_nodes(&list, self.release, &env)?;
        let count = members.len() as u32;
        let first = &kinds[0];
        let mut setup = Setup::of_search(&first.node, count, self.release, &found, self.environment.clone());
        setup.ranks = ranks.len() as u32;
        let gpus = || kinds.iter().flat_map(|kind| kind.node.gpus());
        setup.compute_capability = gpus().map(|gpu| gpu.sm).min().unwrap_or(0);
        setup.compute_capability_max = gpus().map(|gpu| gpu.sm).max().unwrap_or(0);
        let site = Site { node: first.node.clone(), nodes: count, fabric: *self.places.fabric() };
        let mut model = Model::of_search(setup, &site, &found, &env, self.calibration.clone())?;
        model.wiring.rename_gpus(&first.gpus);
        Ok(model)
    }
}

impl Group {
    /// Makes the tables of a communicator of all GPUs of the model's nodes.
    pub fn new(model: Model) -> Self {
        let nodes = model.tuner().setup().nodes;
        let gpus: Vec<u32> = (0..model.wiring.gpus).collect();
        Self::of_members(model, (0..nodes).map(|node| (node, gpus.clone())).collect())
    }

    fn of_members(model: Model, members: Vec<(u32, Vec<u32>)>) -> Self {
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
        let moves = Exchange::ALL.into_iter().map(|exchange| Move::of(&model, exchange)).collect();
        Self { model, plans, moves, cache: vec![None; CACHED], members }
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

    /// The price of an operation from the tables, past the cache; allocates nothing.
    ///
    /// # Errors
    ///
    /// As [`Group::price`].
    pub fn computed(&self, operation: Operation) -> Result<Price, LinkError> {
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

    /// How long an exchange of `bytes` takes, of all blocks of a buffer together, in us; allocates nothing.
    ///
    /// # Errors
    ///
    /// [`LinkError::Group`] if several nodes have no port.
    pub fn exchange_us(&self, exchange: Exchange, bytes: u64) -> Result<f64, LinkError> {
        let moved = self.moves[exchange as usize].as_ref();
        let moved = moved.ok_or_else(|| LinkError::Group(format!("{exchange:?} without a network port")))?;
        Ok(moved.time_us(bytes as f64, self.model.calibration()))
    }

    /// Books `times` operations of this price on the links; allocates nothing.
    pub fn book(&self, price: &Price, times: u64, links: &mut [Booked]) {
        let Some((plan, loads)) = self.plans.get(price.plan as usize).zip(self.loads_of(price)) else {
            return;
        };
        let bytes = price.bytes as f64 * times as f64;
        for (number, booked) in links.iter_mut().enumerate().take(self.links().len()) {
            let busiest = loads.busiest[number] * bytes;
            booked.bytes += loads.total[number] * bytes;
            booked.busiest_bytes += busiest;
            booked.busy_us += busiest * self.model.us_per_byte(&self.model.links()[number], &plan.fixed);
        }
    }

    /// The same of exchanges of `bytes` each.
    pub fn book_exchange(&self, exchange: Exchange, bytes: u64, times: u64, links: &mut [Booked]) {
        let Some(moved) = &self.moves[exchange as usize] else { return };
        let bytes = bytes as f64 * times as f64;
        for (number, booked) in links.iter_mut().enumerate().take(self.links().len()) {
            booked.bytes += moved.loads.total[number] * bytes;
            booked.busiest_bytes += moved.loads.busiest[number] * bytes;
            booked.busy_us += moved.us_per_byte[number] * bytes;
        }
    }

    /// How long link number `link` is busy with an operation, of the node where it is busiest, in us.
    pub(super) fn busy_us(&self, price: &Price, link: usize) -> f64 {
        let Some((plan, loads)) = self.plans.get(price.plan as usize).zip(self.loads_of(price)) else {
            return 0.0;
        };
        loads.busiest[link]
            * price.bytes as f64
            * self.model.us_per_byte(&self.model.links()[link], &plan.fixed)
    }

    /// How long the bytes of an operation need alone, on the slowest link or in the channels, in us.
    pub(super) fn transfer_us(&self, price: &Price) -> f64 {
        let fixed = self.plans.get(price.plan as usize).map(|plan| plan.fixed);
        let links = (0..self.links().len()).map(|link| self.busy_us(price, link)).fold(0.0, f64::max);
        fixed.map_or(0.0, |fixed| fixed.channels_us(price.bytes as f64, price.channels)).max(links)
    }

    fn loads_of(&self, price: &Price) -> Option<&Loads> {
        let spreads = &self.plans.get(price.plan as usize)?.by_channels;
        spreads.get(price.channels as usize - 1).map(|spread| &spread.loads)
    }

    /// Adds the payload bytes that an operation puts on each link, of the node where the link is busiest, to
    /// `counters`: one for each of [`Group::links`]; allocates nothing.
    pub fn add_bytes(&self, price: &Price, counters: &mut [f64]) {
        for (counter, load) in
            counters.iter_mut().zip(self.loads_of(price).map_or(&[][..], |loads| &loads.busiest))
        {
            *counter += load * price.bytes as f64;
        }
    }
}

/// Where the cache has an operation: sizes of a job are mostly powers of two or their multiples.
fn slot(operation: Operation) -> usize {
    let flags = u64::from(operation.nvls_reduces) << 1 | u64::from(operation.fp8);
    let key = operation.bytes ^ (operation.collective as u64) << 60 ^ flags << 57;
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % CACHED
}
