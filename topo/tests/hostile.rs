//! Files made to hurt: each is refused, or read, within bounded time and memory, and never crashes the reader.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use topo::{Cluster, ConfigError};

/// Far more than any of these files takes on a busy machine, far less than one that grows without a bound.
const LONGEST: Duration = Duration::from_secs(60);
/// Most memory that this test may ever have had, in KiB.
const MEMORY_KIB: u64 = 1 << 20;
const LAB: &str = include_str!("../testdata/lab.yaml");

/// Reads `text` and gives the first lines of its error.
fn refused(what: &str, text: &str) -> String {
    let start = Instant::now();
    let error = Cluster::parse("x.yaml", text).expect_err(what);
    let listing = error.to_string();
    assert!(start.elapsed() < LONGEST, "{what}: {:?}", start.elapsed());
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < MEMORY_KIB, "{what}: {peak} KiB");
    assert!(listing.len() < 100_000 && listing.lines().count() <= 102, "{what}: {} bytes", listing.len());
    listing
}

/// `piece` repeated to just below the largest file.
fn fill(piece: &str) -> String {
    piece.repeat(((4 << 20) - 100) / piece.len())
}

#[test]
fn large_hostile_files_end_soon() {
    // Nesting, repetition and length, each taken to the limit of the size of a file.
    let cases = [
        ("open lists", fill("["), "in each other"),
        ("open tables", fill("{a: "), "in each other"),
        ("open lists, line by line", fill("[\n"), "in each other"),
        ("lists in quotes", format!("a: \"{}", fill("[")), "in each other"),
        ("dashes", fill("- "), "in each other"),
        ("question marks", fill("? "), "in each other"),
        ("empty items", fill("-\n"), "more than a million values"),
        ("colons", fill(": "), "not valid YAML"),
        ("a long key", format!("{}: 1", fill("k")), "not valid YAML"),
        ("a long value", format!("version: {}", fill("v")), "found `vvvv"),
        ("a long tag", format!("version: !{} 1", fill("t")), "the tag `!ttt"),
        ("items", format!("version: [{}]", fill("1,")), "more than a million values"),
        ("comments", fill("#\n"), "empty"),
        ("blank lines", fill("\n"), "empty"),
        ("carriage returns", fill("\r"), "empty"),
        ("documents", fill("---\n"), "second document"),
        ("anchors", fill("&a "), "not valid YAML"),
        ("quotes", fill("'"), "found"),
        (
            "blocks in blocks",
            (0..2000).map(|i| format!("{}a:\n", " ".repeat(i))).collect(),
            "recursion limit",
        ),
    ];
    for (what, text, expected) in cases {
        let error = refused(what, &text);
        assert!(error.contains(expected), "{what}: {}", error.chars().take(300).collect::<String>());
    }
}

#[test]
fn many_mistakes_are_counted_but_not_listed() {
    // A file with a hundred thousand mistakes tells the first hundred and the number of the others.
    let mut text = String::new();
    for i in 0..100_000 {
        writeln!(text, "key{i}: {i}").unwrap();
    }
    let error = refused("unknown keys", &text);
    assert!(error.contains("99904 more problems are not listed"), "{}", &error[error.len() - 200..]);
    let ranks = format!("[{}]", vec!["0"; 300_000].join(", "));
    let error = refused("one rank many times", &LAB.replace("[2, 3]", &ranks));
    assert!(error.contains("rank 0 is also on node `n0`"), "{}", &error[..300]);
    let error = refused("far ranks", &LAB.replace("[2, 3]", "[4294967294, 4294967295]"));
    assert!(error.contains("ranks go up to 4294967295 but 2, 3,"), "{error}");
}

#[test]
fn aliases_cannot_multiply() {
    // Lists of aliases of lists of aliases are cut off, in short files and in long ones.
    let mut text = String::from("a0: &a0 [x, x]\n");
    for i in 1..60 {
        writeln!(text, "a{i}: &a{i} [*a{0}, *a{0}]", i - 1).unwrap();
    }
    assert!(refused("doubling", &text).contains("instead of repeating them by aliases"));
    let long = format!("a: &a [{}]\npolicies: [{}]\n", "x, ".repeat(100_000), "*a, ".repeat(100_000));
    assert!(refused("a long list of a long list", &long).contains("without aliases of aliases"));
    let merges = format!("a: &a {{{}}}\nb: {{<<: [{}]}}\n", keys(900), "*a, ".repeat(900));
    assert!(!refused("merges", &merges).is_empty());
}

fn keys(count: usize) -> String {
    (0..count).map(|i| format!("k{i}: 1, ")).collect()
}

#[test]
fn ten_thousand_nodes_are_read() {
    // The bounds leave room for the largest cluster that somebody may describe.
    let mut text = String::from("version: 1\ncluster: {name: big, default_backend: nccl}\nnodes:\n");
    for node in 0..10_000 {
        let ranks: Vec<String> = (0..8).map(|gpu| (8 * node + gpu).to_string()).collect();
        writeln!(text, "  - id: node{node}\n    host: 10.0.0.1\n    ranks: [{}]", ranks.join(", ")).unwrap();
        text += "    gpus:\n";
        text += &"      - profile: h100\n".repeat(8);
    }
    text += &LAB[LAB.find("fabric:").unwrap()..];
    let start = Instant::now();
    let cluster = Cluster::parse("big.yaml", &text).unwrap();
    assert!(start.elapsed() < LONGEST, "{:?}", start.elapsed());
    assert_eq!((cluster.world_size(), cluster.node_of(79_999).id()), (80_000, "node9999"));
}

#[test]
fn only_files_of_bounded_size_are_opened() {
    // A pipe nobody writes to, a device without an end, a directory, and a file over the limit.
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let large = dir.path().join("large");
    fs::write(&large, fill("#\n") + &"#".repeat(200)).unwrap();
    for (path, expected) in [
        (pipe.as_path(), "this is a pipe"),
        (Path::new("/dev/zero"), "this is no regular file"),
        (dir.path(), "this is a directory"),
        (large.as_path(), "more than 4194304 bytes"),
        (&dir.path().join("none"), "No such file"),
        (&dir.path().join("none/x\n"), "No such file"),
    ] {
        let start = Instant::now();
        let error = Cluster::load(path).unwrap_err();
        assert!(error.to_string().contains(expected) && start.elapsed() < LONGEST, "{error}");
        assert!(!matches!(error, ConfigError::Invalid { .. }));
    }
}
