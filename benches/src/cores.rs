//! Binding threads to cores: who shares one decides what a hand-over costs.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::sync::OnceLock;

/// The cores that this process could use when it was first asked: a thread inherits the set of the one that made it, so
/// that later answers depend on who asks.
fn allowed() -> &'static [usize] {
    static CORES: OnceLock<Vec<usize>> = OnceLock::new();
    CORES.get_or_init(|| {
        let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
        (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect()
    })
}

/// How many cores this process may use.
pub fn count() -> usize {
    allowed().len().max(1)
}

/// Binds the calling thread to the `index`-th of the cores that this process may use, if there are two; counts around
/// beyond the last. A refusal leaves the thread where the scheduler puts it.
pub fn bind_to(index: usize) {
    let cores = allowed();
    if cores.len() >= 2 {
        restrict(&[cores[index % cores.len()]]);
    }
}

/// Lets the calling thread use all cores that this process may use.
pub fn unbind() {
    restrict(allowed());
}

/// The index of the core for thread `index` of `threads`, for [`bind_to`]: spread evenly, neighbours together, as
/// RingCCL binds ranks.
pub fn even(index: usize, threads: usize) -> usize {
    index * count() / threads.max(1)
}

fn restrict(cores: &[usize]) {
    let mut set = CpuSet::new();
    if !cores.is_empty() && cores.iter().all(|core| set.set(*core).is_ok()) {
        // A refusal leaves the thread where the scheduler puts it.
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bound thread has one core where there are two, and all of them again once it is unbound.
    #[test]
    fn binding_is_undone() {
        let cores = || std::thread::available_parallelism().unwrap().get();
        std::thread::spawn(move || {
            let all = count();
            bind_to(all + 1);
            assert_eq!(cores(), 1);
            unbind();
            assert_eq!(cores(), all);
        })
        .join()
        .unwrap();
    }

    /// Every thread gets an existing core, the first the first one.
    #[test]
    fn threads_are_spread() {
        for threads in 1..20 {
            assert_eq!(even(0, threads), 0);
            assert!((0..threads).all(|index| even(index, threads) < count()));
        }
    }
}
