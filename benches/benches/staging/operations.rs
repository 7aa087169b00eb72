//! All-reduces with one thing forced: the algorithm, the layout of messages, the largest message.

use crate::{group, must};
use anyhow::{Result, ensure};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use ringccl::{Algorithm, Choice, Config, Protocol};
use ringccl_benches::ranks::{Memory, Ranks};
use std::fmt::Display;

const PATH_BYTES: [usize; 6] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
/// Operations of more bytes than this on more than 4 ranks take longer than they teach.
const MANY_RANKS_BYTES: usize = 16 << 20;
const CHUNKED_BYTES: usize = 16 << 20;
const CHUNK_BYTES: [usize; 5] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const PROTOCOL_BYTES: [usize; 6] = [8, 32, 128, 512, 2 << 10, 8 << 10];

/// Ranks with these settings, and what their operations must run with.
struct Case {
    config: Config,
    nranks: usize,
    memory: Memory,
    bytes_max: usize,
    expected: fn(&Config, &Choice) -> bool,
    /// Made when a case is first run, as its buffers are large.
    ranks: Option<Ranks>,
}

impl Case {
    fn new(config: Config, nranks: usize, memory: Memory, bytes_max: usize) -> Self {
        let expected = |config: &Config, choice: &Choice| match config.algorithm {
            Some(algorithm) => choice.algorithm == algorithm,
            None => choice.algorithm == Algorithm::ZeroCopy,
        };
        Self { config, nranks, memory, bytes_max, expected, ranks: None }
    }

    /// Adds the case to a group.
    fn bench(
        &mut self,
        group: &mut BenchmarkGroup<'_, WallTime>,
        name: &str,
        value: impl Display,
        bytes: usize,
    ) {
        group.bench_function(BenchmarkId::new(name, value), |bencher| {
            bencher.iter_custom(|iters| must(self.run(bytes, iters)));
        });
    }

    fn run(&mut self, bytes: usize, iters: u64) -> Result<std::time::Duration> {
        let made = self.ranks.take();
        let mut ranks = match made {
            Some(ranks) => ranks,
            None => Ranks::new(&self.config, self.nranks, self.bytes_max, self.memory)?,
        };
        let elapsed = ranks.all_reduce(bytes, iters)?;
        let choice = ranks.choice()?;
        let Config { algorithm, protocol, .. } = &self.config;
        let is_expected = (self.expected)(&self.config, &choice);
        ensure!(is_expected, "asked for {algorithm:?} and {protocol:?}, but it ran {choice:?}");
        self.ranks = Some(ranks);
        Ok(elapsed)
    }
}

/// Algorithms through slots and shared pieces beside registered memory.
pub(crate) fn paths(criterion: &mut Criterion) {
    for nranks in [2, 4, 8] {
        let mut group = group(criterion, format_args!("path/{nranks}"));
        let sizes = PATH_BYTES.iter().filter(|bytes| nranks <= 4 || **bytes <= MANY_RANKS_BYTES);
        let asked = Algorithm::ALL.map(|algorithm| (algorithm.name(), Some(algorithm), Memory::Private));
        let cases = asked.into_iter().chain([(Algorithm::ZeroCopy.name(), None, Memory::Registered)]);
        for (name, algorithm, memory) in cases {
            let config = Config { algorithm, ..Config::new(nranks as u32) };
            let bytes_max = sizes.clone().max().copied().unwrap_or_default();
            let mut case = Case::new(config, nranks, memory, bytes_max);
            for &bytes in sizes.clone() {
                case.bench(&mut group, name, bytes, bytes);
            }
        }
        group.finish();
    }
}

/// The largest message of each algorithm.
pub(crate) fn chunks(criterion: &mut Criterion) {
    for nranks in [2, 4] {
        let mut group = group(criterion, format_args!("chunk/{nranks}"));
        for algorithm in Algorithm::ALL {
            for chunk_bytes in CHUNK_BYTES {
                let config = Config { algorithm: Some(algorithm), chunk_bytes, ..Config::new(nranks as u32) };
                let mut case = Case::new(config, nranks, Memory::Private, CHUNKED_BYTES);
                case.bench(&mut group, algorithm.name(), chunk_bytes, CHUNKED_BYTES);
            }
        }
        group.finish();
    }
}

/// The layouts of messages, by size.
pub(crate) fn protocols(criterion: &mut Criterion) {
    for nranks in [2, 4] {
        let mut group = group(criterion, format_args!("protocol/{nranks}"));
        for protocol in Protocol::ALL {
            let config = Config {
                algorithm: Some(Algorithm::Flat),
                protocol: Some(protocol),
                ..Config::new(nranks as u32)
            };
            let bytes_max = PROTOCOL_BYTES[PROTOCOL_BYTES.len() - 1];
            let mut case = Case::new(config, nranks, Memory::Private, bytes_max);
            case.expected = |config, choice| config.protocol == Some(choice.protocol);
            for bytes in PROTOCOL_BYTES {
                case.bench(&mut group, &protocol.to_string(), bytes, bytes);
            }
        }
        group.finish();
    }
}
