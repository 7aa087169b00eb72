//! What the ways through shared memory cost: which of them is the fastest, at which size, and why.
//!
//! | group `staging/...` | one iteration is | cases |
//! | --- | --- | --- |
//! | `copy/in`, `copy/out` | a slot filled from, emptied into 64 MiB of memory | `memcpy`, plain, non-temporal |
//! | `path/RANKS` | an all-reduce | every algorithm, and registered memory |
//! | `chunk/RANKS` | an all-reduce of 16 MiB | every algorithm; values are bytes of the largest message |
//! | `slots/CORES/SLOT_BYTES` | a slot's bytes from one thread's memory into another's | values are slots of the ring |
//! | `protocol/RANKS` | an all-reduce, flat | LL, LL128, Simple |
//! | `kernel` | a sum of two inputs | types, beside `memcpy` |
//! | `handover/CORES` | one turn passed to another thread | spin, yield, doorbell, and what the runtime does |
//! | `allreduce/RANKS` | an all-reduce as users call it; a copy on every core | `ringccl`, and floors |
//!
//! Ranks are threads of this process, bound evenly to the cores. Every result is checked once before it is timed. A
//! rank that fails or is stuck ends the suite with an error that names it. Arguments are criterion's: a filter such as
//! `staging/path/2`, `--test` to run everything once.

mod copies;
mod handover;
mod kernels;
mod operations;
mod slots;
mod whole;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode};
use ringccl_benches::cores;
use std::fmt::Display;
use std::time::Duration;

/// Half a second for each of some 350 points: what differs by less than the machine's noise is not chosen by.
fn settings() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(60))
        .measurement_time(Duration::from_millis(250))
        .sample_size(11)
        .nresamples(2000)
        .without_plots()
        .configure_from_args()
}

/// A group whose samples have equally many iterations, as those of large operations are few. Binds this thread, which a
/// crew before may have let go.
fn group<'a>(criterion: &'a mut Criterion, name: impl Display) -> BenchmarkGroup<'a, WallTime> {
    cores::bind_to(0);
    let mut group = criterion.benchmark_group(format!("staging/{name}"));
    group.sampling_mode(SamplingMode::Flat);
    group
}

/// The value; an error ends the suite at once: threads may be stuck, for which an end by a panic would wait.
fn must<T>(result: anyhow::Result<T>) -> T {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        std::process::exit(1)
    })
}

fn main() {
    let mut criterion = settings();
    handover::all(&mut criterion);
    kernels::all(&mut criterion);
    copies::all(&mut criterion);
    slots::all(&mut criterion);
    operations::protocols(&mut criterion);
    operations::paths(&mut criterion);
    operations::chunks(&mut criterion);
    whole::all(&mut criterion);
    criterion.final_summary();
}
