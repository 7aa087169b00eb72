//! A running job on a modelled cluster: prices, virtual time, bytes on links, the model's plan, its pace.

use ringccl::model::{Pace, PlanSource, World};
use ringccl::{Algorithm, Communicator, Config, Protocol, ReduceOp};
use serde_json::Value;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use topo::Cluster;
use topo::links::{Calibration, Pricer};
use topo::nccl::tuner::{Collective, Operation};

const FABRIC: &str = "fabric:
  intra_node: {type: nvlink, bandwidth_gbps: 300}
  inter_node: {type: infiniband, bandwidth_gbps: 200, latency_us: 15}
";
const V100: &str = "nccl: {version: 2.22.3}
nodes: [{id: a, host: a, machine: 4xv100-nv2, ranks: [0, 1, 2, 3]}]
";
const A100: &str = "nodes:
  - {id: a, host: a, ranks: [0, 1], gpus: [{profile: a100}, {profile: a100}]}
  - {id: b, host: b, ranks: [2, 3], gpus: [{profile: a100}, {profile: a100}]}
";

fn cluster(nodes: &str) -> Cluster {
    // Tests share a process: each has a cluster of its own name, and so its own books.
    let test = thread::current().name().unwrap_or_default().to_owned();
    let text = format!("version: 1\ncluster: {{name: {test}, default_backend: nccl}}\n{nodes}{FABRIC}");
    Cluster::parse("lab.yaml", &text).unwrap()
}

fn config(nodes: &str, nranks: u32) -> Config {
    let world = World::of(cluster(nodes), &[]);
    Config { cluster: Some(Arc::new(world)), ..Config::new(nranks) }
}

/// Runs `work` on every rank, each in a thread.
fn on_all(config: &Config, nranks: u32, work: impl Fn(&mut Communicator) + Sync) {
    let all = Communicator::init_all(nranks, config).unwrap();
    thread::scope(|scope| {
        for mut comm in all {
            let work = &work;
            scope.spawn(move || {
                work(&mut comm);
                comm.finalize().unwrap();
            });
        }
    });
}

fn all_reduce(comm: &mut Communicator, bytes: usize) {
    let mine = vec![1.0f32; bytes / 4];
    let mut sum = vec![0.0; bytes / 4];
    comm.all_reduce(&mine, &mut sum, ReduceOp::Sum).unwrap();
    assert_eq!(sum[0], comm.nranks() as f32);
}

fn predicted(nodes: &str, ranks: &[u32], operation: Operation) -> f64 {
    let pricer = Pricer::of_cluster(&cluster(nodes), &[], Calibration::default()).unwrap().unwrap();
    pricer.group(ranks).unwrap().price(operation).unwrap().predicted_us
}

fn report(config: &mut Config) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    config.report = Some(dir.path().join("report.json"));
    dir
}

fn read(dir: &tempfile::TempDir) -> Value {
    serde_json::from_str(&std::fs::read_to_string(dir.path().join("report.json")).unwrap()).unwrap()
}

/// Every collective is priced; virtual time is the sum of the prices; NVLinks carry what a ring puts on them.
#[test]
fn a_job_is_priced_as_it_runs() {
    let mut config = config(V100, 4);
    let dir = report(&mut config);
    let (large, small) = (4 << 20, 1024);
    on_all(&config, 4, |comm| {
        for _ in 0..3 {
            all_reduce(comm, large);
        }
        for _ in 0..100 {
            all_reduce(comm, small);
        }
        comm.barrier().unwrap();
    });
    let report = read(&dir);
    let model = &report["model"];
    assert_eq!((model["nccl"].as_str(), model["plan"].as_str()), (Some("2.22.3"), Some("host")));
    assert_eq!((model["operations"].as_u64(), model["unpriced_operations"].as_u64()), (Some(104), Some(0)));
    let of = |bytes| predicted(V100, &[0, 1, 2, 3], Operation::new(Collective::AllReduce, bytes));
    let expected = 3.0 * of(large as u64) + 100.0 * of(small as u64) + of(4);
    let total = model["predicted_time_us_total"].as_f64().unwrap();
    assert!((total - expected).abs() < 0.01, "{total} {expected}");
    for rank in report["ranks"].as_array().unwrap() {
        let time = rank["virtual_time_us"].as_f64().unwrap();
        assert!((time - expected).abs() < 1.0, "{time} {expected}");
    }
    // Twelve channels' rings: each of four GPUs sends 2 (n-1)/n of the buffer, over all its links together.
    let links = model["links"].as_array().unwrap();
    let bytes: f64 = links.iter().map(|link| link["bytes"].as_f64().unwrap()).sum();
    let ring = 2.0 * 3.0 / 4.0 * 4.0 * (3 * large + 100 * small + 4) as f64;
    assert!((bytes - ring).abs() < 10.0, "{bytes} {ring}");
    assert!(links.iter().all(|link| link["kind"] == "NVLink" && link["busy_us"].as_f64() > Some(0.0)));
}

/// Communicators of parts have prices of their own, on the links of the whole; who waits for others takes their time.
#[test]
fn parts_of_a_job_book_on_the_same_links() {
    let mut config = config(A100, 4);
    let dir = report(&mut config);
    let bytes = 1 << 20;
    on_all(&config, 4, |comm| {
        let node = comm.rank() as u32 / 2;
        let mut part = comm.split(Some(node), 0).unwrap().unwrap();
        // Only the second node's ranks work; then all meet.
        for _ in 0..if node == 1 { 5 } else { 1 } {
            all_reduce(&mut part, bytes);
        }
        part.finalize().unwrap();
        all_reduce(comm, bytes);
    });
    let report = read(&dir);
    let operation = Operation::new(Collective::AllReduce, bytes as u64);
    let (part, all) = (predicted(A100, &[2, 3], operation), predicted(A100, &[0, 1, 2, 3], operation));
    // One all-reduce more is that of the colours.
    assert_eq!(report["model"]["operations"].as_u64(), Some(1 + 1 + 5 + 1));
    let exchange = Operation::new(Collective::AllReduce, 4 * 2 * 8);
    let expected = predicted(A100, &[0, 1, 2, 3], exchange) + 5.0 * part + all;
    for rank in report["ranks"].as_array().unwrap() {
        let time = rank["virtual_time_us"].as_f64().unwrap();
        assert!((time - expected).abs() < 1.0, "{time} {expected}");
    }
    assert!(report["model"]["links"].as_array().unwrap().iter().any(|link| link["kind"] == "NIC"));
}

/// The host executes what NCCL would choose: 64 MiB on 4 x V100 is Ring, Simple, 12 channels, and Tree where a variable
/// says so; what was sent proves the protocol.
#[test]
fn the_models_plan_is_executed() {
    let with = |variables: &[(&str, &str)]| {
        let variables: Vec<(String, String)> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let world = World::of(cluster(V100), &variables);
        Config { cluster: Some(Arc::new(world)), plan: PlanSource::Model, channels: 24, ..Config::new(4) }
    };
    for (variables, bytes, algorithm, protocol, channels) in [
        (&[][..], 64 << 20, Algorithm::Ring, Protocol::Simple, 12),
        (&[], 4096, Algorithm::Ring, Protocol::Ll, 1),
        (&[], 1 << 20, Algorithm::Ring, Protocol::Ll128, 12),
        (&[("NCCL_ALGO", "Tree"), ("NCCL_PROTO", "Simple")], 16 << 20, Algorithm::Tree, Protocol::Simple, 12),
        (&[("NCCL_MAX_NCHANNELS", "3")], 64 << 20, Algorithm::Ring, Protocol::Simple, 3),
    ] {
        let mut config = with(variables);
        let dir = report(&mut config);
        on_all(&config, 4, |comm| {
            all_reduce(comm, bytes);
            let choice = comm.last_choice().unwrap();
            let found = (choice.algorithm, choice.protocol, choice.channels);
            assert_eq!(found, (algorithm, protocol, channels), "{bytes} {variables:?}");
        });
        let report = read(&dir);
        assert_eq!(report["model"]["plan"], "model");
        let sent = &report["ranks"][1]["messages_sent"];
        assert!(sent[protocol.name()].as_u64() > Some(u64::from(channels)), "{sent}");
    }
}

/// With a pace an operation really takes its modelled time, in calls and in streams; without one it does not.
#[test]
fn a_pace_is_kept() {
    let bytes = 1 << 20;
    let modelled = predicted(V100, &[0, 1, 2, 3], Operation::new(Collective::AllReduce, bytes as u64));
    // As long as 300 ms for three operations.
    let thousandths = (1e5 / modelled * 1e3) as u32;
    let one = Duration::from_secs_f64(modelled * f64::from(thousandths) / 1e9);
    let slow = Config { pace: Some(Pace { thousandths }), ..config(V100, 4) };
    on_all(&slow, 4, |comm| {
        let begin = Instant::now();
        all_reduce(comm, bytes);
        all_reduce(comm, bytes);
        assert!(begin.elapsed() >= 2 * one, "{:?} {one:?}", begin.elapsed());
        let stream = ringccl::Stream::new();
        let begin = Instant::now();
        let done = stream.all_reduce(comm, vec![1.0f32; bytes / 4], ReduceOp::Sum).unwrap();
        assert_eq!(done.wait().unwrap()[0], 4.0);
        assert!(begin.elapsed() >= one, "{:?} {one:?}", begin.elapsed());
    });
}

/// A file whose GPUs no known machine has is priced as rings over its fabric, by hand: 2 x 3 hops of 15 us and 1.5 MiB
/// at 25000 bytes a microsecond.
#[test]
fn unknown_machines_are_rings() {
    let nodes = "nodes:
  - {id: a, host: a, ranks: [0, 1], gpus: [{profile: gtx980}, {profile: gtx980}]}
  - {id: b, host: b, ranks: [2, 3], gpus: [{profile: gtx980}, {profile: gtx980}]}
";
    let mut config = config(nodes, 4);
    let dir = report(&mut config);
    on_all(&config, 4, |comm| all_reduce(comm, 1 << 20));
    let report = read(&dir);
    assert_eq!(report["model"]["is_tuned"], false);
    let expected = 6.0 * 15.0 + 1.5 * f64::from(1 << 20) / 25_000.0;
    let total = report["model"]["predicted_time_us_total"].as_f64().unwrap();
    assert!((total - expected).abs() < 0.01, "{total} {expected}");
}

/// Exchanges that NCCL's tuner does not know are priced too, and every collective is one.
#[test]
fn every_collective_has_a_price() {
    let mut config = config(A100, 4);
    let dir = report(&mut config);
    on_all(&config, 4, |comm| {
        let (block, all) = (vec![1.0f32; 1024], vec![1.0f32; 4096]);
        let (mut into_block, mut into_all) = (block.clone(), all.clone());
        comm.all_gather(&block, &mut into_all).unwrap();
        comm.reduce_scatter(&all, &mut into_block, ReduceOp::Max).unwrap();
        comm.broadcast(&mut into_block, 1).unwrap();
        comm.all_to_all(&all, &mut into_all).unwrap();
        comm.barrier().unwrap();
    });
    let report = read(&dir);
    assert_eq!(report["model"]["operations"].as_u64(), Some(5));
    assert_eq!(report["model"]["unpriced_operations"].as_u64(), Some(0));
    assert!(
        report["ranks"].as_array().unwrap().iter().all(|rank| rank["virtual_time_us"].as_f64() > Some(50.0))
    );
}
