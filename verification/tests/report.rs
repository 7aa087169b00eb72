//! What the report of a job says of its messages and communicators.

mod common;

use common::worker;
use serde_json::Value;
use verification::testkit::{Job, Meet, ShmDir};

/// The report of `nranks` workers that do `args`.
fn report(nranks: u32, args: &[&str]) -> Value {
    let shm = ShmDir::new();
    let path = shm.path().with_extension("json");
    let job = Job::new(worker(), Meet::launcher(), nranks, args, &shm).with("RINGCCL_REPORT", path.display());
    for ended in job.start_all().finish_all() {
        ended.assert_done();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Sends and receives are counted with their bytes, on each rank and in all; collectives are not among them.
#[test]
fn messages_are_counted() {
    // Rank 0 sends ten floats and three bytes, rank 1 sends itself nothing and rank 0 four halves.
    let calls = "send/float/1/10 send/uint8/1:5/3 barrier recv/half/1/4|\
                 recv/float/0/10 recv/uint8/0:5/3 barrier send/half/0/4|barrier";
    let report = report(3, &["script", "--calls", calls]);
    let of = |rank: usize, name: &str| report["ranks"][rank][name].as_u64().unwrap();
    let all = |rank| ["sends", "bytes_sent", "receives", "bytes_received"].map(|name| of(rank, name));
    assert_eq!([all(0), all(1), all(2)], [[2, 43, 1, 8], [1, 8, 2, 43], [0; 4]], "{report}");
    assert_eq!([of(0, "point_to_point_calls"), of(2, "point_to_point_calls")], [3, 0]);
    let total = &report["point_to_point"];
    let number = |name: &str| total[name].as_u64().unwrap();
    assert_eq!(["operations", "sends", "receives", "bytes", "bytes_received"].map(number), [3, 3, 3, 51, 51]);
    assert_eq!(report["cluster"]["communicators"], 1, "{report}");
}

/// Every communicator of the job counts once, also one that rank 0 is not in; fields that FakeGPU's readers look for
/// are there.
#[test]
fn communicators_are_counted() {
    // The world, two halves, all but rank 0, a quarter of each half, a twin.
    let report = report(8, &["split"]);
    assert_eq!(report["cluster"]["communicators"], 1 + 2 + 1 + 4 + 1, "{report}");
    for name in
        ["report_version", "schema_version", "schema", "cluster", "collectives", "point_to_point", "ranks"]
    {
        assert!(!report[name].is_null(), "{name}");
    }
    for name in ["mode", "world_size", "node_count", "communicators", "coordinator_transport"] {
        assert!(!report["cluster"][name].is_null(), "{name}");
    }
    for name in
        ["rank", "node", "wait_time_ms", "communicator_inits", "collective_calls", "point_to_point_calls"]
    {
        assert!(!report["ranks"][7][name].is_null(), "{name}");
    }
}
