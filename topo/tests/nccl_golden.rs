//! Every number of `testdata/nccl/` computed from graphs: tables, times, channels.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use topo::nccl::graph::{Graph, Graphs, PathType, Pattern};
use topo::nccl::release::Release;
use topo::nccl::search::{Env, graphs_of};
use topo::nccl::system::{Node, parse_nodes};
use topo::nccl::tuner::{Cpu, Environment, Operation, Setup, Tuner};

/// Rows that the files must have: a test that reads fewer has not read them.
const GRAPHS: usize = 694;
const TABLES: usize = 2708;
const TIMES: usize = 3726;
/// Graphs of the releases for which there are tables and times.
const TUNED: usize = 162;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/nccl").join(name)).unwrap()
}

/// The rows of a file without its head, each with as many columns as the head.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let mut lines = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let rows: Vec<Vec<&str>> = lines.collect();
    assert!(rows.iter().all(|row| row.len() == head.len()));
    rows
}

/// What the tuner needs to know of a node: CPU, compute capability, GPUs.
fn nodes() -> HashMap<String, (Cpu, u32, u32)> {
    let text = read("topologies.yaml");
    let mut nodes = HashMap::new();
    let mut name = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(new) = line.strip_suffix(':').filter(|line| !line.starts_with(' ')) {
            name = new.to_owned();
            nodes.insert(name.clone(), (Cpu::Intel, 0, 0));
        } else {
            let node = nodes.get_mut(&name).unwrap();
            if let Some(cpu) = line.strip_prefix("  cpu: ") {
                node.0 = if cpu == "amd" { Cpu::Amd } else { Cpu::Intel };
            } else if let Some(sm) = line.strip_prefix("  sm: ") {
                node.1 = sm.parse().unwrap();
            } else if let Some((_, rest)) = line.split_once("gpus: ") {
                node.2 += rest.split(',').next().unwrap().parse::<u32>().unwrap();
            }
        }
    }
    nodes
}

type Key = (String, String, u32);

fn key(row: &[&str]) -> Key {
    assert_eq!(row[3], "", "no row has variables so far; read them if one has");
    (row[0].to_owned(), row[1].to_owned(), row[2].parse().unwrap())
}

fn graph(pattern: u32, row: &[&str], same_channels: bool, cross_nic: u8) -> Graph {
    Graph {
        pattern: Pattern::from_id(pattern).unwrap(),
        channels: row[0].parse().unwrap(),
        bw_intra: row[1].parse().unwrap(),
        bw_inter: row[2].parse().unwrap(),
        type_intra: row[3].parse().unwrap(),
        type_inter: row[4].parse().unwrap(),
        same_channels,
        cross_nic,
    }
}

/// A communicator of a row of `graphs.tsv`, and its channels.
fn setup(row: &[&str], nodes: &HashMap<String, (Cpu, u32, u32)>) -> (Setup, u32) {
    let (release, topology, count) = key(row);
    let release: Release = release.parse().unwrap();
    let (cpu, capability, gpus) = nodes[&topology];
    let ring = graph(4, &row[4..9], row[9] == "1", row[10].parse().unwrap());
    let tree = graph(row[11].parse().unwrap(), &row[12..17], false, 0);
    let nvls = (row[17] != "0").then(|| Graph {
        type_intra: PathType::Nvl,
        type_inter: PathType::Pix,
        ..graph(5, &[row[17], row[18], row[19], "NVL", "PIX"], false, 0)
    });
    let setup = Setup {
        release,
        ranks: gpus * count,
        nodes: count,
        compute_capability: capability,
        compute_capability_max: capability,
        cpu,
        plugin_latency_us: row[20].parse().unwrap(),
        graphs: Graphs { ring, tree, nvls },
        collnet: None,
        cuda_11_8: false,
        environment: Environment::default(),
    };
    (setup, row[21].parse().unwrap())
}

fn tuners() -> HashMap<Key, Tuner> {
    let (text, nodes) = (read("graphs.tsv"), nodes());
    rows(&text).into_iter().map(|row| (key(&row), Tuner::new(setup(&row, &nodes).0).unwrap())).collect()
}

/// A number with nine significant digits as C's `%.9g` prints it.
fn nine_digits(value: f32) -> String {
    let exponent =
        if value == 0.0 { 0 } else { format!("{:.8e}", value).split_once('e').unwrap().1.parse().unwrap() };
    let text = format!("{:.*}", (8 - exponent).max(0) as usize, value);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[test]
fn every_communicator_has_the_channels() {
    // All 694 rows of 13 releases: the communicator's channels follow from its graphs.
    let (text, nodes) = (read("graphs.tsv"), nodes());
    let rows = rows(&text);
    assert_eq!(rows.len(), GRAPHS);
    let wrong: Vec<_> = rows
        .iter()
        .map(|row| (key(row), setup(row, &nodes)))
        .filter(|(_, (setup, expected))| setup.channels() != *expected)
        .map(|(key, (setup, expected))| format!("{key:?}: {} not {expected}", setup.channels()))
        .collect();
    assert!(wrong.is_empty(), "{} wrong: {}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_cell_of_the_tables_is_computed() {
    // All 2708 rows to nine digits, and no cell that NCCL does not have.
    let text = read("tables.tsv");
    let rows = rows(&text);
    assert_eq!(rows.len(), TABLES);
    let mut expected: HashMap<Key, Vec<String>> = HashMap::new();
    for row in &rows {
        expected.entry(key(row)).or_default().push(row[4..].join(" "));
    }
    let (mut compared, mut wrong) = (0, Vec::new());
    let tuners = tuners();
    for (key, expected) in &expected {
        let mut found: Vec<String> = tuners[key]
            .cells()
            .iter()
            .filter(|cell| cell.is_on())
            .map(|cell| {
                let (latency, bandwidth) =
                    (nine_digits(cell.latency.total), nine_digits(cell.effective_bandwidth()));
                format!("{} {} {} {latency} {bandwidth}", cell.collective, cell.algorithm, cell.protocol)
            })
            .collect();
        let mut expected = expected.clone();
        compared += expected.len();
        found.sort();
        expected.sort();
        if found != expected {
            let missing: Vec<_> = expected.iter().filter(|row| !found.contains(row)).collect();
            let extra: Vec<_> = found.iter().filter(|row| !expected.contains(row)).collect();
            wrong.push(format!("{key:?}\n  expected {missing:#?}\n  computed {extra:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} communicators wrong: {}", wrong.len(), wrong.join("\n"));
    assert_eq!((compared, expected.len()), (TABLES, TUNED));
}

#[test]
fn every_choice_and_time_is_computed() {
    // All 3726 rows: algorithm, protocol and the six decimals that NCCL prints.
    let text = read("times.tsv");
    let rows = rows(&text);
    assert_eq!(rows.len(), TIMES);
    let tuners = tuners();
    let (mut compared, mut wrong) = (0, Vec::new());
    for row in &rows {
        let operation = Operation::new(row[4].parse().unwrap(), row[5].parse().unwrap());
        let best = tuners[&key(row)].choose(operation).unwrap().best;
        let found = format!("{} {} {:.6}", best.algorithm, best.protocol, best.time);
        compared += 1;
        if found != row[6..].join(" ") {
            wrong.push(format!("{}: computed {found}", row.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {compared} wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(compared, TIMES);
}

#[test]
fn every_choice_and_time_follows_from_the_description_of_a_node() {
    // The same 3726 rows without any graph given: description, search, table, choice.
    let (text, facts) = (read("times.tsv"), nodes());
    let described: HashMap<String, Node> =
        parse_nodes("topologies.yaml", &read("topologies.yaml")).unwrap().into_iter().collect();
    let mut tuners: HashMap<Key, Tuner> = HashMap::new();
    let mut wrong = Vec::new();
    let rows = rows(&text);
    for row in &rows {
        let tuner = tuners.entry(key(row)).or_insert_with(|| {
            let (release, topology, count) = key(row);
            let release: Release = release.parse().unwrap();
            let found = graphs_of(&described[&topology], count, release, &Env::default()).unwrap();
            let (cpu, capability, gpus) = facts[&topology];
            let setup = Setup {
                release,
                ranks: gpus * count,
                nodes: count,
                compute_capability: capability,
                compute_capability_max: capability,
                cpu,
                plugin_latency_us: found.net_latency_us,
                graphs: found.graphs,
                collnet: None,
                cuda_11_8: false,
                environment: Environment::default(),
            };
            Tuner::new(setup).unwrap()
        });
        let operation = Operation::new(row[4].parse().unwrap(), row[5].parse().unwrap());
        let best = tuner.choose(operation).unwrap().best;
        let found = format!("{} {} {:.6}", best.algorithm, best.protocol, best.time);
        if found != row[6..].join(" ") {
            wrong.push(format!("{}: computed {found}", row.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {} wrong:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
    assert_eq!((rows.len(), tuners.len()), (TIMES, TUNED));
}

#[test]
fn derivations_add_up() {
    // Terms of every latency sum to it, steps of every bandwidth lead to it, in all releases and topologies.
    let mut cells = 0;
    for tuner in tuners().values() {
        for cell in tuner.cells().iter().filter(|cell| cell.bandwidth.total > 0.0) {
            let sum: f64 = cell.latency.terms.iter().map(|term| term.count * term.each).sum();
            let total = f64::from(cell.latency.total);
            assert!((sum - total).abs() <= 1e-5 * total.max(1.0), "{cell:#?}");
            let steps = &cell.bandwidth.steps;
            assert_eq!(steps.last().unwrap().after, cell.bandwidth.total);
            for pair in steps.windows(2) {
                let (before, step) = (f64::from(pair[0].after), pair[1]);
                let after = if step.rule.is_cap() { before.min(step.operand) } else { before * step.operand };
                assert!((after - f64::from(step.after)).abs() <= 1e-6 * after, "{cell:#?}");
                assert_eq!(step.active, step.after != pair[0].after, "{cell:#?}");
            }
            cells += 1;
        }
    }
    assert!(cells > 10_000, "{cells}");
}
