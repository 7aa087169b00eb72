//! The kernels against the naive model, over types, operations, sizes, alignments and instruction sets.

mod reduce_model;

use half::{bf16, f16};
use proptest::prelude::*;
use reduce_model::{Model, agrees, fold, operation, same};
use ringccl_reduce::{DType, Dst, F8E4M3, F8E5M2, Isa, ReduceOp, Reducer, Scalar, Store, Tuning, copy_with};

/// Bytes around each buffer that must stay as they are.
const GUARD: usize = 64;
const GUARD_BYTE: u8 = 0xa5;

/// A buffer at a chosen offset from a cache line, with guards on both sides.
#[derive(Clone)]
struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize, misalign: usize) -> Self {
        let mut bytes = vec![GUARD_BYTE; len + 3 * GUARD + 64];
        let start = GUARD + (bytes.as_mut_ptr() as usize + GUARD).wrapping_neg() % 64 + misalign;
        Buffer { bytes, start, len }
    }

    fn ptr(&mut self) -> *mut u8 {
        self.bytes[self.start..].as_mut_ptr()
    }

    fn fill<T: Model>(&mut self, values: &[T]) {
        let range = self.start..self.start + self.len;
        self.bytes[range].copy_from_slice(bytemuck::cast_slice(values));
    }

    fn values<T: Model>(&self) -> Vec<T> {
        let bytes = &self.bytes[self.start..self.start + self.len];
        bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
    }

    fn guards_intact(&self) -> bool {
        let (before, after) = (&self.bytes[..self.start], &self.bytes[self.start + self.len..]);
        before.iter().chain(after).all(|&byte| byte == GUARD_BYTE)
    }
}

/// A small generator whose whole state is the seed that proptest prints.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn value<T: Model>(&mut self) -> T {
        let raw = self.next();
        if raw.is_multiple_of(8) { T::special(raw >> 8) } else { T::from_raw(raw >> 7) }
    }
}

/// More than there are operations of any type.
const OPS: usize = 9;

#[derive(Clone, Debug)]
struct Case {
    /// Number of the operation; which one it is depends on the type.
    op: usize,
    count: usize,
    srcs: usize,
    own: Option<usize>,
    last: bool,
    nranks: usize,
    stores: Vec<Store>,
    /// Which source the first destination is, if any.
    in_place: Option<usize>,
    misalign: Vec<usize>,
    interleave: bool,
    seed: u64,
}

fn counts() -> impl Strategy<Value = usize> {
    prop_oneof![
        3 => 0usize..=70,
        2 => (1usize..40, 0usize..3).prop_map(|(lines, off)| lines * 16 + off - 1),
        2 => 70usize..3000,
        1 => 8000usize..9000,
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (0..OPS, counts(), 1usize..=9, 1usize..=20, any::<bool>(), any::<bool>());
    let store = prop_oneof![Just(Store::Cached), Just(Store::Streaming)];
    let offsets = prop_oneof![Just(0usize), (0usize..8).prop_map(|words| words * 8), 0usize..64];
    let layout = (
        proptest::collection::vec(store, 1..=2),
        proptest::collection::vec(offsets, 11),
        any::<prop::sample::Index>(),
        any::<prop::sample::Index>(),
        0usize..4,
        any::<u64>(),
    );
    (shape, layout).prop_map(|((op, count, srcs, nranks, last, interleave), layout)| {
        let (stores, misalign, own, place, mode, seed) = layout;
        Case {
            op,
            count,
            srcs,
            own: (mode % 2 == 0).then(|| own.index(srcs)),
            last,
            nranks,
            stores,
            in_place: (mode >= 2).then(|| place.index(srcs)),
            misalign,
            interleave,
            seed,
        }
    })
}

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

fn tuning(isa: Isa, interleave: bool) -> Tuning {
    Tuning {
        isa,
        stream_bytes_min: 0,
        interleave_bytes_min: if interleave { 0 } else { usize::MAX },
        interleave_sources_max: usize::MAX,
    }
}

/// Runs one case on one instruction set and returns every destination.
fn run<T: Model>(case: &Case, op: ReduceOp, isa: Isa, inputs: &[Vec<T>]) -> Vec<Vec<T>> {
    let len = case.count * size_of::<T>();
    let mut srcs: Vec<Buffer> = Vec::new();
    for (values, &misalign) in inputs.iter().zip(&case.misalign) {
        srcs.push(Buffer::new(len, misalign));
        srcs.last_mut().unwrap().fill(values);
    }
    let fresh = if case.in_place.is_some() { 1 } else { 0 };
    let mut outs: Vec<Buffer> =
        (fresh..case.stores.len()).map(|i| Buffer::new(len, case.misalign[9 + i])).collect();
    let src_ptrs: Vec<*const u8> = srcs.iter_mut().map(|buffer| buffer.ptr().cast_const()).collect();
    let mut ptrs: Vec<*mut u8> = case.in_place.iter().map(|&s| src_ptrs[s].cast_mut()).collect();
    ptrs.extend(outs.iter_mut().map(Buffer::ptr));
    let dsts: Vec<Dst> = ptrs.iter().zip(&case.stores).map(|(&ptr, &store)| Dst { ptr, store }).collect();
    let reducer = Reducer::with_tuning(T::DTYPE, op, case.nranks, tuning(isa, case.interleave));
    // SAFETY: every buffer holds `count` elements and is private to this function; the destinations are
    // one of the sources or buffers of their own.
    unsafe { reducer.fold(&src_ptrs, case.own, &dsts, case.count, case.last) };
    assert!(srcs.iter().chain(&outs).all(Buffer::guards_intact), "{isa} wrote outside a buffer");
    for (s, (buffer, values)) in srcs.iter().zip(inputs).enumerate() {
        let kept = buffer.bytes[buffer.start..buffer.start + len] == *bytemuck::cast_slice::<T, u8>(values);
        assert!(kept || case.in_place == Some(s), "{isa} changed source {s}");
    }
    let mut results: Vec<Vec<T>> = case.in_place.iter().map(|&s| srcs[s].values()).collect();
    results.extend(outs.iter().map(Buffer::values));
    results
}

fn check<T: Model>(case: &Case) {
    let mut random = Random(case.seed);
    let inputs: Vec<Vec<T>> =
        (0..case.srcs).map(|_| (0..case.count).map(|_| random.value()).collect()).collect();
    let op = operation::<T>(case.op, random.next());
    let mut first: Option<Vec<T>> = None;
    for isa in isas() {
        let results = run(case, op, isa, &inputs);
        assert_eq!(results.len(), case.stores.len());
        for result in &results {
            for i in 0..case.count {
                let column: Vec<T> = inputs.iter().map(|values| values[i]).collect();
                let want = fold(op, &column, case.own, case.nranks, case.last);
                assert!(
                    agrees(op, result[i], want),
                    "{isa} {op:?} {}[{i}]: {column:?} gave {:?}, the model {want:?}",
                    T::DTYPE,
                    result[i]
                );
                let reference = first.as_ref().map_or(result[i], |values| values[i]);
                assert!(same(result[i], reference), "{isa} {} [{i}] differs between paths", T::DTYPE);
            }
        }
        first.get_or_insert_with(|| results[0].clone());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    // Proves that every path equals the naive model and every other path, bit for bit, and touches nothing
    // outside its buffers.
    #[test]
    fn f32_folds_equal_the_model(case in cases()) { check::<f32>(&case); }

    // The same for binary64.
    #[test]
    fn f64_folds_equal_the_model(case in cases()) { check::<f64>(&case); }

    // The same for signed 8-bit integers, wrapping, bit operations included.
    #[test]
    fn i8_folds_equal_the_model(case in cases()) { check::<i8>(&case); }

    // The same for unsigned 8-bit integers.
    #[test]
    fn u8_folds_equal_the_model(case in cases()) { check::<u8>(&case); }

    // The same for signed 32-bit integers.
    #[test]
    fn i32_folds_equal_the_model(case in cases()) { check::<i32>(&case); }

    // The same for unsigned 32-bit integers.
    #[test]
    fn u32_folds_equal_the_model(case in cases()) { check::<u32>(&case); }

    // The same for signed 64-bit integers.
    #[test]
    fn i64_folds_equal_the_model(case in cases()) { check::<i64>(&case); }

    // The same for unsigned 64-bit integers.
    #[test]
    fn u64_folds_equal_the_model(case in cases()) { check::<u64>(&case); }

    // The same for binary16, rounded after every hop.
    #[test]
    fn f16_folds_equal_the_model(case in cases()) { check::<f16>(&case); }

    // The same for bf16, rounded after every hop.
    #[test]
    fn bf16_folds_equal_the_model(case in cases()) { check::<bf16>(&case); }

    // The same for the 8-bit floats, rounded and saturated after every hop.
    #[test]
    fn e4m3_folds_equal_the_model(case in cases()) { check::<F8E4M3>(&case); }

    // The same for the one with infinities.
    #[test]
    fn e5m2_folds_equal_the_model(case in cases()) { check::<F8E5M2>(&case); }

    // Proves that a copy moves exactly its bytes, at any alignment, to one or two destinations.
    #[test]
    fn copies_move_exactly_their_bytes(
        bytes in prop_oneof![0usize..300, 1000usize..5000, 30_000usize..80_000],
        misalign in proptest::collection::vec(0usize..64, 3),
        stores in proptest::collection::vec(prop_oneof![Just(Store::Cached), Just(Store::Streaming)], 1..=2),
        in_place in any::<bool>(),
        interleave in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut random = Random(seed);
        let data: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
        for isa in isas() {
            let mut src = Buffer::new(bytes, misalign[0]);
            let start = src.start;
            src.bytes[start..start + bytes].copy_from_slice(&data);
            let mut outs: Vec<Buffer> =
                stores.iter().zip(&misalign[1..]).map(|(_, &m)| Buffer::new(bytes, m)).collect();
            let mut ptrs: Vec<*mut u8> = outs.iter_mut().map(Buffer::ptr).collect();
            if in_place {
                ptrs[0] = src.ptr();
            }
            let dsts: Vec<Dst> = ptrs.iter().zip(&stores).map(|(&ptr, &store)| Dst { ptr, store }).collect();
            // SAFETY: every buffer holds `bytes` bytes, is private, and is another or the source itself.
            unsafe { copy_with(&tuning(isa, interleave), src.ptr(), &dsts, bytes) };
            prop_assert!(src.guards_intact() && src.bytes[start..start + bytes] == data[..]);
            for out in &outs[usize::from(in_place)..] {
                prop_assert!(out.guards_intact() && out.bytes[out.start..out.start + bytes] == data[..]);
            }
        }
    }
}

/// Every bit pattern against a different permutation of all of them, `rounds` times.
fn sums_of_all_patterns<T: Model>(op: ReduceOp, rounds: u64) {
    let all: Vec<T> = (0..=u64::from(u16::MAX)).map(T::from_raw).collect();
    let mut random = Random(7);
    for _ in 0..rounds {
        let (factor, offset) = (random.next() | 1, random.next());
        let other: Vec<T> =
            (0..1u64 << 16).map(|i| T::from_raw(i.wrapping_mul(factor).wrapping_add(offset))).collect();
        for isa in isas() {
            let mut out = vec![T::zeroed(); all.len()];
            let reducer = Reducer::with_tuning(T::DTYPE, op, 2, tuning(isa, false));
            let srcs = [all.as_ptr().cast::<u8>(), other.as_ptr().cast()];
            // SAFETY: all three vectors have the same length and do not overlap.
            unsafe { reducer.fold(&srcs, None, &[Dst::cached(out.as_mut_ptr().cast())], all.len(), true) };
            for ((&a, &b), &got) in all.iter().zip(&other).zip(&out) {
                let want = T::hop(op, a, b);
                assert!(agrees(op, got, want), "{isa}: {a:?} {op} {b:?} gave {got:?}, the model {want:?}");
            }
        }
    }
}

#[test]
fn sampled_pairs_of_all_half_patterns() {
    // Proves exact rounding of fp16 sums and products over 2.6 million pairs that cover every pattern.
    sums_of_all_patterns::<f16>(ReduceOp::Sum, 30);
    sums_of_all_patterns::<f16>(ReduceOp::Prod, 10);
}

#[test]
fn sampled_pairs_of_all_bfloat16_patterns() {
    // Proves the rounding of bf16 sums and products, subnormals and NaNs included.
    sums_of_all_patterns::<bf16>(ReduceOp::Sum, 20);
    sums_of_all_patterns::<bf16>(ReduceOp::Prod, 20);
}

/// Every pair of 8-bit values, with every operation.
fn all_pairs<T: Model>() {
    let value = |i: u64| T::from_raw(i);
    let left: Vec<T> = (0..1u64 << 16).map(|i| value(i >> 8)).collect();
    let right: Vec<T> = (0..1u64 << 16).map(|i| value(i & 0xff)).collect();
    for index in 0..OPS {
        let op = operation::<T>(index, 3);
        for isa in isas() {
            let mut out = vec![T::zeroed(); left.len()];
            let reducer = Reducer::with_tuning(T::DTYPE, op, 3, tuning(isa, false));
            let srcs = [left.as_ptr().cast::<u8>(), right.as_ptr().cast()];
            // SAFETY: all three vectors have the same length and do not overlap.
            unsafe {
                reducer.fold(&srcs, Some(1), &[Dst::cached(out.as_mut_ptr().cast())], left.len(), true)
            };
            for ((&a, &b), &got) in left.iter().zip(&right).zip(&out) {
                let want = fold(op, &[a, b], Some(1), 3, true);
                assert!(agrees(op, got, want), "{isa}: {a:?} {op:?} {b:?} gave {got:?}, the model {want:?}");
            }
        }
    }
}

#[test]
fn all_pairs_of_8_bit_values() {
    // Proves every result of every operation on two 8-bit elements, so also that rounding the floats by way of
    // binary16 is rounding once.
    all_pairs::<i8>();
    all_pairs::<u8>();
    all_pairs::<F8E4M3>();
    all_pairs::<F8E5M2>();
}

#[test]
fn eight_bit_floats_saturate_as_nccl() {
    // Proves by numbers written by hand that sums beyond the largest number stay there, that an infinity becomes it in
    // any operation, and that a NaN stays one, save against a number in a maximum.
    let two = |op, a: F8E5M2, b: F8E5M2, isa| {
        let mut out = F8E5M2::default();
        let srcs = [(&raw const a).cast(), (&raw const b).cast()];
        let reducer = Reducer::with_tuning(DType::F8E5M2, op, 2, tuning(isa, false));
        // SAFETY: every pointer is to one element.
        unsafe { reducer.fold(&srcs, None, &[Dst::cached((&raw mut out).cast())], 1, true) };
        out
    };
    let [one, infinity, nan] = [0x3c, 0x7c, 0x7d].map(F8E5M2::from_bits);
    for isa in isas() {
        assert_eq!(two(ReduceOp::Sum, F8E5M2::MAX, F8E5M2::MAX, isa).to_f32(), 57344.0);
        assert_eq!(two(ReduceOp::Max, one, infinity, isa).to_f32(), 57344.0);
        assert_eq!(two(ReduceOp::Min, one, infinity, isa).to_f32(), 1.0);
        assert_eq!(two(ReduceOp::Sum, one, nan, isa).to_bits(), 0x7f);
        assert_eq!(two(ReduceOp::Max, nan, one, isa).to_f32(), 1.0);
    }
}

#[test]
fn scalars_differ_from_rank_to_rank() {
    // Proves that each rank multiplies its own input only, by its own scalar, also when it is alone or the elements are
    // integers, which wrap.
    let step = |scalar: i8, inputs: &[i8], own| {
        let op = ReduceOp::PreMulSum(Scalar::new(scalar));
        let reducer = Reducer::new(DType::I8, op, 1);
        assert!(reducer.needs_pre_op() && !reducer.needs_post_op());
        let srcs: Vec<*const u8> = inputs.iter().map(|value| std::ptr::from_ref(value).cast()).collect();
        let mut out = 0i8;
        // SAFETY: every pointer is to one element.
        unsafe { reducer.fold(&srcs, Some(own), &[Dst::cached((&raw mut out).cast())], 1, true) };
        out
    };
    let first = step(3, &[5], 0);
    assert_eq!(first, 15);
    assert_eq!(step(-2, &[first, 10], 1), -5);
    assert_eq!(step(100, &[1, 2], 1), (1 + 200u8) as i8);
}

#[test]
#[should_panic(expected = "bxor is for integers, not for half; use one of sum")]
fn reducers_of_invalid_pairs_are_refused() {
    // Proves that no kernel can be had for a pair that makes no sense.
    let _ = Reducer::new(DType::F16, ReduceOp::BitXor, 2);
}

#[test]
fn half_sums_round_at_every_hop() {
    // Proves that 2048 + 1 + 1 + 1 + 1 stays 2048 in fp16: an accumulator kept wide would give 2052.
    let values = [2048.0f32, 1.0, 1.0, 1.0, 1.0].map(f16::from_f32);
    for isa in isas() {
        let mut out = f16::ZERO;
        let srcs = values.each_ref().map(|value| std::ptr::from_ref(value).cast::<u8>());
        let reducer = Reducer::with_tuning(DType::F16, ReduceOp::Sum, 5, tuning(isa, false));
        // SAFETY: every pointer is to one fp16 element.
        unsafe { reducer.fold(&srcs, None, &[Dst::cached((&raw mut out).cast())], 1, true) };
        assert_eq!(out.to_f32(), 2048.0, "{isa}");
    }
}

#[test]
fn averages_follow_nccl() {
    // Proves that a float average scales before the sum (no fp16 overflow) and an integer average divides the
    // wrapped sum once, toward zero.
    let average = |srcs: &[*const u8], dtype, own, out: *mut u8, last| {
        let reducer = Reducer::new(dtype, ReduceOp::Avg, 2);
        // SAFETY: the callers below pass pointers to single elements of `dtype`.
        unsafe { reducer.fold(srcs, own, &[Dst::cached(out)], 1, last) };
    };
    let big = f16::from_f32(60000.0);
    let (mut partial, mut mean) = (f16::ZERO, f16::ZERO);
    average(&[(&raw const big).cast()], DType::F16, Some(0), (&raw mut partial).cast(), false);
    let both = [(&raw const partial).cast(), (&raw const big).cast()];
    average(&both, DType::F16, Some(1), (&raw mut mean).cast(), true);
    assert_eq!(mean.to_f32(), 60000.0);

    for (a, b, want) in [(-3, 0, -1), (3, 0, 1), (i32::MAX, 1, i32::MIN / 2)] {
        let mut mean = 0i32;
        let srcs = [(&raw const a).cast(), (&raw const b).cast()];
        average(&srcs, DType::I32, Some(0), (&raw mut mean).cast(), true);
        assert_eq!(mean, want, "average of {a} and {b}");
    }
}
