//! What a rank does besides the calls: messages, a second communicator, groups, streams.

use super::{MOST, Told};
use crate::rng::scramble;
use crate::scenario::{Mix, Other, Scenario};
use ringccl::{Communicator, Error, Group, Pending, Stream};
use std::collections::VecDeque;

/// Looks at a result once it is there.
type Check = Box<dyn FnOnce() -> Told>;

/// A rank's second communicator, its streams, and the results that it has not looked at.
pub(super) struct Besides {
    second: Communicator,
    /// Two, once they are needed.
    streams: Vec<Stream>,
    checks: VecDeque<Check>,
}

/// Element `i` of what a rank sends in what is done besides as number `number`.
fn letter(number: usize, rank: usize, i: usize) -> u64 {
    scramble((number as u64) << 40 | (rank as u64) << 32 | i as u64)
}

fn letters(number: usize, by: usize, count: usize) -> Vec<u64> {
    (0..count).map(|i| letter(number, by, i)).collect()
}

/// What the reduction of such letters gives.
fn reduced(number: usize, nranks: usize, count: usize) -> Vec<u64> {
    let most = |i: usize| (0..nranks).map(|by| letter(number, by, i)).max().unwrap_or(0);
    (0..count).map(most).collect()
}

/// What a rank has of a [`Mix`]: whom its message goes to, whose it gets, its buffers and what they must hold.
struct Part {
    number: usize,
    to: usize,
    from: usize,
    sum: Vec<u64>,
    root: Vec<u64>,
    sent: Vec<u64>,
    got: Vec<u64>,
    wanted: [Vec<u64>; 4],
}

impl Part {
    fn new(number: usize, mix: &Mix, rank: usize, nranks: usize) -> Self {
        let Mix { sum, count, shift, .. } = *mix;
        let (to, from) = ((rank + shift) % nranks, (rank + nranks - shift) % nranks);
        // Each rank's message has a length of its own.
        let len = |by: usize| count * (1 + by) / nranks;
        let sent = letters(number, rank, len(rank));
        let wanted = [
            reduced(number, nranks, sum),
            letters(number, shift, count),
            sent.clone(),
            letters(number, from, len(from)),
        ];
        let (got, root) = (vec![77; len(from)], letters(number, rank, count));
        Self { number, to, from, sum: letters(number, rank, sum), root, sent, got, wanted }
    }

    fn check(&self) -> Result<(), String> {
        let found = [&self.sum, &self.root, &self.sent, &self.got];
        let wrong = found.into_iter().zip(&self.wanted).position(|(found, wanted)| found != wanted);
        wrong.map_or(Ok(()), |which| {
            let what =
                ["reduction", "broadcast", "message that was sent", "message that was received"][which];
            Err(format!("what is done besides as number {}: the {what} is wrong", self.number))
        })
    }
}

impl Besides {
    pub(super) fn new(second: Communicator) -> Self {
        Self { second, streams: Vec::new(), checks: VecDeque::new() }
    }

    /// Does what the scenario has before call number `index`.
    pub(super) fn before(&mut self, scenario: &Scenario, index: usize, comm: &mut Communicator) -> Told {
        let others = scenario.others.get(index).map_or(&[][..], Vec::as_slice);
        for (at, other) in others.iter().enumerate() {
            if let Err(error) = self.one(*other, index << 8 | at, comm)? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// Does what comes behind the last call, looks at all results and leaves both communicators.
    pub(super) fn end(mut self, scenario: &Scenario, index: usize, mut comm: Communicator) -> Told {
        if let Err(error) = self.before(scenario, index, &mut comm)? {
            return Ok(Err(error));
        }
        if let Err(error) = self.check_all_but(0)? {
            return Ok(Err(error));
        }
        self.streams.clear();
        Ok(comm.finalize().and_then(|()| self.second.finalize()))
    }

    fn one(&mut self, other: Other, number: usize, comm: &mut Communicator) -> Told {
        let (rank, nranks) = (comm.rank(), comm.nranks());
        let second = &mut self.second;
        let (outcome, got, want) = match other {
            Other::Barrier => return Ok(second.barrier()),
            Other::Sum(count) => {
                let mut buffer = letters(number, rank, count);
                let outcome = second.all_reduce_in_place(&mut buffer, MOST);
                (outcome, buffer, reduced(number, nranks, count))
            }
            Other::Message { second: over, from, to, count, tag } => {
                let comm = if over { second } else { comm };
                if rank == from {
                    return Ok(comm.send_tagged(&letters(number, from, count), to, tag));
                }
                if rank != to {
                    return Ok(Ok(()));
                }
                let mut buffer = vec![77; count];
                let outcome = comm.recv_tagged(&mut buffer, Some(from), tag).map(|_| ());
                (outcome, buffer, letters(number, from, count))
            }
            Other::Around(count) => {
                let before = (rank + nranks - 1) % nranks;
                let mut buffer = vec![77; count];
                let sent = letters(number, rank, count);
                let outcome = comm.send_recv(&sent, (rank + 1) % nranks, &mut buffer, before);
                (outcome, buffer, letters(number, before, count))
            }
            Other::Group(mix) => return self.group(number, &mix, comm),
            Other::Streams { mix, keep } => {
                if let Err(error) = self.queue(number, &mix, comm) {
                    return Ok(Err(error));
                }
                return self.check_all_but(keep);
            }
            Other::Either { queued, count, from } => {
                let is_queued = queued >> rank & 1 == 1;
                return match from {
                    None => self.either_sum(number, count, is_queued, rank, nranks),
                    Some(from) => self.either_message(number, count, is_queued, from, comm),
                };
            }
        };
        if outcome.is_ok() && got != want {
            return Err(format!("rank {rank}: {other:?}, number {number}: what was received is wrong"));
        }
        Ok(outcome)
    }

    /// All of a mix in one group.
    fn group(&mut self, number: usize, mix: &Mix, comm: &mut Communicator) -> Told {
        let rank = comm.rank();
        let mut part = Part::new(number, mix, rank, comm.nranks());
        let outcome = add(&mut part, mix, rank, comm, &mut self.second).and_then(Group::run);
        if outcome.is_ok() {
            part.check()?;
        }
        Ok(outcome)
    }

    /// A reduction of the second communicator, queued in a stream or waited for.
    fn either_sum(
        &mut self,
        number: usize,
        count: usize,
        is_queued: bool,
        rank: usize,
        nranks: usize,
    ) -> Told {
        let (mut sum, wanted) = (letters(number, rank, count), reduced(number, nranks, count));
        if is_queued {
            let [first, _] = streams(&mut self.streams);
            let pending = match first.all_reduce(&mut self.second, sum, MOST) {
                Ok(pending) => pending,
                Err(error) => return Ok(Err(error)),
            };
            self.checks.push_back(expect(number, rank, pending, wanted));
            return Ok(Ok(()));
        }
        let outcome = self.second.all_reduce_in_place(&mut sum, MOST);
        told(number, rank, outcome.map(|()| sum), &wanted)
    }

    /// A message to the next rank, of which each end is queued or waited for.
    fn either_message(
        &mut self,
        number: usize,
        count: usize,
        is_queued: bool,
        from: usize,
        comm: &mut Communicator,
    ) -> Told {
        let (rank, to) = (comm.rank(), (from + 1) % comm.nranks());
        let wanted = letters(number, from, count);
        let [first, other] = streams(&mut self.streams);
        let pending = match is_queued {
            true if rank == from => first.send(comm, wanted.clone(), to),
            true if rank == to => other.recv(comm, vec![77; count], from),
            false if rank == from => return Ok(comm.send(&wanted, to)),
            false if rank == to => {
                let mut got = vec![77; count];
                let outcome = comm.recv(&mut got, from);
                return told(number, rank, outcome.map(|()| got), &wanted);
            }
            _ => return Ok(Ok(())),
        };
        match pending {
            Ok(pending) => self.checks.push_back(expect(number, rank, pending, wanted)),
            Err(error) => return Ok(Err(error)),
        }
        Ok(Ok(()))
    }

    /// A mix in streams: the reduction in one; the rest behind it in the other, as a group or one by one.
    fn queue(&mut self, number: usize, mix: &Mix, comm: &mut Communicator) -> Result<(), Error> {
        let (rank, nranks) = (comm.rank(), comm.nranks());
        let mut part = Part::new(number, mix, rank, nranks);
        let [first, other] = streams(&mut self.streams);
        if number.is_multiple_of(2) {
            let group = add(&mut part, mix, rank, comm, &mut self.second)?;
            // SAFETY: the check keeps the part's buffers, untouched, until the result is there; after an error the
            // run is over.
            let pending = unsafe { first.launch(group)? };
            self.checks.push_back(Box::new(move || match pending.wait() {
                Ok(()) => part.check().map(Ok),
                Err(error) => {
                    // Where it failed, others may still read or write.
                    std::mem::forget(part);
                    Ok(Err(error))
                }
            }));
            return Ok(());
        }
        let Part { to, from, sum, root, sent, got, wanted, .. } = part;
        let [wanted_sum, wanted_root, wanted_sent, wanted_got] = wanted;
        let sum = first.all_reduce(&mut self.second, sum, MOST)?;
        other.wait_for(&first.record()?)?;
        let root = other.broadcast(comm, root, mix.shift)?;
        let over = if mix.second { &mut self.second } else { comm };
        // Neither keeps the other waiting, whatever comes first.
        let sent = first.send(over, sent, to)?;
        let got = other.recv(over, got, from)?;
        for (pending, wanted) in
            [(sum, wanted_sum), (root, wanted_root), (sent, wanted_sent), (got, wanted_got)]
        {
            self.checks.push_back(expect(number, rank, pending, wanted));
        }
        Ok(())
    }

    /// Looks at results until only `keep` are left.
    fn check_all_but(&mut self, keep: usize) -> Told {
        while self.checks.len() > keep
            && let Some(check) = self.checks.pop_front()
        {
            if let Err(error) = check()? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }
}

/// A rank's two streams, which are made when they are first needed.
fn streams(all: &mut Vec<Stream>) -> [&Stream; 2] {
    while all.len() < 2 {
        all.push(Stream::new());
    }
    [&all[0], &all[1]]
}

fn expect(number: usize, rank: usize, pending: Pending<Vec<u64>>, wanted: Vec<u64>) -> Check {
    Box::new(move || told(number, rank, pending.wait(), &wanted))
}

fn told(number: usize, rank: usize, outcome: Result<Vec<u64>, Error>, wanted: &[u64]) -> Told {
    match outcome {
        Ok(got) if got == wanted => Ok(Ok(())),
        Ok(_) => Err(format!("rank {rank}: the result of what is done besides as number {number} is wrong")),
        Err(error) => Ok(Err(error)),
    }
}

/// A group of all of a mix: collectives in the order that all ranks have, messages before, between or behind them.
fn add<'a>(
    part: &'a mut Part,
    mix: &Mix,
    rank: usize,
    comm: &mut Communicator,
    second: &mut Communicator,
) -> Result<Group<'a>, Error> {
    let Part { number, to, from, sum, root, sent, got, .. } = part;
    let mut messages = Group::new();
    let over = if mix.second { &mut *second } else { &mut *comm };
    if (rank + *number / 2).is_multiple_of(2) {
        messages.send(over, sent, *to)?.recv(over, got, *from)?;
    } else {
        messages.recv(over, got, *from)?.send(over, sent, *to)?;
    }
    let mut parts = [None, None, None];
    parts[(rank + *number) % 3] = Some(messages);
    let [before, between, behind] = parts.map(Option::unwrap_or_default);
    let mut group = before;
    group.all_reduce_in_place(second, sum, MOST)?;
    group.append(between);
    group.broadcast(comm, root, mix.shift)?;
    group.append(behind);
    Ok(group)
}
