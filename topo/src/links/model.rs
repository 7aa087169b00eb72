//! A communicator on its links.

use super::between::{Crossings, Role, roles};
use super::calibration::{Calibration, Generation};
use super::error::LinkError;
use super::flows::Flows;
use super::site::{Fabric, Site};
use super::wiring::{Meeting, VirtualLink, Wiring};
use crate::nccl::release::Release;
use crate::nccl::search::{Env, Search, graphs_of};
use crate::nccl::system::machine::Machine;
use crate::nccl::tuner::{Algorithm, Collective, Environment, Setup, Tuner};

/// A communicator, its links, and the tuner that chooses for it.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) tuner: Tuner,
    pub(super) wiring: Wiring,
    pub(super) calibration: Calibration,
    pub(super) generation: Generation,
    pub(super) crossings: Crossings,
    pub(super) roles: Vec<(Role, u32)>,
}

/// What one byte of an operation puts on the links, for a number of channels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loads {
    /// On each link of the node where it is busiest.
    pub(super) busiest: Vec<f64>,
    /// On each link, of all nodes together.
    pub(super) total: Vec<f64>,
}

/// Steps of an operation that nothing overlaps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Steps {
    pub(super) inside: f64,
    pub(super) between: f64,
    /// Whether chunks follow each other, so that the way is empty at first.
    pub(super) fills: bool,
}

impl Model {
    /// The communicator of all GPUs of a site: its graphs by the search.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if the machine, the network, the variables or the calibration cannot be.
    pub fn of_site(
        site: &Site,
        release: Release,
        environment: Environment,
        calibration: Calibration,
    ) -> Result<Self, LinkError> {
        let given = environment.search().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let env = Env::from_pairs(given)?;
        let found = graphs_of(&site.node, site.nodes, release, &env)?;
        let setup = Setup::of_search(&site.node, site.nodes, release, &found, environment);
        Self::of_search(setup, site, &found, &env, calibration)
    }

    /// A communicator whose search has been made already; `found` and `env` are those of `setup`.
    ///
    /// # Errors
    ///
    /// As [`Model::of_site`].
    pub fn of_search(
        setup: Setup,
        site: &Site,
        found: &Search,
        env: &Env,
        calibration: Calibration,
    ) -> Result<Self, LinkError> {
        calibration.check()?;
        let generation = Generation::of(setup.compute_capability);
        let machine = Machine::new(&site.node, setup.release, setup.nodes > 1);
        let wiring = Wiring::of_machine(machine, env, found, generation, &calibration);
        Self::new(Tuner::new(setup)?, wiring, &site.fabric, calibration)
    }

    /// A communicator of which only the graphs are known: its links carry what these say.
    ///
    /// # Errors
    ///
    /// [`LinkError`] if the communicator, the network or the calibration cannot be.
    pub fn of_graphs(setup: Setup, fabric: &Fabric, calibration: Calibration) -> Result<Self, LinkError> {
        calibration.check()?;
        let tuner = Tuner::new(setup)?;
        let wiring = Wiring::of_graphs(tuner.setup(), &calibration);
        Self::new(tuner, wiring, fabric, calibration)
    }

    fn new(
        tuner: Tuner,
        mut wiring: Wiring,
        fabric: &Fabric,
        calibration: Calibration,
    ) -> Result<Self, LinkError> {
        fabric.check()?;
        let nodes = tuner.setup().nodes;
        let crossings = Crossings::of(fabric, nodes);
        let is_flat = fabric.nodes_per_leaf == 1 && fabric.oversubscription == 1.0;
        // Rails meet at the spine even where there is one group of leaf switches.
        let has_spine = crossings.leaves > 1 || (fabric.rails && nodes > 1);
        if has_spine && !is_flat {
            wiring.add_trunk(fabric, nodes);
        }
        let generation = Generation::of(tuner.setup().compute_capability);
        Ok(Self { wiring, calibration, generation, crossings, roles: roles(nodes), tuner })
    }

    /// The tuner.
    pub fn tuner(&self) -> &Tuner {
        &self.tuner
    }

    /// The constants.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// The links of a node, then those of a leaf switch, in the order of all numbers per link.
    pub fn links(&self) -> &[VirtualLink] {
        &self.wiring.links
    }

    pub(super) fn flows(&self, collective: Collective, algorithm: Algorithm) -> Result<Flows<'_>, LinkError> {
        let setup = self.tuner.setup();
        let lacks = |missing| Err(LinkError::NoLinks { algorithm, collective, missing });
        if algorithm.is_nvls() && !self.wiring.has_switch {
            return lacks("NVSwitch");
        }
        let needs_ports = setup.nodes > 1 || algorithm.is_collnet();
        if needs_ports && self.wiring.ports == 0 {
            return lacks("network port");
        }
        Ok(Flows { wiring: &self.wiring, setup, crossings: self.crossings, collective, algorithm })
    }

    /// What a byte of an operation over `channels` channels puts on each link.
    pub(super) fn loads(&self, flows: &Flows<'_>, channels: u32) -> Loads {
        let links = self.wiring.links.len();
        let mut loads = Loads { busiest: vec![0.0; links], total: vec![0.0; links] };
        let share = 1.0 / f64::from(channels.max(1));
        let mut of_role = vec![0.0; links];
        for &(role, count) in &self.roles {
            of_role.fill(0.0);
            for channel in 0..channels.max(1) {
                flows.add(channel, role, share, &mut of_role);
            }
            for (link, &amount) in of_role.iter().enumerate() {
                loads.busiest[link] = loads.busiest[link].max(amount);
                loads.total[link] += amount * f64::from(count);
            }
        }
        if let Some(trunk) = self.wiring.trunk {
            // Each node's channels have been asked what crosses the busiest leaf.
            for direction in trunk {
                loads.total[direction] = loads.busiest[direction] * f64::from(self.crossings.leaves);
            }
        }
        loads
    }

    /// The steps of an algorithm that nothing overlaps.
    pub(super) fn steps(&self, collective: Collective, algorithm: Algorithm) -> Steps {
        let setup = self.tuner.setup();
        let (ranks, nodes) = (f64::from(setup.ranks), f64::from(setup.nodes));
        let local = ranks / nodes - 1.0;
        let levels = f64::from(setup.nodes.ilog2());
        let (inside, between, fills) = match algorithm {
            Algorithm::Ring => {
                let rounds = if collective == Collective::AllReduce { 2.0 } else { 1.0 };
                let chain = matches!(collective, Collective::Broadcast | Collective::Reduce);
                (rounds * (ranks - nodes), rounds * (nodes - 1.0), chain)
            }
            Algorithm::Tree => (2.0 * local, 2.0 * levels, true),
            Algorithm::Nvls => (0.0, if setup.nodes > 1 { 2.0 } else { 0.0 }, false),
            Algorithm::NvlsTree => (0.0, 2.0 * levels, true),
            Algorithm::CollNetDirect => (2.0 * local.min(1.0), 2.0, false),
            Algorithm::CollNetChain => (2.0 * local, 2.0, true),
            Algorithm::Pat => (0.0, f64::from(setup.nodes.next_power_of_two().ilog2()), false),
        };
        Steps { inside, between, fills }
    }

    /// How neighbours meet on the channels of an algorithm.
    pub(super) fn meeting(&self, algorithm: Algorithm) -> Meeting {
        match algorithm {
            Algorithm::Ring => self.wiring.slowest_meeting(&self.wiring.ring, self.tuner.setup().nodes == 1),
            Algorithm::Tree | Algorithm::CollNetChain => {
                self.wiring.slowest_meeting(&self.wiring.tree, false)
            }
            _ => Meeting::NvLink,
        }
    }
}
