//! Registered memory: every kind of collective on it against its definition, with some buffers private at random.

mod common;

use common::with_ranks;
use ringccl::{Algorithm, Communicator, Config, ReduceOp, SharedMemory, Tuning};

/// What the ranks of a trial agree on.
#[derive(Clone, Copy, Debug)]
struct Trial {
    kind: usize,
    count: usize,
    root: usize,
    /// Of input and output, in elements from the start of a half of the memory.
    places: [usize; 2],
    in_place: bool,
    /// A rank whose buffer is private, and which.
    private: Option<(usize, usize)>,
}

const KINDS: usize = 7;
const MEMORY: usize = 1 << 20;

fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
}

/// What `rank` has at `i`.
fn value(seed: u64, rank: usize, i: usize) -> i64 {
    mix(seed ^ ((rank as u64) << 40) ^ i as u64).cast_signed()
}

/// What `rank` shall have at `i` of its output, by the kind's definition.
fn expected(trial: Trial, seed: u64, (rank, n): (usize, usize), i: usize) -> Option<i64> {
    let Trial { kind, count, root, .. } = trial;
    let sum = |at: usize| (0..n).fold(0i64, |sum, of| sum.wrapping_add(value(seed, of, at)));
    match kind {
        0 => Some(sum(i)),
        1 => Some(value(seed, root, i)),
        2 => Some(value(seed, i / count, i % count)),
        3 => Some(sum(rank * count + i)),
        4 => Some(value(seed, i / count, rank * count + i % count)),
        5 => (rank == root).then(|| value(seed, i / count, i % count)),
        _ => Some(value(seed, root, rank * count + i)),
    }
}

/// Elements of input and output.
fn lengths(trial: Trial, n: usize) -> (usize, usize) {
    let (one, all) = (trial.count, trial.count * n);
    match trial.kind {
        0 | 1 => (one, one),
        2 | 5 => (one, all),
        4 => (all, all),
        _ => (all, one),
    }
}

fn trial(seed: u64, n: usize) -> Trial {
    let draw = |what: u64, below: usize| (mix(seed.wrapping_mul(31) ^ (what << 50)) % below as u64) as usize;
    let kind = draw(1, KINDS);
    let in_place = kind == 0 && draw(2, 2) == 0;
    Trial {
        kind,
        count: 2 + draw(3, 40_000),
        root: draw(4, n),
        places: [draw(5, 1000), draw(6, 1000)],
        in_place,
        private: (draw(7, 3) == 0).then(|| (draw(8, n), draw(9, 2))),
    }
}

fn run(comm: &mut Communicator, trial: Trial, input: &[i64], output: &mut [i64]) {
    match trial.kind {
        0 if trial.in_place => {
            output.copy_from_slice(input);
            comm.all_reduce_in_place(output, ReduceOp::Sum).unwrap();
        }
        0 => comm.all_reduce(input, output, ReduceOp::Sum).unwrap(),
        1 => comm.broadcast_from(input, output, trial.root).unwrap(),
        2 => comm.all_gather(input, output).unwrap(),
        3 => comm.reduce_scatter(input, output, ReduceOp::Sum).unwrap(),
        4 => comm.all_to_all(input, output).unwrap(),
        5 => comm.gather(input, output, trial.root).unwrap(),
        _ => comm.scatter(input, output, trial.root).unwrap(),
    }
}

/// Whether the trial can run without copies: every buffer that is read, or written by others, is registered.
fn is_direct(trial: Trial, n: usize) -> bool {
    let Trial { kind, count, root, in_place, private, .. } = trial;
    let (input, output) = lengths(trial, n);
    let bytes = 8 * if kind == 0 || kind == 1 { count } else { input.max(output) };
    let needed = |(rank, which): (usize, usize)| match kind {
        0 => which == 1 || !in_place,
        1 | 6 => which == 0 && rank == root,
        _ => which == 0,
    };
    let least = Tuning::shipped().row(n as u32).zero_copy;
    bytes as u64 >= least && !private.is_some_and(needed)
}

fn check(n: u32, seeds: std::ops::Range<u64>) {
    let direct = with_ranks(n, &Config::new(n), |mut comm| {
        let (rank, n) = (comm.rank(), comm.nranks());
        // Of different lengths, all long enough.
        let mut memory = SharedMemory::new(8 * (MEMORY + 512 * rank)).unwrap();
        let window = comm.register(&memory).unwrap();
        assert!(window.is_mapped());
        let mut private = vec![0i64; MEMORY];
        let mut direct = 0;
        for seed in seeds.clone() {
            let trial = trial(seed, n);
            let (read, written) = lengths(trial, n);
            let (low, high) = memory.as_mut_slice::<i64>().split_at_mut(MEMORY / 2);
            let (private_low, private_high) = private.split_at_mut(MEMORY / 2);
            let is_private = |which| trial.private == Some((rank, which));
            let input = if is_private(0) { private_low } else { low };
            let output = if is_private(1) { private_high } else { high };
            let input = &mut input[trial.places[0]..][..read];
            let output = &mut output[trial.places[1]..][..written];
            for (i, x) in input.iter_mut().enumerate() {
                *x = value(seed, rank, i);
            }
            output.fill(-1);
            run(&mut comm, trial, input, output);
            for (i, x) in output.iter().enumerate() {
                let expected = expected(trial, seed, (rank, n), i).unwrap_or(-1);
                assert_eq!(*x, expected, "seed {seed}, {trial:?}, rank {rank} of {n}, element {i}");
            }
            let chosen = comm.last_choice().unwrap().algorithm;
            assert_eq!(
                chosen == Algorithm::ZeroCopy,
                is_direct(trial, n),
                "seed {seed}, {trial:?}: {chosen}"
            );
            direct += usize::from(chosen == Algorithm::ZeroCopy);
        }
        comm.deregister(window).unwrap();
        comm.finalize().unwrap();
        direct
    });
    let all = (seeds.end - seeds.start) as usize;
    assert!(direct.iter().all(|of| *of == direct[0]) && direct[0] > all / 4, "{direct:?} of {all}");
}

#[test]
fn every_kind_is_right_on_two_ranks() {
    // Proves results and choices of 300 random calls, registered and not, on 2 ranks.
    check(2, 0..300);
}

#[test]
fn every_kind_is_right_on_three_and_five_ranks() {
    // Proves the same where pieces are uneven.
    check(3, 300..500);
    check(5, 500..620);
}
