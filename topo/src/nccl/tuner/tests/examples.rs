//! The reference's worked examples, digit for digit.

use super::*;
use crate::nccl::tuner::Algorithm::{Nvls, NvlsTree, Pat, Ring, Tree};
use crate::nccl::tuner::Collective::{AllGather, AllReduce};
use crate::nccl::tuner::Protocol::{Ll, Ll128, Simple};

/// What an example says of a size: bytes, algorithm, protocol, printed time.
type Row = (u64, Algorithm, Protocol, &'static str);

fn check(tuner: &Tuner, collective: Collective, rows: &[Row]) {
    for &(bytes, algorithm, protocol, time) in rows {
        let best = tuner.choose(Operation::new(collective, bytes)).unwrap().best;
        let found = (best.algorithm, best.protocol, format!("{:.6}", best.time));
        assert_eq!(found, (algorithm, protocol, time.to_owned()), "{collective} of {bytes} bytes");
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[test]
fn a_four_v100() {
    // Example A in every release: nothing changes for these boxes at large sizes; 12 channels.
    for release in Release::last_of_each_minor() {
        let tuner = tuner(sample(Sample::V100x4), &release.to_string());
        check(
            &tuner,
            AllReduce,
            &[(64 * MIB, Ring, Simple, "867.660767"), (GIB, Ring, Simple, "13450.572266")],
        );
        assert_eq!(tuner.setup().channels(), 12);
    }
    let tuner = tuner(sample(Sample::V100x4), "2.22.3");
    check(
        &tuner,
        AllReduce,
        &[
            (8, Ring, Ll, "10.200308"),
            (4 * KIB, Ring, Ll, "10.357538"),
            (64 * KIB, Ring, Ll, "12.720615"),
            (MIB, Ring, Ll128, "39.646954"),
            (16 * MIB, Ring, Simple, "238.515198"),
        ],
    );
    let spread = tuner.spread(Operation::new(AllReduce, 64 * MIB), Ring, Simple);
    assert_eq!((spread.channels, spread.last_channel), (12, 11));
    let runner_up = tuner.choose(Operation::new(AllReduce, 64 * MIB)).unwrap().candidates.swap_remove(1);
    assert_eq!(
        (runner_up.algorithm, runner_up.protocol, format!("{:.1}", runner_up.time)),
        (Ring, Ll128, "937.2".into())
    );
}

#[test]
fn b_eight_a100() {
    // Example B: LL, LL128 and Simple each win somewhere.
    check(
        &tuner(sample(Sample::A100x8), "2.22.3"),
        AllReduce,
        &[
            (64 * KIB, Ring, Ll, "16.307732"),
            (MIB, Ring, Ll, "35.923695"),
            (16 * MIB, Ring, Ll128, "173.571594"),
            (64 * MIB, Ring, Simple, "545.335388"),
            (GIB, Ring, Simple, "7885.366211"),
        ],
    );
}

#[test]
fn c_eight_h100() {
    // Example C: NVLS by both formulas, and the ring when it is off.
    let rows = [(4 * KIB, Ring, Ll, "15.050837"), (MIB, Ring, Ll, "28.014240")];
    for (release, time) in [("2.22.3", "276.658264"), ("2.27.7", "276.658264"), ("2.28.3", "271.723755")] {
        let tuner = tuner(sample(Sample::H100x8), release);
        check(&tuner, AllReduce, &rows);
        check(&tuner, AllReduce, &[(64 * MIB, Nvls, Simple, time)]);
    }
    let mut setup = sample(Sample::H100x8);
    setup.environment = Environment::parse([("NCCL_NVLS_ENABLE", "0")], setup.release).unwrap();
    let best = tuner(setup, "2.22.3").choose(Operation::new(AllReduce, 64 * MIB)).unwrap().best;
    assert_eq!((best.algorithm, format!("{:.2}", best.time)), (Ring, "382.22".to_owned()));
}

#[test]
fn d_two_nodes_of_h100() {
    // Example D: NVLSTree in 2.27.7 and, capped, in 2.30.
    check(
        &tuner(sample(Sample::H100x16), "2.27.7"),
        AllReduce,
        &[
            (64 * KIB, Tree, Ll, "31.789845"),
            (MIB, NvlsTree, Simple, "56.932159"),
            (64 * MIB, NvlsTree, Simple, "304.658264"),
            (GIB, NvlsTree, Simple, "4079.531982"),
        ],
    );
    check(
        &tuner(sample(Sample::H100x16), "2.30.7"),
        AllReduce,
        &[
            (MIB, Tree, Ll128, "62.505661"),
            (64 * MIB, NvlsTree, Simple, "339.393433"),
            (GIB, NvlsTree, Simple, "4428.294434"),
        ],
    );
}

#[test]
fn e_four_nodes_of_h100() {
    // Example E: more than two nodes, so the bandwidth between them counts; the plateau of rings.
    check(
        &tuner(sample(Sample::H100x32Slow), "2.22.3"),
        AllReduce,
        &[
            (8, Tree, Ll, "35.200924"),
            (64 * KIB, Tree, Ll, "47.798233"),
            (4 * MIB, NvlsTree, Simple, "133.428802"),
            (64 * MIB, Ring, Ll128, "884.692749"),
            (GIB, Ring, Simple, "11260.884766"),
        ],
    );
}

#[test]
fn f_and_g_one_gpu_per_node() {
    // Examples F and G: a plugin with a latency; PAT.
    let two = tuner(sample(Sample::A10Nodes(2)), "2.27.7");
    check(
        &two,
        AllGather,
        &[
            (4 * KIB, Pat, Simple, "60.684696"),
            (MIB, Pat, Simple, "118.711365"),
            (64 * MIB, Ring, Simple, "2968.602539"),
        ],
    );
    let eight = tuner(sample(Sample::A10Nodes(8)), "2.27.7");
    check(
        &eight,
        AllReduce,
        &[
            (8, Tree, Ll, "486.806458"),
            (16 * MIB, Ring, Simple, "5672.836914"),
            (GIB, Ring, Simple, "159813.484375"),
        ],
    );
    check(&eight, AllGather, &[(MIB, Pat, Simple, "287.479889")]);
}

#[test]
fn h_and_i_two_nodes_of_a100() {
    // Examples H and I: AMD's overhead, one card per node, trees that win everywhere.
    check(
        &tuner(sample(Sample::A100x16), "2.22.3"),
        AllReduce,
        &[
            (64 * KIB, Tree, Ll, "34.909035"),
            (MIB, Tree, Ll128, "70.345337"),
            (16 * MIB, Ring, Ll128, "278.607971"),
            (64 * MIB, Ring, Ll128, "868.431946"),
            (GIB, Ring, Simple, "10794.318359"),
        ],
    );
    check(
        &tuner(sample(Sample::A100x16One), "2.22.3"),
        AllReduce,
        &[
            (64 * KIB, Tree, Ll128, "59.422668"),
            (64 * MIB, Tree, Ll128, "7505.040527"),
            (GIB, Tree, Simple, "97707.226562"),
        ],
    );
}

#[test]
fn j_two_4090() {
    // Example J: PCIe, so no LL128.
    let tuner = tuner(sample(Sample::Rtx4090x2), "2.22.3");
    check(
        &tuner,
        AllReduce,
        &[
            (64 * KIB, Ring, Ll, "14.061334"),
            (64 * MIB, Ring, Simple, "2816.002686"),
            (GIB, Ring, Simple, "44759.042969"),
        ],
    );
    assert!(tuner.cells().iter().all(|cell| cell.protocol != Ll128 || !cell.is_on()));
}

#[test]
fn lines_are_those_of_the_release() {
    // Four forms; from 2.24 all-gather's bytes are one rank's.
    let line = |release: &str, collective| {
        let tuner = tuner(sample(Sample::V100x4), release);
        let operation = Operation::new(collective, 64 * MIB);
        let best = tuner.choose(operation).unwrap().best;
        tuner.line(operation, &best, tuner.spread(operation, best.algorithm, best.protocol))
    };
    let reduce = |release| line(release, AllReduce).unwrap_or_default();
    assert_eq!(line("2.19.4", AllReduce), None);
    assert_eq!(reduce("2.22.3"), "67108864 Bytes -> Algo 1 proto 2 time 867.660767");
    assert_eq!(reduce("2.23.4"), "AllReduce: 67108864 Bytes -> Algo 1 proto 2 time 867.660767");
    let newest = "AllReduce: 67108864 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..11}";
    assert_eq!(reduce("2.30.7"), newest);
    assert!(line("2.23.4", AllGather).unwrap().starts_with("AllGather: 67108864 Bytes"));
    assert!(line("2.24.3", AllGather).unwrap().starts_with("AllGather: 16777216 Bytes"));
}
