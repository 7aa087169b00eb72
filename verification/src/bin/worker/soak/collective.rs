//! One collective of the soak: makes its buffers, calls it, checks every element of every buffer.

use super::data::{Guarded, Small, op, part, plain, reduced};
use ringccl::{Communicator, ReduceOp};

/// Kinds of calls; a number beyond is taken modulo.
pub(super) const KINDS: u64 = 18;

/// What is called, equal on all ranks of the communicator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) kind: u64,
    /// Tells the data of this call from that of all others.
    pub(super) key: u64,
    pub(super) count: usize,
    pub(super) root: usize,
    pub(super) op: u64,
}

impl Spec {
    /// Elements of rank `rank`'s block where blocks are uneven.
    fn uneven(&self, rank: usize) -> usize {
        self.count * ((self.key as usize % 1000 + rank * 5) % 7) / 3
    }

    /// Elements that `from` sends to `to` in an uneven exchange.
    fn between(&self, from: usize, to: usize) -> usize {
        self.count * ((self.key as usize % 1000 + from * 5 + to * 3) % 7) / 3
    }
}

pub(super) fn run<T: Small>(comm: &mut Communicator, spec: Spec) -> anyhow::Result<()> {
    match spec.kind % KINDS {
        0..=3 => whole::<T>(comm, spec),
        4..=7 => copied::<T>(comm, spec),
        8..=11 => blocks::<T>(comm, spec),
        12..=15 => scattered::<T>(comm, spec),
        16 => exchanged::<T>(comm, spec),
        _ => Ok(comm.barrier()?),
    }
}

/// All-reduce and reduce.
fn whole<T: Small>(comm: &mut Communicator, spec: Spec) -> anyhow::Result<()> {
    let Spec { key, count, root, .. } = spec;
    let (rank, n) = (comm.rank(), comm.nranks());
    let op: ReduceOp = op::<T>(spec.op, n);
    let mine = |at| part(op, key, rank, at, n);
    let result = |at| reduced(op, key, at, n);
    let mut send = Guarded::<T>::new(count, mine);
    match spec.kind {
        0 => {
            let mut recv = Guarded::<T>::blank(count);
            comm.all_reduce(send.get(), recv.get(), op)?;
            send.check(mine)?;
            recv.check(result)
        }
        1 => {
            comm.all_reduce_in_place(send.get(), op)?;
            send.check(result)
        }
        2 => {
            let mut recv = Guarded::<T>::blank(if rank == root { count } else { 0 });
            comm.reduce(send.get(), recv.get(), op, root)?;
            send.check(mine)?;
            recv.check(result)
        }
        _ => {
            comm.reduce_in_place(send.get(), op, root)?;
            send.check(|at| if rank == root { result(at) } else { mine(at) })
        }
    }
}

/// Broadcast and all-gather.
fn copied<T: Small>(comm: &mut Communicator, spec: Spec) -> anyhow::Result<()> {
    let Spec { key, count, root, .. } = spec;
    let (rank, n) = (comm.rank(), comm.nranks());
    let mut send = Guarded::<T>::new(count, |at| plain(key, rank, at));
    match spec.kind {
        4 => {
            comm.broadcast(send.get(), root)?;
            send.check(|at| plain(key, root, at))
        }
        5 => {
            let mut recv = Guarded::<T>::blank(count);
            comm.broadcast_from(send.get(), recv.get(), root)?;
            send.check(|at| plain(key, rank, at))?;
            recv.check(|at| plain(key, root, at))
        }
        6 => {
            let mut recv = Guarded::<T>::blank(n * count);
            comm.all_gather(send.get(), recv.get())?;
            send.check(|at| plain(key, rank, at))?;
            recv.check(|at| plain(key, at / count, at % count))
        }
        _ => {
            let own = |at: usize| if at / count == rank { plain(key, rank, at % count) } else { 7 };
            let mut all = Guarded::<T>::new(n * count, own);
            comm.all_gather_in_place(all.get())?;
            all.check(|at| plain(key, at / count, at % count))
        }
    }
}

/// Reduce-scatter and all-to-all.
fn blocks<T: Small>(comm: &mut Communicator, spec: Spec) -> anyhow::Result<()> {
    let Spec { key, count, .. } = spec;
    let (rank, n) = (comm.rank(), comm.nranks());
    let op: ReduceOp = op::<T>(spec.op, n);
    let mine = |at| part(op, key, rank, at, n);
    let mut recv = Guarded::<T>::blank(count);
    match spec.kind {
        8 => {
            let mut send = Guarded::<T>::new(n * count, mine);
            comm.reduce_scatter(send.get(), recv.get(), op)?;
            send.check(mine)?;
            recv.check(|at| reduced(op, key, rank * count + at, n))
        }
        9 => {
            let mut all = Guarded::<T>::new(n * count, mine);
            comm.reduce_scatter_in_place(all.get(), op)?;
            all.check(|at| if at / count == rank { reduced(op, key, at, n) } else { mine(at) })
        }
        kind => {
            // Element i of block `to` on rank `from`.
            let sent = |from: usize, to: usize, at: usize| plain(key, from, to * count + at);
            let mut send = Guarded::<T>::new(n * count, |at| plain(key, rank, at));
            if kind == 10 {
                let mut recv = Guarded::<T>::blank(n * count);
                comm.all_to_all(send.get(), recv.get())?;
                send.check(|at| plain(key, rank, at))?;
                recv.check(|at| sent(at / count, rank, at % count))
            } else {
                comm.all_to_all_in_place(send.get())?;
                send.check(|at| sent(at / count, rank, at % count))
            }
        }
    }
}

/// Gather, scatter and the uneven forms.
fn scattered<T: Small>(comm: &mut Communicator, spec: Spec) -> anyhow::Result<()> {
    let Spec { key, count, root, .. } = spec;
    let (rank, n) = (comm.rank(), comm.nranks());
    let counts: Vec<usize> = (0..n).map(|rank| spec.uneven(rank)).collect();
    let starts: Vec<usize> = (0..n).map(|rank| counts[..rank].iter().sum()).collect();
    let total: usize = counts.iter().sum();
    let all = if rank == root { n * count } else { 0 };
    match spec.kind {
        12 => {
            let mut send = Guarded::<T>::new(count, |at| plain(key, rank, at));
            let mut recv = Guarded::<T>::blank(all);
            comm.gather(send.get(), recv.get(), root)?;
            send.check(|at| plain(key, rank, at))?;
            recv.check(|at| plain(key, at / count, at % count))
        }
        13 => {
            let mut send = Guarded::<T>::new(all, |at| plain(key, root, at));
            let mut recv = Guarded::<T>::blank(count);
            comm.scatter(send.get(), recv.get(), root)?;
            send.check(|at| plain(key, root, at))?;
            recv.check(|at| plain(key, root, rank * count + at))
        }
        14 => {
            let mut send = Guarded::<T>::new(counts[rank], |at| plain(key, rank, at));
            let mut recv = Guarded::<T>::blank(total);
            comm.all_gather_v(send.get(), recv.get(), &counts)?;
            send.check(|at| plain(key, rank, at))?;
            recv.check(|at| {
                let from = (0..n).rev().find(|rank| starts[*rank] <= at && counts[*rank] > 0).unwrap_or(0);
                plain(key, from, at - starts[from])
            })
        }
        _ => {
            let op: ReduceOp = op::<T>(spec.op, n);
            let mut send = Guarded::<T>::new(total, |at| part(op, key, rank, at, n));
            let mut recv = Guarded::<T>::blank(counts[rank]);
            comm.reduce_scatter_v(send.get(), recv.get(), &counts, op)?;
            send.check(|at| part(op, key, rank, at, n))?;
            recv.check(|at| reduced(op, key, starts[rank] + at, n))
        }
    }
}

/// The uneven exchange, which consists of messages.
fn exchanged<T: Small>(comm: &mut Communicator, spec: Spec) -> anyhow::Result<()> {
    let (rank, n) = (comm.rank(), comm.nranks());
    let pair = |from: usize, to: usize, at: usize| plain(spec.key, from * n + to, at);
    let send_counts: Vec<usize> = (0..n).map(|to| spec.between(rank, to)).collect();
    let recv_counts: Vec<usize> = (0..n).map(|from| spec.between(from, rank)).collect();
    let places = |counts: &[usize]| -> Vec<(usize, usize)> {
        let each = counts.iter().enumerate();
        each.flat_map(|(peer, count)| (0..*count).map(move |at| (peer, at))).collect()
    };
    let (sent, got) = (places(&send_counts), places(&recv_counts));
    let mut send = Guarded::<T>::new(sent.len(), |at| pair(rank, sent[at].0, sent[at].1));
    let mut recv = Guarded::<T>::blank(got.len());
    comm.all_to_all_v(send.get(), &send_counts, recv.get(), &recv_counts)?;
    recv.check(|at| pair(got[at].0, rank, got[at].1))
}
