//! `RINGCCL_NUMERICS=nccl`: real runs have the bits of NCCL's ring, as an independent model says its order.

mod common;
#[path = "common/nccl_order.rs"]
mod nccl_order;

use common::with_ranks;
use half::bf16;
use nccl_order::{Op, Proto, Shape, runs};
use ringccl::settings::Vars;
use ringccl::{Algorithm, Config, Element, F8E4M3, Numerics, Protocol, ReduceOp};
use std::fmt::Debug;

/// A type whose sums are rounded at every addition.
trait Rounded: Element + Copy + Default + PartialEq + Debug {
    /// A value of a random sign, of one of a few magnitudes, so that sums depend on the order.
    fn of(random: u64) -> Self;
    /// The sum of two, rounded once: what NCCL does at each hop.
    fn plus(self, other: Self) -> Self;
    fn bits(self) -> u64;
}

fn signed(random: u64, exponents: i32) -> f32 {
    let magnitude = 1.0 + (random >> 32 & 0xffff) as f32 / 65536.0;
    let scaled = magnitude * 2f32.powi((random >> 8 & 0xff) as i32 % exponents);
    if random & 1 == 0 { scaled } else { -scaled }
}

impl Rounded for f32 {
    fn of(random: u64) -> Self {
        signed(random, 12)
    }
    fn plus(self, other: Self) -> Self {
        self + other
    }
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
}

impl Rounded for bf16 {
    fn of(random: u64) -> Self {
        Self::from_f32(signed(random, 6))
    }
    fn plus(self, other: Self) -> Self {
        Self::from_f32(self.to_f32() + other.to_f32())
    }
    fn bits(self) -> u64 {
        self.to_bits().into()
    }
}

impl Rounded for F8E4M3 {
    /// Of magnitudes whose sums are exact in f16 as well as in f32: only the rounding to fp8 counts.
    fn of(random: u64) -> Self {
        Self::from_f32(signed(random, 4))
    }
    fn plus(self, other: Self) -> Self {
        Self::from_f32(self.to_f32() + other.to_f32())
    }
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

fn value<T: Rounded>(rank: u32, i: usize) -> T {
    T::of((i as u64 * 977 + u64::from(rank) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

/// NCCL's buffer in the tests: several strides in a few thousand elements.
fn buffer(protocol: Protocol) -> u64 {
    match protocol {
        Protocol::Simple => 8 << 10,
        Protocol::Ll => 4 << 10,
        Protocol::Ll128 => 32 << 10,
    }
}

fn config(n: u32, protocol: Protocol, channels: u32) -> Config {
    Config {
        numerics: Numerics::Nccl,
        protocol: Some(protocol),
        channels,
        buffer_bytes: Some(buffer(Protocol::Simple)),
        ll_buffer_bytes: Some(buffer(Protocol::Ll)),
        ll128_buffer_bytes: Some(buffer(Protocol::Ll128)),
        ..Config::new(n)
    }
}

/// All elements' sums in NCCL's order.
fn right<T: Rounded>(op: Op, count: usize, n: u32, protocol: Protocol, channels: u32) -> Vec<T> {
    let proto = match protocol {
        Protocol::Simple => Proto::Simple,
        Protocol::Ll => Proto::Ll,
        Protocol::Ll128 => Proto::Ll128,
    };
    let (size, ring) = (size_of::<T>(), (0..n).collect());
    let buffer = buffer(protocol) as usize;
    let shape = Shape { op, count, size, ring, channels: channels as usize, proto, buffer };
    let mut sums = Vec::new();
    for run in runs(&shape) {
        for i in run.offset..run.offset + run.len {
            sums.push(run.ranks.iter().map(|rank| value::<T>(*rank, i)).reduce(T::plus).unwrap());
        }
    }
    sums
}

/// What `rank` gets of all sums.
fn share<T: Rounded>(op: Op, sums: &[T], count: usize, rank: u32) -> &[T] {
    match op {
        Op::AllReduce => sums,
        Op::Reduce { root } if root == rank => sums,
        Op::Reduce { .. } => &[],
        Op::ReduceScatter => &sums[rank as usize * count..(rank as usize + 1) * count],
    }
}

fn check<T: Rounded>(n: u32, protocol: Protocol, channels: u32, counts: &[usize]) {
    let ops = [Op::AllReduce, Op::Reduce { root: n / 2 }, Op::ReduceScatter];
    let cases: Vec<(Op, usize, Vec<T>)> = ops
        .iter()
        .flat_map(|op| counts.iter().map(|c| (*op, *c, right(*op, *c, n, protocol, channels))))
        .collect();
    with_ranks(n, &config(n, protocol, channels), |mut comm| {
        let rank = comm.rank() as u32;
        for (op, count, sums) in &cases {
            let (op, count) = (*op, *count);
            let blocks = if op == Op::ReduceScatter { n as usize } else { 1 };
            let mine: Vec<T> = (0..count * blocks).map(|i| value(rank, i)).collect();
            let mut out = vec![T::default(); count];
            // The second time on other places of the rings.
            for time in 0..2 {
                out.fill(T::default());
                match op {
                    Op::AllReduce => comm.all_reduce(&mine, &mut out, ReduceOp::Sum).unwrap(),
                    Op::Reduce { root } => {
                        comm.reduce(&mine, &mut out, ReduceOp::Sum, root as usize).unwrap();
                    }
                    Op::ReduceScatter => comm.reduce_scatter(&mine, &mut out, ReduceOp::Sum).unwrap(),
                }
                let choice = comm.last_choice().unwrap();
                assert_eq!(choice.algorithm, Algorithm::Ring);
                assert!(choice.protocol == protocol, "{choice:?}");
                let right = share(op, sums, count, rank);
                let wrong = (0..right.len()).find(|i| out[*i].bits() != right[*i].bits());
                let told = wrong.map(|i| (i, out[i], right[i]));
                assert!(
                    told.is_none(),
                    "{op:?}, {n} ranks, {count} x {:?}, {channels} channels, time {time}, {choice:?}: {told:?}",
                    T::DTYPE
                );
            }
        }
        comm.finalize().unwrap();
    });
}

const COUNTS: [usize; 5] = [1, 33, 1000, 9001, 30_011];

fn check_all<T: Rounded>() {
    for n in [2u32, 3, 5] {
        for protocol in Protocol::ALL {
            for channels in [1, 3] {
                check::<T>(n, protocol, channels, &COUNTS);
            }
        }
    }
}

/// f32: all-reduce, reduce and reduce-scatter have the bits of NCCL's order on every rank and every time, in all three
/// protocols, on one and several channels.
#[test]
fn f32_has_nccls_bits() {
    check_all::<f32>();
}

/// The same with bf16, which is rounded at every hop.
#[test]
fn bf16_has_nccls_bits() {
    check_all::<bf16>();
}

/// The same with fp8.
#[test]
fn fp8_has_nccls_bits() {
    check_all::<F8E4M3>();
}

/// What the tests above rest on: the values tell orders apart, in every type, and cuts differ with the protocol, the
/// channels and the buffer.
#[test]
fn order_shows_in_the_values() {
    fn differing<T: Rounded>() {
        let count = 30_011;
        let ours: Vec<T> = right(Op::AllReduce, count, 5, Protocol::Simple, 1);
        for other in [
            right::<T>(Op::AllReduce, count, 5, Protocol::Ll, 1),
            right(Op::AllReduce, count, 5, Protocol::Ll128, 1),
            right(Op::Reduce { root: 4 }, count, 5, Protocol::Simple, 1),
            right(Op::Reduce { root: 3 }, count, 5, Protocol::Simple, 1),
        ] {
            let differ = ours.iter().zip(&other).filter(|(a, b)| a.bits() != b.bits()).count();
            assert!(differ > count / 20, "{:?}: {differ}", T::DTYPE);
        }
    }
    differing::<f32>();
    differing::<bf16>();
    differing::<F8E4M3>();
    let one: Vec<f32> = right(Op::AllReduce, 30_011, 5, Protocol::Simple, 1);
    let three: Vec<f32> = right(Op::AllReduce, 30_011, 5, Protocol::Simple, 3);
    assert!(one.iter().zip(&three).any(|(a, b)| a.to_bits() != b.to_bits()));
}

/// The size of our messages changes no bit, and the variables come to the same as the fields.
#[test]
fn messages_change_no_bit() {
    let sums: Vec<f32> = right(Op::AllReduce, 50_001, 3, Protocol::Ll128, 2);
    for chunk in ["64", "4160", "524288"] {
        let vars = Vars::from_pairs([
            ("RINGCCL_NUMERICS", "nccl"),
            ("NCCL_PROTO", "^LL,Simple"),
            ("NCCL_MAX_NCHANNELS", "2"),
            ("NCCL_LL128_BUFFSIZE", "32768"),
            ("RINGCCL_CHUNK_BYTES", chunk),
        ]);
        with_ranks(3, &Config::from_vars(3, &vars).unwrap(), |mut comm| {
            let mut all: Vec<f32> = (0..sums.len()).map(|i| value(comm.rank() as u32, i)).collect();
            comm.all_reduce_in_place(&mut all, ReduceOp::Sum).unwrap();
            assert!(all.iter().zip(&sums).all(|(a, b)| a.to_bits() == b.to_bits()), "chunk {chunk}");
            comm.finalize().unwrap();
        });
    }
}
