//! What holds for every communicator, size and release.

use proptest::prelude::*;

use super::*;

const SAMPLES: [Sample; 10] = [
    Sample::V100x4,
    Sample::A100x8,
    Sample::H100x8,
    Sample::H100x16,
    Sample::H100x32Slow,
    Sample::A10Nodes(2),
    Sample::A10Nodes(8),
    Sample::A100x16,
    Sample::A100x16One,
    Sample::Rtx4090x2,
];

fn releases() -> impl Strategy<Value = Release> {
    prop::sample::select(Release::last_of_each_minor().collect::<Vec<_>>())
}

fn tuners() -> impl Strategy<Value = Tuner> {
    (prop::sample::select(&SAMPLES), releases()).prop_map(|(which, release)| {
        let mut setup = sample(which);
        setup.release = release;
        Tuner::new(setup).unwrap()
    })
}

fn operations() -> impl Strategy<Value = Operation> {
    let sizes = (0u32..40, 0.5f64..1.0).prop_map(|(power, part)| ((1u64 << power) as f64 * part) as u64);
    (prop::sample::select(&Collective::ALL), sizes)
        .prop_map(|(collective, bytes)| Operation::new(collective, bytes))
}

/// Whether a correction sets in or ends between two sizes.
fn crosses_a_step(tuner: &Tuner, low: u64, high: u64) -> bool {
    let step = |bytes: u64| ((bytes / 64).checked_ilog2(), bytes >= tuner.plateau_from());
    step(low) != step(high)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn more_bytes_cost_no_less(tuner in tuners(), operation in operations(), more in 1u64..1 << 36) {
        // A fixed cell is monotonic but for the steps at which a correction of the reference changes.
        let larger = operation.bytes + more;
        for cell in tuner.cells_of(operation.collective) {
            let times = (tuner.time_of(cell, operation.bytes), tuner.time_of(cell, larger));
            let (Some(small), Some(large)) = times else { continue };
            prop_assert!(small.time.is_finite() && small.time > 0.0);
            let stepped = small.corrections != large.corrections;
            prop_assert!(!stepped || crosses_a_step(&tuner, operation.bytes, larger));
            prop_assert!(stepped || small.time <= large.time, "{:?} {small:?} {large:?}", cell.algorithm);
        }
    }

    #[test]
    fn the_choice_is_the_least(tuner in tuners(), operation in operations()) {
        // No cell that is on is faster; of equal ones the first by id is taken; candidates are in order.
        let choice = tuner.choose(operation).unwrap();
        let on = tuner.cells_of(operation.collective).filter(|cell| cell.is_on());
        let times = on.filter_map(|cell| tuner.time_of(cell, operation.bytes));
        let first = times.reduce(|best, other| if other.time < best.time { other } else { best }).unwrap();
        prop_assert_eq!(&choice.best, &first);
        prop_assert!(choice.candidates.is_sorted_by(|a, b| a.time <= b.time));
    }

    #[test]
    fn slower_links_cost_no_less(
        which in prop::sample::select(&SAMPLES),
        release in releases(),
        operation in operations(),
        part in 0.05f32..1.0,
    ) {
        // Every channel of every graph slowed by one factor: no cell becomes faster.
        let fast = sample(which);
        let mut slow = fast.clone();
        let graphs = &mut slow.graphs;
        for graph in [&mut graphs.ring, &mut graphs.tree].into_iter().chain(graphs.nvls.as_mut()) {
            graph.bw_intra *= part;
            graph.bw_inter *= part;
        }
        // The communicator's channels decide where the plateau begins; they depend on the speed in one case.
        let channels = fast.channels();
        prop_assume!(slow.channels() == channels);
        let [fast, slow] = [fast, slow].map(|setup| Tuner::new(Setup { release, ..setup }).unwrap());
        for (a, b) in fast.cells_of(operation.collective).zip(slow.cells_of(operation.collective)) {
            if let (Some(a), Some(b)) = (fast.time_of(a, operation.bytes), slow.time_of(b, operation.bytes)) {
                prop_assert!(a.time <= b.time, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn flips_are_where_the_choice_changes(tuner in tuners(), operation in operations()) {
        // One unit before a flip the choice is the old one, at the flip it is the one named; none lies between.
        let unit = if operation.collective.counts_all_ranks() { u64::from(tuner.setup().ranks) } else { 1 };
        let operation = operation.with_bytes(operation.bytes / unit * unit);
        let here = tuner.pick(operation);
        for (flip, towards) in [(tuner.flip_up(operation), -1), (tuner.flip_down(operation), 1)] {
            let Some(flip) = flip else { continue };
            prop_assert_eq!(tuner.pick(operation.with_bytes(flip.bytes)), Some((flip.algorithm, flip.protocol)));
            prop_assert_ne!(Some((flip.algorithm, flip.protocol)), here);
            let before = flip.bytes.checked_add_signed(towards * unit as i64).unwrap();
            prop_assert_eq!(tuner.pick(operation.with_bytes(before)), here);
            let (low, high) = (flip.bytes.min(operation.bytes), flip.bytes.max(operation.bytes));
            for i in 1..64 {
                let between = (low + (high - low) / 64 * i) / unit * unit;
                if between != flip.bytes && between > low {
                    prop_assert_eq!(tuner.pick(operation.with_bytes(between)), here, "{} {:?}", between, flip);
                }
            }
        }
    }

    #[test]
    fn any_numbers_in_range_give_a_table(
        ranks in 2u32..=RANKS_MAX,
        nodes in 1u32..=RANKS_MAX,
        release in releases(),
        bw in 0.01f32..1000.0,
        channels in 1u32..=32,
        bytes in any::<u64>(),
    ) {
        // Hostile but possible communicators: no panic, no time that is not a number.
        let mut setup = sample(Sample::H100x16);
        (setup.ranks, setup.nodes, setup.release) = (ranks, nodes.min(ranks), release);
        for graph in [&mut setup.graphs.ring, &mut setup.graphs.tree] {
            (graph.bw_intra, graph.bw_inter, graph.channels) = (bw, bw, channels);
        }
        let tuner = Tuner::new(setup).unwrap();
        for collective in Collective::ALL {
            let operation = Operation::new(collective, bytes);
            let choice = tuner.choose(operation).unwrap();
            prop_assert!(choice.candidates.iter().all(|one| one.time > 0.0));
            let spread = tuner.spread(operation, choice.best.algorithm, choice.best.protocol);
            prop_assert!(spread.channels >= 1);
            let line = tuner.line(operation, &choice.best, spread);
            prop_assert_eq!(line.is_some(), release.since(20, 0));
        }
    }
}

#[test]
fn no_change_of_choice_is_missed() {
    // Walking from flip to flip finds each change that a dense scan of sizes finds, up and down.
    for which in SAMPLES {
        for release in ["2.18.6", "2.22.3", "2.27.7", "2.30.7"] {
            let tuner = tuner(sample(which), release);
            let at = |bytes| tuner.pick(Operation::new(Collective::AllReduce, bytes));
            let scan: Vec<u64> =
                (0..30).flat_map(|power| (0..64).map(move |part| (64 + part) << power)).collect();
            for pair in scan.windows(2) {
                let [low, high] = [pair[0], pair[1]];
                if at(low) != at(high) {
                    let up = tuner.flip_up(Operation::new(Collective::AllReduce, low)).unwrap();
                    let down = tuner.flip_down(Operation::new(Collective::AllReduce, high)).unwrap();
                    assert!(up.bytes > low && up.bytes <= high, "{which:?} {release} {low} {high} {up:?}");
                    assert!(
                        down.bytes >= low && down.bytes < high,
                        "{which:?} {release} {low} {high} {down:?}"
                    );
                }
            }
        }
    }
}
