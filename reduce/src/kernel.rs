//! The fold loop, written once over [`Line`] and compiled for each instruction set, type and operation.

use super::arch::fence_streams;
use super::divide::Divider;
use super::line::{Arith, LINE, Line, Op};
use super::sweep::{ALIGN_BYTES_MIN, Layout, Work, sweep};
use super::{Dst, Tuning};

/// One fold, as a kernel receives it.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) srcs: &'a [*const u8],
    pub(super) dsts: &'a [Dst],
    pub(super) count: usize,
    /// Which source to multiply by `factor`; out of range for none.
    pub(super) scaled: usize,
    /// The factor in the element type, repeated to fill 8 bytes.
    pub(super) factor: u64,
    pub(super) divider: Option<Divider>,
    pub(super) tuning: &'a Tuning,
}

/// A compiled fold; calling it needs the CPU features it was compiled for and the buffers that
/// [`super::Reducer::fold`] asks for.
pub(super) type Kernel = unsafe fn(&Call<'_>);

/// The sources of a fold: a pair whose pointers stay in registers, or any number of them.
trait Sources {
    fn len(&self) -> usize;
    fn at(&self, index: usize) -> *const u8;
}

impl Sources for [*const u8; 2] {
    #[inline(always)]
    fn len(&self) -> usize {
        2
    }
    #[inline(always)]
    fn at(&self, index: usize) -> *const u8 {
        self[index]
    }
}

impl Sources for &[*const u8] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[_]>::len(self)
    }
    #[inline(always)]
    fn at(&self, index: usize) -> *const u8 {
        self[index]
    }
}

/// The destinations: one, or two that receive the same lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sinks {
    ptr: [*mut u8; 2],
    stream: [bool; 2],
}

impl Sinks {
    #[inline(always)]
    pub(super) fn new(dsts: &[Dst], layout: Layout) -> Self {
        let second = dsts.get(1).map_or(std::ptr::null_mut(), |dst| dst.ptr);
        Sinks { ptr: [dsts[0].ptr, second], stream: layout.stream }
    }

    /// Stores `U` lines at `at`, `at + stride`, ...
    ///
    /// # Safety
    ///
    /// Those lines lie within both destinations, and a streaming destination is aligned at `at`.
    #[inline(always)]
    pub(super) unsafe fn lines<L: Line, const U: usize>(&self, lines: [L; U], at: usize, stride: usize) {
        for (ptr, stream) in self.ptr.into_iter().zip(self.stream) {
            if ptr.is_null() {
                continue;
            }
            for (u, line) in lines.into_iter().enumerate() {
                // SAFETY: the caller vouches for the lines and for the alignment.
                unsafe {
                    let to = ptr.add(at + u * stride);
                    if L::STREAMS && stream { line.stream(to) } else { line.store(to) }
                }
            }
        }
    }

    /// Stores a part of a line at `at`.
    ///
    /// # Safety
    ///
    /// `elems` elements at `at` lie within both destinations.
    #[inline(always)]
    pub(super) unsafe fn part<L: Line>(&self, line: L, at: usize, elems: usize) {
        for ptr in self.ptr {
            if !ptr.is_null() {
                // SAFETY: the caller vouches for the elements.
                unsafe { line.store_part(ptr.add(at), elems) }
            }
        }
    }

    /// Stores one element at `at`.
    ///
    /// # Safety
    ///
    /// That element lies within both destinations.
    #[inline(always)]
    unsafe fn element<T: Arith>(&self, elem: T, at: usize) {
        for ptr in self.ptr {
            if !ptr.is_null() {
                // SAFETY: the caller vouches for the element.
                unsafe { ptr.add(at).cast::<T>().write_unaligned(elem) }
            }
        }
    }

    /// Makes non-temporal stores visible before the caller publishes the result.
    #[inline(always)]
    pub(super) fn fence(&self) {
        if self.stream != [false; 2] {
            fence_streams();
        }
    }
}

struct Fold<L, O, S> {
    srcs: S,
    sinks: Sinks,
    scaled: usize,
    factor: L,
    factor_bits: u64,
    divider: Option<Divider>,
    op: std::marker::PhantomData<O>,
}

impl<L: Line, O: Op<L>, S: Sources> Fold<L, O, S> {
    /// Folds `U` lines that `load` fetches from one source, in source order.
    #[inline(always)]
    unsafe fn reduce<const U: usize>(&self, load: impl Fn(*const u8, usize) -> L) -> [L; U] {
        let fetch = |index: usize| {
            let src = self.srcs.at(index);
            std::array::from_fn::<L, U, _>(|u| {
                let line = load(src, u);
                if O::SCALES && index == self.scaled {
                    // SAFETY: the caller vouches for the instruction set.
                    unsafe { line.prod(self.factor).settle() }
                } else {
                    line
                }
            })
        };
        let mut acc = fetch(0);
        for index in 1..self.srcs.len() {
            for (a, next) in acc.iter_mut().zip(fetch(index)) {
                // SAFETY: the caller vouches for the instruction set.
                *a = unsafe { O::apply(if index > 1 { a.settle() } else { *a }, next) };
            }
        }
        if O::SCALES
            && L::Elem::DIVIDES
            && let Some(by) = self.divider
        {
            // SAFETY: the caller vouches for the instruction set.
            acc = acc.map(|line| unsafe { line.divide(by) });
        }
        acc
    }

    /// Folds the single element at byte offset `at`.
    #[inline(always)]
    unsafe fn element(&self, at: usize) {
        let fetch = |index: usize| {
            // SAFETY: the caller vouches for this element in every source.
            let elem = unsafe { self.srcs.at(index).add(at).cast::<L::Elem>().read_unaligned() };
            if O::SCALES && index == self.scaled { elem.prod(elem_of(self.factor_bits)) } else { elem }
        };
        let mut acc = fetch(0);
        for index in 1..self.srcs.len() {
            acc = O::apply_element(acc, fetch(index));
        }
        if O::SCALES
            && L::Elem::DIVIDES
            && let Some(by) = self.divider
        {
            acc = acc.divide(by);
        }
        // SAFETY: the caller vouches for this element in every destination.
        unsafe { self.sinks.element(acc, at) }
    }
}

/// The element that `pattern` repeats.
#[inline(always)]
fn elem_of<T: Arith>(pattern: u64) -> T {
    bytemuck::pod_read_unaligned(&bytemuck::bytes_of(&pattern)[..size_of::<T>()])
}

impl<L: Line, O: Op<L>, S: Sources> Work for Fold<L, O, S> {
    const ELEM: usize = size_of::<L::Elem>();

    // Everything is read before anything is written, so that a destination may be a source.
    #[inline(always)]
    unsafe fn lines<const U: usize>(&self, at: usize, stride: usize) {
        // SAFETY: the caller vouches for these lines in every buffer.
        unsafe {
            let acc = self.reduce::<U>(|src, u| L::load(src.add(at + u * stride)));
            self.sinks.lines(acc, at, stride);
        }
    }

    #[inline(always)]
    unsafe fn part(&self, at: usize, elems: usize) {
        if !L::MASKS {
            for i in 0..elems {
                // SAFETY: the caller vouches for these elements in every buffer.
                unsafe { self.element(at + i * Self::ELEM) }
            }
            return;
        }
        // SAFETY: the caller vouches for these elements in every buffer.
        unsafe {
            let [acc] = self.reduce::<1>(|src, _| L::load_part(src.add(at), elems));
            self.sinks.part(acc, at, elems);
        }
    }
}

/// Folds a whole call.
///
/// # Safety
///
/// The CPU features of `L` are enabled in the caller, and the buffers are as
/// [`super::Reducer::fold`] asks.
#[inline(always)]
pub(super) unsafe fn fold_all<L: Line, O: Op<L>, const U: usize>(call: &Call<'_>) {
    // SAFETY: both arms hand on the caller's promise.
    unsafe {
        if let [first, second] = *call.srcs
            && L::Elem::PAIRS
        {
            fold_from::<L, O, _, U>([first, second], call);
        } else {
            fold_from::<L, O, _, U>(call.srcs, call);
        }
    }
}

#[inline(always)]
unsafe fn fold_from<L: Line, O: Op<L>, S: Sources, const U: usize>(srcs: S, call: &Call<'_>) {
    let elem = size_of::<L::Elem>();
    let bytes = call.count * elem;
    let layout = if bytes < ALIGN_BYTES_MIN { Layout::SHORT } else { plan(call, bytes, elem) };
    // SAFETY: the caller vouches for the instruction set.
    let factor = unsafe { L::splat(call.factor) };
    let fold: Fold<L, O, S> = Fold {
        srcs,
        sinks: Sinks::new(call.dsts, layout),
        scaled: call.scaled,
        factor,
        factor_bits: call.factor,
        divider: call.divider,
        op: std::marker::PhantomData,
    };
    // SAFETY: the caller vouches for `bytes` bytes in every buffer.
    unsafe {
        if bytes < LINE {
            fold.part(0, call.count);
        } else {
            let head = layout.head;
            if head > 0 {
                fold.part(0, head / elem);
            }
            let interleave = call.tuning.interleaves(bytes, call.srcs.len(), layout.stream);
            sweep::<_, U>(&fold, head, bytes - head, interleave);
            fold.sinks.fence();
        }
    }
}

fn plan(call: &Call<'_>, bytes: usize, elem: usize) -> Layout {
    let in_place = |i: usize| call.dsts.get(i).is_some_and(|dst| call.srcs.contains(&dst.ptr.cast_const()));
    Layout::plan(call.dsts, [in_place(0), in_place(1)], bytes, elem, call.tuning)
}
