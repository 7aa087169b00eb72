//! Operations of every kind with every setting, type and reduction, in place and not, at once, in groups and in
//! streams, by a script that every rank draws from one seed; each element of each buffer is compared with what the
//! definition says.
//!
//! ```text
//!  settings: algorithm, protocol, channels, chunk  --> a communicator of its own --> steps
//!  step:     one to four operations of one type    --> blocking | a group | a group in a stream
//! ```

mod shape;
mod submit;
mod value;

use super::draw::Draw;
use super::work::done;
use super::{Args, say};
use anyhow::{Context, anyhow, ensure};
use ringccl::{Algorithm, Communicator, Config, DType, Numerics, Protocol, ReduceOp, Scalar, Stream};
use shape::{Kind, Shape};
use std::collections::{BTreeSet, VecDeque};
use submit::{Job, Launched, run_together};
use value::Value;
use verification::report::Event;

/// Largest buffers, in elements over all ranks.
const ELEMENTS: usize = 60_000;
/// Steps with the same settings.
const STEPS: usize = 24;
/// Kinds that are drawn.
const KINDS: usize = 13;

/// Looks at what was launched.
type Check = Box<dyn FnOnce() -> anyhow::Result<()>>;

struct Conform {
    draw: Draw,
    streams: [Stream; 2],
    checks: VecDeque<Check>,
    operations: u64,
    /// What has run: kind, algorithm, protocol, as far as that is known.
    seen: BTreeSet<String>,
}

pub(super) fn run(args: &Args, rank: u32, mut world: Communicator) -> anyhow::Result<()> {
    let mut conform = Conform {
        draw: Draw::new(args.seed),
        streams: [Stream::new(), Stream::new()],
        checks: VecDeque::new(),
        operations: 0,
        seen: BTreeSet::new(),
    };
    while conform.operations < args.ops {
        let config = conform.settings(world.nranks() as u32)?;
        let made = world.split_with(Some(0), 0, Some(&config))?;
        let mut comm = made.context("a communicator of all ranks")?;
        for _ in 0..STEPS {
            let at = format!("seed {}, operation {}", args.seed, conform.operations);
            // With all causes: what a rank reports is the outermost text alone.
            conform
                .step(&mut comm, &config)
                .map_err(|error| anyhow!("{at}, {}: {error:#}", about(&config)))?;
        }
        conform
            .check_all_but(0)
            .map_err(|error| anyhow!("seed {}, {}: {error:#}", args.seed, about(&config)))?;
        comm.finalize()?;
    }
    if rank == 0 {
        let seen = conform.seen.len();
        let what = format!("{} operations, {seen} of kind, algorithm and protocol", conform.operations);
        say(rank, Event::Covered { what })?;
    }
    let done = done(&mut world, 0.0, (0, 0));
    world.finalize()?;
    say(rank, done)
}

fn about(config: &Config) -> String {
    let Config { algorithm, protocol, channels, chunk_bytes, numerics, .. } = config;
    format!("{algorithm:?}, {protocol:?}, {channels} channels, chunk {chunk_bytes}, {numerics:?}")
}

impl Conform {
    fn settings(&mut self, nranks: u32) -> anyhow::Result<Config> {
        let draw = &mut self.draw;
        let mut config = Config { report: None, ..Config::from_env(nranks)? };
        config.algorithm =
            [&[None][..], &Algorithm::ALL.map(Some)].concat()[draw.below(1 + Algorithm::ALL.len())];
        config.protocol =
            [&[None][..], &Protocol::ALL.map(Some)].concat()[draw.below(1 + Protocol::ALL.len())];
        config.channels = [1, 1, 2, 3][draw.below(4)];
        config.chunk_bytes = [64, 1024, 4096, config.chunk_bytes][draw.below(4)];
        if draw.below(6) == 0 {
            config.numerics = Numerics::Nccl;
        }
        Ok(config)
    }

    /// Draws the operations of a step, and how they are called.
    fn step(&mut self, comm: &mut Communicator, config: &Config) -> anyhow::Result<()> {
        let n = comm.nranks();
        let together = 1 + self.draw.below(4);
        let shapes: Vec<(Shape, bool)> = (0..together).map(|_| self.shape(n, config)).collect();
        self.operations += together as u64;
        let dtype = self.draw.next();
        let text = format!("{shapes:?} of type {}", dtype % 12);
        typed!(dtype, Self::typed, self, comm, shapes).context(text)
    }

    fn shape(&mut self, n: usize, config: &Config) -> (Shape, bool) {
        let draw = &mut self.draw;
        let (root, count) = (draw.below(n), draw.count(ELEMENTS));
        let kind = match draw.below(KINDS) {
            0 => Kind::AllReduce,
            1 => Kind::Broadcast(root),
            2 => Kind::Reduce(root),
            3 => Kind::AllGather,
            4 => Kind::ReduceScatter,
            5 => Kind::AllToAll,
            6 => Kind::Gather(root),
            7 => Kind::Scatter(root),
            8 => Kind::AllGatherV,
            9 => Kind::ReduceScatterV,
            10 => Kind::AllToAllV,
            11 => Kind::Shift(root),
            _ => Kind::Barrier,
        };
        let has_blocks =
            !matches!(kind, Kind::AllReduce | Kind::Broadcast(_) | Kind::Reduce(_) | Kind::Shift(_));
        let count = if has_blocks { count.div_ceil(n) } else { count };
        let (op, key, in_place) = (draw.below(9), draw.next(), draw.below(2) == 0);
        // The scalar is the rank's own, which is made of the key later.
        let named = ReduceOp::NAMED.get(op).copied();
        let op = named.unwrap_or(ReduceOp::PreMulSum(Scalar::from_f64(DType::F64, 0.0)));
        let chosen = matches!(config.algorithm, Some(Algorithm::Flat | Algorithm::TwoShot));
        let in_order = chosen && config.numerics == Numerics::Host;
        (Shape { kind, op, count, key, n, in_order }, in_place)
    }

    fn typed<T: Value>(&mut self, comm: &mut Communicator, shapes: Vec<(Shape, bool)>) -> anyhow::Result<()> {
        let (how, at, keep) = (self.draw.below(5), self.draw.below(2), self.draw.below(8));
        let rank = comm.rank();
        let job = |(mut shape, in_place): (Shape, bool)| {
            if shape.op.check(T::DTYPE).is_err() && !matches!(shape.op, ReduceOp::PreMulSum(_)) {
                shape.op = ReduceOp::Sum;
            }
            (shape, Job::<T>::new(shape, rank, in_place))
        };
        let jobs: Vec<_> = shapes.into_iter().map(job).collect();
        match how {
            0..=2 => {
                for (shape, mut job) in jobs {
                    job.call(comm)?;
                    self.note(&shape, comm);
                    job.check()?;
                    if shape.kind == Kind::AllReduce {
                        assert_alike(comm, &job)?;
                    }
                }
                Ok(())
            }
            3 => {
                let mut jobs: Vec<_> = jobs.into_iter().map(|(_, job)| job).collect();
                run_together(&mut jobs, comm)?;
                jobs.iter().try_for_each(Job::check)
            }
            _ => {
                let text = format!("{:?}", jobs.iter().map(|(shape, _)| shape).collect::<Vec<_>>());
                let jobs = jobs.into_iter().map(|(_, job)| job).collect();
                let launched = Launched::new(jobs, &self.streams[at], comm)?;
                self.checks.push_back(Box::new(move || {
                    launched
                        .wait()?
                        .iter()
                        .try_for_each(Job::check)
                        .with_context(|| format!("in a stream: {text}"))
                }));
                self.check_all_but(keep)
            }
        }
    }

    /// Notes which algorithm and protocol have run.
    fn note(&mut self, shape: &Shape, comm: &mut Communicator) {
        let kind = format!("{:?}", shape.kind);
        let kind = kind.split('(').next().unwrap_or_default();
        if let Some(choice) = comm.last_choice()
            && shape.count > 0
        {
            self.seen.insert(format!("{kind} {:?} {:?}", choice.algorithm, choice.protocol));
        }
    }

    /// Looks at what was launched until only `keep` are left.
    fn check_all_but(&mut self, keep: usize) -> anyhow::Result<()> {
        while self.checks.len() > keep {
            let check = self.checks.pop_front().context("no check")?;
            check()?;
        }
        Ok(())
    }
}

/// Whether all ranks have the same bits.
fn assert_alike<T: Value>(comm: &mut Communicator, job: &Job<T>) -> anyhow::Result<()> {
    let own = job.digest();
    let mut most = [own, !own];
    comm.all_reduce_in_place(&mut most, ReduceOp::Max)?;
    ensure!(most == [own, !own], "the result has other bits on another rank");
    Ok(())
}
