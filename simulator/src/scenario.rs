//! What one seed means: how many ranks, which calls, which machine, what goes wrong.

use crate::machine::{Blow, Fiber, Knobs, Mode, Policy, Start};
use crate::rng::Rng;
use ringccl::{Algorithm, Config, DType, Protocol, ReduceOp};
use std::time::Duration;

/// A call that every rank makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub kind: Kind,
    /// Type of the elements.
    pub dtype: DType,
    /// Elements.
    pub count: usize,
    /// Whether input and output are one buffer.
    pub in_place: bool,
}

/// The calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// All-reduce.
    AllReduce(ReduceOp),
    /// Broadcast from this rank.
    Broadcast(usize),
    /// Barrier.
    Barrier,
    /// Reduce to this rank.
    Reduce(ReduceOp, usize),
    /// All-gather; the count is that of one block, here and in those below.
    AllGather,
    /// Reduce-scatter.
    ReduceScatter(ReduceOp),
    /// All-to-all.
    AllToAll,
    /// Gather to this rank.
    Gather(usize),
    /// Scatter from this rank.
    Scatter(usize),
    /// All-gather of blocks of different lengths, see `model::counts`.
    AllGatherV,
    /// Reduce-scatter of such blocks.
    ReduceScatterV(ReduceOp),
}

impl Kind {
    /// The reduction, if there is one.
    pub fn op(self) -> Option<ReduceOp> {
        match self {
            Self::AllReduce(op)
            | Self::Reduce(op, _)
            | Self::ReduceScatter(op)
            | Self::ReduceScatterV(op) => Some(op),
            _ => None,
        }
    }

    /// The same kind with another reduction, if it has one.
    fn with_op(self, op: ReduceOp) -> Self {
        match self {
            Self::AllReduce(_) => Self::AllReduce(op),
            Self::Reduce(_, root) => Self::Reduce(op, root),
            Self::ReduceScatter(_) => Self::ReduceScatter(op),
            Self::ReduceScatterV(_) => Self::ReduceScatterV(op),
            other => other,
        }
    }
}

/// What the ranks do besides, between two calls: nothing of it can get stuck, however slow they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// A barrier of the second communicator.
    Barrier,
    /// An all-reduce of so many elements on the second communicator.
    Sum(usize),
    /// A message between two ranks, which the others do not wait for.
    Message {
        /// Whether it goes over the second communicator.
        second: bool,
        /// Who sends.
        from: usize,
        /// Who receives.
        to: usize,
        /// Elements.
        count: usize,
        /// Its tag.
        tag: u32,
    },
    /// Every rank sends so many elements to the next one and receives from the one before, at the same time.
    Around(usize),
    /// A group of collectives of both communicators and of messages by a permutation, in an order of each rank's own.
    Group(Mix),
    /// The same in streams: some of it in a group, some behind an event of another stream; looked at later.
    Streams {
        /// What is queued.
        mix: Mix,
        /// How many earlier results are left to look at.
        keep: usize,
    },
    /// One operation that some ranks queue in a stream while the others wait in it, so that a rank that goes on is
    /// waited for by one that it waits for, and yet comes.
    Either {
        /// The ranks, by bits, that queue it.
        queued: u64,
        /// Elements.
        count: usize,
        /// Who sends a message to the next rank; `None` for a reduction of the second communicator.
        from: Option<usize>,
    },
}

/// What is done at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Elements of the reduction, which is the second communicator's.
    pub sum: usize,
    /// Elements of the broadcast, and of each message.
    pub count: usize,
    /// The root of the broadcast; each rank sends to the one so far behind it, which may be itself.
    pub shift: usize,
    /// Whether the messages go over the second communicator.
    pub second: bool,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// A rank's process ends at one of its accesses.
    Death {
        /// The rank.
        rank: usize,
        /// At which access.
        step: u64,
        /// How long its end takes, in nanoseconds.
        known_after: u64,
        /// Another rank that dies, and at which access.
        second: Option<(usize, u64)>,
    },
    /// A rank does not run for a while, as after SIGSTOP.
    Stall {
        /// The rank.
        rank: usize,
        /// At which access.
        step: u64,
        /// How long, in nanoseconds.
        time: u64,
    },
    /// A rank begins late.
    Late {
        /// The rank.
        rank: usize,
        /// How late, in nanoseconds.
        time: u64,
    },
    /// Another thread of a rank's process ends the communicator.
    Abort {
        /// The rank.
        rank: usize,
        /// When.
        start: Start,
        /// A rank that begins so late, in nanoseconds, that the others sleep meanwhile.
        late: Option<(usize, u64)>,
    },
    /// A rank's program makes other calls than the others.
    Mismatch {
        /// The rank.
        rank: usize,
        /// The first call that differs.
        index: usize,
        /// How.
        change: Change,
    },
}

/// How a rank's calls differ from the others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It makes this call in place of the right one.
    Other(Call),
    /// It leaves the call out.
    Missing,
    /// It makes the call twice.
    Twice,
}

impl Call {
    /// Whether two ranks may make these calls as the same operation.
    pub fn matches(&self, other: &Self) -> bool {
        let barriers = self.kind == Kind::Barrier && other.kind == Kind::Barrier;
        barriers || (self.kind, self.dtype, self.count) == (other.kind, other.dtype, other.count)
    }
}

/// All that follows from a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed.
    pub seed: u64,
    /// Ranks.
    pub nranks: usize,
    /// Settings of the communicator.
    pub config: Config,
    /// What every rank calls, in order.
    pub calls: Vec<Call>,
    /// The machine.
    pub knobs: Knobs,
    /// What goes wrong.
    pub fault: Fault,
    /// What the ranks do besides, before each call and after the last; empty in most scenarios with a fault.
    pub others: Vec<Vec<Other>>,
    /// A rank that stops beside that, at which access, and for how many nanoseconds: never long enough to matter.
    pub pause: Option<(usize, u64, u64)>,
    /// A thread of a stream that stops: which of all, at which access, and for how many nanoseconds.
    pub servant: Option<(u64, u64, u64)>,
}

/// Nanoseconds of a millisecond.
pub const MS: u64 = 1_000_000;
/// Time limit of an operation in a scenario with a stall: longer than any operation takes in simulated time, shorter
/// than the long stalls.
const STALL_TIMEOUT: u64 = 1500 * MS;
/// Time limit of an operation in all others: nothing may ever come near it.
const TIMEOUT: u64 = 60_000 * MS;

impl Scenario {
    /// The scenario of `seed`.
    pub fn new(seed: u64, mode: Mode) -> Self {
        let mut rng = Rng::new(seed, 1);
        let nranks = rng.pick(&[2, 2, 3, 3, 4, 5]);
        let mut fault = fault(&mut rng, nranks);
        let mut config = Config::new(nranks as u32);
        config.chunk_bytes = rng.pick(&[64, 128, 256]);
        config.channels = rng.pick(&[1, 1, 2, 3]);
        if rng.below(2) == 0 {
            config.algorithm = Some(rng.pick(&Algorithm::ALL));
        }
        if rng.below(2) == 0 {
            config.protocol = Some(rng.pick(&Protocol::ALL));
        }
        // More calls than a journal has entries, now and then; what differs must still be on record.
        let many = rng.below(8) == 0 && !matches!(fault, Fault::Mismatch { .. });
        let most = if many { 40 } else { 10 };
        let calls: Vec<Call> = (0..1 + rng.below(most)).map(|_| call(&mut rng, nranks)).collect();
        if let Fault::Mismatch { index, change, .. } = &mut fault {
            *index = rng.below(calls.len() as u64) as usize;
            *change = different(&mut rng, &calls[*index], nranks);
        }
        let knobs = Knobs::random(&mut Rng::new(seed, 2), mode, nranks);
        let pause =
            (rng.below(5) == 0).then(|| (rng.below(nranks as u64) as usize, rng.scale(12), rng.scale(27)));
        let others = others(&mut Rng::new(seed, 4), nranks, calls.len(), &fault);
        // What waits behind many others on a slow machine takes longer than a long stall.
        let stalls = matches!(fault, Fault::Stall { .. }) && others.is_empty();
        config.timeout = Duration::from_nanos(if stalls { STALL_TIMEOUT } else { TIMEOUT });
        let mut scenario = Self { seed, nranks, config, calls, knobs, fault, others, pause, servant: None };
        if scenario.mixes() > 0 {
            let mut rng = Rng::new(seed, 5);
            // Mostly long enough to be suspicious.
            let time = if rng.below(3) == 0 { rng.scale(27) } else { 10 * MS + rng.below(120 * MS) };
            scenario.servant = (rng.below(3) != 0).then(|| (rng.below(nranks as u64), rng.scale(10), time));
            if let Policy::Lame { fiber, .. } = &mut scenario.knobs.policy
                && rng.below(2) == 0
            {
                // The threads of streams come behind the ranks.
                *fiber += nranks;
            }
        }
        scenario
    }

    /// What a rank calls. Its values follow from the call's place in this list: two ranks that differ before agree on
    /// the values of an operation that they call alike.
    pub fn calls_of(&self, rank: usize) -> Vec<Call> {
        let mut calls = self.calls.clone();
        match self.fault {
            Fault::Mismatch { rank: culprit, index, change } if culprit == rank => match change {
                Change::Other(call) => calls[index] = call,
                Change::Missing => drop(calls.remove(index)),
                Change::Twice => calls.insert(index, calls[index]),
            },
            _ => {}
        }
        calls
    }

    /// The number, from 1, of the first operation in which the calls of the culprit differ from the others'.
    pub fn first_difference(&self) -> Option<u64> {
        let Fault::Mismatch { rank, .. } = self.fault else { return None };
        let (wrong, right) = (self.calls_of(rank), self.calls_of((rank + 1) % self.nranks));
        let same = wrong.iter().zip(&right).take_while(|(a, b)| a.matches(b));
        // Finalize is an operation, too.
        Some(same.count() as u64 + 1)
    }

    /// The random numbers of the machine.
    pub fn machine_rng(&self) -> Rng {
        Rng::new(self.seed, 3)
    }

    /// The ranks' fibers, and that of the aborting thread if there is one.
    pub fn fibers(&self) -> Vec<Fiber> {
        let mut fibers: Vec<Fiber> = (0..self.nranks).map(|rank| self.fiber(rank)).collect();
        if let Fault::Abort { start, .. } = self.fault {
            fibers.push(Fiber::new(start, None, false));
        }
        fibers
    }

    fn fiber(&self, rank: usize) -> Fiber {
        let paused = self.pause.filter(|(r, ..)| *r == rank);
        let pause = paused.map(|(_, step, time)| (step, Blow::Stall(time)));
        let (start, blow) = match self.fault {
            Fault::Death { rank: r, step, known_after, .. } if r == rank => {
                (0, Some((step, Blow::Death { known_after })))
            }
            Fault::Death { second: Some((r, step)), known_after, .. } if r == rank => {
                (0, Some((step, Blow::Death { known_after })))
            }
            Fault::Stall { rank: r, step, time } if r == rank => (0, Some((step, Blow::Stall(time)))),
            Fault::Late { rank: r, time } | Fault::Abort { late: Some((r, time)), .. } if r == rank => {
                (time, pause)
            }
            _ => (0, pause),
        };
        Fiber::new(Start::At(start), blow, true)
    }

    /// How many groups are run, at once or in streams, and what else is queued there.
    pub fn mixes(&self) -> u64 {
        let is_mix =
            |other: &&Other| matches!(other, Other::Group(_) | Other::Streams { .. } | Other::Either { .. });
        self.others.iter().flatten().filter(is_mix).count() as u64
    }

    /// Whether a stall is longer than an operation may take.
    pub fn stalls_too_long(&self) -> bool {
        matches!(self.fault, Fault::Stall { time, .. } if time > STALL_TIMEOUT / 2)
    }
}

fn fault(rng: &mut Rng, nranks: usize) -> Fault {
    let rank = rng.below(nranks as u64) as usize;
    let step = rng.scale(12);
    let (known_after, short, long) = (rng.below(5 * MS), rng.scale(27), 1600 * MS + rng.below(900 * MS));
    match rng.below(20) {
        0..8 => Fault::None,
        8..12 => {
            let other = (rank + 1 + rng.below(nranks as u64 - 1) as usize) % nranks;
            let second = (nranks > 2 && rng.below(4) == 0).then(|| (other, rng.scale(12)));
            Fault::Death { rank, step, known_after, second }
        }
        12..14 => Fault::Stall { rank, step, time: short },
        14 => Fault::Stall { rank, step, time: long },
        15 => Fault::Late { rank, time: short },
        16 => Fault::Abort { rank, start: Start::After(rng.scale(14)), late: None },
        17 => {
            let other = rng.below(nranks as u64) as usize;
            Fault::Abort { rank, start: Start::At(1 + rng.below(short)), late: Some((other, short)) }
        }
        // Which call differs, and how, is decided when there are calls.
        _ => Fault::Mismatch { rank, index: 0, change: Change::Missing },
    }
}

/// What is done besides `calls` calls, where nothing goes wrong but the speed.
fn others(rng: &mut Rng, nranks: usize, calls: usize, fault: &Fault) -> Vec<Vec<Other>> {
    let is_slow = match *fault {
        Fault::None | Fault::Late { .. } => true,
        Fault::Stall { time, .. } => time < STALL_TIMEOUT / 2,
        Fault::Death { .. } | Fault::Abort { .. } | Fault::Mismatch { .. } => false,
    };
    if !is_slow || rng.below(3) == 0 {
        return Vec::new();
    }
    let before = |rng: &mut Rng| (0..rng.below(3)).map(|_| other(rng, nranks)).collect();
    (0..calls.min(8) + 1).map(|_| before(rng)).collect()
}

fn other(rng: &mut Rng, nranks: usize) -> Other {
    let count = match rng.below(4) {
        0 => rng.below(8),
        1 | 2 => rng.below(100),
        _ => rng.below(1500),
    } as usize;
    let mix = |rng: &mut Rng| Mix {
        sum: count % 200,
        count: rng.below(300) as usize,
        shift: rng.below(nranks as u64) as usize,
        second: rng.below(2) == 0,
    };
    match rng.below(11) {
        0 => Other::Barrier,
        9 | 10 => Other::Either {
            queued: rng.below(1 << nranks),
            count: count % 400,
            from: (rng.below(2) == 0).then(|| rng.below(nranks as u64) as usize),
        },
        1 => Other::Sum(count % 200),
        2 => Other::Around(count),
        3 => Other::Group(mix(rng)),
        4 | 5 => Other::Streams { mix: mix(rng), keep: rng.below(6) as usize },
        _ => {
            let from = rng.below(nranks as u64) as usize;
            let to = (from + 1 + rng.below(nranks as u64 - 1) as usize) % nranks;
            Other::Message { second: rng.below(2) == 0, from, to, count, tag: rng.below(2) as u32 }
        }
    }
}

fn call(rng: &mut Rng, nranks: usize) -> Call {
    let (op, root) = (rng.pick(&ReduceOp::BUILTIN), rng.below(nranks as u64) as usize);
    let kind = match rng.below(16) {
        0..5 => Kind::AllReduce(op),
        5 | 6 => Kind::Broadcast(root),
        7 => Kind::Barrier,
        8 => Kind::Reduce(op, root),
        9 => Kind::AllGather,
        10 => Kind::ReduceScatter(op),
        11 => Kind::AllToAll,
        12 => Kind::Gather(root),
        13 => Kind::Scatter(root),
        14 => Kind::AllGatherV,
        _ => Kind::ReduceScatterV(op),
    };
    let count = match rng.below(8) {
        0 => 0,
        1 => 1,
        2..5 => rng.below(16),
        5..7 => rng.below(80),
        _ => rng.below(300),
    } as usize;
    let dtype = rng.pick(&DType::ALL);
    // Averages of floats are exact only where the number of ranks is a power of two.
    let inexact = dtype.is_float() && !nranks.is_power_of_two();
    let kind = if inexact && op == ReduceOp::Avg { kind.with_op(ReduceOp::Sum) } else { kind };
    Call { kind, dtype, count, in_place: rng.below(2) == 0 }
}

/// A change of `call` that makes a difference.
fn different(rng: &mut Rng, right: &Call, nranks: usize) -> Change {
    let one_field = |rng: &mut Rng| {
        let mut other = *right;
        match rng.below(4) {
            0 => other.count = right.count / 2,
            1 => other.count = right.count + 1,
            2 => other.dtype = rng.pick(&DType::ALL),
            _ => other.kind = call(rng, nranks).kind,
        }
        other
    };
    match rng.below(6) {
        0 => Change::Missing,
        1 => Change::Twice,
        2 | 3 => {
            let other = one_field(rng);
            if other.matches(right) { Change::Missing } else { Change::Other(other) }
        }
        _ => {
            let other = call(rng, nranks);
            if other.matches(right) { Change::Twice } else { Change::Other(other) }
        }
    }
}
