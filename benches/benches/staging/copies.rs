//! Copies into slots and out of them.

use crate::group;
use criterion::{BenchmarkId, Criterion};
use ringccl::reduce::{Dst, Store, copy};
use std::hint::black_box;

/// Private memory, walked around and around: far more than a core's cache.
const PRIVATE_BYTES: usize = 64 << 20;
const SLOT_BYTES: [usize; 8] =
    [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, PRIVATE_BYTES];

/// How bytes are copied.
#[derive(Clone, Copy)]
enum Way {
    Memcpy,
    Ours(Store),
}

const WAYS: [(&str, Way); 3] = [
    ("memcpy", Way::Memcpy),
    ("plain", Way::Ours(Store::Cached)),
    ("non-temporal", Way::Ours(Store::Streaming)),
];

pub(crate) fn all(criterion: &mut Criterion) {
    let mut private = vec![1u8; PRIVATE_BYTES];
    let mut slot = vec![2u8; PRIVATE_BYTES];
    for (name, into_slot) in [("copy/in", true), ("copy/out", false)] {
        let mut group = group(criterion, name);
        for bytes in SLOT_BYTES {
            for (way_name, way) in WAYS {
                let mut places = (0..PRIVATE_BYTES / bytes).map(|i| i * bytes).cycle();
                group.bench_function(BenchmarkId::new(way_name, bytes), |bencher| {
                    bencher.iter(|| {
                        let at = places.next().unwrap_or(0);
                        let (place, slot) = (&mut private[at..at + bytes], &mut slot[..bytes]);
                        if into_slot { run(way, place, slot) } else { run(way, slot, place) }
                    });
                });
            }
        }
        group.finish();
    }
}

#[inline]
fn run(way: Way, from: &[u8], to: &mut [u8]) {
    let from = black_box(from);
    match way {
        Way::Memcpy => to.copy_from_slice(from),
        Way::Ours(store) => {
            // SAFETY: both are live slices of the same length, and a mutable one overlaps nothing.
            unsafe { copy(from.as_ptr(), &[Dst { ptr: to.as_mut_ptr(), store }], from.len()) }
        }
    }
}
