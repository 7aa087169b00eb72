//! What a rank asks of the scheduler: a short slice where ranks share cores, a core of its own on request.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::time::Duration;

/// The slice that ranks ask for when they share cores.
///
/// With a foreign program on the machine, a rank that yields comes back only after that program's slice, several
/// milliseconds by default; the kernel gives a thread that asked for a short slice its turn much sooner.
const SLICE: Duration = Duration::from_micros(100);

/// `struct sched_attr` of the kernel, first version.
#[repr(C)]
#[derive(Debug, Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Asks for [`SLICE`] for this thread. Kernels before 6.12 know no such wish; a refusal changes nothing.
pub(crate) fn ask_for_short_slice() {
    let mut attr = SchedAttr::default();
    let size = size_of::<SchedAttr>() as u32;
    // SAFETY: the call fills at most `size` bytes of `attr`, which is a plain structure of that size.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
    // Only the default policy has slices to choose; everything else (the nice value) stays as it was read.
    if got != 0 || attr.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.size = size;
    attr.runtime = SLICE.as_nanos() as u64;
    // SAFETY: the call reads `size` bytes of `attr`.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

/// Whether the kernel grants short slices. Asks on a thread of its own, which keeps nothing of it.
pub fn grants_short_slices() -> bool {
    let ask = || {
        ask_for_short_slice();
        let mut attr = SchedAttr::default();
        let size = size_of::<SchedAttr>() as u32;
        // SAFETY: as in `ask_for_short_slice`.
        let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) };
        got == 0 && attr.runtime == SLICE.as_nanos() as u64
    };
    std::thread::spawn(ask).join().unwrap_or(false)
}

/// Binds this thread to one of the processor cores it may use: local rank `local_rank` of `local_ranks`,
/// spread evenly. Does nothing if the set of cores cannot be read or changed.
pub(crate) fn bind_evenly(local_rank: usize, local_ranks: usize) {
    let this_thread = Pid::from_raw(0);
    let Ok(allowed) = sched_getaffinity(this_thread) else { return };
    let cores: Vec<usize> =
        (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
    let Some(core) = cores.get(share(local_rank, local_ranks, cores.len())) else { return };
    let mut own = CpuSet::new();
    if own.set(*core).is_ok() {
        // A refusal leaves the thread where the scheduler puts it.
        let _ = sched_setaffinity(this_thread, &own);
    }
}

/// The core, counted among `cores`, of rank `rank` of `ranks`: neighbours share one when there are too few.
fn share(rank: usize, ranks: usize, cores: usize) -> usize {
    rank * cores / ranks.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks are spread as evenly as their number allows, neighbours together, and each gets an existing core.
    #[test]
    fn ranks_are_spread() {
        let of = |ranks, cores| (0..ranks).map(|rank| share(rank, ranks, cores)).collect::<Vec<_>>();
        assert_eq!(of(2, 2), [0, 1]);
        assert_eq!(of(8, 2), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(of(3, 2), [0, 0, 1]);
        assert_eq!(of(2, 8), [0, 4]);
    }

    /// The wish for a slice leaves policy and nice value as they were.
    #[test]
    fn slice_changes_nothing_else() {
        let read = || {
            let mut attr = SchedAttr::default();
            // SAFETY: as in `ask_for_short_slice`.
            let got = unsafe {
                libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size_of::<SchedAttr>(), 0)
            };
            assert_eq!(got, 0);
            (attr.policy, attr.nice)
        };
        let before = read();
        ask_for_short_slice();
        assert_eq!(read(), before);
    }
}
