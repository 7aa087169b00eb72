//! All-reduces as users call them, against bytes and ranks, beside the floor.
//!
//! An all-reduce on private buffers reads every rank's bytes once and writes as many, at least. The floor is that and
//! nothing else, measured beside it: every rank copies as many bytes from one private buffer into another. Beyond the
//! caches the fastest copy reads several pages interleaved and stores past the cache; within them plain stores are
//! faster, so both are measured, and the faster one is the floor.

use crate::{group, must};
use anyhow::Result;
use criterion::{BenchmarkId, Criterion};
use ringccl::Config;
use ringccl::reduce::{Dst, Store, copy};
use ringccl_benches::cores;
use ringccl_benches::crew::Crew;
use ringccl_benches::ranks::{Memory, Ranks};
use std::hint::black_box;
use std::time::{Duration, Instant};

const RANKS: [usize; 4] = [2, 4, 8, 16];
const BYTES: [usize; 9] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20];
/// From here on memory, or the cache, is what an operation costs; below, hand-overs are, and a copy says nothing.
const FLOOR_BYTES_MIN: usize = 32 << 10;
/// Bytes of one buffer of all ranks together: more takes longer than it teaches.
const TOTAL_BYTES: usize = 512 << 20;
const FLOORS: [(&str, Store); 2] = [("floor non-temporal", Store::Streaming), ("floor plain", Store::Cached)];
/// A copy as long as this means that a thread has failed.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn all(criterion: &mut Criterion) {
    for nranks in RANKS {
        let mut group = group(criterion, format_args!("allreduce/{nranks}"));
        let sizes = BYTES.into_iter().filter(|bytes| bytes * nranks <= TOTAL_BYTES);
        let bytes_max = sizes.clone().max().unwrap_or_default();
        let (mut ranks, mut copiers) = (None, None);
        for bytes in sizes {
            group.bench_function(BenchmarkId::new("ringccl", bytes), |bencher| {
                let ranks = ranks.get_or_insert_with(|| {
                    must(Ranks::new(&Config::new(nranks as u32), nranks, bytes_max, Memory::Private))
                });
                bencher.iter_custom(|iters| must(ranks.all_reduce(bytes, iters)));
            });
            for (name, store) in FLOORS {
                if bytes < FLOOR_BYTES_MIN {
                    continue;
                }
                group.bench_function(BenchmarkId::new(name, bytes), |bencher| {
                    let copiers = copiers.get_or_insert_with(|| must(crew(nranks, bytes_max)));
                    bencher.iter_custom(|iters| must(copies(copiers, bytes, store, iters)));
                });
            }
        }
        group.finish();
    }
}

/// A thread for each rank, with two buffers.
fn crew(nranks: usize, bytes: usize) -> Result<Crew<[Vec<u8>; 2]>> {
    let places: Vec<usize> = (0..nranks).map(|rank| cores::even(rank, nranks)).collect();
    Crew::new(&places, LIMIT, move |_| Ok([vec![1; bytes], vec![2; bytes]]))
}

/// The time in which all threads copy `bytes` bytes `iters` times.
fn copies(crew: &mut Crew<[Vec<u8>; 2]>, bytes: usize, store: Store, iters: u64) -> Result<Duration> {
    let start = Instant::now();
    crew.run_all(move |[from, to]| {
        let (from, to) = (&from[..bytes], &mut to[..bytes]);
        for _ in 0..iters {
            let to = [Dst { ptr: black_box(&mut *to).as_mut_ptr(), store }];
            // SAFETY: two live slices of the same length, of which this thread alone has the destination.
            unsafe { copy(black_box(from).as_ptr(), &to, bytes) };
        }
        Ok(())
    })?;
    Ok(start.elapsed())
}
