//! Collectives against a naive model, over ranks x counts x types x reductions x algorithms x protocols.

mod common;

use common::with_ranks;
use half::{bf16, f16};
use ringccl::{Algorithm, Config, Element, F8E4M3, F8E5M2, Protocol, ReduceOp, Scalar};
use std::fmt::Debug;

/// Values whose sums, products and averages are exact in every type, so that any order gives the same.
trait Sample: Element + Copy + PartialEq + Debug + Default {
    fn of(x: i32) -> Self;
}
macro_rules! sample {
    ($($t:ty => $of:expr),*) => { $(impl Sample for $t { fn of(x: i32) -> Self { $of(x) } })* };
}
sample!(f32 => |x| x as f32, f64 => f64::from, i32 => |x| x, i64 => i64::from,
        f16 => |x| f16::from_f32(x as f32), bf16 => |x| bf16::from_f32(x as f32),
        i8 => |x| x as i8, u8 => |x| x as u8, u32 => |x| x as u32, u64 => |x| x as u64,
        F8E4M3 => |x| F8E4M3::from_f32(x as f32), F8E5M2 => |x| F8E5M2::from_f32(x as f32));

/// What rank `rank` holds at `i`: small, and for products 1 or 2 on at most four ranks.
fn input(op: ReduceOp, rank: usize, i: usize, n: usize) -> i32 {
    match op {
        ReduceOp::Prod => 1 + i32::from((i + rank).is_multiple_of(n.max(5))),
        // Multiples of 8 stay whole when divided by up to 8 ranks.
        ReduceOp::Avg => 8 * ((i * 3 + rank) % 3) as i32,
        _ => ((i * 7 + rank * 5) % 9) as i32 - 4,
    }
}

fn expected(op: ReduceOp, i: usize, n: usize) -> i32 {
    let all = (0..n).map(|rank| input(op, rank, i, n));
    match op {
        ReduceOp::Sum => all.sum(),
        ReduceOp::Prod => all.product(),
        ReduceOp::Min => all.min().unwrap(),
        ReduceOp::Max => all.max().unwrap(),
        ReduceOp::Avg => all.sum::<i32>() / n as i32,
        _ => unreachable!("tested elsewhere"),
    }
}

fn check_all_reduce<T: Sample>(n: u32, config: &Config, counts: &[usize], op: ReduceOp, in_place: bool) {
    with_ranks(n, config, |mut comm| {
        for &count in counts {
            let mine: Vec<T> = (0..count).map(|i| T::of(input(op, comm.rank(), i, n as usize))).collect();
            let mut out = if in_place { mine.clone() } else { vec![T::of(-1); count] };
            if in_place {
                comm.all_reduce_in_place(&mut out, op).unwrap();
            } else {
                comm.all_reduce(&mine, &mut out, op).unwrap();
            }
            let wrong = (0..count).find(|i| out[*i] != T::of(expected(op, *i, n as usize)));
            if let Some(i) = wrong {
                panic!(
                    "{} ranks, {count} x {:?}, {op:?}, {:?}: [{i}] = {:?}",
                    n,
                    T::DTYPE,
                    comm.last_choice(),
                    out[i]
                );
            }
            assert!(
                in_place
                    || mine
                        .iter()
                        .enumerate()
                        .all(|(i, x)| *x == T::of(input(op, comm.rank(), i, n as usize)))
            );
        }
        comm.finalize().unwrap();
    });
}

const COUNTS: [usize; 12] = [0, 1, 2, 3, 13, 15, 64, 257, 1000, 4099, 40_000, 300_001];

fn small_chunks(n: u32) -> Config {
    Config { chunk_bytes: 4096, ..Config::new(n) }
}

/// Every type and reduction gives the model's values, out of place and in place, whatever size selects.
#[test]
fn every_type_and_reduction() {
    let counts = [0, 1, 5, 100, 3001, 70_001];
    for n in [1, 2, 3, 5] {
        for op in ReduceOp::BUILTIN {
            for in_place in [false, true] {
                check_all_reduce::<i32>(n, &Config::new(n), &counts, op, in_place);
                check_all_reduce::<i64>(n, &Config::new(n), &counts, op, in_place);
                check_all_reduce::<i8>(n, &Config::new(n), &counts, op, in_place);
                if op != ReduceOp::Avg || n.is_power_of_two() {
                    // Float averages multiply by 1/n first, which is exact for powers of two only.
                    check_all_reduce::<f32>(n, &Config::new(n), &counts, op, in_place);
                    check_all_reduce::<f64>(n, &Config::new(n), &counts, op, in_place);
                    check_all_reduce::<f16>(n, &Config::new(n), &counts, op, in_place);
                    check_all_reduce::<bf16>(n, &Config::new(n), &counts, op, in_place);
                }
                // Larger sums are not exact in 8 bits.
                if n <= 2 {
                    check_all_reduce::<F8E4M3>(n, &Config::new(n), &counts, op, in_place);
                    check_all_reduce::<F8E5M2>(n, &Config::new(n), &counts, op, in_place);
                }
            }
        }
    }
}

/// Every rank multiplies its own input by its own scalar, whatever the algorithm and also where it is alone.
#[test]
fn each_rank_has_its_own_scalar() {
    fn check<T: Sample>(n: u32, algorithm: Algorithm, in_place: bool) {
        let config = Config { algorithm: Some(algorithm), ..small_chunks(n) };
        with_ranks(n, &config, |mut comm| {
            // The second call has another scalar, and nothing else differs.
            for (count, more) in [(9, 0), (9, 1), (20_001, 0)] {
                let scalar = |rank: usize| 1 + (rank as i32 + more) % 2;
                let value = |rank: usize, i: usize| ((i + rank) % 2) as i32;
                let op = ReduceOp::PreMulSum(Scalar::new(T::of(scalar(comm.rank()))));
                let mine: Vec<T> = (0..count).map(|i| T::of(value(comm.rank(), i))).collect();
                let mut out = mine.clone();
                if in_place {
                    comm.all_reduce_in_place(&mut out, op).unwrap();
                } else {
                    comm.all_reduce(&mine, &mut out, op).unwrap();
                }
                for (i, got) in out.iter().enumerate() {
                    let want = (0..n as usize).map(|rank| scalar(rank) * value(rank, i)).sum();
                    assert_eq!(*got, T::of(want), "{n} ranks, {algorithm:?}, {:?} [{i}]", T::DTYPE);
                }
            }
            comm.finalize().unwrap();
        });
    }
    for n in [1, 2, 3, 4] {
        for algorithm in Algorithm::ALL {
            for in_place in [false, true] {
                check::<f32>(n, algorithm, in_place);
                check::<u8>(n, algorithm, in_place);
                check::<F8E5M2>(n, algorithm, in_place);
            }
        }
    }
}

/// A reduction that the elements cannot have is refused, and the communicator stays usable.
#[test]
fn invalid_reductions_are_refused() {
    with_ranks(2, &Config::new(2), |mut comm| {
        let error = comm.all_reduce_in_place(&mut [1.0f32], ReduceOp::BitOr).unwrap_err().to_string();
        assert!(error.contains("bor is for integers, not for float; use one of sum, prod"), "{error}");
        let op = ReduceOp::PreMulSum(Scalar::new(1i8));
        let error = comm.all_reduce_in_place(&mut [1.0f32], op).unwrap_err().to_string();
        assert!(error.contains("the scalar of premulsum is int8, the elements are float"), "{error}");
        let mut bits = [1u32 << comm.rank()];
        comm.all_reduce_in_place(&mut bits, ReduceOp::BitOr).unwrap();
        assert_eq!(bits, [3]);
        comm.finalize().unwrap();
    });
}

/// Every algorithm with every protocol it can use, on one and on three channels, at sizes around every boundary.
#[test]
fn every_algorithm_and_protocol() {
    for n in [2, 3, 4, 8] {
        for algorithm in Algorithm::ALL {
            for protocol in Protocol::ALL {
                for channels in [1, 3] {
                    let config = Config {
                        algorithm: Some(algorithm),
                        protocol: Some(protocol),
                        channels,
                        ..small_chunks(n)
                    };
                    check_all_reduce::<f32>(n, &config, &COUNTS, ReduceOp::Sum, false);
                    check_all_reduce::<f16>(n, &config, &COUNTS, ReduceOp::Max, true);
                }
            }
        }
    }
}

/// Broadcast delivers the root's bytes from every root, in place and out of place, and leaves inputs alone.
#[test]
fn broadcast_from_every_root() {
    for n in [1, 2, 3, 7] {
        with_ranks(n, &small_chunks(n), |mut comm| {
            for root in 0..n as usize {
                for count in COUNTS {
                    let of = |rank: usize| move |i: usize| (i * 31 + rank * 7 + root) as i64;
                    let mine: Vec<i64> = (0..count).map(of(comm.rank())).collect();
                    let mut out = vec![-1; count];
                    comm.broadcast_from(&mine, &mut out, root).unwrap();
                    let mut in_place = mine.clone();
                    comm.broadcast(&mut in_place, root).unwrap();
                    for i in 0..count {
                        assert_eq!(out[i], of(root)(i));
                        assert_eq!(in_place[i], of(root)(i));
                    }
                }
            }
            assert!(
                comm.broadcast(&mut [0f32], n as usize).unwrap_err().to_string().contains("is not a rank")
            );
            comm.finalize().unwrap();
        });
    }
}

/// Random floats: all ranks get the same bits, twice the same, and close to the sum in double precision.
#[test]
fn bits_are_equal_on_all_ranks_and_runs() {
    for n in [2u32, 3, 8] {
        for algorithm in Algorithm::ALL {
            let config = Config { algorithm: Some(algorithm), ..small_chunks(n) };
            let run = || {
                with_ranks(n, &config, |mut comm| {
                    let mut out = Vec::new();
                    for count in [3usize, 1000, 30_000] {
                        let value = |rank: usize, i: usize| {
                            let hash = (i as u64 * 977 + rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                            (hash >> 40) as f32 / 1e7 - 0.8
                        };
                        let mine: Vec<f32> = (0..count).map(|i| value(comm.rank(), i)).collect();
                        let mut sum = vec![0f32; count];
                        comm.all_reduce(&mine, &mut sum, ReduceOp::Sum).unwrap();
                        for (i, s) in sum.iter().enumerate() {
                            let exact: f64 = (0..n as usize).map(|r| f64::from(value(r, i))).sum();
                            // n - 1 roundings of partial sums below n.
                            let bound = f64::from(n) * f64::from(n) * f64::from(f32::EPSILON);
                            assert!((f64::from(*s) - exact).abs() <= bound, "{s} {exact}");
                        }
                        out.extend(sum.iter().map(|s| s.to_bits()));
                    }
                    comm.finalize().unwrap();
                    out
                })
            };
            let (first, second) = (run(), run());
            assert!(first.iter().all(|bits| *bits == first[0]), "{algorithm}: ranks differ");
            assert_eq!(first, second, "{algorithm}: runs differ");
        }
    }
}

/// Each size is carried by the layout that the selection names, and by no other.
#[test]
fn each_size_uses_its_layout() {
    with_ranks(2, &Config::new(2), |mut comm| {
        let mut seen = [false; 3];
        for bytes in [8usize, 56, 64, 480, 1024, 1 << 20] {
            let before = comm.messages_sent();
            comm.all_reduce_in_place(&mut vec![1f32; bytes / 4], ReduceOp::Sum).unwrap();
            let choice = comm.last_choice().unwrap();
            for (protocol, (after, before)) in
                Protocol::ALL.iter().zip(comm.messages_sent().iter().zip(before))
            {
                assert_eq!(*after > before, *protocol == choice.protocol, "{bytes} B: {choice:?}");
            }
            seen[choice.protocol as usize] = true;
        }
        assert_eq!(seen, [true; 3], "the sizes cover all three layouts");
        comm.finalize().unwrap();
    });
}

/// With two channels both carry messages, and the operation needs both.
#[test]
fn channels_share_the_work() {
    let config = Config { channels: 2, ..small_chunks(3) };
    with_ranks(3, &config, |mut comm| {
        comm.all_reduce_in_place(&mut vec![1i32; 100_000], ReduceOp::Sum).unwrap();
        assert_eq!(comm.last_choice().unwrap().channels, 2);
        comm.finalize().unwrap();
    });
}

/// Nobody passes a barrier before everybody has come.
#[test]
fn barrier_holds_everybody() {
    // ATOMICS: the test's own count of arrivals; no ring is involved.
    use std::sync::atomic::{AtomicU32, Ordering};
    let arrived = AtomicU32::new(0);
    with_ranks(5, &Config::new(5), |mut comm| {
        for round in 1..=200 {
            arrived.fetch_add(1, Ordering::SeqCst);
            comm.barrier().unwrap();
            assert!(arrived.load(Ordering::SeqCst) >= round * 5);
            comm.barrier().unwrap();
        }
        comm.finalize().unwrap();
    });
}

/// Operations queued on a stream run in their order and give each buffer back.
#[test]
fn streams_run_in_order() {
    with_ranks(4, &Config::new(4), |mut comm| {
        let rank = comm.rank() as i32;
        let stream = ringccl::Stream::new();
        let pending: Vec<_> = (0..50)
            .map(|k| stream.all_reduce(&mut comm, vec![rank + k; 100 * k as usize], ReduceOp::Sum).unwrap())
            .collect();
        for (k, result) in pending.into_iter().enumerate() {
            let sum = result.wait().unwrap();
            assert_eq!(sum, vec![6 + 4 * k as i32; 100 * k]);
        }
        comm.finalize().unwrap();
    });
}
