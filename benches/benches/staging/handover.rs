//! What it costs to let another thread go on, by how it waits.

use crate::{group, must};
use anyhow::{Result, ensure};
use criterion::Criterion;
use ringccl_benches::cores;
use ringccl_benches::crew::Crew;
use shmring::doorbell::{Awaits, Bell, Sleepers};
use shmring::sync::{AtomicU64, Ordering, spin_hint, yield_core};
use shmring::wait::{WaitPolicy, Waiter};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A wait as long as this means that the other thread has failed.
const LIMIT: Duration = Duration::from_secs(20);
/// Looks between two readings of the clock.
const LOOKS: u32 = 1000;

/// How a thread waits for its turn.
#[derive(Clone, Copy)]
enum Way {
    /// Looks and pauses, and never gives its core away.
    Spin,
    /// Gives its core away after every look.
    Yield,
    /// Sleeps on its bell at once, and is woken.
    Doorbell,
    /// As ranks do: spins where there is a core for each thread, yields, then sleeps.
    Waiter,
}

const WAYS: [(&str, Way); 4] =
    [("spin", Way::Spin), ("yield", Way::Yield), ("doorbell", Way::Doorbell), ("waiter", Way::Waiter)];

/// What the two threads share. Member `turn % 2` may go on.
#[derive(Default)]
struct Table {
    turn: AtomicU64,
    bells: [Bell; 2],
    sleepers: Sleepers,
}

/// A thread.
struct Player {
    table: Arc<Table>,
    own: usize,
    waiter: Waiter,
}

pub(crate) fn all(criterion: &mut Criterion) {
    for (name, places) in [("two cores", [0, 1]), ("one core", [0, 0])] {
        if places[1] >= cores::count() {
            continue;
        }
        let mut group = group(criterion, format_args!("handover/{name}"));
        for (way_name, way) in WAYS {
            let mut crew = None;
            group.bench_function(way_name, |bencher| {
                let crew = crew.get_or_insert_with(|| must(pair(way, places)));
                bencher.iter_custom(|iters| must(play(crew, way, iters)));
            });
        }
        group.finish();
    }
}

fn pair(way: Way, places: [usize; 2]) -> Result<Crew<Player>> {
    let table = Arc::new(Table::default());
    let cores = if places[0] == places[1] { 1 } else { 2 };
    let policy = match way {
        Way::Doorbell => WaitPolicy::sleep_at_once(),
        Way::Spin | Way::Yield | Way::Waiter => WaitPolicy::for_cores(2, cores),
    };
    Crew::new(&places, LIMIT, move |own| {
        Ok(Player { table: Arc::clone(&table), own, waiter: Waiter::new(policy) })
    })
}

/// The time of `iters` hand-overs: each round has one there and one back.
fn play(crew: &mut Crew<Player>, way: Way, iters: u64) -> Result<Duration> {
    const WARM_UP: u64 = 3; // the other thread has to hear of it first
    let rounds = iters.div_ceil(2);
    let elapsed = crew.run(
        move |player| (0..WARM_UP + rounds).try_for_each(|_| player.pass(way)),
        move |player| {
            (0..WARM_UP).try_for_each(|_| player.pass(way))?;
            let start = Instant::now();
            (0..rounds).try_for_each(|_| player.pass(way))?;
            player.wait(way)?; // for the last one to come back
            Ok(start.elapsed())
        },
    )?;
    Ok(elapsed.mul_f64(iters as f64 / (2 * rounds) as f64))
}

impl Player {
    /// Waits for its turn and passes it on.
    fn pass(&mut self, way: Way) -> Result<()> {
        self.wait(way)?;
        let Self { table, own, .. } = self;
        // ORDERING: Relaxed; nobody else moves it in this turn.
        let turn = table.turn.load(Ordering::Relaxed);
        // ORDERING: Release, as the counter of a ring; the look at the sleepers fences by itself.
        table.turn.store(turn + 1, Ordering::Release);
        if matches!(way, Way::Doorbell | Way::Waiter) && table.sleepers.any() {
            table.bells[1 - *own].ring(*own as u32);
        }
        Ok(())
    }

    fn wait(&mut self, way: Way) -> Result<()> {
        let Self { table, own, waiter } = self;
        let own = *own;
        // ORDERING: Acquire; pairs with the store of whoever passed the turn on.
        let has_come = || table.turn.load(Ordering::Acquire) % 2 == own as u64;
        match way {
            Way::Spin => look(has_come, spin_hint),
            Way::Yield => look(has_come, yield_core),
            Way::Doorbell | Way::Waiter => waiter.wait(
                &table.bells[own],
                &table.sleepers,
                || Ok((!has_come()).then_some(Awaits::Member(1 - own as u32))),
                in_time,
            ),
        }
    }
}

/// Looks until the turn has come, with `pause` in between.
fn look(has_come: impl Fn() -> bool, pause: fn()) -> Result<()> {
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if has_come() {
                return Ok(());
            }
            pause();
        }
        in_time(start.elapsed())?;
    }
}

fn in_time(waited: Duration) -> Result<()> {
    ensure!(waited < LIMIT, "the other thread did not answer for {LIMIT:?}");
    Ok(())
}
