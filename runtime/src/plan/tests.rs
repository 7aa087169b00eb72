//! Plans run on a symbolic machine, and looked at with sizes that no machine has.

mod huge;
mod machine;
mod nccl;

use super::*;
use crate::config::Config;
use crate::reduce::{DType, ReduceOp};
use crate::transport::shm::Shm;
use machine::{Elem, Place, run};
use shmring::Protocol;

/// Calls of every kind with `count` elements, from the first, a middle and the last root; uneven counts are drawn from
/// `seed`, and some of them are 0.
fn calls(count: usize, n: u32, seed: u64) -> Vec<(Call, Vec<usize>)> {
    let (dtype, op) = (DType::F32, ReduceOp::Sum);
    let mut calls = vec![];
    let mut even = |kind| calls.push((Call::new(kind, count, dtype, op), vec![count; n as usize]));
    for root in [0, n / 2, n - 1] {
        even(Kind::Broadcast { root });
        even(Kind::Reduce { root });
        even(Kind::Gather { root });
        even(Kind::Scatter { root });
    }
    for kind in [Kind::AllReduce, Kind::AllGather, Kind::ReduceScatter, Kind::AllToAll] {
        even(kind);
    }
    let mut uneven: Vec<usize> =
        (0..u64::from(n)).map(|r| (seed.wrapping_mul(r + 7) >> 7) as usize % (count + 1)).collect();
    uneven[(seed % u64::from(n)) as usize] = 2 * count;
    uneven[((seed + 1) % u64::from(n)) as usize] = 0;
    for kind in [Kind::AllGatherV, Kind::ReduceScatterV] {
        let counts = Counts::new(&uneven).unwrap();
        calls.push((Call::uneven(kind, counts, dtype, op), uneven.clone()));
    }
    calls
}

/// What element `i` of the output of `rank` is by the kind's definition: whose inputs, and which element of them.
/// `None` when the rank gets nothing.
fn definition(kind: Kind, counts: &[usize], rank: u32, i: usize) -> Option<(u64, usize)> {
    let everybody = (1 << counts.len()) - 1;
    // The rank whose block has element `i` of all, and which of its elements that is.
    let owner = || {
        let mut at = i;
        for (rank, count) in counts.iter().enumerate() {
            if at < *count {
                return (1 << rank, at);
            }
            at -= count;
        }
        panic!("element {i} is outside of all blocks");
    };
    let first = || counts[..rank as usize].iter().sum::<usize>();
    match kind {
        Kind::AllReduce => Some((everybody, i)),
        Kind::Broadcast { root } => Some((1 << root, i)),
        Kind::Reduce { root } => (rank == root).then_some((everybody, i)),
        Kind::AllGather | Kind::AllGatherV => Some(owner()),
        Kind::Gather { root } => (rank == root).then(owner),
        Kind::ReduceScatter | Kind::ReduceScatterV => Some((everybody, first() + i)),
        Kind::AllToAll => {
            let (set, at) = owner();
            Some((set, first() + at))
        }
        Kind::Scatter { root } => Some((1 << root, first() + i)),
        Kind::Barrier => None,
    }
}

/// How many elements `rank` gets by the kind's definition.
fn result_len(kind: Kind, counts: &[usize], rank: u32) -> usize {
    let (one, all) = (counts[rank as usize], counts.iter().sum());
    match kind {
        Kind::AllReduce | Kind::Broadcast { .. } | Kind::Scatter { .. } => one,
        Kind::Reduce { root } => {
            if rank == root {
                one
            } else {
                0
            }
        }
        Kind::AllGather | Kind::AllGatherV | Kind::AllToAll => all,
        Kind::Gather { root } => {
            if rank == root {
                all
            } else {
                0
            }
        }
        Kind::ReduceScatter | Kind::ReduceScatterV => one,
        Kind::Barrier => 0,
    }
}

/// The order in which element `at` is added up when the inputs come from `first` on.
fn order_from(first: u32, n: u32, at: usize) -> u64 {
    let inputs = (0..n).map(|i| Elem::input((first + i) % n, at));
    inputs.reduce(Elem::add).unwrap().order
}

/// The order in which a tree adds up element `at` of the ranks below and at `rank`.
fn order_in_tree(channel: usize, rank: u32, n: u32, at: usize) -> Elem {
    let children = Branch::of(channel, rank, n).children.into_iter().flatten();
    let below = children.map(|child| order_in_tree(channel, child, n, at));
    below.chain([Elem::input(rank, at)]).reduce(Elem::add).unwrap()
}

/// Compares an output with the definition, and the order of a reduction with the algorithm's.
fn check(call: &Call, counts: &[usize], algorithm: Algorithm, rank: u32, output: &[Elem]) {
    let (kind, n) = (call.kind, counts.len() as u32);
    assert_eq!(output.len(), result_len(kind, counts, rank), "{kind:?} on rank {rank}");
    for (i, elem) in output.iter().enumerate() {
        let right = definition(kind, counts, rank, i).unwrap();
        assert_eq!((elem.set, elem.at), right, "{algorithm} {kind:?} {counts:?}: element {i} of rank {rank}");
        if !kind.reduces() {
            continue;
        }
        if (algorithm, kind) == (Algorithm::Tree, Kind::AllReduce) {
            let in_tree = |channel: usize| {
                let root = (0..n).find(|rank| Branch::of(channel, *rank, n).parent.is_none());
                order_in_tree(channel, root.unwrap(), n, elem.at).order
            };
            let is_right = [0, 1].into_iter().any(|channel| in_tree(channel) == elem.order);
            assert!(is_right, "element {i} of rank {rank} is added up as in no tree");
            continue;
        }
        // NCCL's ring ends a block at the rank that it is for.
        let begins: Vec<u32> = match (algorithm, kind) {
            // A piece begins at the rank whose number it has.
            (Algorithm::Relay | Algorithm::Ring, Kind::AllReduce) => (0..n).collect(),
            (Algorithm::Ring, Kind::Reduce { root }) => vec![(root + 1) % n],
            (Algorithm::Ring, _) => vec![(rank + 1) % n],
            _ => vec![0],
        };
        let is_right = begins.iter().any(|first| order_from(*first, n, elem.at) == elem.order);
        assert!(is_right, "{algorithm} {kind:?}: element {i} of rank {rank} is added up in another order");
    }
}

/// In any order of execution every rank ends with what the kind's definition says, each contribution once and in the
/// algorithm's order, no message is missing, left over, too long or of another length than expected, and only the
/// connections are used that the plan names: every kind, algorithm, 2 to 9 ranks, in place and not, counts that nothing
/// divides, one and three channels, messages down to two elements for all ranks.
#[test]
fn plans_are_complete() {
    for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::ZeroCopy]) {
        for n in 2..=9u32 {
            for (count, chunk_bytes) in
                [(1, 8), (5, 8), (2, 64), (15, 512), (17, 64), (100, 512), (333, 2048)]
            {
                for channels in [1, 3] {
                    let choice =
                        Choice { algorithm, protocol: Protocol::Simple, channels, chunk_bytes, nccl: None };
                    let seed = (count as u64 + 11) * u64::from(n) * 0x9e37_79b9 + u64::from(channels);
                    for (call, counts) in calls(count, n, seed) {
                        for place in [Place::Apart, Place::InPlace] {
                            let plan = Plan::new(call.clone(), choice, 0, n);
                            let direct = algorithm == Algorithm::ZeroCopy;
                            // What comes from a rank takes the place of what it is yet to read: see `comm/notices.rs`.
                            let collides = direct && place == Place::InPlace && call.kind == Kind::AllToAll;
                            if place == Place::InPlace && !plan.works_in_place()
                                || collides
                                || direct && (channels != 1 || !super::zero_copy::has(call.kind))
                            {
                                continue;
                            }
                            let outputs = run(&call, choice, n, place, seed);
                            for (rank, output) in (0..).zip(&outputs) {
                                check(&call, &counts, algorithm, rank, output);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Nobody passes a barrier whose message has not come from everybody.
#[test]
fn barriers_wait_for_all() {
    for n in 2..=5 {
        let call = Call::new(Kind::Barrier, 0, DType::F32, ReduceOp::Sum);
        let choice = Choice {
            algorithm: Algorithm::Flat,
            protocol: Protocol::Ll,
            channels: 1,
            chunk_bytes: 56,
            nccl: None,
        };
        assert!(run(&call, choice, n, Place::Apart, 7).iter().all(Vec::is_empty));
        let plan = Plan::new(call, choice, 0, n);
        assert_eq!(plan.prim(0, 1).unwrap().recv, Recv::All);
    }
}

/// All-reduces of every size from 2^2 to 2^28 bytes, and those of other kinds with as many in each block.
fn sizes(n: u32) -> impl Iterator<Item = Call> {
    let bytes = (2..28).flat_map(|k| [(1usize << k) - 4, 1 << k, (1 << k) + 4]).filter(|b| *b > 0);
    bytes.flat_map(move |bytes| calls(bytes / 4, n, bytes as u64)).map(|(call, _)| call)
}

/// Whatever the size, the choice fits the rings: no message exceeds its ring's slot, also where a protocol or an
/// algorithm is forced or the slots are the smallest.
#[test]
fn choices_fit_their_slots() {
    let mut settings = vec![(None, None)];
    for a in Algorithm::ALL {
        settings.extend(Protocol::ALL.map(|p| (Some(a), Some(p))));
    }
    for n in [2u32, 3, 8, 64] {
        for (algorithm, protocol) in settings.clone() {
            for (channels, chunk_bytes) in [(1, Config::new(n).chunk_bytes), (4, 1 << 20), (2, 64)] {
                let config = Config { algorithm, protocol, channels, chunk_bytes, ..Config::new(n) };
                let limits = Shm::limits(&config.geometry(n).unwrap());
                for call in sizes(n) {
                    let choice = select(&call, &config, &limits);
                    let plan = Plan::new(call, choice, 1, n);
                    for channel in 0..plan.channels() {
                        for index in 0..(4 * u64::from(n)).min(40) {
                            let Some(prim) = plan.prim(channel, index) else { break };
                            assert_fits(&prim, &plan, &limits);
                        }
                    }
                }
            }
        }
    }
}

fn assert_fits(prim: &Prim, plan: &Plan, limits: &Limits) {
    let p = plan.choice.protocol as usize;
    let sent = match prim.send {
        Send::None | Send::Finish => usize::MAX,
        Send::Relay(_) => limits.relay[p],
        Send::Pair(_) | Send::Pairs(_) => limits.pair[p],
        Send::Fan => limits.fan[p],
    };
    let received = match prim.recv {
        Recv::None | Recv::Peer(_) | Recv::PeerOutput(_) | Recv::Peers => usize::MAX,
        Recv::Relay(_) => limits.relay[p],
        Recv::Pair(_) | Recv::Pairs(_) | Recv::AllPairs => limits.pair[p],
        Recv::From(_) | Recv::All => limits.fan[p],
    };
    assert!(4 * prim.len <= sent || prim.send == Send::None, "{plan:?} {prim:?}");
    assert!(4 * prim.message <= received, "{plan:?} {prim:?}");
}
