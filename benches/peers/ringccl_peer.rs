//! RingCCL as one of the measured peers: `ringccl run -n N -- ringccl-peer BUDGET_S op:bytes ...`.
//!
//! The protocol is `bench.h`'s, whose opening comment defines every figure: the same samples, the
//! same patterns and checks, the same JSON fields, so that rows of all peers can be compared. What
//! one RingCCL operation is stands in `impl Peer for RingCcl`, and nowhere else.
//!
//! With `BENCH_MEMORY=registered` the buffers are registered shared memory, else private memory as every peer's.

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::alarm;
use ringccl::{Communicator, ReduceOp, SharedMemory, Window};
use serde::Serialize;

/// A point that takes longer is hung or pathological: the alarm ends this rank, and so the launch.
const POINT_SECONDS_MAX: u32 = 120;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringccl-peer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let budget = args.next().context("usage: ringccl-peer BUDGET_S op:bytes ...")?;
    let budget = parse_budget(&budget)?;
    let points = args.map(|arg| parse_point(&arg)).collect::<Result<Vec<_>>>()?;
    let name = std::env::var("BENCH_PEER").unwrap_or_else(|_| "ringccl".to_owned());

    let comm = Communicator::from_env().context("start it by: ringccl run -n N -- ringccl-peer ...")?;
    let registered = match std::env::var("BENCH_MEMORY").as_deref() {
        Err(_) | Ok("private") => false,
        Ok("registered") => true,
        Ok(other) => bail!("BENCH_MEMORY={other}: use private or registered"),
    };
    let mut peer = RingCcl { comm, registered, windows: Vec::new() };
    for (op, bytes) in points {
        alarm::set(POINT_SECONDS_MAX);
        let row = measure(&mut peer, &name, &op, bytes, budget)?;
        alarm::cancel();
        if peer.rank() == 0 {
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&row)?)?;
        }
    }
    peer.comm.finalize()?;
    Ok(())
}

/// What the protocol needs of a library: RingCCL here, a model of one in the tests.
trait Peer {
    fn rank(&self) -> usize;
    fn nranks(&self) -> usize;
    /// One operation, complete on return.
    fn run(&mut self, op: Op, buffers: &mut Buffers) -> Result<()>;
    /// Memory for `len` floats.
    fn memory(&self, len: usize) -> Result<Memory>;
    /// Called with the buffers of a point before it, and after it.
    fn adopt(&mut self, buffers: &Buffers) -> Result<()>;
    fn release(&mut self) -> Result<()>;
    /// In-place maximum over the ranks, element by element.
    fn max(&mut self, values: &mut [f64]) -> Result<()>;
}

struct RingCcl {
    comm: Communicator,
    /// Whether buffers are registered memory.
    registered: bool,
    windows: Vec<Window>,
}

impl Peer for RingCcl {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn nranks(&self) -> usize {
        self.comm.nranks()
    }

    fn run(&mut self, op: Op, buffers: &mut Buffers) -> Result<()> {
        let recv = buffers.recv.as_mut_slice();
        match op {
            Op::AllReduce => self.comm.all_reduce(buffers.send.as_slice(), recv, ReduceOp::Sum)?,
            Op::AllReduceInPlace => self.comm.all_reduce_in_place(recv, ReduceOp::Sum)?,
            Op::Broadcast => self.comm.broadcast(recv, 0)?,
            Op::AllGather => self.comm.all_gather(buffers.send.as_slice(), recv)?,
            Op::ReduceScatter => self.comm.reduce_scatter(buffers.send.as_slice(), recv, ReduceOp::Sum)?,
            Op::AllToAll => self.comm.all_to_all(buffers.send.as_slice(), recv)?,
            Op::SendRecv => {
                let other = self.comm.rank() ^ 1;
                if other < self.comm.rank() {
                    self.comm.recv(recv, other)?;
                    self.comm.send(buffers.send.as_slice(), other)?;
                } else {
                    self.comm.send(buffers.send.as_slice(), other)?;
                    self.comm.recv(recv, other)?;
                }
            }
            Op::Barrier => self.comm.barrier()?,
        }
        Ok(())
    }

    fn memory(&self, len: usize) -> Result<Memory> {
        let bytes = len * size_of::<f32>();
        Ok(if self.registered { Memory::Shared(SharedMemory::new(bytes)?) } else { Memory::private(len) })
    }

    fn adopt(&mut self, buffers: &Buffers) -> Result<()> {
        for memory in [&buffers.send, &buffers.recv] {
            if let Memory::Shared(memory) = memory {
                self.windows.push(self.comm.register(memory)?);
            }
        }
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.windows.drain(..).try_for_each(|window| Ok(self.comm.deregister(window)?))
    }

    fn max(&mut self, values: &mut [f64]) -> Result<()> {
        Ok(self.comm.all_reduce_in_place(values, ReduceOp::Max)?)
    }
}

/// The operations of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    AllReduce,
    AllReduceInPlace,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    /// One round trip with the rank whose number differs in the last bit; figures are for one way.
    SendRecv,
    Barrier,
}

impl Op {
    fn named(name: &str) -> Option<Op> {
        match name {
            "allreduce" => Some(Op::AllReduce),
            "allreduce_ip" => Some(Op::AllReduceInPlace),
            "broadcast" => Some(Op::Broadcast),
            "allgather" => Some(Op::AllGather),
            "reducescatter" => Some(Op::ReduceScatter),
            "alltoall" => Some(Op::AllToAll),
            "sendrecv" => Some(Op::SendRecv),
            "barrier" => Some(Op::Barrier),
            _ => None,
        }
    }

    fn sums(self) -> bool {
        matches!(self, Op::AllReduce | Op::AllReduceInPlace | Op::ReduceScatter)
    }

    /// Whether the larger buffer has a block of every rank.
    fn has_blocks(self) -> bool {
        matches!(self, Op::AllGather | Op::ReduceScatter | Op::AllToAll)
    }

    /// Blocks of the send and of the receive buffer.
    fn blocks(self, nranks: usize) -> (usize, usize) {
        match self {
            Op::AllReduce | Op::SendRecv => (1, 1),
            Op::AllReduceInPlace | Op::Broadcast => (0, 1),
            Op::AllGather => (1, nranks),
            Op::ReduceScatter => (nranks, 1),
            Op::AllToAll => (nranks, nranks),
            Op::Barrier => (0, 0),
        }
    }

    /// Bytes that the links carry for each byte of the buffer, as nccl-tests' busbw counts them.
    fn bus_factor(self, nranks: usize) -> f64 {
        let most = (nranks as f64 - 1.0) / nranks as f64;
        match self {
            Op::AllReduce | Op::AllReduceInPlace => 2.0 * most,
            _ if self.has_blocks() => most,
            _ => 1.0,
        }
    }
}

fn parse_budget(arg: &str) -> Result<Duration> {
    let seconds = arg.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds
        .with_context(|| format!("{arg:?} is not a budget: give seconds of timed loop a point, such as 0.3"))
}

fn parse_point(arg: &str) -> Result<(String, usize)> {
    match arg.split_once(':').map(|(op, bytes)| (op, bytes.parse())) {
        Some((op, Ok(bytes))) if !op.is_empty() => Ok((op.to_owned(), bytes)),
        _ => bail!("{arg:?} is not a point: give op:bytes, such as allreduce:65536"),
    }
}

/// One JSON line; `peer` comes first, by which the runner finds it behind a launcher's prefix.
#[derive(Debug, Serialize)]
struct Row<'a> {
    peer: &'a str,
    op: &'a str,
    ranks: usize,
    bytes: usize,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Outcome {
    NotOffered { ok: bool, note: &'static str },
    Measured(Measured),
}

#[derive(Debug, Serialize)]
struct Measured {
    median_us: f64,
    #[serde(rename = "algbw_GBs")]
    algbw: f64,
    #[serde(rename = "busbw_GBs")]
    busbw: f64,
    ok: bool,
    min_us: f64,
    p99_us: f64,
    cpu_us: f64,
    samples: usize,
    batch: usize,
}

/// Measures one point on this rank; every rank calls it with the same arguments.
fn measure<'a, P: Peer>(
    peer: &mut P,
    name: &'a str,
    op_name: &'a str,
    bytes: usize,
    budget: Duration,
) -> Result<Row<'a>> {
    let ranks = peer.nranks();
    let Some(op) = Op::named(op_name).filter(|op| *op != Op::SendRecv || ranks.is_multiple_of(2)) else {
        let outcome = Outcome::NotOffered { ok: false, note: "not offered by this peer" };
        return Ok(Row { peer: name, op: op_name, ranks, bytes, outcome });
    };
    // Of the smaller buffer; no less than one element of each rank.
    let parts = if op.has_blocks() { ranks } else { 1 };
    let elems = (bytes / 4 / parts).max(1);
    let bytes = if op == Op::Barrier { bytes } else { bytes.max(4 * parts) };
    let (send, recv) = op.blocks(ranks);
    let mut buffers = Buffers { send: peer.memory(send * elems)?, recv: peer.memory(recv * elems)? };
    peer.adopt(&buffers)?;

    let mut wrong = !runs_right(peer, op, &mut buffers)?;
    buffers.clear(); // timed on zeros: in-place sums must not grow
    let timing = time(peer, op, &mut buffers, budget)?;
    wrong |= !runs_right(peer, op, &mut buffers)?;
    let mut any_wrong = [f64::from(wrong)];
    peer.max(&mut any_wrong)?;
    peer.release()?;

    let algbw = bytes as f64 / timing.median / 1e3;
    let outcome = Outcome::Measured(Measured {
        median_us: rounded(timing.median, 3),
        algbw: rounded(algbw, 4),
        busbw: rounded(algbw * op.bus_factor(ranks), 4),
        ok: any_wrong[0] == 0.0,
        min_us: rounded(timing.min, 3),
        p99_us: rounded(timing.p99, 3),
        cpu_us: rounded(timing.cpu, 3),
        samples: timing.samples,
        batch: timing.batch,
    });
    Ok(Row { peer: name, op: op_name, ranks, bytes, outcome })
}

fn rounded(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

/// The figures of one point, in microseconds per operation.
struct Timing {
    median: f64,
    min: f64,
    p99: f64,
    cpu: f64,
    samples: usize,
    batch: usize,
}

fn time<P: Peer>(peer: &mut P, op: Op, buffers: &mut Buffers, budget: Duration) -> Result<Timing> {
    let mut estimate = [0.0];
    for batch in [1, 4, 16, 64, 256, 1024, 4096] {
        estimate[0] = sample(peer, op, buffers, batch)?; // warms up, and sizes the batch
        peer.max(&mut estimate)?;
        if estimate[0] * batch as f64 > 20e3 {
            break;
        }
    }
    let estimate = estimate[0].max(1e-3); // a clock may say 0
    let batch = (10e3 / estimate).clamp(1.0, 20e3) as usize; // a sample is >= 10 ms
    let wanted = budget.as_secs_f64() * 1e6 / (estimate * batch as f64);
    let samples = wanted.clamp(3.0, 101.0) as usize;

    let mut values = vec![0.0; samples];
    let cpu_before = cpu_us()?;
    for value in &mut values {
        *value = sample(peer, op, buffers, batch)?;
    }
    let cpu = sum_over_ranks(peer, cpu_us()? - cpu_before)? / (samples * batch) as f64;
    peer.max(&mut values)?;
    let (median, min, p99) = summary(&mut values);
    let ways = if op == Op::SendRecv { 2.0 } else { 1.0 };
    Ok(Timing { median: median / ways, min: min / ways, p99: p99 / ways, cpu: cpu / ways, samples, batch })
}

/// A barrier, then `batch` operations back to back: microseconds per operation on this rank.
fn sample<P: Peer>(peer: &mut P, op: Op, buffers: &mut Buffers, batch: usize) -> Result<f64> {
    peer.run(Op::Barrier, buffers)?;
    let start = Instant::now();
    for _ in 0..batch {
        peer.run(op, buffers)?;
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / batch as f64)
}

/// Median, minimum and 99th percentile (nearest rank) of at least one value.
fn summary(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let median = (values[(n - 1) / 2] + values[n / 2]) / 2.0;
    (median, values[0], values[(99 * n).div_ceil(100) - 1])
}

/// User and system time of this process so far, in microseconds.
fn cpu_us() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let (user, system) = (usage.user_time(), usage.system_time());
    Ok((user.tv_sec() + system.tv_sec()) as f64 * 1e6 + (user.tv_usec() + system.tv_usec()) as f64)
}

/// Sum of every rank's `value`, by a maximum over one entry a rank, as for the peers in C.
fn sum_over_ranks<P: Peer>(peer: &mut P, value: f64) -> Result<f64> {
    let mut values = vec![0.0; peer.nranks()];
    values[peer.rank()] = value;
    peer.max(&mut values)?;
    Ok(values.iter().sum())
}

/// Fills the buffers, runs the operation once and checks every element on this rank.
fn runs_right<P: Peer>(peer: &mut P, op: Op, buffers: &mut Buffers) -> Result<bool> {
    let rank = peer.rank();
    buffers.fill(op, rank);
    peer.run(op, buffers)?;
    let nranks = peer.nranks();
    let got = buffers.recv.as_slice();
    let block = (got.len() / op.blocks(nranks).1.max(1)).max(1);
    // The first element of each sender's buffer that belongs here.
    let first = if matches!(op, Op::ReduceScatter | Op::AllToAll) { rank * block } else { 0 };
    let right = |(i, &x): (usize, &f32)| {
        let at = first + i % block;
        let want = match op {
            _ if op.sums() => (0..nranks).map(|from| pattern(from, at)).sum::<f32>(),
            Op::Broadcast => pattern(0, at),
            Op::SendRecv => pattern(rank ^ 1, at),
            _ => pattern(i / block, at),
        };
        x == want
    };
    let bad = got.iter().enumerate().filter(|&at| !right(at)).count();
    if bad > 0 {
        eprintln!("{op:?} rank {rank}: {bad} of {} wrong", got.len());
    }
    Ok(bad == 0)
}

/// Integers below 1024: their sums over many ranks are exact in f32.
fn pattern(rank: usize, i: usize) -> f32 {
    let mixed =
        (i as u32).wrapping_mul(2_654_435_761).wrapping_add((rank as u32).wrapping_mul(2_246_822_519));
    (mixed >> 22) as f32
}

/// Buffers of one rank; `send` is empty for operations in place.
struct Buffers {
    send: Memory,
    recv: Memory,
}

impl Buffers {
    fn fill(&mut self, op: Op, rank: usize) {
        let by_pattern = |(i, x): (usize, &mut f32)| *x = pattern(rank, i);
        self.send.as_mut_slice().iter_mut().enumerate().for_each(by_pattern);
        if op == Op::AllReduceInPlace || (op == Op::Broadcast && rank == 0) {
            self.recv.as_mut_slice().iter_mut().enumerate().for_each(by_pattern);
        } else {
            self.recv.as_mut_slice().fill(-1.0);
        }
    }

    fn clear(&mut self) {
        self.send.as_mut_slice().fill(0.0);
        self.recv.as_mut_slice().fill(0.0);
    }
}

/// Floats that begin on a page, as every peer's do: the alignment of a buffer moves figures.
enum Memory {
    Private { storage: Vec<f32>, start: usize, len: usize },
    Shared(SharedMemory),
}

impl Memory {
    const PAGE_BYTES: usize = 4096;

    fn private(len: usize) -> Memory {
        let storage = vec![0.0; len + Self::PAGE_BYTES / size_of::<f32>()];
        let start = storage.as_ptr().align_offset(Self::PAGE_BYTES);
        Memory::Private { storage, start, len }
    }

    fn as_slice(&self) -> &[f32] {
        match self {
            Memory::Private { storage, start, len } => &storage[*start..*start + *len],
            Memory::Shared(memory) => memory.as_slice(),
        }
    }

    fn as_mut_slice(&mut self) -> &mut [f32] {
        match self {
            Memory::Private { storage, start, len } => &mut storage[*start..*start + *len],
            Memory::Shared(memory) => memory.as_mut_slice(),
        }
    }
}

#[cfg(test)]
#[path = "ringccl_peer_tests.rs"]
mod tests;
