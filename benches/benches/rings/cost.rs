//! What the calls cost while no other thread touches the ring: instructions and private cache lines only.

use criterion::{BenchmarkId, Criterion};
use ringccl_benches::link::{STAMP, receive, segment_pair, send};
use shmring::layout::{RingGeometry, SLOTS_MAX};
use shmring::{Protocol, Receiver, Sender, heap_ring};
use std::hint::black_box;
use std::time::{Duration, Instant};

const SHAPE: RingGeometry =
    RingGeometry { receivers: 1, slots: 8, ll_lines: 64, ll128_lines: 64, slot_bytes: 4096 };
/// Slots of the ring on which posts are timed: the most there can be, so that the clock is read seldom.
const POSTS: u32 = SLOTS_MAX;

pub(crate) fn all(criterion: &mut Criterion) {
    looks(criterion);
    moves(criterion);
    messages(criterion);
}

fn ring(shape: RingGeometry) -> (Sender, Vec<Receiver>) {
    heap_ring(shape).expect("a valid shape")
}

fn credit(sender: &mut Sender) -> bool {
    sender.has_credit().expect("a ring that nobody has corrupted")
}

fn posted(receiver: &mut Receiver) -> bool {
    receiver.is_posted(STAMP).expect("a ring that nobody has corrupted")
}

/// Looks at the other side's counter: by the private copy, and by the shared line when the copy says no.
fn looks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cost");
    let (mut sender, mut receivers) = ring(SHAPE);
    group.bench_function("has_credit, private copy", |b| b.iter(|| credit(black_box(&mut sender))));
    let receiver = &mut receivers[0];
    group.bench_function("is_posted, shared line", |b| b.iter(|| posted(black_box(receiver))));
    sender.post(STAMP);
    assert!(posted(receiver));
    group.bench_function("is_posted, private copy", |b| b.iter(|| posted(black_box(receiver))));
    for receivers in [1, 3, 7] {
        let (mut sender, _receivers) = ring(RingGeometry { receivers, ..SHAPE });
        for _ in 0..SHAPE.slots {
            sender.post(STAMP);
        }
        let id = BenchmarkId::new("has_credit, shared lines of receivers", receivers);
        group.bench_function(id, |b| b.iter(|| credit(black_box(&mut sender))));
    }
    group.finish();
}

/// Moving a counter, and asking whether somebody sleeps.
fn moves(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cost");
    let mut many = ring(RingGeometry { slots: POSTS, ll_lines: 0, ll128_lines: 0, ..SHAPE });
    let clock = clock_cost();
    group.bench_function("post", |b| b.iter_custom(|iters| posts(&mut many, clock, iters)));
    let (mut sender, mut receivers) = ring(SHAPE);
    let receiver = &mut receivers[0];
    group.bench_function("has_credit, post, is_posted, release", |b| {
        b.iter(|| {
            assert!(credit(&mut sender));
            sender.post(STAMP);
            assert!(posted(receiver));
            receiver.release(Protocol::Simple);
        });
    });
    let [segment, _other] = segment_pair(SHAPE);
    group.bench_function("notify, nobody asleep", |b| b.iter(|| black_box(&segment).notify()));
    group.finish();
}

/// The time of one reading of the clock.
fn clock_cost() -> Duration {
    let start = Instant::now();
    for _ in 0..1000 {
        black_box(Instant::now());
    }
    start.elapsed() / 1000
}

/// The time of `iters` posts, in batches of a ring's slots, without the readings of the clock in between.
fn posts((sender, receivers): &mut (Sender, Vec<Receiver>), clock: Duration, iters: u64) -> Duration {
    let batches = iters.div_ceil(POSTS.into());
    let mut total = Duration::ZERO;
    for _ in 0..batches {
        let start = Instant::now();
        for _ in 0..POSTS {
            black_box(&mut *sender).post(STAMP);
        }
        total += start.elapsed().saturating_sub(clock);
        for _ in 0..POSTS {
            assert!(posted(&mut receivers[0]));
            receivers[0].release(Protocol::Simple);
        }
        assert!(credit(sender));
    }
    total.mul_f64(iters as f64 / (batches * u64::from(POSTS)) as f64)
}

/// Packing and unpacking of each layout.
fn messages(criterion: &mut Criterion) {
    for protocol in Protocol::ALL {
        let mut group = criterion.benchmark_group(format!("cost/message/{protocol}"));
        for bytes in [8, 56, 120, 1024, 3584] {
            let (mut sender, mut receivers) = ring(SHAPE);
            let (payload, mut buffer) = (vec![7; bytes], vec![0; bytes]);
            group.bench_function(BenchmarkId::from_parameter(bytes), |b| {
                b.iter(|| {
                    send(&mut sender, protocol, black_box(&payload));
                    receive(&mut receivers[0], protocol, bytes, black_box(&mut buffer));
                });
            });
        }
        group.finish();
    }
}
