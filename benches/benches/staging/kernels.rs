//! Sums of two inputs beside a copy of one. `reduce/benches/reduce.rs` has every way of storing and more inputs.

use crate::group;
use criterion::{BenchmarkId, Criterion};
use ringccl::DType;
use ringccl::ReduceOp;
use ringccl::reduce::{Dst, Reducer, Store};
use std::hint::black_box;

const TYPES: [DType; 4] = [DType::F32, DType::Bf16, DType::F16, DType::F8E4M3];
/// Of each buffer. Three of the first fit into a core's second cache; the second is memory.
const SIZES: [(usize, Store); 2] = [(256 << 10, Store::Cached), (64 << 20, Store::Streaming)];
/// Of every input: small positive numbers in each of the types.
const FILL: u8 = 0x3c;

pub(crate) fn all(criterion: &mut Criterion) {
    let mut group = group(criterion, "kernel");
    let (bytes_max, _) = SIZES[1];
    let (left, right, mut out) = (vec![FILL; bytes_max], vec![FILL; bytes_max], vec![0; bytes_max]);
    for (bytes, store) in SIZES {
        group.bench_function(BenchmarkId::new("memcpy", bytes), |bencher| {
            bencher.iter(|| black_box(&mut out)[..bytes].copy_from_slice(&black_box(&left)[..bytes]));
        });
        for dtype in TYPES {
            let reducer = Reducer::new(dtype, ReduceOp::Sum, 2);
            let inputs = [left.as_ptr(), right.as_ptr()];
            group.bench_function(BenchmarkId::new(dtype.to_string(), bytes), |bencher| {
                out[..bytes].fill(0);
                let to = [Dst { ptr: out.as_mut_ptr(), store }];
                bencher.iter(|| {
                    // SAFETY: three live buffers of at least `bytes` bytes, of which nobody else uses the output.
                    unsafe { reducer.fold(black_box(&inputs), None, &to, bytes / dtype.size_bytes(), true) }
                });
                let (first, last) = (&out[..dtype.size_bytes()], &out[bytes - dtype.size_bytes()..bytes]);
                let is_sum = first == last && first.iter().any(|byte| ![FILL, 0].contains(byte));
                assert!(is_sum, "{bytes} bytes of {dtype} add up to {first:?} and {last:?}");
            });
        }
    }
    group.finish();
}
