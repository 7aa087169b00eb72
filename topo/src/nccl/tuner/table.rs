//! The table of a communicator: latency and bandwidth of every collective, algorithm and protocol.

use super::bandwidth::{Bandwidth, bandwidth};
use super::constants::Constants;
use super::error::TunerError;
use super::latency::{Latency, latency};
use super::names::{Algorithm, Collective, Protocol};
use super::rules::{Off, exists, off};
use super::setup::Setup;

/// One algorithm with one protocol for one collective.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The collective.
    pub collective: Collective,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Latency with its derivation.
    pub latency: Latency,
    /// Bandwidth with its derivation, as if nothing were off.
    pub bandwidth: Bandwidth,
    /// Why NCCL does not consider the cell; `None` if it does.
    pub off: Option<Off>,
}

impl Cell {
    /// Bandwidth that NCCL's table has: 0 for what is off.
    pub fn effective_bandwidth(&self) -> f32 {
        if self.off.is_some() { 0.0 } else { self.bandwidth.total }
    }

    /// Whether NCCL considers the cell.
    pub fn is_on(&self) -> bool {
        self.effective_bandwidth() > 0.0
    }
}

/// The tuner of one communicator.
#[derive(Clone, Debug)]
pub struct Tuner {
    pub(crate) setup: Setup,
    pub(crate) constants: Constants,
    cells: Vec<Cell>,
}

impl Tuner {
    /// Computes the table.
    ///
    /// # Errors
    ///
    /// [`TunerError::Setup`] or [`TunerError::Release`] if the setup is impossible.
    pub fn new(setup: Setup) -> Result<Self, TunerError> {
        setup.check()?;
        let constants = Constants::of(setup.release);
        let mut cells = Vec::new();
        for collective in Collective::ALL {
            for algorithm in Algorithm::ALL.into_iter().filter(|one| exists(&setup, collective, *one)) {
                for protocol in Protocol::ALL {
                    cells.extend(cell(&setup, &constants, (collective, algorithm, protocol)));
                }
            }
        }
        Ok(Self { setup, constants, cells })
    }

    /// What the tuner was told.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Cells by collective, algorithm, protocol; those that are off among them.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The cells of a collective.
    pub fn cells_of(&self, collective: Collective) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.collective == collective)
    }

    /// One cell, if the release has it.
    pub fn cell(&self, collective: Collective, algorithm: Algorithm, protocol: Protocol) -> Option<&Cell> {
        self.cells_of(collective).find(|cell| cell.algorithm == algorithm && cell.protocol == protocol)
    }
}

fn cell(setup: &Setup, constants: &Constants, key: (Collective, Algorithm, Protocol)) -> Option<Cell> {
    let (collective, algorithm, protocol) = key;
    let plain_only = !matches!(algorithm, Algorithm::Ring | Algorithm::Tree);
    if plain_only && protocol != Protocol::Simple {
        return None;
    }
    let mut off = off(setup, collective, algorithm, protocol);
    let (latency, bandwidth) = match setup.graph(algorithm) {
        Some(graph) => (latency(setup, constants, graph, key), bandwidth(setup, constants, key)),
        None => (Latency { total: 0.0, terms: Vec::new() }, Bandwidth { total: 0.0, steps: Vec::new() }),
    };
    if off.is_none() && bandwidth.total <= 0.0 {
        off = Some(Off { variable: None, reason: "no bandwidth by the release's formula".to_owned() });
    }
    Some(Cell { collective, algorithm, protocol, latency, bandwidth, off })
}
