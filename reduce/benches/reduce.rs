//! Speed of the copy and reduction kernels beside the platform's `memcpy`, measured in the same run.
//!
//! `cargo bench -p ringccl-reduce --bench reduce` prints GB/s of the bytes moved (all bytes read plus all bytes
//! written) and the ratio to a `memcpy` of the same size. Without `--bench` each case runs once, as a smoke
//! test. A rate is the median of rounds in which all cases of a size take turns, so that a drift of the
//! machine's memory speed hits all of them alike.

use std::hint::black_box;
use std::time::Duration;

use ringccl_reduce::{DType, Dst, Isa, ReduceOp, Reducer, Store, Tuning, copy_with};

/// How results are written, and whether pages are read interleaved.
const WAYS: [(Store, bool); 3] =
    [(Store::Cached, false), (Store::Streaming, false), (Store::Streaming, true)];

/// A buffer of whole pages, faulted in.
struct Buffer(Vec<u64>);

impl Buffer {
    fn new(bytes: usize) -> Self {
        Buffer((0..(bytes + 4096) as u64 / 8).map(|i| i & 0x3fff_ffff_3fff_ffff).collect())
    }

    /// The first byte at a multiple of 64.
    fn ptr(&mut self) -> *mut u8 {
        let start = self.0.as_mut_ptr().cast::<u8>();
        start.wrapping_add((start as usize).wrapping_neg() % 64)
    }
}

/// One thing to time: its name, the bytes it moves, and how to do it once.
struct Case {
    name: String,
    bytes: usize,
    run: Box<dyn Fn()>,
    nanos: Vec<f64>,
}

impl Case {
    fn new(name: impl Into<String>, bytes: usize, run: impl Fn() + 'static) -> Self {
        Case { name: name.into(), bytes, run: Box::new(run), nanos: Vec::new() }
    }

    fn gbs(&mut self) -> f64 {
        self.nanos.sort_by(f64::total_cmp);
        self.bytes as f64 / self.nanos[self.nanos.len() / 2]
    }
}

/// CPU time of this thread: other processes take cores from a run, not time from this clock.
fn cpu_nanos() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec to write to; the clock exists on every Linux.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(rc, 0, "the thread's CPU clock is readable");
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

fn time(run: &dyn Fn(), repeats: u32) -> f64 {
    let start = cpu_nanos();
    for _ in 0..repeats {
        run();
    }
    (cpu_nanos() - start) / f64::from(repeats)
}

/// Times all cases in turns; the first is the yardstick.
fn compare(title: &str, mut cases: Vec<Case>, budget: Option<Duration>) {
    let rounds = if budget.is_some() { 9 } else { 1 };
    let share = budget.unwrap_or_default().as_nanos() as f64 / (cases.len() * rounds) as f64;
    for _ in 0..rounds {
        for case in &mut cases {
            let once = time(&*case.run, 1).max(1.0);
            let repeats = (share / once).clamp(1.0, 1e6) as u32;
            case.nanos.push(time(&*case.run, repeats));
        }
    }
    let yardstick = cases[0].gbs();
    println!("{title}");
    for mut case in cases {
        let rate = case.gbs();
        println!("  {:<34} {rate:8.1} GB/s  {:5.2} x memcpy", case.name, rate / yardstick);
    }
}

/// Streams whatever the size, and interleaves always or never.
fn tuning(interleave: bool) -> Tuning {
    Tuning {
        isa: Isa::detect(),
        stream_bytes_min: 0,
        interleave_bytes_min: if interleave { 0 } else { usize::MAX },
        interleave_sources_max: usize::MAX,
    }
}

fn memcpy(bytes: usize) -> Case {
    let (src, dst) = (Buffer::new(bytes).leak(), Buffer::new(bytes).leak());
    Case::new("memcpy", 2 * bytes, move || {
        // SAFETY: both leaked buffers hold `bytes` bytes and are different.
        unsafe { std::ptr::copy_nonoverlapping(black_box(src), dst, bytes) }
    })
}

impl Buffer {
    /// The buffer's address for the rest of the process: a bench has no need to free.
    fn leak(self) -> *mut u8 {
        Box::leak(Box::new(self)).ptr()
    }
}

fn copies(bytes: usize, budget: Option<Duration>) {
    let mut cases = vec![memcpy(bytes)];
    let (src, dst) = (Buffer::new(bytes).leak(), Buffer::new(bytes).leak());
    for (store, interleave) in WAYS {
        let tuning = tuning(interleave);
        let order = if interleave { "interleaved" } else { "in order" };
        cases.push(Case::new(format!("copy {store:?} {order}"), 2 * bytes, move || {
            // SAFETY: both leaked buffers hold `bytes` bytes and are different.
            unsafe { copy_with(&tuning, black_box(src), &[Dst { ptr: dst, store }], bytes) }
        }));
    }
    compare(&format!("copy {} KiB", bytes >> 10), cases, budget);
}

/// Walks over 64 MiB in pieces, as a collective does: the pieces are small, the memory is not in the cache.
fn pieces(bytes: usize, piece: usize, nsrcs: usize, budget: Option<Duration>) {
    let mut cases = vec![memcpy(bytes)];
    let srcs: Vec<*mut u8> = (0..nsrcs).map(|_| Buffer::new(bytes).leak()).collect();
    let dst = Buffer::new(bytes).leak();
    for (store, interleave) in WAYS {
        let reducer = Reducer::with_tuning(DType::F32, ReduceOp::Sum, nsrcs, tuning(interleave));
        let srcs = srcs.clone();
        let order = if interleave { "interleaved" } else { "in order" };
        cases.push(Case::new(format!("{store:?} {order}"), (nsrcs + 1) * bytes, move || {
            for at in (0..bytes).step_by(piece) {
                let part: Vec<*const u8> = srcs.iter().map(|src| src.wrapping_add(at).cast_const()).collect();
                let dst = Dst { ptr: dst.wrapping_add(at), store };
                // SAFETY: all leaked buffers hold `bytes` bytes, a multiple of `piece`, and are different.
                unsafe { reducer.fold(&part, None, &[dst], piece / 4, true) }
            }
        }));
    }
    compare(&format!("{nsrcs} sources, {} MiB in pieces of {} KiB", bytes >> 20, piece >> 10), cases, budget);
}

fn folds(dtype: DType, nsrcs: usize, bytes: usize, budget: Option<Duration>) {
    let mut cases = vec![memcpy(bytes)];
    let srcs: Vec<*const u8> = (0..nsrcs).map(|_| Buffer::new(bytes).leak().cast_const()).collect();
    let dst = Buffer::new(bytes).leak();
    let count = bytes / dtype.size_bytes();
    for (store, interleave) in WAYS {
        let reducer = Reducer::with_tuning(dtype, ReduceOp::Sum, nsrcs, tuning(interleave));
        let srcs = srcs.clone();
        let order = if interleave { "interleaved" } else { "in order" };
        cases.push(Case::new(format!("fold {store:?} {order}"), (nsrcs + 1) * bytes, move || {
            // SAFETY: all leaked buffers hold `bytes` bytes and are different.
            unsafe { reducer.fold(black_box(&srcs), None, &[Dst { ptr: dst, store }], count, true) }
        }));
    }
    compare(&format!("fold of {nsrcs} {dtype} sources, {} KiB each", bytes >> 10), cases, budget);
}

/// Sums of two sources of every float, the same bytes of each: what the arithmetic costs beside the memory.
fn floats(bytes: usize, budget: Option<Duration>) {
    let mut cases = vec![memcpy(bytes)];
    let srcs = [(); 2].map(|()| Buffer::new(bytes).leak().cast_const());
    let dst = Dst { ptr: Buffer::new(bytes).leak(), store: Store::Streaming };
    let dst = if bytes > 4 << 20 { dst } else { Dst::cached(dst.ptr) };
    for dtype in [DType::F32, DType::F16, DType::Bf16, DType::F8E4M3, DType::F8E5M2] {
        for isa in [Isa::Avx2, Isa::Avx512, Isa::Avx512Fp16].into_iter().filter(|isa| isa.is_available()) {
            let tuning = Tuning { isa, ..tuning(false) };
            let reducer = Reducer::with_tuning(dtype, ReduceOp::Sum, 2, tuning);
            let count = bytes / dtype.size_bytes();
            cases.push(Case::new(format!("{dtype} {isa}"), 3 * bytes, move || {
                // SAFETY: all leaked buffers hold `bytes` bytes and are different.
                unsafe { reducer.fold(black_box(&srcs), None, &[dst], count, true) }
            }));
        }
    }
    compare(&format!("sum of 2 sources, {} KiB each", bytes >> 10), cases, budget);
}

/// A fold into its own first source; streaming falls back to plain stores there.
fn in_place(bytes: usize, budget: Option<Duration>) {
    let mut cases = vec![memcpy(bytes)];
    let (dst, other) = (Buffer::new(bytes).leak(), Buffer::new(bytes).leak());
    for store in [Store::Cached, Store::Streaming] {
        let reducer = Reducer::with_tuning(DType::F32, ReduceOp::Max, 2, tuning(false));
        cases.push(Case::new(format!("fold {store:?} in place"), 3 * bytes, move || {
            let srcs = [dst.cast_const(), other.cast_const()];
            // SAFETY: both leaked buffers hold `bytes` bytes; the destination is the first source.
            unsafe { reducer.fold(black_box(&srcs), None, &[Dst { ptr: dst, store }], bytes / 4, true) }
        }));
    }
    compare(&format!("in place, 2 sources, {} KiB each", bytes >> 10), cases, budget);
}

fn tiny(budget: Option<Duration>) {
    println!("tiny folds, f32 sum, nanoseconds a call");
    let repeats = if budget.is_some() { 2_000_000 } else { 1 };
    let (a, b, out) = (Buffer::new(4096).leak(), Buffer::new(4096).leak(), Buffer::new(4096).leak());
    for isa in Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
        print!("  {isa:<11}");
        for (nsrcs, count) in [(2, 1), (2, 2), (2, 15), (2, 16), (2, 64), (8, 2), (8, 256)] {
            let reducer =
                Reducer::with_tuning(DType::F32, ReduceOp::Sum, nsrcs, Tuning { isa, ..Tuning::host() });
            let srcs: Vec<*const u8> =
                (0..nsrcs).map(|s| if s % 2 == 0 { a } else { b }.cast_const()).collect();
            let run = || {
                // SAFETY: the leaked buffers hold 4096 bytes, more than `count` elements.
                unsafe { reducer.fold(black_box(&srcs), None, &[Dst::cached(out)], black_box(count), true) }
            };
            print!("  {nsrcs}x{count}: {:.1}", time(&run, repeats));
        }
        println!();
    }
}

fn main() {
    let full = std::env::args().any(|arg| arg == "--bench");
    let budget = full.then(|| Duration::from_millis(900));
    let largest = if full { 64 << 20 } else { 256 << 10 };
    tiny(budget);
    in_place(largest, budget);
    for bytes in [64 << 10, 1 << 20, 64 << 20].into_iter().filter(|&bytes| bytes <= largest) {
        copies(bytes, budget);
    }
    for piece in [4 << 10, 16 << 10, 64 << 10, 256 << 10] {
        for nsrcs in [1, 2] {
            pieces(largest, piece, nsrcs, budget);
        }
    }
    for bytes in [256 << 10, 64 << 20].into_iter().filter(|&bytes| bytes <= largest) {
        floats(bytes, budget.map(|budget| budget * 4));
        for nsrcs in [2, 4, 8] {
            folds(DType::F32, nsrcs, bytes, budget);
        }
    }
}
