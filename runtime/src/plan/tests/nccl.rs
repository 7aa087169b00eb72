//! NCCL's order of addition: plans against a model that shares no code with them.

#[path = "../../../tests/common/nccl_order.rs"]
mod model;

use super::machine::run_plans;
use super::*;
use model::{Op, Proto, Shape, runs};
use proptest::prelude::*;

const TYPES: [DType; 4] = [DType::U8, DType::Bf16, DType::F32, DType::F64];

fn proto(protocol: Protocol) -> Proto {
    match protocol {
        Protocol::Ll => Proto::Ll,
        Protocol::Ll128 => Proto::Ll128,
        Protocol::Simple => Proto::Simple,
    }
}

/// A call, what NCCL's cut of it depends on, and the same as the model takes it.
#[derive(Clone, Debug)]
struct Case {
    call: Call,
    cut: NcclCut,
    n: u32,
    shape: Shape,
}

impl Case {
    fn plans(&self, chunk_bytes: usize) -> Vec<Plan> {
        let order: Arc<[u32]> = self.shape.ring.as_slice().into();
        // The natural order both ways: as a list, and as what stands for it.
        let order = (self.cut.channels.is_multiple_of(2) || !order.is_sorted()).then_some(order);
        let plan =
            |rank| Plan::on_ring(self.call.clone(), self.choice(chunk_bytes), rank, self.n, order.clone());
        (0..self.n).map(plan).collect()
    }

    fn choice(&self, chunk_bytes: usize) -> Choice {
        let NcclCut { protocol, channels, .. } = self.cut;
        Choice { algorithm: Algorithm::Ring, protocol, channels, chunk_bytes, nccl: Some(self.cut) }
    }
}

/// The ranks in the natural order, or in another one.
fn shuffled(n: u32, seed: u64) -> Vec<u32> {
    let mut ring: Vec<u32> = (0..n).collect();
    if !seed.is_multiple_of(3) {
        (0..n as usize).for_each(|i| ring.swap(i, ((seed as usize * (i + 3)) >> 2) % n as usize));
    }
    ring
}

/// Cases of `bytes` at most in the largest buffer, with as many grains in a slot of NCCL's.
fn cases(bytes: usize, grains: impl Strategy<Value = u64> + Clone, most: u32) -> impl Strategy<Value = Case> {
    let drawn = (2..=6u32, 1..=most, 0..3usize, 0..4usize, 0..3usize, 0..bytes, grains, 0..1024u64);
    drawn.prop_map(move |(n, channels, protocol, dtype, kind, bytes, grains, odd)| {
        let (protocol, dtype) = (Protocol::ALL[protocol], TYPES[dtype]);
        let root = odd as u32 % n;
        let (kind, op) = [
            (Kind::AllReduce, Op::AllReduce),
            (Kind::Reduce { root }, Op::Reduce { root }),
            (Kind::ReduceScatter, Op::ReduceScatter),
        ][kind];
        let ranks = if kind == Kind::ReduceScatter { n as usize } else { 1 };
        // Half of them a few elements above whole cells for all channels, which leaves one too many.
        let whole = channels as usize * (16 << 10);
        let bytes = if odd.is_multiple_of(2) { bytes / whole * whole + odd as usize % 16 } else { bytes };
        let count = (bytes / dtype.size_bytes() / ranks).max(1);
        let slot = match protocol {
            Protocol::Simple => 512 * grains,
            Protocol::Ll => 32 * grains,
            Protocol::Ll128 => 2048 * grains,
        };
        // Sizes that nothing divides, too.
        let cut = NcclCut { protocol, channels, buffer_bytes: 8 * slot + odd };
        let shape = Shape {
            op,
            count,
            size: dtype.size_bytes(),
            ring: shuffled(n, odd),
            channels: channels as usize,
            proto: proto(protocol),
            buffer: cut.buffer_bytes as usize,
        };
        Case { call: Call::new(kind, count, dtype, ReduceOp::Sum), cut, n, shape }
    })
}

/// The order in which element `at` of the inputs has these ranks' added.
fn order(ranks: &[u32], at: usize) -> u64 {
    ranks.iter().map(|rank| Elem::input(*rank, at)).reduce(Elem::add).unwrap().order
}

/// Compares every element that some rank gets.
fn compare(case: &Case, outputs: &[Vec<Elem>]) {
    for run in runs(&case.shape) {
        for at in run.offset..run.offset + run.len {
            let right = order(&run.ranks, at);
            let look = |rank: u32, index: usize| {
                let elem = outputs[rank as usize][index];
                assert_eq!(
                    (elem.at, elem.order),
                    (at, right),
                    "{case:?}: element {at} on rank {rank}, {run:?}"
                );
            };
            match case.shape.op {
                Op::AllReduce => (0..case.n).for_each(|rank| look(rank, at)),
                Op::Reduce { root } => look(root, at),
                Op::ReduceScatter => look((at / case.call.count) as u32, at % case.call.count),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// On the symbolic machine every rank gets every element added up in NCCL's order, whatever the messages' size, in
    /// place and not: all kinds, protocols and sizes of elements, up to five channels and many strides.
    #[test]
    fn plans_add_in_nccls_order(
        case in cases(120_000, 1..4u64, 5), chunk in 1..40usize, in_place: bool, seed: u64,
    ) {
        let place = if in_place { Place::InPlace } else { Place::Apart };
        compare(&case, &run_plans(case.plans(64 * chunk), place, seed));
    }
}

/// Where each sum of a plan ends: the elements of the calls' largest buffer, and the rank that finishes them.
fn ends_of(case: &Case, chunk_bytes: usize) -> Vec<(usize, usize, u32)> {
    let mut ends = vec![];
    for (rank, plan) in (0..).zip(case.plans(chunk_bytes)) {
        for channel in 0..plan.channels() {
            let prims = (0..).map_while(|index| plan.prim(channel, index));
            for prim in prims.filter(|prim| prim.own.is_some() && prim.recv != Recv::None) {
                let Some(dst) = prim.dst.filter(|dst| dst.len > 0) else { continue };
                let block =
                    if case.call.kind == Kind::ReduceScatter { rank as usize * case.call.count } else { 0 };
                ends.push((block + dst.at, dst.len, rank));
            }
        }
    }
    ends.sort_unstable();
    // Messages of one chunk become one stretch.
    ends.dedup_by(|next, before| {
        let joins = before.0 + before.1 == next.0 && before.2 == next.2;
        before.1 += if joins { next.1 } else { 0 };
        joins
    });
    ends
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// With buffers of NCCL's own sizes, up to 16 channels and 64 MiB the sums end where the model's end, which in
    /// a ring says where they begin.
    #[test]
    fn sums_end_where_nccls_end(case in cases(64 << 20, 100..1024u64, 16)) {
        let mut right: Vec<(usize, usize, u32)> = vec![];
        for run in runs(&case.shape) {
            let end = *run.ranks.last().unwrap();
            match right.last_mut().filter(|before| before.2 == end) {
                Some(before) => before.1 += run.len,
                None => right.push((run.offset, run.len, end)),
            }
        }
        prop_assert_eq!(ends_of(&case, 128 << 10), right);
    }
}

/// Sizes without a variable are those of NCCL's sources: chunks of 2 MiB, 32 KiB and 576000 bytes.
#[test]
fn default_buffers() {
    for (protocol, bytes) in
        [(Protocol::Simple, 2 << 20), (Protocol::Ll, 32 << 10), (Protocol::Ll128, 576_000)]
    {
        let cut =
            NcclCut { protocol, channels: 1, buffer_bytes: crate::plan::nccl::default_buffer(protocol) };
        for dtype in TYPES {
            assert_eq!(cut.chunk(Kind::AllReduce, dtype.size_bytes()) * dtype.size_bytes(), bytes);
        }
    }
}

/// A cut made by hand: 100000 f32 in Simple on 2 channels of 4 ranks, with a buffer of 64 KiB.
///
/// Cells of 16 KiB (4096 elements): 25 of them, 13 on the first channel, 12 on the second. Chunks of 32 KiB (8192
/// elements): channel 0 has 53248 elements, one stride of 32768 and a rest of 20480, of 5120 for each rank.
#[test]
fn a_cut_by_hand() {
    let cut = NcclCut { protocol: Protocol::Simple, channels: 2, buffer_bytes: 64 << 10 };
    let parts = cut.parts(Kind::AllReduce, 100_000, 4, 4);
    assert_eq!((parts.low, parts.middles, parts.high), (53_248, 0, 46_752));
    let call = Call::new(Kind::AllReduce, 100_000, DType::F32, ReduceOp::Sum);
    let choice = Choice {
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        channels: 2,
        chunk_bytes: 32 << 10,
        nccl: Some(cut),
    };
    // Rank 1 finishes chunk 1 of each stride.
    let plan = Plan::new(call, choice, 1, 4);
    let finished = |channel| {
        let prims = (0..).map_while(|index| plan.prim(channel, index)).collect::<Vec<Prim>>();
        let last = prims.into_iter().filter(|prim| prim.own.is_some() && prim.recv != Recv::None);
        last.filter_map(|prim| prim.dst).collect::<Vec<Span>>()
    };
    assert_eq!(finished(0), [Span::new(8192, 8192), Span::new(32_768 + 5120, 5120)]);
    assert_eq!(finished(1)[0], Span::new(53_248 + 8192, 8192));
}
