//! Plain copies to one or two destinations.

use super::arch::copy_kernel;
use super::kernel::Sinks;
use super::line::{LINE, Line};
use super::sweep::{Layout, Work, sweep};
use super::{Dst, Store, Tuning};

/// The aligned middle of a copy, as a copy loop receives it: whole lines.
#[derive(Debug)]
pub(super) struct CopyJob {
    src: *const u8,
    sinks: Sinks,
    start: usize,
    bytes: usize,
    interleave: bool,
}

/// A compiled copy loop; calling it needs the CPU features it was compiled for and valid buffers.
pub(super) type CopyKernel = unsafe fn(&CopyJob);

struct Copy<'a, L> {
    job: &'a CopyJob,
    line: std::marker::PhantomData<L>,
}

impl<L: Line> Work for Copy<'_, L> {
    const ELEM: usize = size_of::<L::Elem>();

    #[inline(always)]
    unsafe fn lines<const U: usize>(&self, at: usize, stride: usize) {
        // SAFETY: the caller vouches for these lines in every buffer.
        unsafe {
            let lines = std::array::from_fn::<L, U, _>(|u| L::load(self.job.src.add(at + u * stride)));
            self.job.sinks.lines(lines, at, stride);
        }
    }

    #[inline(always)]
    unsafe fn part(&self, at: usize, elems: usize) {
        // SAFETY: the caller vouches for these elements in every buffer.
        unsafe { self.job.sinks.part(L::load_part(self.job.src.add(at), elems), at, elems) }
    }
}

/// Copies the whole job.
///
/// # Safety
///
/// The CPU features of `L` are enabled in the caller, and the job's buffers have its `bytes`.
#[inline(always)]
pub(super) unsafe fn copy_all<L: Line, const U: usize>(job: &CopyJob) {
    let copy: Copy<'_, L> = Copy { job, line: std::marker::PhantomData };
    // SAFETY: the caller vouches for the buffers.
    unsafe { sweep::<_, U>(&copy, job.start, job.bytes, job.interleave) };
    job.sinks.fence();
}

/// Copies `bytes` bytes from `src` to one or two destinations, at any alignment.
///
/// # Safety
///
/// - `src` is readable and each of the 1 or 2 `dsts` writable for `bytes` bytes during the call.
/// - A destination is `src` itself or overlaps nothing.
#[inline]
pub unsafe fn copy(src: *const u8, dsts: &[Dst], bytes: usize) {
    // SAFETY: the caller's promise is the same; `copy_range` takes all of one destination.
    unsafe {
        // Short copies must not pay for looking at the CPU.
        match dsts {
            [dst] if dst.store == Store::Cached => copy_range(src, dsts, 0, bytes),
            _ => copy_with(&Tuning::host(), src, dsts, bytes),
        }
    }
}

/// [`copy`] with an explicit instruction set and explicit thresholds.
///
/// # Panics
///
/// When `tuning.isa` is not available on this CPU or `dsts` has not 1 or 2 entries.
///
/// # Safety
///
/// As for [`copy`].
pub unsafe fn copy_with(tuning: &Tuning, src: *const u8, dsts: &[Dst], bytes: usize) {
    assert!(matches!(dsts.len(), 1 | 2), "a copy has 1 or 2 destinations, not {}", dsts.len());
    if dsts.len() == 2 || tuning.copies_lines(dsts[0].store, bytes) {
        // SAFETY: the caller's promise is the same.
        unsafe { copy_by_lines(tuning, src, dsts, bytes) }
    } else {
        // SAFETY: the whole range lies within the buffers.
        unsafe { copy_range(src, dsts, 0, bytes) }
    }
}

unsafe fn copy_by_lines(tuning: &Tuning, src: *const u8, dsts: &[Dst], bytes: usize) {
    assert!(tuning.isa.is_available(), "this CPU has no {}", tuning.isa);
    let in_place = |i: usize| dsts.get(i).is_some_and(|dst| dst.ptr.cast_const() == src);
    let layout = Layout::plan(dsts, [in_place(0), in_place(1)], bytes, 1, tuning);
    let middle = (bytes - layout.head) / LINE * LINE;
    let Some(kernel) = copy_kernel(tuning.isa).filter(|_| middle > 0) else {
        // SAFETY: the whole range lies within the buffers.
        return unsafe { copy_range(src, dsts, 0, bytes) };
    };
    let interleave = tuning.interleaves(middle, 1, layout.stream);
    // SAFETY: the features were checked above, the three ranges make up `bytes`, and the caller vouches
    // for that much of every buffer.
    unsafe {
        copy_range(src, dsts, 0, layout.head);
        kernel(&CopyJob {
            src,
            sinks: Sinks::new(dsts, layout),
            start: layout.head,
            bytes: middle,
            interleave,
        });
        copy_range(src, dsts, layout.head + middle, bytes);
    }
}

/// Copies the bytes from offset `start` to offset `end` with the platform's `memcpy`.
#[inline]
unsafe fn copy_range(src: *const u8, dsts: &[Dst], start: usize, end: usize) {
    for dst in dsts {
        if dst.ptr.cast_const() != src {
            // SAFETY: the caller vouches for `end` bytes of both buffers, which do not overlap.
            unsafe { std::ptr::copy_nonoverlapping(src.add(start), dst.ptr.add(start), end - start) };
        }
    }
}
