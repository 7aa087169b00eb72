//! The machine by itself: small programs on a segment of two members.

use super::*;
use shmring::layout::{Geometry, RingGeometry};
use shmring::segment::Segment;
use shmring::sync::AtomicU64;

const KNOBS: Knobs = Knobs {
    stores: Stores::Late { commit: crate::rng::Chance::one_in(4), room: 16 },
    policy: Policy::Walk(crate::rng::Chance::one_in(3)),
    costs: Costs { access: 50, yielding: 600, call: 300 },
    cores: 1,
    spurious: crate::rng::Chance::NEVER,
};

/// Runs one body per fiber on words of a segment, and returns the machine.
fn simulate(seed: u64, fibers: Vec<Fiber>, bodies: Vec<fn(&Segment)>) -> Rc<Machine> {
    let ring = |receivers| RingGeometry { receivers, slots: 2, ll_lines: 1, ll128_lines: 1, slot_bytes: 64 };
    let geometry = Geometry { members: 2, channels: 1, fan: ring(2), pair: ring(1) };
    let views = Segment::in_memory(&geometry).unwrap();
    let keeper = Box::new(views[0].view());
    let machine = Machine::new(KNOBS, Rng::new(seed, 0), fibers, keeper, 0);
    let bodies = views.into_iter().zip(bodies).map(|(view, body)| -> Body { Box::new(move || body(&view)) });
    machine.run(bodies.collect());
    machine
}

fn two(blow: Option<(u64, Blow)>) -> Vec<Fiber> {
    vec![Fiber::new(Start::At(0), blow, true), Fiber::new(Start::At(0), None, true)]
}

fn words(segment: &Segment) -> &[AtomicU64] {
    &segment.member_record(0).words
}

fn failures(bodies: [fn(&Segment); 2]) -> usize {
    let run = |seed| simulate(seed, two(None), bodies.to_vec()).failure();
    let found: Vec<String> = (0..200).filter_map(run).collect();
    assert!(found.iter().all(|failure| failure.contains("too early")), "{found:?}");
    found.len()
}

fn publish(segment: &Segment, order: Ordering) {
    words(segment)[0].store(1, Ordering::Relaxed);
    words(segment)[1].store(1, order);
}

fn look(segment: &Segment) {
    for _ in 0..50 {
        if words(segment)[1].load(Ordering::Acquire) == 1 {
            assert_eq!(words(segment)[0].load(Ordering::Relaxed), 1, "too early");
            return;
        }
    }
}

/// A flag stored relaxed arrives before its data in some seeds; one that releases it never does.
#[test]
fn late_stores_show_a_missing_release() {
    assert!(failures([|s| publish(s, Ordering::Relaxed), look]) > 0);
    assert_eq!(failures([|s| publish(s, Ordering::Release), look]), 0);
}

/// A release fence orders the relaxed stores after it.
#[test]
fn release_fences_order_stores() {
    let fenced: fn(&Segment) = |segment| {
        words(segment)[0].store(1, Ordering::Relaxed);
        shmring::sync::fence(Ordering::Release);
        words(segment)[1].store(1, Ordering::Relaxed);
    };
    assert_eq!(failures([fenced, look]), 0);
}

/// Without SeqCst fences two ranks may both miss the other's store; with them, one of them sees it.
#[test]
fn stores_are_forwarded_to_their_owner_only() {
    fn cross(segment: &Segment, mine: usize, fence: bool) {
        words(segment)[mine].store(1, Ordering::Relaxed);
        if fence {
            shmring::sync::fence(Ordering::SeqCst);
        }
        assert_eq!(words(segment)[mine].load(Ordering::Relaxed), 1, "an own store is always seen");
        let missed = words(segment)[1 - mine].load(Ordering::Relaxed) == 0;
        // Word 2 counts who has missed the other's store.
        let before = words(segment)[2].fetch_add(u64::from(missed), Ordering::Relaxed);
        assert!(before + u64::from(missed) < 2, "too early");
    }
    assert!(failures([|s| cross(s, 0, false), |s| cross(s, 1, false)]) > 0);
    assert_eq!(failures([|s| cross(s, 0, true), |s| cross(s, 1, true)]), 0);
}

/// A sleeper that nobody is left to wake is reported, and one that is rung is not.
#[test]
fn lost_wake_ups_are_told() {
    use shmring::doorbell::Awaits;
    fn wait(segment: &Segment) {
        let done = || words(segment)[0].load(Ordering::Acquire) == 1;
        let (bell, sleepers) = (&segment.member_record(segment.member()).bell, &segment.header().sleepers);
        while !done() {
            let look = || Ok::<_, ()>((!done()).then_some(Awaits::Anyone));
            let _ = bell.sleep(sleepers, Duration::from_millis(20), Awaits::Anyone, look);
        }
    }
    let post: fn(&Segment) = |segment| words(segment)[0].store(1, Ordering::Release);
    let post_and_ring: fn(&Segment) = |segment| {
        words(segment)[0].store(1, Ordering::Release);
        segment.notify();
    };
    let run = |seed, post| simulate(seed, two(None), vec![wait, post]).failure();
    let lost = (0..200).filter_map(|seed| run(seed, post)).collect::<Vec<_>>();
    assert!(!lost.is_empty() && lost.iter().all(|failure| failure.contains("lost wake-up")), "{lost:?}");
    assert_eq!((0..200).find_map(|seed| run(seed, post_and_ring)), None);
}

/// A sleeper on two bells is woken by the second one alone, and reported if neither is rung.
#[test]
fn lost_wake_ups_on_two_bells_are_told() {
    use shmring::doorbell::{Awaits, Nap, sleep_any};
    fn wait(segment: &Segment) {
        let waits = || words(segment)[0].load(Ordering::Acquire) == 0;
        let naps = [0, 1].map(|member| Nap {
            bell: &segment.member_record(member).bell,
            sleepers: &segment.header().sleepers,
            awaits: Awaits::Member(1),
        });
        while waits() {
            let _ = sleep_any(&naps, Duration::from_millis(20), || Ok::<_, ()>(waits()));
        }
    }
    let post: fn(&Segment) = |segment| words(segment)[0].store(1, Ordering::Release);
    let post_and_ring: fn(&Segment) = |segment| {
        words(segment)[0].store(1, Ordering::Release);
        if segment.header().sleepers.any() {
            segment.member_record(1).bell.ring(1);
        }
    };
    let run = |seed, post| simulate(seed, two(None), vec![wait, post]).failure();
    let lost = (0..200).filter_map(|seed| run(seed, post)).collect::<Vec<_>>();
    assert!(!lost.is_empty() && lost.iter().all(|failure| failure.contains("lost wake-up")), "{lost:?}");
    assert_eq!((0..200).find_map(|seed| run(seed, post_and_ring)), None);
}

/// A dead rank's earlier stores reach memory before its end is known, its later ones never; others go on.
#[test]
fn death_keeps_what_was_stored() {
    let dies: fn(&Segment) = |segment| (0..10).for_each(|i| words(segment)[i].store(7, Ordering::Relaxed));
    let watches: fn(&Segment) = |segment| {
        while sim::with(|world| world.ended()).unwrap() != [0] {
            shmring::clock::sleep(Duration::from_millis(1));
        }
        let stored = words(segment)[..10].iter().filter(|word| word.load(Ordering::Relaxed) == 7).count();
        assert_eq!(stored, 4, "the fifth access was its last");
    };
    for seed in 0..50 {
        let blow = Some((5, Blow::Death { known_after: 3_000_000 }));
        let machine = simulate(seed, two(blow), vec![dies, watches]);
        assert_eq!(machine.failure(), None);
        assert!(machine.fate(0).0.is_some() && machine.fate(1).1 > Some(3_000_000));
    }
}

/// A stalled rank does nothing meanwhile, and goes on where it was.
#[test]
fn stalls_end() {
    let counts: fn(&Segment) = |segment| {
        for _ in 0..10 {
            words(segment)[0].fetch_add(1, Ordering::Relaxed);
        }
    };
    let machine = simulate(1, two(Some((5, Blow::Stall(9_000_000)))), vec![counts, counts]);
    assert_eq!(machine.failure(), None);
    assert!(machine.fate(0).1 > Some(9_000_000) && machine.fate(1).1 < Some(1_000_000));
}
