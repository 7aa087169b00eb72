//! Tests of the link model as a whole: conservation, order, measured times.

mod bytes;
mod order;

use super::*;
use crate::nccl::profiles;
use crate::nccl::release::Release;
use crate::nccl::system::Node;
use crate::nccl::tuner::{Collective, Environment, Operation};

/// Published measurements, which `docs/accuracy.md` shows.
const MEASURED: &str = include_str!("../../testdata/accuracy/measured.tsv");

fn node(profile: &str) -> Node {
    profiles::find(profile).unwrap()
}

fn of_node(node: Node, nodes: u32, release: &str, env: &[(&str, &str)], fabric: Fabric) -> Model {
    let release: Release = release.parse().unwrap();
    let environment = Environment::parse(env.iter().copied(), release).unwrap();
    Model::of_site(&Site { node, nodes, fabric }, release, environment, Calibration::default()).unwrap()
}

/// The model of so many machines of a profile.
fn model(profile: &str, nodes: u32, release: &str, env: &[(&str, &str)]) -> Model {
    of_node(node(profile), nodes, release, env, Fabric::default())
}

fn all_reduce(bytes: u64) -> Operation {
    Operation::new(Collective::AllReduce, bytes)
}

#[test]
fn published_measurements_are_met() {
    // From 64 MiB up within a fifth, below within a factor of one and a half, with the oldest and the newest of the
    // releases that choose alike.
    let mut wrong = Vec::new();
    for line in MEASURED.lines().skip(1) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [machine, profile, nodes, _, _, bytes, measured] = fields[..] else { panic!("{line}") };
        let (bytes, measured): (u64, f64) = (bytes.parse().unwrap(), measured.parse().unwrap());
        for release in ["2.19.4", "2.22.3", "2.27.7", "2.30.7"] {
            let model = model(profile, nodes.parse().unwrap(), release, &[]);
            let ratio = model.predict(all_reduce(bytes)).unwrap().total_us / measured;
            let (low, high) = if bytes >= 64 << 20 { (0.8, 1.2) } else { (1.0 / 1.5, 1.5) };
            if !(low..=high).contains(&ratio) {
                wrong.push(format!("{release} {machine} {bytes}: {ratio:.2}"));
            }
        }
    }
    assert!(MEASURED.lines().count() >= 19 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn graphs_alone_predict_what_the_machine_does() {
    // Where NVLink or the network decides, a log's lines are enough: the same time within a tenth.
    for (profile, nodes) in
        [("dgx-a100", 1), ("dgx-a100", 2), ("dgx-h100", 1), ("dgx-h100", 4), ("4xv100-nv2", 1)]
    {
        let whole = model(profile, nodes, "2.27.7", &[]);
        let setup = whole.tuner().setup().clone();
        let graphs = Model::of_graphs(setup, &Fabric::default(), Calibration::default()).unwrap();
        for bytes in [8, 1 << 20, 64 << 20, 1 << 30] {
            let (a, b) =
                (whole.predict(all_reduce(bytes)).unwrap(), graphs.predict(all_reduce(bytes)).unwrap());
            let ratio = a.total_us / b.total_us;
            assert!((0.9..1.12).contains(&ratio), "{profile} {nodes} {bytes}: {} {}", a.total_us, b.total_us);
        }
    }
}

#[test]
fn what_cannot_be_is_refused() {
    // Numbers of the calibration, of the network, and groups, each with a remedy in the message.
    let site = Site { node: node("dgx-a100"), nodes: 2, fabric: Fabric::default() };
    let of = |site: &Site, calibration| {
        Model::of_site(site, Release::NEWEST, Environment::default(), calibration).unwrap_err().to_string()
    };
    let broken = Calibration { pcie_part: 0.0, ..Calibration::default() };
    assert!(of(&site, broken).contains("pcie_part is 0; give a number above 0"));
    let broken = Calibration { nic_part: [1.0, f64::NAN, 1.0], ..Calibration::default() };
    assert!(of(&site, broken).contains("nic_part is NaN"));
    for fabric in [
        Fabric { nodes_per_leaf: 0, oversubscription: 1.0, rails: false },
        Fabric { nodes_per_leaf: 1, oversubscription: f64::INFINITY, rails: false },
        Fabric { nodes_per_leaf: 1, oversubscription: 0.0, rails: false },
    ] {
        let text = of(&Site { fabric, ..site.clone() }, Calibration::default());
        assert!(text.contains("; give "), "{text}");
    }
    let pricer = Pricer::new(site, Release::NEWEST, Environment::default(), Calibration::default());
    for (ranks, says) in
        [(&[0, 16][..], "rank 16 of 16"), (&[3, 3], "rank 3 twice"), (&[5], "1 ranks"), (&[], "0")]
    {
        let text = pricer.group(ranks).unwrap_err().to_string();
        assert!(text.contains(says) && text.contains("at least two"), "{text}");
    }
}

#[test]
fn prices_are_the_predictions() {
    // The tables of a running job give what the model gives, for each collective, from bytes to GiB, and the cache
    // changes nothing; bytes on links are those of the prediction.
    for (profile, nodes) in
        [("dgx-h100", 2), ("aws-p4d", 2), ("8xl40s", 1), ("4xv100-nv2", 1), ("dgx-b200", 3)]
    {
        let site = Site {
            node: node(profile),
            nodes,
            fabric: Fabric { nodes_per_leaf: 1, oversubscription: 2.0, rails: false },
        };
        let whole =
            Model::of_site(&site, Release::NEWEST, Environment::default(), Calibration::default()).unwrap();
        let ranks: Vec<u32> = (0..whole.tuner().setup().ranks).collect();
        let pricer = Pricer::new(site, Release::NEWEST, Environment::default(), Calibration::default());
        let mut group = pricer.group(&ranks).unwrap();
        for (collective, power) in Collective::ALL.into_iter().flat_map(|one| (3..31).map(move |p| (one, p)))
        {
            let operation = Operation::new(collective, 1 << power);
            let expected = whole.predict(operation).unwrap();
            for _ in 0..2 {
                let price = group.price(operation).unwrap();
                let what = format!("{profile} {collective} {power}: {price:?} {expected:?}");
                assert!((price.predicted_us / expected.total_us - 1.0).abs() < 1e-9, "{what}");
                assert_eq!((price.algorithm, price.protocol), (expected.algorithm, expected.protocol));
                assert_eq!((price.channels, price.tuner_us), (expected.channels, expected.tuner_us));
                let mut counters = vec![0.0; group.links().len()];
                group.add_bytes(&price, &mut counters);
                for load in &expected.loads {
                    assert!((counters[load.link] - load.bytes).abs() < 1e-6 * load.bytes, "{what}");
                }
            }
        }
    }
}

#[test]
fn groups_use_the_links_of_their_ranks() {
    // Two GPUs of one node: no port, and their own names; one GPU of each node: ports alone.
    let site = Site { node: node("dgx-a100"), nodes: 2, fabric: Fabric::default() };
    let pricer = Pricer::new(site, Release::NEWEST, Environment::default(), Calibration::default());
    let used = |ranks: &[u32]| {
        let mut group = pricer.group(ranks).unwrap();
        let price = group.price(all_reduce(1 << 26)).unwrap();
        let mut counters = vec![0.0; group.links().len()];
        group.add_bytes(&price, &mut counters);
        let named = group.links().iter().zip(counters).filter(|(_, bytes)| *bytes > 0.0);
        let mut names: Vec<String> = named.map(|(link, _)| link.name.clone()).collect();
        names.sort();
        names
    };
    let nvlinks =
        ["gpu3 -> nvswitch", "gpu5 -> nvswitch", "nvswitch -> gpu3", "nvswitch -> gpu5"].map(str::to_owned);
    assert_eq!(used(&[13, 11]), nvlinks);
    let across = used(&[2, 10]);
    assert!(
        across.iter().any(|name| name.contains("port")) && across.iter().any(|name| name.contains("gpu2"))
    );
    assert!(!across.iter().any(|name| name.contains("nvswitch")), "{across:?}");
    assert!(used(&[0, 1, 8]).iter().any(|name| name.contains("port")));
}
