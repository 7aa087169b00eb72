//! The time of an operation with each algorithm and protocol, and the choice among them.

use super::constants::TREE_CORRECTION;
use super::error::TunerError;
use super::names::{Algorithm, Collective, Protocol};
use super::table::{Cell, Tuner};

/// Bytes of an operation from which rings on several nodes are slower, per channel and rank.
const PLATEAU_BYTES: u64 = 64;
/// Ranks up to which NCCL sums 8-bit floats in a ring.
const FP8_RANKS_MAX: u32 = 8;

/// What the tuner is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The collective.
    pub collective: Collective,
    /// Bytes as the tuner counts them: of all ranks together for all-gather and reduce-scatter, else of one buffer.
    pub bytes: u64,
    /// Whether the NVSwitch can reduce this type by this operation; ignored for all-gather.
    pub nvls_reduces: bool,
    /// Whether the elements are floats of 8 bits.
    pub fp8: bool,
}

impl Operation {
    /// An operation of 32-bit floats or 16-bit floats that sums, takes the least or the largest.
    pub fn new(collective: Collective, bytes: u64) -> Self {
        Self { collective, bytes, nvls_reduces: true, fp8: false }
    }

    /// The same of another size.
    pub fn with_bytes(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }
}

/// What a size does to a cell's latency or bandwidth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Correction {
    /// Trees reach a part of their bandwidth at middle sizes; `from` is the first byte count of the step.
    Tree {
        /// Part of the bandwidth.
        factor: f32,
        /// First size in bytes for which it holds.
        from: u64,
    },
    /// Rings on several nodes take longer once each rank's part fills a channel.
    RingPlateau {
        /// Factor of the latency.
        factor: f64,
        /// First size in bytes for which it holds.
        from: u64,
    },
    /// Sums of 8-bit floats over many ranks shall not go round a ring: the time times 1024.
    Fp8Ring,
}

/// The time of an operation with one algorithm and protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// Microseconds.
    pub time: f32,
    /// Latency after corrections.
    pub latency: f32,
    /// Bandwidth after corrections, in 10^9 bytes per second.
    pub bandwidth: f32,
    /// What the size changed.
    pub corrections: Vec<Correction>,
}

/// The tuner's answer for an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// What NCCL takes.
    pub best: Estimate,
    /// All that NCCL considers, the fastest first; equal times in the order in which NCCL looks at them.
    pub candidates: Vec<Estimate>,
    /// Whether everything was off and NCCL takes the ring that it keeps aside (up to 2.23).
    pub is_fallback: bool,
}

impl Choice {
    /// The second fastest, if there is more than one candidate.
    pub fn runner_up(&self) -> Option<&Estimate> {
        self.candidates.get(1)
    }
}

/// An estimate without its names.
struct Timed {
    time: f32,
    latency: f32,
    bandwidth: f32,
    corrections: [Option<Correction>; 3],
}

impl Tuner {
    /// Chooses for an operation.
    ///
    /// # Errors
    ///
    /// [`TunerError::NothingLeft`] if everything is off and the release has no fallback.
    pub fn choose(&self, operation: Operation) -> Result<Choice, TunerError> {
        let considered = self.cells_of(operation.collective).filter(|cell| considers(cell, operation));
        let mut candidates: Vec<Estimate> =
            considered.map(|cell| self.estimate(cell, operation, cell.effective_bandwidth())).collect();
        let is_fallback = candidates.is_empty();
        if is_fallback {
            candidates = self.fallback(operation)?;
        }
        // Stable, so that of equal times the first by id stays first, as a strict comparison has it.
        candidates.sort_by(|a, b| a.time.total_cmp(&b.time));
        let best = candidates.first().cloned().ok_or_else(|| self.nothing_left(operation))?;
        Ok(Choice { best, candidates, is_fallback })
    }

    /// The algorithm and protocol of [`Tuner::choose`], without the rest.
    pub(crate) fn pick(&self, operation: Operation) -> Option<(Algorithm, Protocol)> {
        if let Some((algorithm, protocol, _)) = self.best(operation) {
            return Some((algorithm, protocol));
        }
        let choice = self.choose(operation).ok()?;
        Some((choice.best.algorithm, choice.best.protocol))
    }

    /// The time of an operation with one cell, whether NCCL considers it or not; `None` if it is impossible.
    pub fn time_of(&self, cell: &Cell, bytes: u64) -> Option<Estimate> {
        let possible = cell.bandwidth.total > 0.0;
        let operation = Operation::new(cell.collective, bytes);
        possible.then(|| self.estimate(cell, operation, cell.bandwidth.total))
    }

    /// Up to 2.23 a ring is kept aside that `NCCL_ALGO` does not switch off; `NCCL_PROTO` does.
    fn fallback(&self, operation: Operation) -> Result<Vec<Estimate>, TunerError> {
        if self.setup.release.since(24, 0) {
            return Err(self.nothing_left(operation));
        }
        let kept = self.cells_of(operation.collective).filter(|cell| {
            let off_by_algo = cell.off.as_ref().is_none_or(|off| off.variable == Some("NCCL_ALGO"));
            cell.algorithm == Algorithm::Ring && off_by_algo && self.protocol_is_on(cell)
        });
        Ok(kept.map(|cell| self.estimate(cell, operation, cell.bandwidth.total)).collect())
    }

    fn nothing_left(&self, operation: Operation) -> TunerError {
        let mut variables: Vec<&str> =
            self.cells_of(operation.collective).filter_map(|cell| cell.off.as_ref()?.variable).collect();
        variables.sort_unstable();
        variables.dedup();
        let remedy = match variables[..] {
            [] => "another operation or data type".to_owned(),
            _ => variables.join(", "),
        };
        TunerError::NothingLeft { collective: operation.collective, remedy }
    }

    /// What NCCL takes and its time, without the list of candidates: allocates nothing. `None` if everything is off.
    pub fn best(&self, operation: Operation) -> Option<(Algorithm, Protocol, f32)> {
        let mut best: Option<(Algorithm, Protocol, f32)> = None;
        for cell in self.cells_of(operation.collective).filter(|cell| considers(cell, operation)) {
            let time = self.timed(cell, operation, cell.effective_bandwidth()).time;
            if best.is_none_or(|(_, _, least)| time < least) {
                best = Some((cell.algorithm, cell.protocol, time));
            }
        }
        best
    }

    fn estimate(&self, cell: &Cell, operation: Operation, bandwidth: f32) -> Estimate {
        let timed = self.timed(cell, operation, bandwidth);
        Estimate {
            algorithm: cell.algorithm,
            protocol: cell.protocol,
            time: timed.time,
            latency: timed.latency,
            bandwidth: timed.bandwidth,
            corrections: timed.corrections.into_iter().flatten().collect(),
        }
    }

    fn timed(&self, cell: &Cell, operation: Operation, bandwidth: f32) -> Timed {
        let mut timed =
            Timed { time: 0.0, latency: cell.latency.total, bandwidth, corrections: [const { None }; 3] };
        self.correct(cell, &mut timed, operation);
        // Each step in single precision, as NCCL computes it.
        timed.time = timed.latency + operation.bytes as f32 / (1000.0 * timed.bandwidth);
        let deep = self.setup.ranks > FP8_RANKS_MAX && self.setup.release.since(24, 0);
        if operation.fp8 && deep && cell.algorithm == Algorithm::Ring {
            timed.time *= 1024.0;
            timed.corrections[2] = Some(Correction::Fp8Ring);
        }
        timed
    }

    /// What the size does to latency and bandwidth.
    fn correct(&self, cell: &Cell, timed: &mut Timed, operation: Operation) {
        let all_reduce = operation.collective == Collective::AllReduce;
        let size = (operation.bytes / 64).checked_ilog2();
        let entries = match cell.algorithm {
            Algorithm::Tree => self.constants.tree_sizes,
            Algorithm::NvlsTree if self.corrects_nvls_tree() => self.constants.tree_sizes,
            _ => 0,
        };
        if let Some(size) = size.filter(|size| all_reduce && *size < entries) {
            let factor = TREE_CORRECTION[cell.protocol.id()][size as usize];
            timed.bandwidth *= factor;
            if factor != 1.0 {
                timed.corrections[0] = Some(Correction::Tree { factor, from: 64 << size });
            }
        }
        let ring = cell.algorithm == Algorithm::Ring && cell.protocol == Protocol::Simple;
        let from = self.plateau_from();
        if ring && all_reduce && self.setup.nodes > 1 && operation.bytes >= from {
            let factor = if self.setup.compute_capability < 80 { 1.9 } else { 1.4 };
            timed.latency = (f64::from(timed.latency) * factor) as f32;
            timed.corrections[1] = Some(Correction::RingPlateau { factor, from });
        }
    }

    fn corrects_nvls_tree(&self) -> bool {
        self.constants.corrects_nvls_tree && self.setup.cpu.is_x86() && self.setup.compute_capability >= 100
    }

    /// First size in bytes at which rings on several nodes are on their plateau.
    pub(crate) fn plateau_from(&self) -> u64 {
        PLATEAU_BYTES * u64::from(self.setup.channels()) * u64::from(self.setup.ranks)
    }

    fn protocol_is_on(&self, cell: &Cell) -> bool {
        super::rules::protocol_off(&self.setup, cell.collective, cell.algorithm, cell.protocol).is_none()
    }
}

/// Whether the cell can run the operation.
fn considers(cell: &Cell, operation: Operation) -> bool {
    let reduces = operation.nvls_reduces || operation.collective == Collective::AllGather;
    cell.is_on() && (reduces || !cell.algorithm.is_nvls())
}
