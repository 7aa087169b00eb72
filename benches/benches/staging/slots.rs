//! How many slots a ring needs: with few, each side waits for the other; with many, they leave the cache.

use crate::{group, must};
use anyhow::{Context, Result};
use criterion::{BenchmarkId, Criterion, Throughput};
use ringccl::reduce::{Dst, Store, copy};
use ringccl_benches::cores;
use ringccl_benches::crew::Crew;
use ringccl_benches::link::STAMP;
use shmring::layout::{RingGeometry, SLOTS_MAX};
use shmring::sync::{spin_hint, yield_core};
use shmring::{Protocol, Receiver, Sender, heap_ring};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// All that a ring can have: [`SLOTS_MAX`] at most.
const SLOTS: [u32; 4] = [2, 4, 8, SLOTS_MAX];
const SLOT_BYTES: [usize; 2] = [64 << 10, 512 << 10];
/// Private memory on either side.
const PRIVATE_BYTES: usize = 64 << 20;
/// A wait as long as this means that the other thread has failed.
const LIMIT: Duration = Duration::from_secs(20);
/// Looks before a core is given away that the other thread does not need.
const LOOKS: u32 = 10_000;

/// One thread's end of the ring, and its memory.
struct End {
    ring: Ring,
    private: Vec<u8>,
    /// Looks before the core is given away: none where the other thread needs it.
    looks: u32,
}

enum Ring {
    Fills(Sender),
    Empties(Receiver),
}

pub(crate) fn all(criterion: &mut Criterion) {
    for (name, places) in [("two cores", [0, 1]), ("one core", [0, 0])] {
        if places[1] >= cores::count() {
            continue;
        }
        for slot_bytes in SLOT_BYTES {
            let mut group = group(criterion, format_args!("slots/{name}/{slot_bytes}"));
            group.throughput(Throughput::Bytes(slot_bytes as u64));
            for slots in SLOTS {
                let mut crew = None;
                group.bench_function(BenchmarkId::from_parameter(slots), |bencher| {
                    let crew = crew.get_or_insert_with(|| must(pair(slots, slot_bytes, places)));
                    bencher.iter_custom(|iters| must(stream(crew, slot_bytes, iters)));
                });
            }
            group.finish();
        }
    }
}

fn pair(slots: u32, slot_bytes: usize, places: [usize; 2]) -> Result<Crew<End>> {
    let slot_bytes = u32::try_from(slot_bytes)?;
    let shape = RingGeometry { receivers: 1, slots, ll_lines: 1, ll128_lines: 0, slot_bytes };
    let (sender, mut receivers) = heap_ring(shape)?;
    let receiver = receivers.pop().context("a ring without a receiver")?;
    let ends = Mutex::new([Some(Ring::Fills(sender)), Some(Ring::Empties(receiver))]);
    let looks = if places[0] == places[1] { 0 } else { LOOKS };
    Crew::new(&places, LIMIT, move |member| {
        let ring = ends.lock().ok().and_then(|mut ends| ends.get_mut(member)?.take());
        let fill = if member == 0 { 7 } else { 1 };
        Ok(End { ring: ring.context("a third thread")?, private: vec![fill; PRIVATE_BYTES], looks })
    })
}

/// The time of `iters` slots, from the first one's filling until the last one is empty.
fn stream(crew: &mut Crew<End>, slot: usize, iters: u64) -> Result<Duration> {
    let start = Instant::now();
    crew.run_all(move |end| end.pass(slot, iters))?;
    Ok(start.elapsed())
}

impl End {
    fn pass(&mut self, slot: usize, iters: u64) -> Result<()> {
        let Self { ring, private, looks } = self;
        let whole = PRIVATE_BYTES / slot;
        for place in (0..iters).map(|i| i as usize % whole * slot) {
            let place = &mut private[place..place + slot];
            match ring {
                Ring::Fills(sender) => {
                    wait(*looks, || sender.has_credit())?;
                    // SAFETY: a slot has as many bytes as the place, and is ours until `post`.
                    unsafe { sender.write_slot(|to, _| copy(place.as_ptr(), &[Dst::cached(to)], slot)) };
                    sender.post(STAMP);
                }
                Ring::Empties(receiver) => {
                    wait(*looks, || receiver.is_posted(STAMP))?;
                    let to = [Dst { ptr: place.as_mut_ptr(), store: Store::Streaming }];
                    // SAFETY: the slot was posted and has as many bytes as the place.
                    unsafe { receiver.read_slot(|from, _| copy(from, &to, slot)) };
                    receiver.release(Protocol::Simple);
                    anyhow::ensure!(place[0] == 7 && place[slot - 1] == 7, "a slot arrived with wrong bytes");
                    place[slot - 1] = 1;
                }
            }
        }
        Ok(())
    }
}

/// Looks until `ready` answers true.
fn wait(looks: u32, mut ready: impl FnMut() -> Result<bool, shmring::Error>) -> Result<()> {
    for _ in 0..looks {
        if ready()? {
            return Ok(());
        }
        spin_hint();
    }
    let start = Instant::now();
    while !ready()? {
        anyhow::ensure!(start.elapsed() < LIMIT, "the other thread did not answer for {LIMIT:?}");
        yield_core();
    }
    Ok(())
}
