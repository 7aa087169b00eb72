use super::*;
use proptest::prelude::*;

const LAB: &str = include_str!("../../testdata/lab.yaml");

/// Replaced text, its replacement, then line, field and words of the problem to be found.
type Case = (&'static str, &'static str, Option<usize>, &'static str, &'static [&'static str]);

/// The sample file with the first `from` replaced by `to`, read.
fn with(from: &str, to: &str) -> Result<Cluster, ConfigError> {
    assert!(LAB.contains(from), "{from}");
    Cluster::parse("lab.yaml", &LAB.replacen(from, to, 1))
}

#[test]
fn the_sample_file_is_read_whole() {
    // Every value of the file is found at its accessor.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lab.yaml");
    std::fs::write(&path, LAB).unwrap();
    let cluster = Cluster::load(&path).unwrap();
    assert_eq!((cluster.version(), cluster.name(), cluster.default_backend()), (1, "lab", "nccl"));
    assert_eq!((cluster.world_size(), cluster.nodes().len(), cluster.path()), (4, 2, path.as_path()));
    let node = cluster.node_of(3);
    assert_eq!((node.id(), node.host(), node.ranks()), ("n1", "127.0.0.1", &[2, 3][..]));
    assert_eq!(node.profiles(), ["h100", "h100"]);
    assert_eq!((0..4).map(|rank| cluster.local_rank(rank)).collect::<Vec<_>>(), [0, 1, 0, 1]);
    assert_eq!((0..4).map(|rank| cluster.node_index(rank)).collect::<Vec<_>>(), [0, 0, 1, 1]);
    let (intra, inter) = (cluster.fabric().intra_node(), cluster.fabric().inter_node());
    assert_eq!((intra.kind(), intra.bandwidth_gbps(), intra.latency_us()), ("nvlink", 300.0, 3.0));
    assert_eq!((intra.oversubscription(), inter.oversubscription()), (1.0, 1.5));
    assert_eq!((inter.kind(), inter.bandwidth_gbps(), inter.latency_us()), ("infiniband", 200.0, 15.0));
}

#[test]
fn what_the_format_allows_is_taken() {
    // Optional keys, policies, any version, shuffled ranks, other orders of keys, comments.
    let latency_default = with("    latency_us: 3\n", "").unwrap();
    assert_eq!(latency_default.fabric().intra_node().latency_us(), 0.0);
    assert_eq!(with("version: 1", "version: 7\npolicies: [anything, {at: all}]").unwrap().version(), 7);
    let shuffled = with("[0, 1]", "[3, 1] # odd ones").unwrap_err();
    assert!(shuffled.to_string().contains("rank 3"), "node n1 has it already");
    let shuffled = Cluster::parse("x", &LAB.replace("[0, 1]", "[3, 1]").replace("[2, 3]", "[2, 0]")).unwrap();
    assert_eq!((shuffled.local_rank(3), shuffled.node_of(0).id(), shuffled.local_rank(0)), (0, "n1", 1));
    let reordered = with("  - id: n0\n    host: 127.0.0.1\n", "  - host: 127.0.0.1\n    id: n0\n").unwrap();
    assert_eq!(reordered.nodes()[0].id(), "n0");
    assert_eq!(
        with("oversubscription: 1.5", "oversubscription: 0.5").unwrap().fabric.inter_node.oversubscription,
        0.5
    );
}

#[test]
fn names_stay_as_written() {
    // YAML reads these as numbers or truth values; reports show them as in the file.
    for name in ["007", "1e3", "1_000", "0x10", "true", "1.50"] {
        let cluster = with("id: n0", &format!("id: {name}")).unwrap();
        assert_eq!(cluster.nodes()[0].id(), name);
    }
    // Names are short even where a number has many digits.
    assert_eq!(with("id: n0", &format!("id: 1.{}", "0".repeat(300))).unwrap().nodes()[0].id(), "1");
}

/// Text to replace, its replacement, and what the error must say: line, field, words.
fn mistakes() -> Vec<Case> {
    vec![
        ("version: 1", "version: 0", Some(1), "version", &["found `0`", "write `version: 1`"]),
        ("version: 1\n", "", None, "version", &["missing"]),
        ("version: 1", "version: one", Some(1), "version", &["found `one`"]),
        ("  name: lab", "  name:", Some(3), "cluster.name", &["found nothing", "write a text"]),
        (
            "default_backend: nccl",
            "backend: nccl",
            Some(4),
            "cluster.backend",
            &["did you mean `default_backend`?"],
        ),
        ("id: n1", "id: n0", Some(12), "nodes[1].id", &["also the id of nodes[0]"]),
        ("[2, 3]", "[2, 1]", Some(14), "nodes[1].ranks[1]", &["rank 1", "also on node `n0`"]),
        ("[2, 3]", "[2, 2]", Some(14), "nodes[1].ranks[1]", &["rank 2", "listed twice"]),
        ("[2, 3]", "[2, 5]", Some(5), "nodes", &["up to 5", "3, 4 are on no node"]),
        ("[2, 3]", "[2, -3]", Some(14), "nodes[1].ranks[1]", &["found `-3`", "from 0"]),
        ("[2, 3]", "[]", Some(14), "nodes[1].ranks", &["empty", "such as `[0, 1]`"]),
        ("[2, 3]", "2", Some(14), "nodes[1].ranks", &["found `2`, not a list"]),
        ("      - profile: h100\n", "", Some(15), "nodes[1].gpus", &["1 GPUs for 2 ranks"]),
        (
            "profile: h100",
            "profile: h10",
            Some(16),
            "nodes[1].gpus[0].profile",
            &["`h10`", "near names", "h100"],
        ),
        (
            "profile: h100",
            "profile: toaster",
            Some(16),
            "nodes[1].gpus[0].profile",
            &["known are for example a100"],
        ),
        ("    host: 127.0.0.1\n", "", Some(6), "nodes[0].host", &["missing", "write a text"]),
        (
            "bandwidth_gbps: 300",
            "bandwidth_gbps: 0",
            Some(21),
            "fabric.intra_node.bandwidth_gbps",
            &["above 0"],
        ),
        (
            "bandwidth_gbps: 300",
            "bandwidth_gbps: .inf",
            Some(21),
            "fabric.intra_node.bandwidth_gbps",
            &["above 0"],
        ),
        (
            "latency_us: 15",
            "latency_us: -1",
            Some(26),
            "fabric.inter_node.latency_us",
            &["found `-1`", "0 or more"],
        ),
        (
            "oversubscription: 1.5",
            "oversubscription: x",
            Some(27),
            "fabric.inter_node.oversubscription",
            &["`x`"],
        ),
    ]
}

/// The same for what is wrong with the file as a whole.
fn mistakes_of_structure() -> Vec<Case> {
    vec![
        ("fabric:", "fabrik:", Some(18), "fabrik", &["did you mean `fabric`?"]),
        ("nodes:", "nodes: none\nfaults:", Some(5), "nodes", &["found `none`, not a list"]),
        ("  inter_node:", "  other:", Some(23), "fabric.other", &["known keys are intra_node, inter_node"]),
        ("cluster:", "cluster: !x y\nz:", Some(2), "cluster", &["found the tag `!x`"]),
        ("version: 1", "\tversion: 1", None, "", &["not valid YAML", "spaces"]),
        ("version: 1", "version: 1\nversion: 2", Some(2), "version", &["there already"]),
        ("version: 1", "- version: 1", None, "", &["not valid YAML"]),
    ]
}

#[test]
fn every_broken_file_names_line_field_and_remedy() {
    // Each mistake is found by a person who has nothing but the message.
    for (i, &(from, to, line, field, words)) in mistakes().iter().chain(&mistakes_of_structure()).enumerate()
    {
        let error = with(from, to).unwrap_err();
        let problem = error.problems().iter().find(|p| p.field == field);
        let problem = problem.unwrap_or_else(|| panic!("case {i}: {error}"));
        assert!(words.iter().all(|word| problem.message.contains(word)), "case {i}: {problem:?}");
        if line.is_some() {
            assert_eq!(problem.line, line, "case {i}: {error}");
        }
        assert!(error.to_string().contains("lab.yaml:"), "case {i}: {error}");
    }
}

#[test]
fn all_problems_come_at_once() {
    // Five mistakes in five places are five lines of one error, in the order of the file.
    let text = LAB
        .replace("version: 1", "version: -1")
        .replacen("a100", "a1000", 1)
        .replace("[2, 3]", "[2, x]")
        .replace("latency_us: 3", "latency: 3")
        .replace("bandwidth_gbps: 200", "bandwidth_gbps: fast");
    let error = Cluster::parse("lab.yaml", &text).unwrap_err();
    let fields: Vec<&str> = error.problems().iter().map(|p| p.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "version",
            "nodes[0].gpus[0].profile",
            "nodes[1].ranks[1]",
            "fabric.intra_node.latency",
            "fabric.inter_node.bandwidth_gbps"
        ]
    );
    assert!(error.to_string().starts_with("cluster file `lab.yaml` has 5 problems:\nlab.yaml:1: version: "));
    assert_eq!(error.to_string().lines().count(), 6);
}

#[test]
fn unreadable_and_strange_files_are_errors() {
    // A missing file, a directory, an empty one, a scalar, and bytes that are not text.
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(Cluster::load(dir.path().join("none")).unwrap_err(), ConfigError::Read { .. }));
    assert!(matches!(
        Cluster::load(dir.path()).unwrap_err(),
        ConfigError::NotAFile { what: "a directory", .. }
    ));
    let path = dir.path().join("bytes");
    std::fs::write(&path, b"\xff\xfe").unwrap();
    assert!(Cluster::load(&path).unwrap_err().to_string().contains("bytes"));
    for text in ["", "7", "[]", "a: &a [*a]", "{"] {
        assert!(!Cluster::parse("x", text).unwrap_err().problems().is_empty(), "{text}");
    }
}

#[test]
fn a_large_rank_costs_no_memory() {
    // The check for gaps looks at nine of four billion.
    let error = with("[2, 3]", "[2, 4294967295]").unwrap_err().to_string();
    assert!(error.contains("3, 4, 5, 6, 7, 8, 9, 10, 11, ... are on no node"), "{error}");
}

#[test]
fn world_sizes_are_compared() {
    // A job of another size is refused with both numbers and the file.
    let cluster = with("lab", "lab").unwrap();
    cluster.check_world_size(4).unwrap();
    let error = cluster.check_world_size(5).unwrap_err().to_string();
    assert!(error.contains("5 ranks") && error.contains("`lab.yaml` describes 4"), "{error}");
}

#[test]
fn nodes_are_judged_one_by_one() {
    // A node that cannot be read hides neither what is wrong with the others nor what they share.
    let text = LAB.replacen("a100", "a1000", 1).replace("id: n1", "id: n0").replace("[2, 3]", "[2, 1]");
    let error = Cluster::parse("lab.yaml", &text).unwrap_err();
    let fields: Vec<&str> = error.problems().iter().map(|p| p.field.as_str()).collect();
    assert_eq!(fields, ["nodes[0].gpus[0].profile", "nodes[1].id", "nodes[1].ranks[1]"]);
}

proptest! {
    #[test]
    fn damaged_files_never_panic(at in 0usize..600, byte in any::<char>(), cut in 0usize..900) {
        let mut chars: Vec<char> = LAB.chars().collect();
        let at = at % chars.len();
        chars[at] = byte;
        chars.truncate(cut);
        let _ = Cluster::parse("x", &chars.into_iter().collect::<String>());
    }
}
