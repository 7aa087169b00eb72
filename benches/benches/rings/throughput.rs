//! Bytes per second through slots of one size: where a slot is small, hand-overs count; where all of them
//! together leave the cache, memory does.

use criterion::{BenchmarkId, Criterion, Throughput};
use ringccl::reduce::{Dst, Store, copy};
use ringccl_benches::cores::bind_to;
use ringccl_benches::link::{Memory, STAMP, Side, link, receive, send, wait};
use shmring::Protocol;
use shmring::layout::RingGeometry;
use std::time::{Duration, Instant};

/// Private memory on either side, walked around and around: more than a core's cache.
const BUFFER_BYTES: usize = 64 << 20;
const SLOT_BYTES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

pub(crate) fn all(criterion: &mut Criterion) {
    let source: Vec<u8> = (0..BUFFER_BYTES).map(|i| (i % 251) as u8).collect();
    let mut sink = vec![1; BUFFER_BYTES]; // not 0, so that its pages are there
    for memory in Memory::ALL {
        let mut group = criterion.benchmark_group(format!("throughput/{}", memory.name()));
        for slot_bytes in SLOT_BYTES {
            let shape = RingGeometry {
                receivers: 1,
                slots: 8,
                ll_lines: 1,
                ll128_lines: 0,
                slot_bytes: slot_bytes as u32,
            };
            let mut sides = link(memory, shape);
            group.throughput(Throughput::Bytes(slot_bytes as u64));
            group.bench_function(BenchmarkId::from_parameter(slot_bytes), |bencher| {
                bencher.iter_custom(|iters| stream(&mut sides, &source, &mut sink, slot_bytes, iters));
            });
        }
        group.finish();
    }
}

/// Copies as the runtime copies out large results: past the cache. Below 4 KiB that is a plain store.
fn copy_out(from: *const u8, to: &mut [u8]) {
    let to_sink = Dst { ptr: to.as_mut_ptr(), store: Store::Streaming };
    // SAFETY: the caller's slot holds at least as many bytes as the slice, and they do not overlap.
    unsafe { copy(from, &[to_sink], to.len()) };
}

/// The time from the first slot's filling until the last one's bytes are in the sink.
fn stream(sides: &mut [Side; 2], source: &[u8], sink: &mut [u8], slot: usize, iters: u64) -> Duration {
    let [near, far] = sides;
    let whole = BUFFER_BYTES / slot;
    let places = move || (0..iters).map(move |i| i as usize % whole * slot);
    std::thread::scope(|scope| {
        let sink = &mut *sink;
        scope.spawn(move || {
            bind_to(1);
            send(&mut far.sender, Protocol::Ll, &[1; 8]);
            for at in places() {
                wait(|| far.receiver.is_posted(STAMP));
                // SAFETY: the slot was posted and has `slot` bytes.
                unsafe { far.receiver.read_slot(|from, _| copy_out(from, &mut sink[at..at + slot])) };
                far.receiver.release(Protocol::Simple);
            }
            send(&mut far.sender, Protocol::Ll, &[2; 8]);
        });
        let mut word = [0; 8];
        receive(&mut near.receiver, Protocol::Ll, 56, &mut word); // the other side is there
        let start = Instant::now();
        for at in places() {
            send(&mut near.sender, Protocol::Simple, &source[at..at + slot]);
        }
        receive(&mut near.receiver, Protocol::Ll, 56, &mut word); // the other side is done
        start.elapsed()
    })
}
