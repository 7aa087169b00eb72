//! What one rank of `ringccl tune` does: all ranks measure the same, and all come to the same row.
//!
//! Candidates are communicators of the same ranks with different settings. At each size they take turns for some
//! rounds, so that what slows the machine for a while slows all of them; the time of a turn is that of the slowest
//! rank.

use super::fit::{loss, median, path, steps};
use super::machine;
use crate::print::print;
use anyhow::{Context, Result};
use ringccl::comm::Root;
use ringccl::{
    Algorithm, Communicator, Config, Kind, Numerics, Protocol, ReduceOp, SharedMemory, Tuning, TuningLines,
    TuningRow, TuningStep, UniqueId,
};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// A turn takes about so long, in seconds, or one operation.
const TURN: f64 = 2e-3;
/// Most operations of a turn.
const TURN_MAX: f64 = 500.0;
/// Messages that are measured in lines; what is larger is never faster in them. The odd ones fill one, two and four
/// lines of LL or LL128 exactly.
const LINE_SIZES: [u64; 12] = [8, 16, 32, 56, 96, 120, 240, 480, 960, 1440, 1920, 3840];
/// Chunks that are measured, as far as all ranks' rings stay small with them.
const CHUNKS: [u64; 6] = [128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
/// A larger chunk must be so much faster: it takes memory.
const CHUNK_GAIN: f64 = 1.03;
/// Sizes at which chunks are measured, as far as four times the largest size allows.
const CHUNK_SIZES: [u64; 3] = [1 << 20, 8 << 20, 64 << 20];
/// Bytes of all ranks' buffers together, at most.
const BUFFERS: u64 = 1 << 30;
/// Least size at which memory without copies is measured.
const ZERO_COPY_FROM: u64 = 4 << 10;
/// What is measured of a chunk, and but for the last of memory without copies.
const LARGE_KINDS: [Kind; 4] = [Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll];

/// Runs one rank; rank 0 tells what was found and leaves the row in `part`.
pub(super) fn rank_main(part: &Path, max_bytes: u64, rounds: usize) -> Result<ExitCode> {
    // Before this thread is bound to one of them.
    let mut cores = [shmring::wait::usable_cores() as u32];
    let mut comm = Communicator::from_env()?;
    let (rank, nranks) = (comm.rank(), comm.nranks() as u32);
    let room = (BUFFERS / 2 / u64::from(nranks)).max(64 * u64::from(nranks));
    // A chunk shows its worth in buffers that are far larger than caches.
    let largest = max_bytes.saturating_mul(4).max(64 * u64::from(nranks)).min(room);
    let mut bench = Bench {
        base: Config {
            numerics: Numerics::Host,
            report: None,
            fail_point: None,
            ..Config::from_env(nranks)?
        },
        row: Tuning::shipped().row(nranks).clone(),
        sizes: std::iter::successors(Some(8), |size| Some(size * 2))
            .take_while(|size| *size <= room.min(max_bytes))
            .collect(),
        memory: [SharedMemory::new(largest as usize)?, SharedMemory::new(largest as usize)?],
        comm: &mut comm,
        rounds,
        told: String::new(),
    };
    bench.touch();
    // All ranks have the same row: that of the rank whose cores count is told.
    bench.comm.broadcast(&mut cores, 0)?;
    (bench.row.ranks, bench.row.cores) = (nranks, cores[0]);
    bench.lines()?;
    bench.chunk()?;
    bench.algorithms()?;
    bench.zero_copy()?;
    let Bench { row, told, .. } = bench;
    if rank == 0 {
        let text = Tuning { machine: machine(), rows: vec![row] }.text().map_err(anyhow::Error::msg)?;
        fs::write(part, text).with_context(|| format!("cannot write {}", part.display()))?;
        print(&told)?;
    }
    comm.finalize()?;
    Ok(ExitCode::SUCCESS)
}

struct Bench<'a> {
    comm: &'a mut Communicator,
    /// The settings of every candidate but for what is varied.
    base: Config,
    row: TuningRow,
    /// Of buffers, in bytes, in ascending order.
    sizes: Vec<u64>,
    /// Input and output.
    memory: [SharedMemory; 2],
    rounds: usize,
    /// What rank 0 prints at the end.
    told: String,
}

impl Bench<'_> {
    /// Puts values into all memory, so that no page is faulted in while the clock runs.
    fn touch(&mut self) {
        for memory in &mut self.memory {
            memory.as_mut_slice::<f32>().fill(1.0);
        }
    }

    /// How large a message in lines may be.
    fn lines(&mut self) -> Result<()> {
        let candidates = Protocol::ALL.map(|protocol| {
            let mut config = Config { algorithm: Some(Algorithm::Flat), ..self.base.clone() };
            config.protocol = Some(protocol);
            config.protocols = [false; Protocol::ALL.len()];
            config.protocols[protocol as usize] = true;
            config
        });
        let mut comms = self.communicators(candidates)?;
        let times = self.times(&mut comms, Kind::AllReduce, &LINE_SIZES)?;
        let path = path(&times, true);
        let up_to = |last: Protocol| {
            let fits = path.iter().zip(LINE_SIZES).filter(|(at, _)| **at <= last as usize);
            fits.map(|(_, size)| size).max().unwrap_or(0)
        };
        self.row.lines = TuningLines { ll: up_to(Protocol::Ll), ll128: up_to(Protocol::Ll128) };
        let TuningLines { ll, ll128 } = self.row.lines;
        let _ = writeln!(self.told, "{} ranks on {} cores", self.row.ranks, self.row.cores);
        let _ = writeln!(self.told, "  messages       LL up to {ll} bytes, LL128 up to {ll128}, then Simple");
        Ok(())
    }

    /// The largest message, for buffers that are larger than several.
    fn chunk(&mut self) -> Result<()> {
        let room = self.memory[0].len() as u64;
        let sizes: Vec<u64> = CHUNK_SIZES.into_iter().filter(|size| *size <= room).collect();
        if sizes.is_empty() {
            let _ = writeln!(self.told, "  chunk          {} bytes, not measured", self.row.chunk);
            return Ok(());
        }
        let roomy = |chunk: u64| TuningRow { chunk, ..self.row.clone() };
        let most =
            Config::with_tuning(self.row.ranks, self.table(roomy(CHUNKS[CHUNKS.len() - 1]))).chunk_bytes;
        let chunks: Vec<u64> =
            CHUNKS.into_iter().filter(|chunk| *chunk <= (most as u64).max(CHUNKS[0])).collect();
        let candidates =
            chunks.iter().map(|chunk| Config { chunk_bytes: *chunk as usize, ..self.base.clone() });
        let mut comms = self.communicators(candidates.collect::<Vec<_>>())?;
        let mut total = vec![0.0; chunks.len()];
        for kind in LARGE_KINDS {
            let times = self.times(&mut comms, kind, &sizes)?;
            for (candidate, total) in total.iter_mut().enumerate() {
                *total += loss(&times, &vec![candidate; sizes.len()]).ln();
            }
        }
        let mean = |candidate: usize| (total[candidate] / LARGE_KINDS.len() as f64).exp();
        let best = (0..chunks.len()).map(mean).fold(f64::INFINITY, f64::min);
        let smallest = (0..chunks.len()).find(|candidate| mean(*candidate) <= best * CHUNK_GAIN);
        self.row.chunk = smallest.map_or(self.row.chunk, |candidate| chunks[candidate]);
        let _ = writeln!(self.told, "  chunk          {} bytes", self.row.chunk);
        Ok(())
    }

    /// The algorithm of each kind by size.
    fn algorithms(&mut self) -> Result<()> {
        let base = Config { chunk_bytes: self.row.chunk as usize, ..self.base.clone() };
        let tuning = self.table(self.row.clone());
        let candidates = Algorithm::ALL.map(|algorithm| Config {
            algorithm: Some(algorithm),
            tuning: Arc::clone(&tuning),
            ..base.clone()
        });
        let mut comms = self.communicators(candidates)?;
        let shipped = Tuning::shipped();
        let sizes = self.sizes.clone();
        for kind in [
            Kind::AllReduce,
            Kind::Reduce { root: 0 },
            Kind::Broadcast { root: 0 },
            Kind::AllGather,
            Kind::ReduceScatter,
        ] {
            // A chain of more than two ranks to or from a root lets ranks wait for others that they do not need, which
            // costs nothing here, where all come at once.
            let chained =
                |algorithm| algorithm == Algorithm::Ring && kind.root().is_some() && self.row.ranks > 2;
            let served = |at: usize| Algorithm::ALL[at].serves(kind) && !chained(Algorithm::ALL[at]);
            let at: Vec<usize> = (0..comms.len()).filter(|at| served(*at)).collect();
            let mut several: Vec<&mut Communicator> =
                comms.iter_mut().enumerate().filter(|(at, _)| served(*at)).map(|(_, comm)| comm).collect();
            let times = self.times_of(&mut several, kind, &sizes)?;
            let path = path(&times, false);
            let found = steps(&path, &sizes).into_iter();
            let found = found
                .map(|(candidate, up_to)| TuningStep { algorithm: Algorithm::ALL[at[candidate]], up_to });
            let found: Vec<TuningStep> = found.collect();
            let built_in = |size: &u64| {
                let algorithm = shipped.row(self.row.ranks).algorithm(kind, *size as usize);
                at.iter().position(|at| Algorithm::ALL[*at] == algorithm).unwrap_or(0)
            };
            let built_in: Vec<usize> = sizes.iter().map(built_in).collect();
            let told: Vec<String> = found.iter().map(told).collect();
            let _ = writeln!(
                self.told,
                "  {:<14} {} (over the best: {:.3}, with the table that is built in {:.3})",
                kind.name(),
                told.join(", "),
                loss(&times, &path),
                loss(&times, &built_in)
            );
            match kind {
                Kind::AllReduce => self.row.all_reduce = found,
                Kind::Reduce { .. } => self.row.reduce = found,
                Kind::Broadcast { .. } => self.row.broadcast = found,
                Kind::AllGather => self.row.all_gather = found,
                _ => self.row.reduce_scatter = found,
            }
        }
        Ok(())
    }

    /// From which size on it is worth looking whether buffers are registered.
    fn zero_copy(&mut self) -> Result<()> {
        let candidates = [u64::MAX, 0].map(|zero_copy| {
            let tuning = self.table(TuningRow { zero_copy, ..self.row.clone() });
            Config { chunk_bytes: self.row.chunk as usize, tuning, ..self.base.clone() }
        });
        let mut comms = self.communicators(candidates)?;
        for comm in &mut comms {
            for memory in &self.memory {
                // The window ends with its communicator.
                let _ = comm.register(memory)?;
            }
        }
        let sizes: Vec<u64> = self.sizes.iter().copied().filter(|size| *size >= ZERO_COPY_FROM).collect();
        let mut ratios = vec![vec![0.0; sizes.len()]; 2];
        let kinds = &LARGE_KINDS[..3];
        for kind in kinds {
            let times = self.times(&mut comms, *kind, &sizes)?;
            for (size, with) in times[1].iter().enumerate() {
                ratios[1][size] += (with / times[0][size]).ln() / kinds.len() as f64;
            }
        }
        let means: Vec<Vec<f64>> =
            ratios.into_iter().map(|logs| logs.into_iter().map(f64::exp).collect()).collect();
        let first = path(&means, true).iter().position(|at| *at == 1);
        // Not even the largest that was measured: what is larger still is not known.
        self.row.zero_copy = first.map_or(u64::MAX, |at| sizes[at]);
        let _ = match first {
            Some(at) => writeln!(self.told, "  without copies from {} bytes on, if registered", sizes[at]),
            None => writeln!(self.told, "  without copies never, registered or not"),
        };
        Ok(())
    }

    fn table(&self, row: TuningRow) -> Arc<Tuning> {
        Arc::new(Tuning { machine: String::new(), rows: vec![row] })
    }

    /// A communicator of all ranks for each of some settings.
    fn communicators(&mut self, configs: impl IntoIterator<Item = Config>) -> Result<Vec<Communicator>> {
        let (rank, nranks) = (self.comm.rank() as u32, self.comm.nranks() as u32);
        let mut comms = Vec::new();
        for config in configs {
            let root = (rank == 0).then(Root::new).transpose()?;
            let mut id = root.as_ref().map_or([0; 128], |root| root.unique_id().to_bytes());
            self.comm.broadcast(&mut id, 0)?;
            comms.push(Communicator::init(&UniqueId::from_bytes(&id)?, rank, nranks, config)?);
        }
        Ok(comms)
    }

    fn times(&mut self, comms: &mut [Communicator], kind: Kind, sizes: &[u64]) -> Result<Vec<Vec<f64>>> {
        self.times_of(&mut comms.iter_mut().collect::<Vec<_>>(), kind, sizes)
    }

    /// Seconds of an operation with each communicator at each size: the same on every rank.
    fn times_of(
        &mut self,
        comms: &mut [&mut Communicator],
        kind: Kind,
        sizes: &[u64],
    ) -> Result<Vec<Vec<f64>>> {
        let mut times = vec![Vec::with_capacity(sizes.len()); comms.len()];
        for &size in sizes {
            let mut turns = vec![0; comms.len()];
            for (turn, comm) in turns.iter_mut().zip(comms.iter_mut()) {
                // The first operation makes connections.
                self.turn(comm, kind, size, 1)?;
                let mut once = [self.turn(comm, kind, size, 2)?];
                self.comm.all_reduce_in_place(&mut once, ReduceOp::Max)?;
                *turn = (TURN / once[0]).clamp(1.0, TURN_MAX) as usize;
            }
            let mut rounds = Vec::with_capacity(self.rounds * comms.len());
            for _ in 0..self.rounds {
                for (turn, comm) in turns.iter().zip(comms.iter_mut()) {
                    rounds.push(self.turn(comm, kind, size, *turn)?);
                }
            }
            self.comm.all_reduce_in_place(&mut rounds, ReduceOp::Max)?;
            for (at, times) in times.iter_mut().enumerate() {
                times.push(median(rounds.iter().skip(at).step_by(comms.len()).copied().collect()));
            }
        }
        Ok(times)
    }

    /// Seconds of one of `count` operations one after the other, after a barrier and one more: the caches are those of
    /// a program that has one communicator, not those of the candidate before.
    fn turn(&mut self, comm: &mut Communicator, kind: Kind, size: u64, count: usize) -> Result<f64> {
        let n = comm.nranks();
        let elements = size as usize / size_of::<f32>();
        let block = (elements / n).max(1);
        let [input, output] = &mut self.memory;
        let (input, output) = (input.as_slice::<f32>(), output.as_mut_slice::<f32>());
        let mut start = Instant::now();
        for at in 0..=count {
            if at == 1 {
                self.comm.barrier()?;
                start = Instant::now();
            }
            match kind {
                Kind::Reduce { root } => {
                    comm.reduce(&input[..elements], &mut output[..elements], ReduceOp::Sum, root as usize)?;
                }
                Kind::Broadcast { root } => comm.broadcast(&mut output[..elements], root as usize)?,
                Kind::AllToAll => comm.all_to_all(&input[..n * block], &mut output[..n * block])?,
                Kind::AllGather => comm.all_gather(&input[..block], &mut output[..n * block])?,
                Kind::ReduceScatter => {
                    comm.reduce_scatter(&input[..n * block], &mut output[..block], ReduceOp::Sum)?;
                }
                _ => comm.all_reduce(&input[..elements], &mut output[..elements], ReduceOp::Sum)?,
            }
        }
        Ok(start.elapsed().as_secs_f64() / count as f64)
    }
}

fn told(step: &TuningStep) -> String {
    match step.up_to {
        Some(up_to) => format!("{} up to {up_to}", step.algorithm),
        None => step.algorithm.to_string(),
    }
}
