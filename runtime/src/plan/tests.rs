//! Plans run on a symbolic machine: elements are sets of ranks, messages are queues.

use super::*;
use crate::config::Config;
use crate::transport::shm::Shm;
use shmring::Protocol;
use std::collections::VecDeque;

/// An element: which ranks' inputs have been added up in it, one bit each.
type Set = u64;

/// One rank: its plan, how far it is on each channel, its output.
struct Machine {
    plan: Plan,
    index: Vec<u64>,
    output: Vec<Set>,
}

/// The messages on their way, by (channel, from, to, fan or pair).
#[derive(Default)]
struct Wires(std::collections::BTreeMap<(usize, u32, u32, bool), VecDeque<Vec<Set>>>);

impl Wires {
    fn queue(&mut self, channel: usize, from: u32, to: u32, fan: bool) -> &mut VecDeque<Vec<Set>> {
        self.0.entry((channel, from, to, fan)).or_default()
    }
}

const POISON: Set = Set::MAX;

fn add(a: Set, b: Set) -> Set {
    assert!(a != POISON && b != POISON, "a hole or an unwritten element takes part");
    assert_eq!(a & b, 0, "a rank's input is added twice");
    a | b
}

/// Runs the next primitive of `rank` on `channel`; false if it must wait.
fn step(machine: &mut Machine, wires: &mut Wires, rank: u32, n: u32, channel: usize, slots: usize) -> bool {
    let Some(prim) = machine.plan.prim(channel, machine.index[channel]) else { return false };
    let sources: Vec<(u32, bool)> = match prim.recv {
        Recv::None => vec![],
        Recv::Prev => vec![((rank + n - 1) % n, false)],
        Recv::From(from) => vec![(from, true)],
        Recv::All => (0..n).filter(|r| *r != rank).map(|r| (r, true)).collect(),
    };
    let targets: Vec<(u32, bool)> = match prim.send {
        Send::None => vec![],
        Send::Next => vec![((rank + 1) % n, false)],
        Send::Fan => (0..n).filter(|r| *r != rank).map(|r| (r, true)).collect(),
    };
    let credit = targets.iter().all(|(to, fan)| wires.queue(channel, rank, *to, *fan).len() < slots);
    let here = sources.iter().all(|(from, fan)| !wires.queue(channel, *from, rank, *fan).is_empty());
    if !credit || !here {
        return false;
    }
    let own = prim.own.map(|own| {
        let hole = own.hole.at..own.hole.end();
        (own.span.at..own.span.end()).map(|i| if hole.contains(&i) { POISON } else { 1 << rank }).collect()
    });
    let mut result: Option<Vec<Set>> = own;
    for (from, fan) in sources {
        let message = wires.queue(channel, from, rank, fan).pop_front().unwrap();
        assert_eq!(message.len(), prim.message, "rank {rank} expects another length from rank {from}");
        let part = message[prim.part..prim.part + prim.len].to_vec();
        result = Some(match result {
            None => part,
            Some(sum) => sum.into_iter().zip(part).map(|(a, b)| add(a, b)).collect(),
        });
    }
    let result = result.unwrap_or_default();
    assert_eq!(result.len(), prim.len);
    assert!(!prim.last || result.iter().all(|set| *set == (1 << n) - 1), "`last` on an unfinished sum");
    if let Some(span) = prim.dst {
        machine.output[span.at..span.end()].copy_from_slice(&result);
    }
    for (to, fan) in targets {
        wires.queue(channel, rank, to, fan).push_back(result.clone());
    }
    machine.index[channel] += 1;
    true
}

/// Runs all ranks, in an order drawn from `seed`, and returns their outputs.
fn run(call: Call, choice: Choice, n: u32, seed: u64) -> Vec<Vec<Set>> {
    let mut machines: Vec<Machine> = (0..n)
        .map(|rank| {
            let plan = Plan::new(call, choice, rank, n);
            Machine { plan, index: vec![0; plan.channels()], output: vec![POISON; call.count] }
        })
        .collect();
    let mut wires = Wires::default();
    let mut state = seed | 1;
    let mut idle = 0;
    while idle < 4000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let rank = ((state >> 33) % u64::from(n)) as u32;
        let channel = (state >> 20) as usize % machines[0].index.len();
        idle = if step(&mut machines[rank as usize], &mut wires, rank, n, channel, 4) { 0 } else { idle + 1 };
    }
    for (rank, machine) in machines.iter().enumerate() {
        for (channel, index) in machine.index.iter().enumerate() {
            assert!(
                machine.plan.prim(channel, *index).is_none(),
                "rank {rank} is stuck at {index} of {choice:?}"
            );
        }
    }
    assert!(wires.0.values().all(VecDeque::is_empty), "messages are left over");
    machines.into_iter().map(|m| m.output).collect()
}

fn all_reduce(count: usize) -> Call {
    Call { kind: Kind::AllReduce, count, dtype: DType::F32, op: ReduceOp::Sum }
}

/// In any order of execution, every rank ends with every element reduced over all ranks exactly once, and no
/// message is missing or left: all algorithms, ranks 2 to 9, counts that nothing divides, several channels.
#[test]
fn all_reduce_plans_are_complete() {
    for algorithm in Algorithm::ALL {
        for n in 2..=9 {
            for count in [1usize, 2, 15, 16, 17, 100, 1023, 3000] {
                for channels in [1, 3] {
                    let choice = Choice { algorithm, protocol: Protocol::Simple, channels, chunk_bytes: 512 };
                    for (rank, output) in run(all_reduce(count), choice, n, count as u64).iter().enumerate() {
                        assert!(
                            output.iter().all(|set| *set == (1 << n) - 1),
                            "{algorithm} {n} {count} rank {rank}"
                        );
                    }
                }
            }
        }
    }
}

/// Every rank ends with the root's data and nothing else.
#[test]
fn broadcast_plans_are_complete() {
    for n in 2..=5 {
        for root in 0..n {
            let call = Call { kind: Kind::Broadcast { root }, ..all_reduce(1000) };
            let choice = Choice {
                algorithm: Algorithm::Flat,
                protocol: Protocol::Simple,
                channels: 2,
                chunk_bytes: 256,
            };
            for output in run(call, choice, n, 7) {
                assert!(output.iter().all(|set| *set == 1 << root));
            }
        }
    }
}

/// Whatever the size, the choice fits the rings: no message exceeds its protocol's slot, also where a protocol
/// or an algorithm is forced.
#[test]
fn choices_fit_their_slots() {
    let forced = |a: Option<Algorithm>, p: Option<Protocol>| (a, p);
    let mut settings = vec![forced(None, None)];
    for a in Algorithm::ALL {
        settings.extend(Protocol::ALL.map(|p| forced(Some(a), Some(p))));
    }
    for n in [2u32, 3, 8, 64] {
        for (algorithm, protocol) in settings.clone() {
            for channels in [1, 4] {
                let config = Config { algorithm, protocol, channels, ..Config::new(n) };
                let limits = Shm::limits(&config.geometry(n).unwrap());
                for bytes in
                    (2..28).flat_map(|k| [(1usize << k) - 4, 1 << k, (1 << k) + 4]).filter(|b| *b > 0)
                {
                    let call = all_reduce(bytes / 4);
                    let choice = select(&call, &config, &limits);
                    let room = if choice.algorithm == Algorithm::Ring { limits.pair } else { limits.fan };
                    let plan = Plan::new(call, choice, 1, n);
                    for channel in 0..plan.channels() {
                        for index in 0..(4 * u64::from(n)) {
                            let Some(prim) = plan.prim(channel, index) else { break };
                            let largest = 4 * prim.len.max(prim.message);
                            assert!(
                                largest <= room[choice.protocol as usize],
                                "{n} ranks, {bytes} B: {choice:?} {prim:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
