//! The prices of a running job: no allocation, and few instructions, once a group is made.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use topo::links::{Calibration, Fabric, Pricer, Site};
use topo::nccl::profiles;
use topo::nccl::release::Release;
use topo::nccl::tuner::{Collective, Environment, Operation};

thread_local! {
    /// Allocations of this thread: other tests run at the same time.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counter is plain data of the thread, without a
// destructor, so it is there whenever a thread allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's layout goes on as it is.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above, so from the system's allocator, with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_price_allocates_nothing() {
    // Sizes that were never seen, sizes from the cache, and bytes on links: not one allocation in all.
    let site = Site { node: profiles::find("dgx-h100").unwrap(), nodes: 4, fabric: Fabric::default() };
    let pricer = Pricer::new(site, Release::NEWEST, Environment::default(), Calibration::default());
    let ranks: Vec<u32> = (0..32).collect();
    let mut group = pricer.group(&ranks).unwrap();
    let mut counters = vec![0.0; group.links().len()];
    let before = ALLOCATIONS.with(Cell::get);
    assert!(before > 0, "the counter counts");
    let mut sum = 0.0;
    for collective in Collective::ALL {
        for size in 0..3000u64 {
            let price = group.price(Operation::new(collective, size * size * 37)).unwrap();
            group.add_bytes(&price, &mut counters);
            sum += price.predicted_us;
        }
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    assert!(sum > 0.0 && counters.iter().any(|&bytes| bytes > 0.0));
}
