//! Staging bounds and chunk sizes: what is committed, and that they change no result.

mod common;

use common::with_ranks;
use ringccl::{Algorithm, Config, Protocol, ReduceOp};

/// Sums differ in their last bits with the order of addition.
fn value(rank: usize, i: usize) -> f32 {
    let hash = (i as u64 * 977 + rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let scale = 10f32.powi((hash >> 8 & 7) as i32 - 3);
    ((hash >> 40) as f32 / 1e7 - 0.8) * scale
}

/// Counts of f32 around every boundary of chunks of `chunk` bytes, and of several of them.
fn counts(chunk: usize) -> Vec<usize> {
    let around = |bytes: usize| [bytes / 4 - 1, bytes / 4, bytes / 4 + 1];
    let mut counts: Vec<usize> = [chunk, 2 * chunk, 5 * chunk].into_iter().flat_map(around).collect();
    counts.extend([1, 15, 16, 17, 130_001]);
    counts.retain(|count| *count <= 1 << 20);
    counts
}

/// All ranks' sums of each count, as bits, after checking that all ranks have the same; and the bytes committed.
fn run(n: u32, config: &Config, counts: &[usize]) -> (Vec<Vec<u32>>, u64) {
    let mut all = with_ranks(n, config, |mut comm| {
        let mut sums = Vec::new();
        for &count in counts {
            let mine: Vec<f32> = (0..count).map(|i| value(comm.rank(), i)).collect();
            let mut sum = vec![0f32; count];
            comm.all_reduce(&mine, &mut sum, ReduceOp::Sum).unwrap();
            sums.push(sum.iter().map(|s| s.to_bits()).collect::<Vec<u32>>());
            let mut sent = if comm.rank() == 1 { mine.clone() } else { vec![0f32; count] };
            comm.broadcast(&mut sent, 1).unwrap();
            assert!((0..count).all(|i| sent[i] == value(1, i)), "broadcast of {count}");
        }
        comm.barrier().unwrap();
        let bytes = comm.shared_bytes().unwrap();
        comm.finalize().unwrap();
        (sums, bytes)
    });
    assert!(all.iter().all(|(sums, _)| *sums == all[0].0), "ranks differ");
    all.swap_remove(0)
}

/// With every bound, chunk, algorithm and number of channels the job commits at most ranks x bound beside its control
/// pages, and buffers of all sizes pass.
#[test]
fn committed_memory_stays_within_the_bound() {
    for n in [2u32, 3, 8] {
        for bound in [200_000, 300_000, 1 << 20] {
            for chunk_bytes in [64, 4160, 64 << 10, 1 << 20] {
                for (algorithm, channels) in [
                    (None, 2),
                    (Some(Algorithm::Flat), 1),
                    (Some(Algorithm::TwoShot), 1),
                    (Some(Algorithm::Ring), 2),
                    (Some(Algorithm::Tree), 2),
                    (Some(Algorithm::Relay), 2),
                ] {
                    let staging_max_bytes = Some(bound);
                    let config =
                        Config { chunk_bytes, channels, algorithm, staging_max_bytes, ..Config::new(n) };
                    assert!(config.staging_bytes(n).unwrap() <= bound);
                    let counts = [1, 1000, 100_000];
                    let (_, bytes) = run(n, &config, &counts);
                    let staged = bytes - config.control_bytes(n).unwrap();
                    assert!(staged <= u64::from(n) * bound, "{n} ranks, bound {bound}, {config:?}: {staged}");
                    assert!(staged > 0);
                }
            }
        }
    }
}

/// Ranks that use every ring and relay that they can use commit what the bound counts, but for the bytes that do not
/// divide by the ranks: a looser count would not bind.
#[test]
fn the_bound_counts_what_is_committed() {
    let config = Config { staging_max_bytes: Some(300_000), channels: 2, ..Config::new(3) };
    with_ranks(
        3,
        &Config { algorithm: Some(Algorithm::Relay), min_channels: 2, ..config.clone() },
        |mut comm| {
            let (n, rank) = (comm.nranks(), comm.rank());
            let (mine, mut all) = (vec![1f32; 200_000], vec![0f32; 600_000]);
            comm.all_to_all(&all.clone(), &mut all).unwrap();
            comm.all_reduce_in_place(&mut all, ReduceOp::Sum).unwrap();
            for root in 0..n {
                comm.gather(&mine, &mut all, root).unwrap();
            }
            for shift in 1..n {
                comm.send_recv(&mine, (rank + shift) % n, &mut all[..200_000], (rank + n - shift) % n)
                    .unwrap();
            }
            comm.barrier().unwrap();
            let staged = comm.shared_bytes().unwrap() - config.control_bytes(3).unwrap();
            let counted = 3 * config.staging_bytes(3).unwrap();
            assert!(staged <= counted && counted < staged + 3 * 2, "{staged} of {counted} bytes");
            comm.finalize().unwrap();
        },
    );
}

/// However the buffer is cut, flat and two-shot give the same bits as one chunk that holds all of it: at all sizes
/// around the chunks' boundaries, under a bound as well, on one and on three channels.
#[test]
fn chunked_equals_unchunked() {
    for n in [2u32, 3, 8] {
        for algorithm in [Algorithm::Flat, Algorithm::TwoShot] {
            for chunk_bytes in [64, 4160, 64 << 10] {
                let counts = counts(chunk_bytes);
                let whole = Config { algorithm: Some(algorithm), chunk_bytes: 8 << 20, ..Config::new(n) };
                let (expected, _) = run(n, &whole, &counts);
                for (channels, staging_max_bytes) in [(1, None), (3, None), (1, Some(200_000))] {
                    let config = Config { chunk_bytes, channels, staging_max_bytes, ..whole.clone() };
                    let (sums, _) = run(n, &config, &counts);
                    for (count, (sum, expected)) in counts.iter().zip(sums.iter().zip(&expected)) {
                        assert_eq!(sum, expected, "{algorithm}, {n} ranks, {count} elements, {config:?}");
                    }
                }
            }
        }
    }
}

/// Under the least bound that works every algorithm runs with every protocol, with the right sums.
#[test]
fn the_least_bound_works() {
    for n in [2u32, 3, 8] {
        for algorithm in Algorithm::ALL {
            for protocol in Protocol::ALL {
                let config =
                    Config { algorithm: Some(algorithm), protocol: Some(protocol), ..Config::new(n) };
                let refused = Config { staging_max_bytes: Some(1), ..config.clone() };
                let message = refused.staging_bytes(n).unwrap_err().to_string();
                let least = message.split_once("at least ").unwrap().1.split_once(',').unwrap().0;
                let config = Config { staging_max_bytes: Some(least.parse().unwrap()), ..config };
                with_ranks(n, &config, |mut comm| {
                    for count in [1usize, 15, 16, 17, 100, 2000] {
                        let mut sum: Vec<i32> = (0..count as i32).collect();
                        comm.all_reduce_in_place(&mut sum, ReduceOp::Sum).unwrap();
                        let right = (0..count as i32).map(|i| i * n as i32);
                        assert!(sum.into_iter().eq(right), "{algorithm} {protocol} {n} {count}");
                    }
                    comm.finalize().unwrap();
                });
            }
        }
    }
}

/// The values tell orders apart: ring, which adds in another order, gives other bits, and others when cut otherwise.
#[test]
fn order_shows_in_the_bits() {
    let sums = |algorithm, chunk_bytes| {
        run(3, &Config { algorithm: Some(algorithm), chunk_bytes, ..Config::new(3) }, &[30_000]).0
    };
    let (flat, ring) = (sums(Algorithm::Flat, 4096), sums(Algorithm::Ring, 4096));
    assert_ne!(flat, ring);
    assert_ne!(ring, sums(Algorithm::Ring, 8192));
    assert_eq!(ring, sums(Algorithm::Ring, 4096), "but every time in the same way");
}
