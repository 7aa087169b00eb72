//! What one rank of `ringccl perf` does.
//!
//! A timed iteration is a barrier, then a batch of operations back to back; its time is that of the slowest
//! rank, divided by the batch. Batches are one operation from about 20 us up; shorter operations are
//! batched, so that reading the clock does not count.

use super::Spec;
use super::layout::Layout;
use super::pattern::{Pattern, Shape, Value, pre_mul_sum};
use super::table::{Point, Table};
use super::what::What;
use anyhow::{Context, Result};
use half::{bf16, f16};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use ringccl::{Communicator, DType, F8E4M3, F8E5M2, Kind, ReduceOp, SharedMemory, Window};
use std::ops::{Deref, DerefMut};
use std::process::ExitCode;
use std::time::Instant;

/// A batch takes at least this long, in microseconds.
const BATCH_US: f64 = 20.0;
/// Largest batch.
const BATCH_MAX: f64 = 1000.0;

/// Runs one rank. An error that only says that another rank has failed is left to that rank to explain.
pub(super) fn rank_main(spec: &Spec) -> Result<ExitCode> {
    match measure(spec) {
        Err(error) if refers_to_another(&error) => Ok(ExitCode::FAILURE),
        other => other,
    }
}

/// Whether the cause is another rank's: it has printed it, or was killed, which the launcher tells.
fn refers_to_another(error: &anyhow::Error) -> bool {
    use ringccl::Error::{Aborted, PeerGone};
    matches!(error.downcast_ref(), Some(Aborted { .. } | PeerGone { .. }))
}

fn measure(spec: &Spec) -> Result<ExitCode> {
    let start = Instant::now();
    let mut comm = Communicator::from_env()?;
    comm.barrier()?;
    let mut init = [start.elapsed().as_secs_f64() * 1e3];
    comm.all_reduce_in_place(&mut init, ReduceOp::Max)?;
    let [init_ms] = init;
    let wrong = match spec.dtype {
        DType::I8 => run::<i8>(spec, &mut comm, init_ms),
        DType::U8 => run::<u8>(spec, &mut comm, init_ms),
        DType::I32 => run::<i32>(spec, &mut comm, init_ms),
        DType::U32 => run::<u32>(spec, &mut comm, init_ms),
        DType::I64 => run::<i64>(spec, &mut comm, init_ms),
        DType::U64 => run::<u64>(spec, &mut comm, init_ms),
        DType::F16 => run::<f16>(spec, &mut comm, init_ms),
        DType::F32 => run::<f32>(spec, &mut comm, init_ms),
        DType::F64 => run::<f64>(spec, &mut comm, init_ms),
        DType::Bf16 => run::<bf16>(spec, &mut comm, init_ms),
        DType::F8E4M3 => run::<F8E4M3>(spec, &mut comm, init_ms),
        DType::F8E5M2 => run::<F8E5M2>(spec, &mut comm, init_ms),
    }?;
    comm.finalize()?;
    Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures every size; returns how many elements were wrong.
fn run<T: Value>(spec: &Spec, comm: &mut Communicator, init_ms: f64) -> Result<u64> {
    let mut table = Table::new(spec, comm.rank() == 0);
    table.start(init_ms)?;
    let mut wrong = 0;
    for &bytes in &spec.sizes {
        let count = bytes as usize / size_of::<T>();
        let mut bench = Bench::<T>::new(spec, comm, count)?;
        let (bytes, count) = ((bench.layout.elements * size_of::<T>()) as u64, bench.layout.count);
        let mut outcomes = vec![bench.point(false)?];
        if spec.kind.has_in_place() {
            outcomes.push(bench.point(true)?);
        }
        bench.end()?;
        wrong += outcomes.iter().map(|point| point.wrong.unwrap_or(0)).sum::<u64>();
        table.row(bytes, count, &outcomes)?;
    }
    table.end(comm.shared_bytes()?)?;
    Ok(wrong)
}

struct Bench<'a, T> {
    spec: &'a Spec,
    comm: &'a mut Communicator,
    /// The reduction as this rank calls it.
    op: ReduceOp,
    layout: Layout,
    pattern: Pattern<T>,
    send: Buffer<T>,
    recv: Buffer<T>,
    windows: Vec<Window>,
}

/// A buffer that is written before use, so that no page is faulted in while the clock runs.
enum Buffer<T> {
    Private(Vec<T>),
    /// Memory that can be registered, and how many elements are used.
    Shared(SharedMemory, usize),
}

impl<T: Value> Buffer<T> {
    fn new(count: usize, shared: bool) -> Result<Self> {
        let context = || format!("no memory for a buffer of {count} elements");
        if shared {
            let bytes = count.checked_mul(size_of::<T>()).with_context(context)?;
            let mut buffer = Self::Shared(SharedMemory::new(bytes).with_context(context)?, count);
            buffer.fill(T::from_whole(1));
            return Ok(buffer);
        }
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(count).with_context(context)?;
        buffer.resize(count, T::from_whole(1));
        Ok(Self::Private(buffer))
    }
}

impl<T: Value> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Private(buffer) => buffer,
            Self::Shared(memory, count) => &memory.as_slice()[..*count],
        }
    }
}

impl<T: Value> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Private(buffer) => buffer,
            Self::Shared(memory, count) => &mut memory.as_mut_slice()[..*count],
        }
    }
}

impl<'a, T: Value> Bench<'a, T> {
    fn new(spec: &'a Spec, comm: &'a mut Communicator, count: usize) -> Result<Self> {
        let shape = Shape { op: spec.op, ranks: u64::from(spec.ranks), reduces: spec.kind.reduces() };
        let pattern = Pattern::new(shape, comm.rank() as u64);
        let layout = Layout::new(spec.kind, comm.nranks(), comm.rank(), count);
        let (mut send, mut recv) = (layout.send, layout.recv);
        // In place the larger one has all, see `whole`.
        if send > recv {
            send = layout.in_place()
        } else {
            recv = layout.in_place()
        }
        let (send, recv) = (Buffer::new(send, spec.register)?, Buffer::new(recv, spec.register)?);
        let mut windows = Vec::new();
        for buffer in [&send, &recv] {
            if let Buffer::Shared(memory, _) = buffer {
                windows.push(comm.register(memory)?);
            }
        }
        let op = match spec.op {
            ReduceOp::PreMulSum(_) => pre_mul_sum(T::DTYPE, comm.rank() as u64),
            op => op,
        };
        Ok(Self { spec, comm, op, pattern, send, recv, windows, layout })
    }

    /// Gives the memory back.
    fn end(self) -> Result<()> {
        let Self { comm, windows, .. } = self;
        windows.into_iter().try_for_each(|window| Ok(comm.deregister(window)?))
    }

    /// Whether the buffer of a call in place, the larger one, is that of the input.
    fn in_send(&self) -> bool {
        self.layout.send > self.layout.recv
    }

    /// The buffer of a call in place.
    fn whole(&mut self) -> &mut [T] {
        if self.in_send() { &mut self.send } else { &mut self.recv }
    }

    fn operation(&mut self, in_place: bool) -> Result<()> {
        match self.spec.kind {
            What::Collective(kind) => self.collective(kind, in_place),
            What::SendRecv => {
                let (rank, ranks) = (self.comm.rank(), self.comm.nranks());
                let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
                Ok(self.comm.send_recv(&self.send, next, &mut self.recv, before)?)
            }
            What::AllToAllV => {
                let Layout { counts, recv_counts, .. } = &self.layout;
                Ok(self.comm.all_to_all_v(&self.send, counts, &mut self.recv, recv_counts)?)
            }
        }
    }

    fn collective(&mut self, kind: Kind, in_place: bool) -> Result<()> {
        let (send, recv) = if in_place {
            let [input, output] = self.layout.places;
            let all = self.whole();
            assert!(input <= all.len() && output <= all.len());
            let all = all.as_mut_ptr();
            // SAFETY: both places lie inside the buffer, or at its end, see above.
            unsafe { (all.add(input).cast_const(), all.add(output)) }
        } else {
            (self.send.as_ptr(), self.recv.as_mut_ptr())
        };
        let (send, recv) = (send.cast(), recv.cast());
        let Layout { count, ref counts, .. } = self.layout;
        let (comm, dtype, op) = (&mut *self.comm, T::DTYPE, self.op);
        let root = self.spec.kind.root().unwrap_or(0) as usize;
        // SAFETY: in each call the buffers have the elements of the layout, which knows what the collective reads and
        // writes; they are apart, or in place where NCCL's definition says.
        unsafe {
            match kind {
                Kind::AllReduce => comm.all_reduce_raw(send, recv, count, dtype, op)?,
                Kind::Broadcast { .. } => comm.broadcast_raw(send, recv, count, dtype, root)?,
                Kind::Reduce { .. } => comm.reduce_raw(send, recv, count, dtype, op, root)?,
                Kind::AllGather => comm.all_gather_raw(send, recv, count, dtype)?,
                Kind::ReduceScatter => comm.reduce_scatter_raw(send, recv, count, dtype, op)?,
                Kind::AllToAll => comm.all_to_all_raw(send, recv, count, dtype)?,
                Kind::Gather { .. } => comm.gather_raw(send, recv, count, dtype, root)?,
                Kind::Scatter { .. } => comm.scatter_raw(send, recv, count, dtype, root)?,
                Kind::AllGatherV => comm.all_gather_v_raw(send, recv, counts, dtype)?,
                Kind::ReduceScatterV => comm.reduce_scatter_v_raw(send, recv, counts, dtype, op)?,
                Kind::Barrier => comm.barrier()?,
            }
        }
        Ok(())
    }

    fn point(&mut self, in_place: bool) -> Result<Point> {
        // Results are checked before and after timing; time is taken on values that in-place operations keep finite.
        let before = self.check(in_place)?;
        self.send.fill(T::from_whole(1));
        let adds = matches!(self.op, ReduceOp::Sum | ReduceOp::PreMulSum(_));
        let neutral = if adds { 0 } else { 1 };
        self.recv.fill(T::from_whole(neutral));
        if in_place {
            self.whole().fill(T::from_whole(neutral));
        }
        for _ in 0..self.spec.warmup {
            self.operation(in_place)?;
        }
        let batch = self.batch(in_place)?;
        let cpu = cpu_us()?;
        let mut times = Vec::with_capacity(self.spec.iters as usize);
        for _ in 0..self.spec.iters {
            self.comm.barrier()?;
            let start = Instant::now();
            for _ in 0..batch {
                self.operation(in_place)?;
            }
            times.push(start.elapsed().as_nanos() as f64 / 1e3 / f64::from(batch));
        }
        let mut spent = [(cpu_us()? - cpu) / f64::from(batch) / f64::from(self.spec.iters)];
        self.comm.all_reduce_in_place(&mut times, ReduceOp::Max)?;
        self.comm.all_reduce_in_place(&mut spent, ReduceOp::Sum)?;
        self.operation(in_place)?;
        let choice = if self.spec.kind.is_messages() { None } else { self.comm.last_choice() };
        let wrong = before.zip(self.check(in_place)?).map(|(before, after)| before + after);
        times.sort_by(f64::total_cmp);
        Ok(Point::new(in_place, &times, spent[0], wrong, choice))
    }

    /// Operations per iteration, the same on all ranks.
    fn batch(&mut self, in_place: bool) -> Result<u32> {
        let mut one = [f64::MAX];
        for _ in 0..3 {
            self.comm.barrier()?;
            let start = Instant::now();
            self.operation(in_place)?;
            one[0] = one[0].min(start.elapsed().as_nanos() as f64 / 1e3);
        }
        self.comm.all_reduce_in_place(&mut one, ReduceOp::Max)?;
        Ok((BATCH_US / one[0]).ceil().clamp(1.0, BATCH_MAX) as u32)
    }

    /// Runs the operation on known data; how many elements of all ranks are wrong.
    fn check(&mut self, in_place: bool) -> Result<Option<u64>> {
        if !self.spec.check {
            return Ok(None);
        }
        let Layout { send, recv, places: [input, output], .. } = self.layout;
        // What the operation must write is something else before it.
        self.recv.fill(T::from_whole(0));
        self.send.fill(T::from_whole(0));
        let in_send = !in_place || self.in_send();
        let from = if in_place { input } else { 0 };
        let buffer = if in_send { &mut self.send } else { &mut self.recv };
        self.pattern.fill(&mut buffer[from..from + send]);
        self.operation(in_place)?;
        let (pattern, parts) = (&self.pattern, &self.layout.parts);
        let wrong = if in_place {
            let whole = if self.in_send() { &self.send } else { &self.recv };
            pattern.wrong(&whole[output..output + recv], parts)
        } else {
            pattern.wrong(&self.recv[..recv], parts) + pattern.changed(&self.send[..send])
        };
        let mut total = [wrong as i64];
        self.comm.all_reduce_in_place(&mut total, ReduceOp::Sum)?;
        Ok(Some(total[0].cast_unsigned()))
    }
}

/// CPU time of this process so far, in microseconds.
fn cpu_us() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot read this process's CPU time")?;
    Ok((usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64)
}
