//! Messages of the soak: pairs, tags out of order, any source, and groups over several communicators.

use super::data::{Guarded, Small, part, plain, reduced};
use crate::draw::Draw;
use anyhow::ensure;
use ringccl::{Communicator, Group, ReduceOp};

/// One message from a rank of a communicator to another, or to itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tag: u32,
    pub(super) count: usize,
}

/// Tells a message's data from that of all others.
fn key(key: u64, message: Message) -> u64 {
    key ^ (u64::from(message.tag) << 32) ^ ((message.from * 64 + message.to) as u64)
}

pub(super) fn content<T: Small>(of: u64, message: Message) -> Guarded<T> {
    Guarded::new(message.count, |at| plain(key(of, message), message.from, at))
}

pub(super) fn check<T: Small>(of: u64, message: Message, got: &Guarded<T>) -> anyhow::Result<()> {
    got.check(|at| plain(key(of, message), message.from, at))
}

/// Several messages from one rank to another, with tags of their own, received in another order than they were sent.
pub(super) fn tagged<T: Small>(comm: &mut Communicator, draw: &mut Draw, most: usize) -> anyhow::Result<()> {
    let (rank, n) = (comm.rank(), comm.nranks());
    let of = draw.next();
    let (from, shift) = (draw.below(n), 1 + draw.below(n.max(2) - 1));
    let to = (from + shift) % n;
    let mut sent: Vec<Message> = (0..1 + draw.below(4) as u32)
        .map(|tag| Message { from, to, tag: 100 + tag, count: draw.count(most) })
        .collect();
    if to == from {
        return Ok(());
    }
    if rank == from {
        for message in &sent {
            comm.send_tagged(content::<T>(of, *message).get(), to, message.tag)?;
        }
    }
    draw.shuffle(&mut sent);
    if rank == to {
        for message in &sent {
            let mut got = Guarded::<T>::blank(message.count);
            ensure!(
                comm.recv_tagged(got.get(), Some(from), message.tag)? == from,
                "a message of another rank"
            );
            check(of, *message, &got)?;
        }
    }
    Ok(())
}

/// Every rank sends to one, which receives from any.
pub(super) fn any_source<T: Small>(
    comm: &mut Communicator,
    draw: &mut Draw,
    most: usize,
) -> anyhow::Result<()> {
    let (rank, n) = (comm.rank(), comm.nranks());
    let (of, to, count) = (draw.next(), draw.below(n), draw.count(most));
    // A number that no other receive waits for.
    let tag = 1000 + (of as u32 & 0xffff);
    if rank != to {
        let message = Message { from: rank, to, tag, count };
        comm.send_tagged(content::<T>(of, message).get(), to, tag)?;
    } else {
        let mut seen = vec![false; n];
        for _ in 1..n {
            let mut got = Guarded::<T>::blank(count);
            let from = comm.recv_tagged(got.get(), None, tag)?;
            ensure!(!std::mem::replace(&mut seen[from], true), "two messages of rank {from}");
            check(of, Message { from, to, tag, count }, &got)?;
        }
    }
    Ok(())
}

/// A group of each communicator that the rank belongs to: an all-reduce, and messages by a permutation.
pub(super) fn grouped<T: Small>(
    comms: &mut [(u64, Option<&mut Communicator>, usize)],
    rank: u32,
    most: usize,
) -> anyhow::Result<u64> {
    struct Part<T> {
        of: u64,
        sum: Guarded<T>,
        sent: (Message, Guarded<T>),
        got: (Message, Guarded<T>),
        /// Receive first.
        turned: bool,
    }
    let mut operations = 0;
    let mut parts: Vec<Option<Part<T>>> = Vec::new();
    for (of, comm, n) in comms.iter() {
        let mut draw = Draw::new(*of);
        let (shift, count) = (draw.below(*n), draw.count(most));
        let (len, turned) = (draw.count(most / 2), draw.below(3) + rank as usize);
        operations += 1 + *n as u64;
        parts.push(comm.as_ref().map(|comm| {
            let rank = comm.rank();
            let message =
                |from: usize| Message { from, to: (from + shift) % n, tag: 0, count: count * (1 + from) / n };
            let (sent, got) = (message(rank), message((rank + n - shift) % n));
            let sum = Guarded::new(len, |at| part(ReduceOp::Sum, *of, rank, at, *n));
            let sent = (sent, content(*of, sent));
            Part {
                of: *of,
                sum,
                sent,
                got: (got, Guarded::blank(got.count)),
                turned: turned.is_multiple_of(2),
            }
        }));
    }
    let mut group = Group::new();
    for ((_, comm, _), part) in comms.iter_mut().zip(&mut parts) {
        let (Some(comm), Some(part)) = (comm, part) else { continue };
        let (to, from) = (part.sent.0.to, part.got.0.from);
        if part.turned {
            group.recv(comm, part.got.1.get(), from)?.all_reduce_in_place(
                comm,
                part.sum.get(),
                ReduceOp::Sum,
            )?;
            group.send(comm, part.sent.1.get(), to)?;
        } else {
            group.all_reduce_in_place(comm, part.sum.get(), ReduceOp::Sum)?.send(
                comm,
                part.sent.1.get(),
                to,
            )?;
            group.recv(comm, part.got.1.get(), from)?;
        }
    }
    group.run()?;
    for ((of, _, n), part) in comms.iter().zip(&parts) {
        let Some(part) = part else { continue };
        part.sum.check(|at| reduced(ReduceOp::Sum, *of, at, *n))?;
        check(part.of, part.sent.0, &part.sent.1)?;
        check(part.of, part.got.0, &part.got.1)?;
    }
    Ok(operations)
}
