//! Calls of an operation with the buffers of one rank: at once, or in a group.
#![allow(
    unsafe_code,
    reason = "calls in place take addresses, and what a launched group uses the compiler cannot see"
)]

use super::shape::{Kind, Shape};
use super::value::Value;
use anyhow::ensure;
use ringccl::{Communicator, Error, Group, Pending, Stream};
use std::mem::ManuallyDrop;

/// Elements around each buffer that nobody may touch.
const GUARD: usize = 7;

/// One operation and its buffers; in place, the first is the only one.
pub(super) struct Job<T> {
    shape: Shape,
    rank: usize,
    /// Where the input begins in the first buffer, and the output in the last.
    places: (usize, usize),
    buffers: Vec<Vec<T>>,
}

impl<T: Value> Job<T> {
    pub(super) fn new(shape: Shape, rank: usize, in_place: bool) -> Self {
        let (send, recv) = shape.lengths(rank);
        let (input, output, lens) = match shape.places(rank).filter(|_| in_place) {
            Some((input, output, len)) => (input, output, vec![len]),
            None => (0, 0, vec![send, recv]),
        };
        let mut buffers: Vec<Vec<T>> = lens.iter().map(|len| vec![T::MARK; len + 2 * GUARD]).collect();
        for (i, to) in buffers[0][GUARD + input..].iter_mut().take(send).enumerate() {
            *to = shape.input(rank, i);
        }
        Self { shape, rank, places: (input, output), buffers }
    }

    fn addresses(&mut self) -> (*const u8, *mut u8) {
        let (input, output) = self.places;
        let is_one = self.buffers.len() == 1;
        let first = self.buffers[0].as_mut_ptr();
        let last = if is_one { first } else { self.buffers[1].as_mut_ptr() };
        // Both lie in their buffers, whose guards make room for places at the end.
        (first.wrapping_add(GUARD + input).cast_const().cast(), last.wrapping_add(GUARD + output).cast())
    }

    /// Compares every element of every buffer.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let (send, recv) = self.shape.lengths(self.rank);
        let (input, output) = (GUARD + self.places.0, GUARD + self.places.1);
        for (which, buffer) in self.buffers.iter().enumerate() {
            let (is_first, is_last) = (which == 0, which + 1 == self.buffers.len());
            for (at, found) in buffer.iter().enumerate() {
                if is_last && (output..output + recv).contains(&at) {
                    let wanted = self.shape.wanted::<T>(self.rank, at - output);
                    ensure!(
                        wanted.fits(*found),
                        "element {} of {recv} is {found:?}, wanted {wanted:?}",
                        at - output
                    );
                    continue;
                }
                let is_input = is_first && (input..input + send).contains(&at);
                let before = if is_input { self.shape.input(self.rank, at - input) } else { T::MARK };
                ensure!(
                    *found == before,
                    "buffer {which}: element {} was {before:?} and is {found:?}",
                    at as i64 - GUARD as i64
                );
            }
        }
        Ok(())
    }

    /// Bits of the last buffer, which has the result, in one number: to be compared with other ranks'.
    pub(super) fn digest(&self) -> u64 {
        let bits = self.buffers.iter().rev().take(1).flatten().map(|x| x.wide().to_bits());
        bits.fold(1, |sum, bits| (sum ^ bits).wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(23))
    }

    /// Calls it and waits.
    pub(super) fn call(&mut self, comm: &mut Communicator) -> Result<(), Error> {
        let Shape { kind, count, .. } = self.shape;
        let (op, dtype, counts) = (self.shape.op_of::<T>(self.rank), T::DTYPE, self.shape.counts());
        let (from, to) = self.addresses();
        // SAFETY: the buffers have what the definition of each kind reads and writes; in place they are as it says.
        unsafe {
            match kind {
                Kind::AllReduce => comm.all_reduce_raw(from, to, count, dtype, op),
                Kind::Broadcast(root) => comm.broadcast_raw(from, to, count, dtype, root),
                Kind::Reduce(root) => comm.reduce_raw(from, to, count, dtype, op, root),
                Kind::AllGather => comm.all_gather_raw(from, to, count, dtype),
                Kind::ReduceScatter => comm.reduce_scatter_raw(from, to, count, dtype, op),
                Kind::AllToAll => comm.all_to_all_raw(from, to, count, dtype),
                Kind::Gather(root) => comm.gather_raw(from, to, count, dtype, root),
                Kind::Scatter(root) => comm.scatter_raw(from, to, count, dtype, root),
                Kind::AllGatherV => comm.all_gather_v_raw(from, to, &counts, dtype),
                Kind::ReduceScatterV => comm.reduce_scatter_v_raw(from, to, &counts, dtype, op),
                Kind::AllToAllV => {
                    let [sent, got] = self.parts();
                    comm.all_to_all_v_raw(from, &sent, to, &got, dtype)
                }
                Kind::Shift(_) => {
                    let mut group = Group::new();
                    self.add(&mut group, comm)?;
                    group.run()
                }
                Kind::Barrier => comm.barrier(),
            }
        }
    }

    /// Adds it to a group, which ends before the buffers do.
    fn add(&mut self, group: &mut Group<'_>, comm: &mut Communicator) -> Result<(), Error> {
        let Shape { kind, count, n, .. } = self.shape;
        let (op, dtype, counts) = (self.shape.op_of::<T>(self.rank), T::DTYPE, self.shape.counts());
        let (from, to) = self.addresses();
        // SAFETY: as in `call`; whoever has the group keeps the buffers, untouched, until it has run.
        unsafe {
            match kind {
                Kind::AllReduce => group.all_reduce_raw(comm, from, to, count, dtype, op)?,
                Kind::Broadcast(root) => group.broadcast_raw(comm, from, to, count, dtype, root)?,
                Kind::Reduce(root) => group.reduce_raw(comm, from, to, count, dtype, op, root)?,
                Kind::AllGather => group.all_gather_raw(comm, from, to, count, dtype)?,
                Kind::ReduceScatter => group.reduce_scatter_raw(comm, from, to, count, dtype, op)?,
                Kind::AllToAll => group.all_to_all_raw(comm, from, to, count, dtype)?,
                Kind::Gather(root) => group.gather_raw(comm, from, to, count, dtype, root)?,
                Kind::Scatter(root) => group.scatter_raw(comm, from, to, count, dtype, root)?,
                Kind::AllGatherV => group.all_gather_v_raw(comm, from, to, &counts, dtype)?,
                Kind::ReduceScatterV => group.reduce_scatter_v_raw(comm, from, to, &counts, dtype, op)?,
                Kind::AllToAllV => {
                    let [sent, got] = self.parts();
                    group.all_to_all_v_raw(comm, from, &sent, to, &got, dtype)?
                }
                Kind::Shift(by) => {
                    let (send, recv) = self.shape.lengths(self.rank);
                    let (next, before) = ((self.rank + by) % n, (self.rank + n - by) % n);
                    // Half of the ranks receive first.
                    if self.rank.is_multiple_of(2) {
                        group.recv_raw(comm, to, recv, dtype, before, 0)?;
                        group.send_raw(comm, from, send, dtype, next, 0)?
                    } else {
                        group.send_raw(comm, from, send, dtype, next, 0)?;
                        group.recv_raw(comm, to, recv, dtype, before, 0)?
                    }
                }
                Kind::Barrier => group.barrier(comm)?,
            };
        }
        Ok(())
    }

    /// Lengths of what a rank sends and gets in an uneven exchange.
    fn parts(&self) -> [Vec<usize>; 2] {
        let (shape, rank) = (&self.shape, self.rank);
        let sent = (0..shape.n).map(|to| shape.between(rank, to)).collect();
        let got = (0..shape.n).map(|from| shape.between(from, rank)).collect();
        [sent, got]
    }
}

/// A group of jobs.
fn group<'a, T: Value>(jobs: &'a mut [Job<T>], comm: &mut Communicator) -> Result<Group<'a>, Error> {
    let mut group = Group::new();
    for job in jobs {
        job.add(&mut group, comm)?;
    }
    Ok(group)
}

/// Runs jobs together.
pub(super) fn run_together<T: Value>(jobs: &mut [Job<T>], comm: &mut Communicator) -> Result<(), Error> {
    group(jobs, comm)?.run()
}

/// Jobs in a stream; what is not waited for is never freed.
pub(super) struct Launched<T> {
    jobs: ManuallyDrop<Vec<Job<T>>>,
    pending: Pending<()>,
}

impl<T: Value> Launched<T> {
    pub(super) fn new(
        mut jobs: Vec<Job<T>>,
        stream: &Stream,
        comm: &mut Communicator,
    ) -> Result<Self, Error> {
        let group = group(&mut jobs, comm)?;
        // SAFETY: `wait` alone touches or frees the buffers, when the result is there.
        let pending = unsafe { stream.launch(group) };
        let jobs = ManuallyDrop::new(jobs);
        Ok(Self { jobs, pending: pending? })
    }

    pub(super) fn wait(self) -> Result<Vec<Job<T>>, Error> {
        self.pending.wait()?;
        Ok(ManuallyDrop::into_inner(self.jobs))
    }
}
