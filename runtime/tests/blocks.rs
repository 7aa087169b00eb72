//! Collectives with blocks or a root, against references written from their definitions, over random shapes, all
//! algorithms, protocols, types and reductions, in place and not; each rank is a thread.

#[path = "blocks/grouped.rs"]
mod grouped;
#[path = "blocks/reference.rs"]
mod reference;
#[path = "blocks/refuse.rs"]
mod refuse;

use half::{bf16, f16};
use reference::{Mold, Shape, Value};
use ringccl::{Algorithm, Communicator, Config, Protocol, ReduceOp};
use std::time::Duration;

/// Runs `body` as every rank of a communicator, each on a thread of its own.
fn each(config: &Config, n: usize, body: impl Fn(Communicator) + Sync) {
    let config = Config { timeout: Duration::from_secs(60), ..config.clone() };
    let comms = Communicator::init_all(n as u32, &config).unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(|| body(comm))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Makes the call of `shape` with buffers of their own, then in place, and compares every element of every buffer.
fn check<T: Value>(comm: &mut Communicator, shape: &Shape) {
    let rank = comm.rank();
    let wanted = shape.wanted::<T>(rank);
    let input = shape.input::<T>(rank);
    let mut send = input.clone();
    let mut recv = vec![T::MARK; wanted.output.len()];
    call(comm, shape, &send, &mut recv);
    let choice = comm.last_choice();
    let what = || format!("{shape:?} of {:?} on rank {rank}, {choice:?}", T::DTYPE);
    wanted.compare(&recv, what);
    assert!(send == input, "{}: the input has changed", what());
    let in_place = in_place(comm, shape, &mut send);
    let what = || format!("{shape:?} of {:?} in place on rank {rank}, {choice:?}", T::DTYPE);
    match in_place {
        Some(buffer) => shape.wanted_in_place(rank, &wanted).compare(&buffer, what),
        None => assert!(matches!(shape.mold, Mold::AllGatherV | Mold::ReduceScatterV)),
    }
}

fn call<T: Value>(comm: &mut Communicator, shape: &Shape, send: &[T], recv: &mut [T]) {
    let Shape { mold, op, ref counts, .. } = *shape;
    match mold {
        Mold::Broadcast(root) => comm.broadcast_from(send, recv, root),
        Mold::Reduce(root) => comm.reduce(send, recv, op, root),
        Mold::AllGather => comm.all_gather(send, recv),
        Mold::ReduceScatter => comm.reduce_scatter(send, recv, op),
        Mold::AllToAll => comm.all_to_all(send, recv),
        Mold::Gather(root) => comm.gather(send, recv, root),
        Mold::Scatter(root) => comm.scatter(send, recv, root),
        Mold::AllGatherV => comm.all_gather_v(send, recv, counts),
        Mold::ReduceScatterV => comm.reduce_scatter_v(send, recv, counts, op),
    }
    .unwrap();
}

/// The same in place, and the buffer afterwards; `None` for a kind without a safe form in place.
fn in_place<T: Value>(comm: &mut Communicator, shape: &Shape, send: &mut [T]) -> Option<Vec<T>> {
    let (rank, n, op) = (comm.rank(), comm.nranks(), shape.op);
    let count = shape.counts[rank];
    // A buffer of all blocks of which only the own one is filled.
    let around = |send: &[T]| {
        let mut all = vec![T::MARK; n * count];
        all[rank * count..][..count].copy_from_slice(send);
        all
    };
    let mut buffer = send.to_vec();
    match shape.mold {
        Mold::Broadcast(root) => comm.broadcast(&mut buffer, root).unwrap(),
        Mold::Reduce(root) => comm.reduce_in_place(&mut buffer, op, root).unwrap(),
        Mold::AllGather => {
            buffer = around(send);
            comm.all_gather_in_place(&mut buffer).unwrap();
        }
        Mold::ReduceScatter => comm.reduce_scatter_in_place(&mut buffer, op).unwrap(),
        Mold::AllToAll => comm.all_to_all_in_place(&mut buffer).unwrap(),
        Mold::Gather(root) => {
            buffer = around(send);
            let all = buffer.as_mut_ptr();
            // SAFETY: the buffer has all blocks; the input is the own one.
            unsafe {
                let own = all.add(rank * count).cast_const();
                comm.gather_raw(own.cast(), all.cast(), count, T::DTYPE, root).unwrap();
            }
        }
        Mold::Scatter(root) => {
            if rank != root {
                buffer = vec![T::MARK; n * count];
            }
            let all = buffer.as_mut_ptr();
            // SAFETY: the buffer has all blocks; the output is the own one.
            unsafe {
                let own = all.add(rank * count);
                comm.scatter_raw(all.cast_const().cast(), own.cast(), count, T::DTYPE, root).unwrap();
            }
        }
        Mold::AllGatherV | Mold::ReduceScatterV => return None,
    }
    Some(buffer)
}

fn molds(n: usize, draw: &mut impl FnMut(usize) -> usize) -> Vec<Mold> {
    let root = draw(n);
    vec![
        Mold::Broadcast(root),
        Mold::Reduce(root),
        Mold::AllGather,
        Mold::ReduceScatter,
        Mold::AllToAll,
        Mold::Gather(root),
        Mold::Scatter(root),
        Mold::AllGatherV,
        Mold::ReduceScatterV,
    ]
}

/// Numbers from a seed.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

/// The seed of the random shapes: `RINGCCL_TEST_SEED`, or always the same.
fn seed() -> u64 {
    let seed = std::env::var("RINGCCL_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    println!("RINGCCL_TEST_SEED={seed}");
    seed
}

/// A shape of each kind: small, around lines and slots, or of several chunks.
fn shapes(n: usize, op: ReduceOp, draw: &mut impl FnMut(usize) -> usize) -> Vec<Shape> {
    let largest = [1, 3, 8, 20, 70, 600, 5000][draw(7)];
    let molds = molds(n, draw);
    let mut counts = || draw(largest + 1);
    let shape = |mold| {
        let counts = if matches!(mold, Mold::AllGatherV | Mold::ReduceScatterV) {
            (0..n).map(|_| counts()).collect()
        } else {
            vec![counts(); n]
        };
        Shape { mold, op, counts }
    };
    molds.into_iter().map(shape).collect()
}

fn check_typed(comm: &mut Communicator, shape: &Shape, dtype: usize) {
    match dtype {
        0 => check::<f32>(comm, shape),
        1 => check::<i64>(comm, shape),
        2 => check::<f64>(comm, shape),
        3 => check::<i32>(comm, shape),
        4 => check::<f16>(comm, shape),
        _ => check::<bf16>(comm, shape),
    }
}

/// Every kind with every algorithm and protocol, on one and three channels, in chunks of 64 bytes to the default:
/// random counts, roots, types and reductions.
#[test]
fn every_algorithm_and_protocol() {
    let mut seed = seed();
    // Nine ranks have windows: 64 bytes hold eight of the largest elements.
    for n in [2, 3, 4, 9] {
        for algorithm in [None].into_iter().chain(Algorithm::ALL.map(Some)) {
            for protocol in [None].into_iter().chain(Protocol::ALL.map(Some)) {
                for (channels, chunk_bytes) in [(1, 4096), (3, 1024), (1, 64), (1, 1 << 20)] {
                    let config =
                        Config { algorithm, protocol, channels, chunk_bytes, ..Config::new(n as u32) };
                    seed += 1;
                    each(&config, n, |mut comm| {
                        let mut draw = numbers(seed);
                        for round in 0..4 {
                            let op = ReduceOp::BUILTIN[draw(5)];
                            for shape in shapes(n, op, &mut draw) {
                                check_typed(&mut comm, &shape, (draw(6) + round) % 6);
                            }
                        }
                        comm.finalize().unwrap();
                    });
                }
            }
        }
    }
}

/// Every type and reduction with sizes of no, one and several chunks, also with one rank.
#[test]
fn every_type_and_reduction() {
    for n in [1, 2, 5] {
        each(&Config { chunk_bytes: 4096, ..Config::new(n as u32) }, n, |mut comm| {
            let mut draw = numbers(9);
            for op in ReduceOp::BUILTIN {
                for dtype in 0..6 {
                    for count in [0, 1, 9, 4000] {
                        for mold in molds(n, &mut draw) {
                            check_typed(&mut comm, &Shape { mold, op, counts: vec![count; n] }, dtype);
                        }
                    }
                }
            }
            comm.finalize().unwrap();
        });
    }
}

/// A float whose sums differ in their last bits with the order of addition.
fn rough(rank: usize, i: usize) -> f32 {
    let hash = (i as u64 * 977 + rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((hash >> 40) as f32 / 1e7 - 0.8) * 10f32.powi((hash >> 8 & 7) as i32 - 3)
}

/// The sum of element `i` of all `n` ranks, that of `first` first and then around the ring.
fn rough_sum(first: usize, n: usize, i: usize) -> u32 {
    let values = (0..n).map(|k| rough((first + k) % n, i));
    values.reduce(|sum, value| sum + value).unwrap().to_bits()
}

/// Reductions add in the order of ranks, in a ring in NCCL's order, which ends at the rank that gets the sum: the bits
/// are those of a plain loop in that order.
#[test]
fn bits_follow_the_order() {
    for n in [2, 3, 5] {
        for algorithm in Algorithm::ALL {
            let config = Config { algorithm: Some(algorithm), chunk_bytes: 4096, ..Config::new(n as u32) };
            each(&config, n, |mut comm| {
                let rank = comm.rank();
                let first = |last: usize| if algorithm == Algorithm::Ring { (last + 1) % n } else { 0 };
                for count in [1, 100, 5000] {
                    let all: Vec<f32> = (0..n * count).map(|i| rough(rank, i)).collect();
                    let mut one = vec![0.0; count];
                    comm.reduce_scatter(&all, &mut one, ReduceOp::Sum).unwrap();
                    for (i, sum) in one.iter().enumerate() {
                        assert_eq!(
                            sum.to_bits(),
                            rough_sum(first(rank), n, rank * count + i),
                            "{algorithm} {n}"
                        );
                    }
                    for root in 0..n {
                        comm.reduce(&all[..count], &mut one, ReduceOp::Sum, root).unwrap();
                        for (i, sum) in one.iter().enumerate().filter(|_| rank == root) {
                            assert_eq!(
                                sum.to_bits(),
                                rough_sum(first(root), n, i),
                                "{algorithm} {n} to {root}"
                            );
                        }
                    }
                }
                comm.finalize().unwrap();
            });
        }
    }
}

/// Blocks of which one is long and the others are short or empty, whoever has it.
#[test]
fn lopsided_counts() {
    let config = Config { chunk_bytes: 2048, channels: 2, ..Config::new(4) };
    for algorithm in [Algorithm::Flat, Algorithm::Ring] {
        each(&Config { algorithm: Some(algorithm), ..config.clone() }, 4, |mut comm| {
            for long in 0..4 {
                for (most, rest) in [(1, 0), (20_000, 0), (20_000, 1), (3000, 400)] {
                    let mut counts = vec![rest; 4];
                    counts[long] = most;
                    for mold in [Mold::AllGatherV, Mold::ReduceScatterV] {
                        check::<f32>(&mut comm, &Shape { mold, op: ReduceOp::Sum, counts: counts.clone() });
                    }
                }
            }
            comm.finalize().unwrap();
        });
    }
}

/// Megabytes, which take the chunks and the stores of large operations, with the sizes that are chosen by default.
#[test]
fn large_operations() {
    for n in [2, 5] {
        each(&Config::new(n as u32), n, |mut comm| {
            let mut draw = numbers(3);
            for mold in molds(n, &mut draw) {
                check::<f32>(&mut comm, &Shape { mold, op: ReduceOp::Sum, counts: vec![500_003; n] });
            }
            comm.finalize().unwrap();
        });
    }
}

/// An all-to-all in place whose messages hold something for 8 of 17 ranks at a time: what comes from a rank must not
/// take the place of what is yet to be sent to it.
#[test]
fn windows_in_place() {
    let config = Config { chunk_bytes: 64, protocol: Some(Protocol::Simple), ..Config::new(17) };
    each(&config, 17, |mut comm| {
        for count in [1, 3] {
            let shape = Shape { mold: Mold::AllToAll, op: ReduceOp::Sum, counts: vec![count; 17] };
            check::<i64>(&mut comm, &shape);
        }
        comm.finalize().unwrap();
    });
}
