//! Bytes on links against the formulas of the algorithms.

use super::*;
use crate::nccl::tuner::Algorithm;

/// Bytes on links of a kind whose name has `text`, of all nodes together, per byte of the operation.
fn total(model: &Model, operation: Operation, kind: LinkKind, text: &str) -> (Algorithm, f64) {
    let found = model.predict(operation).unwrap();
    let is_meant = |load: &&LinkLoad| {
        let link = &model.links()[load.link];
        link.kind == kind && link.name.contains(text)
    };
    let bytes: f64 = found.loads.iter().filter(is_meant).map(|load| load.total_bytes).sum();
    (found.algorithm, bytes / operation.bytes as f64)
}

fn near(found: f64, expected: f64) -> bool {
    (found - expected).abs() < 1e-9 * expected.max(1.0)
}

#[test]
fn rings_carry_the_formulas_bytes() {
    // Per rank 2 (n-1)/n for all-reduce, half of it for its two halves, all but one edge for broadcast and reduce.
    for (profile, n) in [("dgx-a100", 8.0), ("dgx-2", 16.0)] {
        let model = model(profile, 1, "2.22.3", &[("NCCL_ALGO", "Ring")]);
        for power in [3, 12, 20, 30] {
            let of = |collective| {
                let operation = Operation::new(collective, 1 << power);
                let out = total(&model, operation, LinkKind::NvLink, "-> nvswitch");
                let back = total(&model, operation, LinkKind::NvLink, "nvswitch ->");
                assert_eq!(out.0, Algorithm::Ring);
                assert!(near(out.1, back.1), "{profile} {collective} {out:?} {back:?}");
                out.1
            };
            assert!(near(of(Collective::AllReduce), 2.0 * (n - 1.0)), "{profile} {power}");
            assert!(near(of(Collective::AllGather), n - 1.0) && near(of(Collective::ReduceScatter), n - 1.0));
            assert!(near(of(Collective::Broadcast), n - 1.0) && near(of(Collective::Reduce), n - 1.0));
        }
    }
}

#[test]
fn rings_between_nodes_leave_each_node_once() {
    // Each node sends 2 (n-1)/n to the next one; a broadcast has an edge less.
    for nodes in [2u32, 3, 5] {
        let model = model("aws-p4d", nodes, "2.22.3", &[("NCCL_ALGO", "Ring")]);
        let n = f64::from(8 * nodes);
        let of = |collective| {
            let (_, out) = total(&model, Operation::new(collective, 1 << 26), LinkKind::Nic, "-> port");
            out
        };
        assert!(near(of(Collective::AllReduce), f64::from(nodes) * 2.0 * (n - 1.0) / n), "{nodes}");
        assert!(near(of(Collective::AllGather), f64::from(nodes) * (n - 1.0) / n));
        assert!(near(of(Collective::Broadcast), f64::from(nodes - 1)));
    }
}

#[test]
fn trees_carry_each_byte_up_and_down_every_edge() {
    // Between N nodes 2 (N-1) in all, inside of each 2 (g-1), whatever the pattern of the tree.
    for (profile, gpus) in [("aws-p4d", 8.0), ("dgx-h100", 8.0), ("gcp-a2-highgpu-8g", 8.0)] {
        for nodes in [2u32, 3, 8, 13] {
            let model = model(profile, nodes, "2.22.3", &[("NCCL_ALGO", "Tree")]);
            let (algorithm, out) = total(&model, all_reduce(1 << 28), LinkKind::Nic, "-> port");
            assert_eq!(algorithm, Algorithm::Tree);
            assert!(near(out, 2.0 * f64::from(nodes - 1)), "{profile} {nodes}: {out}");
            let (_, inside) = total(&model, all_reduce(1 << 28), LinkKind::NvLink, "-> nvswitch");
            // A GPU that is not beside the card hands over to one that is.
            let least = f64::from(nodes) * 2.0 * (gpus - 1.0);
            assert!(inside >= least * (1.0 - 1e-9), "{profile} {nodes}: {inside} {least}");
        }
    }
}

#[test]
fn switches_that_reduce_carry_each_buffer_once() {
    // NVLS: n + 1 buffers to the switch and n + 1 from it; gathering and scattering n + 1 the one way and n the other.
    let model = model("dgx-h100", 1, "2.27.7", &[("NCCL_ALGO", "NVLS")]);
    let of = |collective, text| {
        let (algorithm, bytes) = total(&model, Operation::new(collective, 1 << 28), LinkKind::NvLink, text);
        assert_eq!(algorithm, Algorithm::Nvls);
        bytes
    };
    assert!(near(of(Collective::AllReduce, "-> nvswitch"), 9.0));
    assert!(near(of(Collective::AllReduce, "nvswitch ->"), 9.0));
    assert!(near(of(Collective::AllGather, "-> nvswitch"), 1.0));
    assert!(near(of(Collective::AllGather, "nvswitch ->"), 8.0));
    assert!(near(of(Collective::ReduceScatter, "-> nvswitch"), 8.0));
    // Between nodes the heads' trees carry the buffer up and down each edge.
    let pair = super::model("dgx-h100", 4, "2.27.7", &[("NCCL_ALGO", "NVLSTree")]);
    let (algorithm, out) = total(&pair, all_reduce(1 << 28), LinkKind::Nic, "-> port");
    assert_eq!(algorithm, Algorithm::NvlsTree);
    assert!(near(out, 6.0), "{out}");
}

#[test]
fn pat_sends_all_but_the_own_part() {
    // One GPU on each of N nodes: (N-1)/N of all bytes leave each node.
    let alone = node("dgx-h100").with_gpus(&[0]);
    let model = of_node(alone, 6, "2.27.7", &[("NCCL_ALGO", "PAT")], Fabric::default());
    let operation = Operation::new(Collective::AllGather, 6 << 20);
    let (algorithm, out) = total(&model, operation, LinkKind::Nic, "-> port");
    assert_eq!(algorithm, Algorithm::Pat);
    assert!(near(out, 5.0), "{out}");
}

#[test]
fn bytes_add_up() {
    // With the same channels, an operation of the sum of two sizes puts the sum of both on each link.
    for profile in ["dgx-a100", "8xl40s", "aws-p4d"] {
        let model = model(profile, 2, "2.30.7", &[("NCCL_ALGO", "Ring"), ("NCCL_PROTO", "Simple")]);
        let of = |bytes| model.predict(all_reduce(bytes)).unwrap();
        let (a, b, sum) = (of(1 << 28), of(3 << 28), of(4 << 28));
        assert_eq!((a.channels, b.channels), (sum.channels, sum.channels));
        for load in &sum.loads {
            let part =
                |of: &Prediction| of.loads.iter().find(|one| one.link == load.link).unwrap().total_bytes;
            assert!(near(part(&a) + part(&b), load.total_bytes), "{profile}");
        }
    }
}
