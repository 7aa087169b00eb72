//! Operations of more than 4 Gi elements, really run: counts and offsets that need more than 32 bits.

use ringccl::{Communicator, Config, ReduceOp};
use std::time::{Duration, Instant};

/// Elements: not a multiple of anything, and more than 32 bits can count.
const COUNT: usize = (1 << 32) + 12_345_677;
/// What the test needs: two buffers, and the rings.
const BYTES: u64 = 2 * COUNT as u64 + (1 << 30);

/// Element `i` of a rank: beyond 2^32 other ones than at the start.
fn element(rank: usize, round: usize, i: usize) -> i8 {
    (i.wrapping_mul(31) + (i >> 32) * 101 + (i >> 13) + rank * 7 + round * 3) as i8
}

fn fill(buffer: &mut [i8], rank: usize, round: usize) {
    buffer.iter_mut().enumerate().for_each(|(i, to)| *to = element(rank, round, i));
}

/// The first element that is wrong.
fn wrong(buffer: &[i8], of: impl Fn(usize) -> i8) -> Option<(usize, i8)> {
    buffer.iter().enumerate().find(|(i, found)| **found != of(*i)).map(|(i, found)| (i, *found))
}

fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

fn run(mut comm: Communicator) {
    let rank = comm.rank();
    let mut buffer = vec![0i8; COUNT];
    let timed = |what: &str, took: Duration| {
        let rate = COUNT as f64 / took.as_secs_f64() / 1e9;
        println!("rank {rank}: {what} of {COUNT} elements in {took:.1?}, {rate:.2} GB/s");
    };
    fill(&mut buffer, rank, 0);
    let start = Instant::now();
    comm.all_reduce_in_place(&mut buffer, ReduceOp::Sum).unwrap();
    timed("all_reduce", start.elapsed());
    assert_eq!(wrong(&buffer, |i| element(0, 0, i).wrapping_add(element(1, 0, i))), None, "all_reduce");

    fill(&mut buffer, rank, 1);
    comm.barrier().unwrap();
    let start = Instant::now();
    comm.broadcast(&mut buffer, 1).unwrap();
    timed("broadcast", start.elapsed());
    assert_eq!(wrong(&buffer, |i| element(1, 1, i)), None, "broadcast");

    // One message, the other way round.
    fill(&mut buffer, rank, 2);
    comm.barrier().unwrap();
    let start = Instant::now();
    if rank == 0 {
        comm.send(&buffer, 1).unwrap();
    } else {
        comm.recv(&mut buffer, 0).unwrap();
    }
    timed("a message", start.elapsed());
    assert_eq!(wrong(&buffer, |i| element(0, 2, i)), None, "a message");
    comm.finalize().unwrap();
}

/// An all-reduce, a broadcast and a message of more than 2^32 elements give every element, those beyond included.
#[test]
#[ignore = "takes 9 GB of memory and a minute: cargo test --release -p verification --test huge -- --ignored"]
fn more_than_4_gi_elements() {
    let available = available_bytes();
    assert!(available > BYTES, "needs {BYTES} bytes of memory, {available} are available");
    let config = Config { timeout: Duration::from_secs(600), ..Config::new(2) };
    let comms = Communicator::init_all(2, &config).unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(|| run(comm))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
