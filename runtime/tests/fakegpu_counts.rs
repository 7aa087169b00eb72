//! The report's counts beside FakeGPU's, for one run of each collective.

use ringccl::{Communicator, Config, ReduceOp};
use serde_json::Value;
use std::thread;

const RANKS: u64 = 4;
/// Elements of a rank's block, of 4 bytes each.
const COUNT: u64 = 256;

/// FakeGPU's rule as its users see it: the operation's buffer, which for gathers and exchanges has a block of every
/// rank, times the number of ranks.
fn fakegpu(name: &str) -> Option<(u64, u64)> {
    let block = COUNT * 4;
    let buffer = match name {
        "all_reduce" | "reduce" | "broadcast" => block,
        "all_gather" | "reduce_scatter" | "all_to_all" => RANKS * block,
        "barrier" => 0,
        _ => return None,
    };
    Some((1, buffer * RANKS))
}

/// What the ranks really pass in: each its buffer, or its blocks, once.
fn passed_in(name: &str) -> u64 {
    let block = COUNT * 4;
    // An all-gather's buffer of all blocks is what the ranks pass in together already.
    if name == "barrier" { 0 } else { RANKS * block }
}

fn one_of_each(comm: &mut Communicator) {
    let (block, all) = (vec![1.0f32; COUNT as usize], vec![1.0f32; (RANKS * COUNT) as usize]);
    let (mut into_block, mut into_all) = (block.clone(), all.clone());
    comm.all_reduce(&block, &mut into_block, ReduceOp::Sum).unwrap();
    comm.reduce_in_place(&mut into_block, ReduceOp::Sum, 0).unwrap();
    comm.broadcast(&mut into_block, 0).unwrap();
    comm.all_gather(&block, &mut into_all).unwrap();
    comm.reduce_scatter(&all, &mut into_block, ReduceOp::Sum).unwrap();
    comm.all_to_all(&all, &mut into_all).unwrap();
    comm.barrier().unwrap();
}

fn report_of(work: impl Fn(&mut Communicator) + Sync) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let config = Config { report: Some(path.clone()), ..Config::new(RANKS as u32) };
    thread::scope(|scope| {
        for mut comm in Communicator::init_all(RANKS as u32, &config).unwrap() {
            let work = &work;
            scope.spawn(move || {
                work(&mut comm);
                comm.finalize().unwrap();
            });
        }
    });
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Calls and `bytes` are FakeGPU's for all seven kinds; where its bytes are too many, `payload_bytes` has the right
/// number, an n-th of them, and nowhere else does it differ. `docs/fakegpu.md` names these three.
#[test]
fn calls_and_bytes_are_fakegpus() {
    let report = report_of(one_of_each);
    let collectives = report["collectives"].as_object().unwrap();
    assert_eq!(collectives.len(), 7, "{collectives:?}");
    let page = include_str!("../../docs/fakegpu.md");
    let mut wrong = Vec::new();
    for (name, counted) in collectives {
        let (calls, bytes) = fakegpu(name).unwrap();
        assert_eq!(
            (counted["calls"].as_u64(), counted["bytes"].as_u64()),
            (Some(calls), Some(bytes)),
            "{name}"
        );
        let payload = counted["payload_bytes"].as_u64().unwrap();
        assert_eq!(payload, passed_in(name), "{name}");
        if payload != bytes {
            assert_eq!(bytes, RANKS * payload, "{name}");
            wrong.push(name.as_str());
        }
    }
    assert_eq!(wrong, ["all_gather", "all_to_all", "reduce_scatter"]);
    assert!(wrong.iter().all(|name| page.contains(&format!("`{name}`"))));
}

/// Of a part of a job FakeGPU credits the ranks 0 to k-1, whoever its members are. A report here is one communicator's:
/// calls of parts are in none of the whole's counts, so nobody is credited with what others did.
#[test]
fn calls_of_parts_are_credited_to_nobody_else() {
    let report = report_of(|comm| {
        let colour = comm.rank() as u32 / 2;
        let mut part = comm.split(Some(colour), 0).unwrap().unwrap();
        if colour == 1 {
            part.barrier().unwrap();
        }
    });
    let by_rank: Vec<u64> = report["ranks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rank| rank["barrier_calls"].as_u64().unwrap())
        .collect();
    // FakeGPU would say [1, 1, 0, 0].
    assert_eq!(by_rank, [0, 0, 0, 0]);
}
