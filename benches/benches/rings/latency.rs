//! How long a message takes from one thread's buffer into another's.

use criterion::{BenchmarkId, Criterion, Throughput};
use ringccl_benches::cores::bind_to;
use ringccl_benches::link::{Memory, Side, link, receive, send};
use shmring::Protocol;
use shmring::layout::RingGeometry;
use std::time::{Duration, Instant};

/// Slots as the runtime makes them for a connection of up to 16 ranks; longer messages take several.
const SHAPE: RingGeometry =
    RingGeometry { receivers: 1, slots: 8, ll_lines: 8, ll128_lines: 64, slot_bytes: 64 << 10 };
/// One line of each kind, the whole slot of LL, and powers of 4.
const SIZES: [usize; 9] = [8, 56, 120, 448, 1 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10];
/// Round trips before the clock starts: the echo's thread has to be made and bound first.
const WARM_UP: u64 = 50;

pub(crate) fn all(criterion: &mut Criterion) {
    for memory in Memory::ALL {
        for protocol in Protocol::ALL {
            let mut group = criterion.benchmark_group(format!("latency/{}/{protocol}", memory.name()));
            let mut sides = link(memory, SHAPE);
            for bytes in SIZES {
                group.throughput(Throughput::Bytes(bytes as u64));
                group.bench_function(BenchmarkId::from_parameter(bytes), |bencher| {
                    bencher.iter_custom(|iters| one_way(&mut sides, protocol, bytes, iters));
                });
            }
            group.finish();
        }
    }
}

/// Half the time of `iters` round trips.
fn one_way(sides: &mut [Side; 2], protocol: Protocol, bytes: usize, iters: u64) -> Duration {
    let slot = protocol.capacity(&SHAPE);
    let [near, far] = sides;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            bind_to(1);
            let mut buffer = vec![0; bytes];
            for _ in 0..WARM_UP + iters {
                receive(&mut far.receiver, protocol, slot, &mut buffer);
                send(&mut far.sender, protocol, &buffer);
            }
        });
        let payload: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
        let mut answer = vec![0; bytes];
        let mut exchange = |times| {
            for _ in 0..times {
                send(&mut near.sender, protocol, &payload);
                receive(&mut near.receiver, protocol, slot, &mut answer);
            }
        };
        exchange(WARM_UP);
        let start = Instant::now();
        exchange(iters);
        let elapsed = start.elapsed();
        assert!(answer == payload, "{bytes} bytes came back wrong in {protocol}");
        elapsed / 2
    })
}
