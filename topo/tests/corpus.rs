//! Files that the reader must refuse, with its exact words, and files that it must take, with what they describe.
//!
//! `TOPO_UPDATE=1 cargo test -p topo --test corpus` writes the expectations anew; review them as code.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use topo::nccl::system::parse_nodes;
use topo::{Cluster, ConfigError, LinkClass};

/// The files of `testdata/FOLDER`, sorted; `.bin` are those that are no text.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(folder);
    let all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_input = |path: &PathBuf| path.extension().is_some_and(|end| end == "yaml" || end == "bin");
    let mut all: Vec<PathBuf> = all.filter(is_input).collect();
    all.sort();
    all
}

/// Reads a file under its bare name, which is the same on every machine.
fn read(path: &Path) -> Result<Cluster, ConfigError> {
    Cluster::from_bytes(path.file_name().unwrap(), &fs::read(path).unwrap())
}

/// Compares with the `.txt` beside the file, or writes it.
fn compare(path: &Path, found: &str, wrong: &mut Vec<String>) {
    let golden = path.with_extension("txt");
    if std::env::var_os("TOPO_UPDATE").is_some() {
        fs::write(&golden, found).unwrap();
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    if expected != found {
        wrong.push(format!("{}\nexpected:\n{expected}\nfound:\n{found}", path.display()));
    }
}

#[test]
fn invalid_files_are_refused_word_by_word() {
    // Each mistake gives exactly the lines beside it, with file, line, field and remedy.
    let files = files("invalid");
    assert!(files.len() >= 130, "{} files", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        let error = read(path).expect_err(&path.display().to_string());
        // Whatever belongs to a field has its line.
        let placed = |problem: &topo::Problem| problem.line.is_some() || !problem.field.contains(['.', '[']);
        assert!(!error.problems().is_empty() && error.problems().iter().all(placed), "{error}");
        compare(path, &format!("{error}\n"), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn invalid_descriptions_of_nodes_are_refused_word_by_word() {
    // The same for machines: each mistake with file, line, field and remedy; with the clusters far more than 60.
    let files = files("invalid_nodes");
    assert!(files.len() >= 44, "{} files", files.len());
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.file_name().unwrap();
        let text = fs::read_to_string(path).unwrap();
        let error = parse_nodes(name, &text).expect_err(&path.display().to_string());
        let named = |problem: &topo::Problem| problem.line.is_some() || problem.field.is_empty();
        assert!(!error.problems().is_empty() && error.problems().iter().all(named), "{error}");
        compare(path, &format!("{error}\n"), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn valid_files_are_read_whole() {
    // Each file gives the cluster beside it, value for value.
    let mut wrong = Vec::new();
    for path in files("valid") {
        let cluster = read(&path).unwrap_or_else(|error| panic!("{error}"));
        compare(&path, &describe(&cluster), &mut wrong);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Everything that the accessors tell.
fn describe(cluster: &Cluster) -> String {
    let mut text = String::new();
    let (name, backend) = (cluster.name(), cluster.default_backend());
    writeln!(text, "version {}, name `{name}`, backend `{backend}`", cluster.version()).unwrap();
    for node in cluster.nodes() {
        let (id, host) = (node.id(), node.host());
        writeln!(text, "node `{id}`, host `{host}`, ranks {:?}, {:?}", node.ranks(), node.profiles())
            .unwrap();
    }
    for rank in 0..cluster.world_size() {
        let (node, local) = (cluster.node_index(rank), cluster.local_rank(rank));
        assert_eq!(cluster.nodes()[node].ranks()[local as usize], rank);
        assert_eq!(cluster.node_of(rank).id(), cluster.nodes()[node].id());
        assert_eq!(cluster.profile_of(rank), cluster.nodes()[node].profiles()[local as usize]);
    }
    let mut link = |name: &str, link: &LinkClass| {
        let (kind, gbps, us) = (link.kind(), link.bandwidth_gbps(), link.latency_us());
        writeln!(text, "{name} `{kind}`, {gbps} Gbit/s, {us} us, / {}", link.oversubscription()).unwrap();
    };
    link("intra_node", cluster.fabric().intra_node());
    link("inter_node", cluster.fabric().inter_node());
    text
}
