//! The prices of a communicator's collectives, taken as they end.
//!
//! An operation is priced once for all that repeat it: equal ones in a row are counted, and booked on the links
//! together, after 64 at the latest. Operations below 64 KiB are sampled: only one in 64 looks when the others began,
//! and in between a rank goes on from its own time. `model/instructions.rs` among the tests counts what is left.

use super::ask::Asked;
use super::clock;
use super::estimate::{Head, Hop, line};
use super::ledger::{Ledger, Summary};
use super::log::{self, Part};
use super::world::World;
use super::{Pace, PlanSource};
use crate::config::Config;
use crate::plan::{Call, Kind};
use crate::reduce::{DType, ReduceOp};
use coordinator_lite::Member;
use shmring::layout::MemberRecord;
use shmring::segment::Segment;
use std::sync::Arc;
use std::time::{Duration, Instant};
use topo::links::{Booked, Exchange, Group, Price};
use topo::nccl::tuner::{Collective, Operation};

/// Bytes from which every operation is priced by itself.
const SAMPLED_BELOW: u64 = 64 << 10;
/// Of smaller ones, how many go by between two looks at the others; operations that are booked at once at most.
const SAMPLE: u64 = 64;
/// Prices that are kept.
const KEPT: usize = 8;

/// What an operation is to the model.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Modelled {
    /// NCCL has a choice.
    Tuned(Operation),
    /// Blocks that go straight to their ranks, by the bytes of all of them.
    Exchange(Exchange, u64),
}

/// Its price.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Priced {
    Tuned(Price),
    Exchange(Exchange, u64, f64),
    /// A ring over the file's fabric, in us.
    Ring(f64),
    /// The model cannot run it.
    Nothing,
}

impl Priced {
    fn us(&self) -> f64 {
        match self {
            Self::Tuned(price) => price.predicted_us,
            Self::Exchange(.., us) | Self::Ring(us) => *us,
            Self::Nothing => 0.0,
        }
    }
}

/// Equal operations one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    what: Modelled,
    priced: Priced,
    us: f64,
    times: u64,
}

/// The meter of one rank in one communicator.
#[derive(Debug)]
pub(crate) struct Meter {
    world: Arc<World>,
    group: Option<Arc<Group>>,
    ring: Hop,
    place: (u32, u32),
    ledger: Arc<Ledger>,
    /// Which of the world's links each of the group's is.
    links: Vec<usize>,
    booked: Vec<Booked>,
    plan: PlanSource,
    pace: Option<Pace>,
    limit: Duration,
    kept: [Option<(Modelled, Priced)>; KEPT],
    next: usize,
    run: Option<Run>,
    /// Of what runs: when it began here, in model time and in real time, and whether the others are looked at.
    own_ns: f64,
    began: Option<Instant>,
    looks: bool,
    /// When it ends in model time, once that is known, and until when it is held back.
    end_ns: Option<f64>,
    due: Option<Instant>,
    is_settled: bool,
}

impl Meter {
    /// The meter of rank `rank` among `members`; `None` if nothing is modelled.
    pub(crate) fn of(config: &Config, members: &[Member], rank: u32) -> Option<Box<Self>> {
        let world = Arc::clone(config.cluster.as_ref()?);
        let nranks = members.len() as u32;
        if nranks < 2 {
            return None;
        }
        let ranks = world.ranks_of(members)?;
        let group = world.group(&ranks);
        let ledger = Ledger::of(&world, ranks[rank as usize]);
        let all = world.links();
        let place = |name: &str| all.iter().position(|link| link.name == name);
        let links: Vec<usize> = group.as_ref().map_or(Vec::new(), |group| {
            group.links().iter().map(|link| place(&link.name).unwrap_or(all.len() - 1)).collect()
        });
        if let Some(group) = group.as_ref().filter(|_| rank == 0 && log::is_on()) {
            let head = Head::of(group);
            log::say(Part::Init, ranks[0], &head.init);
            log::say(Part::Graph, ranks[0], &head.graphs);
            log::say(Part::Tuning, ranks[0], &head.table);
        }
        Some(Box::new(Self {
            ring: Hop::of(&world),
            booked: vec![Booked::default(); links.len()],
            place: (rank, nranks),
            plan: config.plan,
            pace: config.pace,
            limit: config.timeout,
            kept: [None; KEPT],
            next: 0,
            run: None,
            own_ns: 0.0,
            began: None,
            looks: false,
            end_ns: None,
            due: None,
            is_settled: false,
            world,
            group,
            ledger,
            links,
        }))
    }

    /// Operation `seqno` begins here.
    #[inline]
    pub(crate) fn begin(&mut self, record: &MemberRecord, seqno: u64, bytes: usize) {
        self.end_ns = None;
        self.due = None;
        self.looks = bytes as u64 >= SAMPLED_BELOW || seqno.is_multiple_of(SAMPLE) || self.pace.is_some();
        if !self.looks {
            return;
        }
        self.own_ns = match self.pace {
            None => self.ledger.clock.now_ns(),
            Some(pace) => {
                self.began = Some(Instant::now());
                // All ranks of a host have the same clock.
                monotonic_ns() / pace.factor()
            }
        };
        clock::begins(record, seqno, self.own_ns);
    }

    /// Whether what runs is held back after its last byte has moved: its modelled time is not over.
    pub(crate) fn is_early(&mut self, segment: &Segment, seqno: u64, call: &Call) -> bool {
        let Some(pace) = self.pace.filter(|_| !self.is_settled) else { return false };
        let due = match self.due {
            Some(due) => due,
            None => {
                let end = self.end(segment, seqno, call);
                let real =
                    Duration::from_secs_f64(((end - self.own_ns) * pace.factor() / 1e9).clamp(0.0, 1e6));
                // No operation takes longer than its time limit, whatever the model says.
                let due = self.began.unwrap_or_else(Instant::now) + real.min(self.limit);
                *self.due.insert(due)
            }
        };
        Instant::now() < due
    }

    /// Until when what runs is held back, once [`Meter::is_early`] has said so.
    #[inline]
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The operation has ended: its price goes to the clock and to the links.
    #[inline]
    pub(crate) fn finish(&mut self, segment: &Segment, seqno: u64, call: &Call) {
        if self.is_settled {
            return;
        }
        if self.looks {
            let end = self.end(segment, seqno, call);
            let taken = end - self.own_ns;
            let clock = &self.ledger.clock;
            match self.pace {
                None => clock.set_ns(clock.now_ns().max(end)),
                Some(_) => clock.set_ns(clock.now_ns() + taken),
            }
        } else {
            let us = self.price(call).us;
            let clock = &self.ledger.clock;
            clock.set_ns(clock.now_ns() + us * 1e3);
        }
        if let Some(run) = &mut self.run {
            run.times += 1;
            if run.times >= SAMPLE {
                self.book();
            }
        }
        if self.place.0 == 0 && log::says(Part::Tuning) {
            self.say(call);
        }
        self.due = None;
    }

    /// When what runs ends in model time.
    fn end(&mut self, segment: &Segment, seqno: u64, call: &Call) -> f64 {
        if let Some(end) = self.end_ns {
            return end;
        }
        let us = self.price(call).us;
        let begun = clock::begun(segment, self.place, (seqno, call.kind), self.own_ns);
        *self.end_ns.insert(begun + us * 1e3)
    }

    /// The run of operations that this one belongs to.
    #[inline]
    fn price(&mut self, call: &Call) -> Run {
        let what = modelled(call, self.place.1);
        match self.run {
            Some(run) if run.what == what => run,
            _ => self.begin_run(what),
        }
    }

    #[cold]
    fn begin_run(&mut self, what: Modelled) -> Run {
        self.book();
        let priced = self.priced(what);
        let us = priced.us();
        *self.run.insert(Run { what, priced, us, times: 0 })
    }

    fn priced(&mut self, what: Modelled) -> Priced {
        if let Some((_, priced)) = self.kept.iter().flatten().find(|(known, _)| *known == what) {
            return *priced;
        }
        let nranks = self.place.1;
        let priced = match (what, &self.group) {
            (Modelled::Tuned(operation), Some(group)) => {
                group.computed(operation).map_or(Priced::Nothing, Priced::Tuned)
            }
            (Modelled::Exchange(exchange, bytes), Some(group)) => group
                .exchange_us(exchange, bytes)
                .map_or(Priced::Nothing, |us| Priced::Exchange(exchange, bytes, us)),
            (Modelled::Tuned(operation), None) => {
                Priced::Ring(self.ring.ring_us(nranks, operation.bytes as f64, operation.collective))
            }
            (Modelled::Exchange(_, bytes), None) => {
                Priced::Ring(self.ring.ring_us(nranks, bytes as f64, Collective::AllGather))
            }
        };
        self.kept[self.next] = Some((what, priced));
        self.next = (self.next + 1) % KEPT;
        priced
    }

    /// Books the operations since the last time. Those of a communicator are booked by its first rank, for all.
    fn book(&mut self) {
        let Some(run) = &mut self.run else { return };
        let (priced, times) = (run.priced, std::mem::take(&mut run.times));
        if times == 0 || self.place.0 != 0 {
            return;
        }
        let mut sums = shmring::sync::lock(&self.ledger.sums);
        if let Some(group) = &self.group {
            self.booked.fill(Booked::default());
            match &priced {
                Priced::Tuned(price) => group.book(price, times, &mut self.booked),
                Priced::Exchange(exchange, bytes, _) => {
                    group.book_exchange(*exchange, *bytes, times, &mut self.booked);
                }
                Priced::Ring(_) | Priced::Nothing => {}
            }
            for (link, booked) in self.links.iter().zip(&self.booked) {
                if let Some(sum) = sums.links.get_mut(*link) {
                    sum.bytes += booked.bytes;
                    sum.busiest_bytes += booked.busiest_bytes;
                    sum.busy_us += booked.busy_us;
                }
            }
        }
        match priced {
            Priced::Nothing => sums.unpriced += times,
            _ => sums.operations += times,
        }
        sums.predicted_us += priced.us() * times as f64;
        if let Priced::Tuned(price) = priced {
            sums.tuner_us += f64::from(price.tuner_us) * times as f64;
        }
    }

    /// Leaves everything where a report finds it.
    pub(crate) fn settle(&mut self, record: &MemberRecord) {
        self.book();
        // What leaving takes is neither delayed nor booked.
        self.is_settled = true;
        clock::publish(record, self.ledger.clock.now_ns());
    }

    /// This rank's sums, to be added to those of the others; empty unless the communicator has all ranks of the file.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let is_whole = self.place.1 == self.world.cluster().world_size();
        if is_whole { self.ledger.numbers() } else { Vec::new() }
    }

    /// What a report says, from everybody's numbers, or from this rank's where these are missing.
    pub(crate) fn summary(&self, numbers: &[f64]) -> Summary {
        let own = self.ledger.numbers();
        let numbers = if numbers.len() == own.len() { numbers } else { &own };
        let is_planned = self.plan == PlanSource::Model;
        Summary::of(&self.world, is_planned, self.pace.map(Pace::factor), numbers)
    }

    /// What the host runs an operation with, if it is to run the model's plan and the model has one.
    pub(crate) fn asked(&mut self, call: &Call) -> Option<Asked> {
        if self.plan != PlanSource::Model || call.kind == Kind::Barrier {
            return None;
        }
        let Modelled::Tuned(operation) = modelled(call, self.place.1) else { return None };
        let price = self.group.as_ref()?.computed(operation).ok()?;
        Some(Asked::of(&price, call.kind))
    }

    #[cold]
    fn say(&self, call: &Call) {
        let (Some(group), Modelled::Tuned(operation)) = (&self.group, modelled(call, self.place.1)) else {
            return;
        };
        log::say(Part::Tuning, 0, line(group, operation).as_slice());
    }
}

/// What an operation is to the model; a barrier is an all-reduce of one element, as PyTorch has it on NCCL.
#[inline]
fn modelled(call: &Call, nranks: u32) -> Modelled {
    let bytes = call.bytes(nranks) as u64;
    let collective = match call.kind {
        Kind::AllReduce => Collective::AllReduce,
        Kind::Barrier => return Modelled::Tuned(Operation::new(Collective::AllReduce, 4)),
        Kind::Broadcast { .. } => Collective::Broadcast,
        Kind::Reduce { .. } => Collective::Reduce,
        Kind::AllGather | Kind::AllGatherV => Collective::AllGather,
        Kind::ReduceScatter | Kind::ReduceScatterV => Collective::ReduceScatter,
        Kind::AllToAll => return Modelled::Exchange(Exchange::AllToAll, bytes),
        Kind::Gather { .. } => return Modelled::Exchange(Exchange::Gather, bytes),
        Kind::Scatter { .. } => return Modelled::Exchange(Exchange::Scatter, bytes),
    };
    let fp8 = matches!(call.dtype, DType::F8E4M3 | DType::F8E5M2);
    let nvls_reduces = !call.kind.reduces() || switch_reduces(call.dtype, call.op);
    Modelled::Tuned(Operation { nvls_reduces, fp8, ..Operation::new(collective, bytes) })
}

/// Whether an NVSwitch has the arithmetic: sums, and extremes of what is no 32- or 64-bit float.
fn switch_reduces(dtype: DType, op: ReduceOp) -> bool {
    match dtype {
        DType::F32 | DType::F64 => matches!(op, ReduceOp::Sum),
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::F16 | DType::Bf16 => {
            matches!(op, ReduceOp::Sum | ReduceOp::Min | ReduceOp::Max)
        }
        _ => false,
    }
}

/// The host's monotonic clock in ns.
fn monotonic_ns() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and `now` is a timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
