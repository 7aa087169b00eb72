//! Cluster files of any content.

use crate::input::Input;
use std::fmt::Write;
use topo::links::{Calibration, Pricer};
use topo::{Cluster, LinkClass, PROFILES};

/// A byte that no file of text begins with: what follows chooses values for a file that is well formed.
const CHOICES: u8 = 0xfe;

/// Values that are right somewhere, and values that look as if they were.
const VALUES: [&str; 40] = [
    "1",
    "0",
    "-1",
    "2",
    "3",
    "1.5",
    "007",
    "+4",
    "0x1",
    "1e3",
    "1e400",
    "1e-400",
    ".inf",
    "-.inf",
    ".nan",
    "inf",
    "nan",
    "18446744073709551616",
    "4294967296",
    "4000000000",
    "true",
    "~",
    "",
    "a",
    "b",
    "a100",
    "h100",
    "A100",
    "\"1\"",
    "''",
    "\"\\e[31m\"",
    "\"a\\nb\"",
    "[]",
    "{}",
    "[0]",
    "[1]",
    "[0, 1]",
    "!t 1",
    "*x",
    "{profile: a100}",
];

pub(crate) fn run(data: &[u8]) {
    match data.split_first() {
        Some((&CHOICES, choices)) => read(chosen(Input::new(choices)).as_bytes()),
        _ => read(data),
    }
}

/// A cluster file with right values, but for those that the input chooses.
fn chosen(mut input: Input<'_>) -> String {
    let mut text = String::new();
    let mut line = |key: &str, right: &str| {
        let choice = usize::from(input.byte());
        let value = VALUES.get(choice.wrapping_sub(1)).copied().unwrap_or(right);
        // A String takes everything.
        let _ = writeln!(text, "{key} {value}");
    };
    line("version:", "1");
    line("cluster:\n  name:", "lab");
    line("  default_backend:", "nccl");
    line("nodes:\n  - id:", "a");
    line("    host:", "h");
    line("    ranks:", "[0]");
    line("    gpus:\n      - profile:", "a100");
    line("  - id:", "b");
    line("    host:", "h");
    line("    ranks:", "[1]");
    line("    gpus:\n      - profile:", "h100");
    for class in ["fabric:\n  intra_node:\n    type:", "  inter_node:\n    type:"] {
        line(class, "nvlink");
        line("    bandwidth_gbps:", "300");
        line("    latency_us:", "3");
        line("    oversubscription:", "1.5");
    }
    line("  nodes_per_leaf:", "2");
    line("nccl:\n  version:", "2.22.3");
    line("  algo:", "Ring");
    line("  channels:", "4");
    line("  env:\n    NCCL_CROSS_NIC:", "1");
    line("machines:\n  m:\n    cpu:", "amd");
    line("    sm:", "80");
    line("    numa:\n      - [{pcie_gen: 4, gpus: 1}]\n    nvswitch:", "4");
    text
}

fn read(data: &[u8]) {
    match Cluster::from_bytes("x.yaml", data) {
        Ok(cluster) => check(&cluster),
        Err(error) => {
            let lines = data.iter().filter(|&&byte| byte == b'\n' || byte == b'\r').count() + 1;
            assert!(!error.problems().is_empty(), "no problem in {error}");
            for problem in error.problems() {
                // The YAML library puts the end of a file one line behind its last.
                assert!(
                    problem.line.is_none_or(|line| (1..=lines + 1).contains(&line)),
                    "{lines}: {problem:?}"
                );
                assert!(!problem.message.is_empty() && !problem.message.contains('\n'), "{problem:?}");
            }
            assert!(error.to_string().starts_with("x.yaml:") || error.to_string().contains(" problems:\n"));
        }
    }
}

/// What every cluster that exists promises.
fn check(cluster: &Cluster) {
    let nodes = cluster.nodes();
    assert!(cluster.version() > 0 && !nodes.is_empty());
    for text in [cluster.name(), cluster.default_backend()] {
        check_text(text);
    }
    // A file that is valid has prices, or says too little of its machines; its variables fit its release.
    assert!(Pricer::of_cluster(cluster, &[], Calibration::default()).is_ok());
    let mut ranks: Vec<u32> = Vec::new();
    for (i, node) in nodes.iter().enumerate() {
        check_text(node.id());
        check_text(node.host());
        assert_eq!(node.ranks().len(), node.profiles().len());
        assert!(!node.ranks().is_empty() && nodes[..i].iter().all(|other| other.id() != node.id()));
        let is_known = |profile: &String| PROFILES.contains(&profile.as_str()) || node.machine().is_some();
        assert!(node.profiles().iter().all(is_known));
        assert_eq!(node.ranks().len(), node.gpus().len());
        for (local, &rank) in node.ranks().iter().enumerate() {
            assert_eq!((cluster.node_index(rank), cluster.local_rank(rank)), (i, local as u32));
        }
        ranks.extend(node.ranks());
    }
    ranks.sort_unstable();
    assert!(ranks.iter().copied().eq(0..cluster.world_size()), "{ranks:?}");
    cluster.check_world_size(cluster.world_size()).expect("a cluster has its own size");
    assert!(cluster.check_world_size(cluster.world_size() + 1).is_err());
    check_link(cluster.fabric().intra_node());
    check_link(cluster.fabric().inter_node());
}

/// Texts go into the environment of ranks, into reports and to terminals.
fn check_text(text: &str) {
    assert!(!text.trim().is_empty() && text.len() <= 255 && !text.contains(char::is_control), "{text:?}");
}

fn check_link(link: &LinkClass) {
    check_text(link.kind());
    let above_zero = |number: f64| number.is_finite() && number > 0.0;
    assert!(above_zero(link.bandwidth_gbps()) && above_zero(link.oversubscription()), "{link:?}");
    assert!(link.latency_us().is_finite() && link.latency_us() >= 0.0, "{link:?}");
}
