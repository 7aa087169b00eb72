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
            let mut u = 0;
            while u < U {
                // SAFETY: the caller vouches for the lines and for the alignment.
                unsafe {
                    let to = ptr.add(at + u * stride);
                    if L::STREAMS && stream { lines[u].stream(to) } else { lines[u].store(to) }
                }
                u += 1;
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
    /// Folds `U` lines, `stride` apart, in source order; with `PART` one line, of which `stride` elements exist.
    ///
    /// There are no closures here and in the lines: not being `inline(always)`, they would be calls where their body is
    /// long, and so would be all instructions in them.
    #[inline(always)]
    unsafe fn reduce<const U: usize, const PART: bool>(&self, at: usize, stride: usize) -> [L; U] {
        // SAFETY: the caller vouches for these lines in every source, and for the instruction set.
        unsafe {
            let mut acc = self.fetch::<U, PART>(0, at, stride);
            let mut index = 1;
            while index < self.srcs.len() {
                let next = self.fetch::<U, PART>(index, at, stride);
                let mut u = 0;
                while u < U {
                    acc[u] = O::apply(if index > 1 { acc[u].settle() } else { acc[u] }, next[u]);
                    u += 1;
                }
                index += 1;
            }
            if O::SCALES
                && L::Elem::DIVIDES
                && let Some(by) = self.divider
            {
                let mut u = 0;
                while u < U {
                    acc[u] = acc[u].divide(by);
                    u += 1;
                }
            }
            acc
        }
    }

    /// Loads lines of one source and scales them if they are own input.
    #[inline(always)]
    unsafe fn fetch<const U: usize, const PART: bool>(
        &self,
        index: usize,
        at: usize,
        stride: usize,
    ) -> [L; U] {
        // SAFETY: the caller vouches for these lines in every source, and for the instruction set.
        unsafe {
            let from = self.srcs.at(index).add(at);
            let mut lines = [if PART { L::load_part(from, stride) } else { L::load(from) }; U];
            let mut u = 1;
            while u < U {
                lines[u] = L::load(from.add(u * stride));
                u += 1;
            }
            if O::SCALES && index == self.scaled {
                let mut u = 0;
                while u < U {
                    lines[u] = lines[u].prod(self.factor).settle();
                    u += 1;
                }
            }
            lines
        }
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
            let acc = self.reduce::<U, false>(at, stride);
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
            let [acc] = self.reduce::<1, true>(at, elems);
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
