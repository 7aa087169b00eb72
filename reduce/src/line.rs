//! What a kernel needs from an instruction set: one cache line of elements held in registers.

use super::divide::Divider;
use super::dtype::Element;
use super::fp8::{F8E4M3, F8E5M2};

/// Bytes of a line, the unit every kernel works in; also the cache line of the machines we run on.
pub(super) const LINE: usize = 64;

/// Elements of one type that fill 64 bytes of memory, in the form they have in registers.
///
/// Floats narrower than binary32 are held as binary32 values that are exactly representable in the narrow type, so
/// a source costs one widening and a hop one rounding, with no store in between. Lanes need not be
/// in memory order: every operation works lane by lane.
///
/// The methods are `inline(always)` without target features and are inlined into an entry point that
/// enables them; that entry point is what keeps the instructions legal.
///
/// # Safety
///
/// For every method: the CPU has the features of the implementing instruction set. For those with a
/// pointer: 64 bytes there (`elems` elements for the `_part` forms) may be read or written, at any
/// alignment except for `stream`, which needs 64.
pub(super) trait Line: Copy {
    /// The element in memory.
    type Elem: Arith;
    /// Whether [`Line::stream`] bypasses the caches.
    const STREAMS: bool;
    /// Whether the `_part` forms are quick; if not, parts of a line are folded element by element.
    const MASKS: bool;

    unsafe fn load(from: *const u8) -> Self;
    /// Loads fewer elements than a line has; the other lanes hold zeros.
    unsafe fn load_part(from: *const u8, elems: usize) -> Self;
    unsafe fn store(self, to: *mut u8);
    unsafe fn store_part(self, to: *mut u8, elems: usize);
    /// Stores to a 64-byte aligned address without bringing the line into the cache.
    unsafe fn stream(self, to: *mut u8);

    unsafe fn sum(self, other: Self) -> Self;
    unsafe fn prod(self, other: Self) -> Self;
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn max(self, other: Self) -> Self;

    /// Rounds to the element type where `sum` and `prod` leave that to the next `settle` or store; called
    /// before a result enters another operation.
    #[inline(always)]
    unsafe fn settle(self) -> Self {
        self
    }

    /// A line whose memory image is `pattern` eight times.
    #[inline(always)]
    unsafe fn splat(pattern: u64) -> Self {
        let image = [pattern; LINE / 8];
        // SAFETY: the array is 64 readable bytes.
        unsafe { Self::load(image.as_ptr().cast()) }
    }

    /// Divides every element.
    #[inline(always)]
    unsafe fn divide(self, by: Divider) -> Self {
        let mut image = [0u64; LINE / 8];
        // SAFETY: the array is 64 writable and readable bytes.
        unsafe {
            self.store(image.as_mut_ptr().cast());
            divide_all::<Self::Elem>(&mut image, &by);
            Self::load(image.as_ptr().cast())
        }
    }
}

/// Divides every element of a line. Wider vectors do not divide faster, so that one copy serves all kernels of a type.
#[inline(never)]
fn divide_all<T: Arith>(image: &mut [u64; LINE / 8], by: &Divider) {
    for elem in bytemuck::cast_slice_mut::<u64, T>(image) {
        *elem = elem.divide(*by);
    }
}

/// The arithmetic of one element, as the portable path does it.
pub(super) trait Arith: Element {
    /// Whether averages divide at the end, and do not scale before.
    const DIVIDES: bool;
    /// Whether kernels exist in a second form for exactly two sources. It saves a few loads, which shows where the
    /// arithmetic is light, and costs as much time to compile as the first form.
    const PAIRS: bool;

    fn sum(self, other: Self) -> Self;
    fn prod(self, other: Self) -> Self;
    fn min(self, other: Self) -> Self;
    fn max(self, other: Self) -> Self;
    fn divide(self, by: Divider) -> Self;
}

macro_rules! integer {
    ($($t:ty, pairs $pairs:literal, $divide:expr;)*) => {$(
        impl Arith for $t {
            const DIVIDES: bool = true;
            const PAIRS: bool = $pairs;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                Ord::min(self, other)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                Ord::max(self, other)
            }
            #[inline(always)]
            fn divide(self, by: Divider) -> Self {
                $divide(by, self)
            }
        }
    )*};
}

// The comparison is the one of the x86 minimum: equal zeros give `other`, so that -0 and +0 come out
// the same on every path; only a NaN in `other` needs a test of its own.
macro_rules! float {
    ($($t:ty)*) => {$(
        impl Arith for $t {
            const DIVIDES: bool = false;
            const PAIRS: bool = size_of::<$t>() > 1;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                self * other
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if self < other || other.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self > other || other.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn divide(self, _by: Divider) -> Self {
                self
            }
        }
    )*};
}

macro_rules! narrow_float {
    ($($t:ty)*) => {$(
        impl Arith for $t {
            const DIVIDES: bool = false;
            const PAIRS: bool = size_of::<$t>() > 1;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                <$t>::from_f32(self.to_f32() + other.to_f32())
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                <$t>::from_f32(self.to_f32() * other.to_f32())
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if self < other || other.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self > other || other.is_nan() { self } else { other }
            }
            #[inline(always)]
            fn divide(self, _by: Divider) -> Self {
                self
            }
        }
    )*};
}

// As NCCL does, a minimum or maximum is converted like any other result: an infinity becomes the largest number.
macro_rules! float8 {
    ($($t:ty)*) => {$(
        impl Arith for $t {
            const DIVIDES: bool = false;
            const PAIRS: bool = size_of::<$t>() > 1;

            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                <$t>::from_f32(self.to_f32() + other.to_f32())
            }
            #[inline(always)]
            fn prod(self, other: Self) -> Self {
                <$t>::from_f32(self.to_f32() * other.to_f32())
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                <$t>::from_f32(Arith::min(self.to_f32(), other.to_f32()))
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                <$t>::from_f32(Arith::max(self.to_f32(), other.to_f32()))
            }
            #[inline(always)]
            fn divide(self, _by: Divider) -> Self {
                self
            }
        }
    )*};
}

integer! {
    i8, pairs false, |by: Divider, value: i8| by.short(i16::from(value)) as i8;
    u8, pairs false, |by: Divider, value: u8| by.short(i16::from(value)) as u8;
    i32, pairs true, |by: Divider, value: i32| by.word(f64::from(value));
    u32, pairs false, |by: Divider, value: u32| by.word(f64::from(value)) as u32;
    i64, pairs true, Divider::i64;
    u64, pairs false, Divider::u64;
}
float!(f32 f64);
narrow_float!(half::f16 half::bf16);
float8!(F8E4M3 F8E5M2);

/// A line whose bits can be combined; made of bytes, it serves integers of any size.
///
/// # Safety
///
/// As for [`Line`].
pub(super) trait Bits: Line<Elem = u8> {
    unsafe fn and(self, other: Self) -> Self;
    unsafe fn or(self, other: Self) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
}

/// A reduction of lines of one kind as the kernels see it: a type, so that each kernel is compiled for one.
pub(super) trait Op<L: Line> {
    /// Whether inputs may have to be scaled, or results divided.
    const SCALES: bool;
    /// Folds `next` into `acc`.
    ///
    /// # Safety
    ///
    /// As for [`Line`].
    unsafe fn apply(acc: L, next: L) -> L;
    /// The same for single elements.
    fn apply_element(acc: L::Elem, next: L::Elem) -> L::Elem;
}

macro_rules! op {
    ($($name:ident: $kind:ident::$method:ident, $element:path, scales $scales:literal;)*) => {$(
        #[derive(Debug)]
        pub(super) struct $name;
        impl<L: $kind> Op<L> for $name {
            const SCALES: bool = $scales;
            #[inline(always)]
            unsafe fn apply(acc: L, next: L) -> L {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { acc.$method(next) }
            }
            #[inline(always)]
            fn apply_element(acc: L::Elem, next: L::Elem) -> L::Elem {
                $element(acc, next)
            }
        }
    )*};
}

op! {
    Sum: Line::sum, Arith::sum, scales false;
    Prod: Line::prod, Arith::prod, scales false;
    Min: Line::min, Arith::min, scales false;
    Max: Line::max, Arith::max, scales false;
    ScaledSum: Line::sum, Arith::sum, scales true;
    BitAnd: Bits::and, std::ops::BitAnd::bitand, scales false;
    BitOr: Bits::or, std::ops::BitOr::bitor, scales false;
    BitXor: Bits::xor, std::ops::BitXor::bitxor, scales false;
}
