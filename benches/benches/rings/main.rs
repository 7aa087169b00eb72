//! What rings cost, and what their layouts are chosen by.
//!
//! | group | one iteration is |
//! | --- | --- |
//! | `latency/HEAP-OR-SEGMENT/PROTOCOL` | one message from a private buffer into another thread's, one way: half a round trip |
//! | `throughput/HEAP-OR-SEGMENT` | one Simple slot of the given size, filled from and emptied into 64 MiB of private memory |
//! | `cost` | one call without another thread, or one whole message through a ring in this thread's cache |
//!
//! *heap* is [`shmring::heap_ring`]; *segment* is a named segment that this process has mapped twice, as two
//! processes would. The threads are bound to two cores where there are two. Arguments are criterion's: a
//! filter such as `latency/heap/LL/8`, `--test` to run everything once.

mod cost;
mod latency;
mod throughput;

use criterion::Criterion;
use std::time::Duration;

/// A second for each of some eighty points: what differs by less than the machine's own noise is not chosen by.
fn settings() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(700))
        .sample_size(20)
        .without_plots()
        .configure_from_args()
}

fn main() {
    ringccl_benches::cores::bind_to(0);
    let mut criterion = settings();
    cost::all(&mut criterion);
    latency::all(&mut criterion);
    throughput::all(&mut criterion);
    criterion.final_summary();
}
