//! A symbolic machine: elements say whose inputs are in them, messages are queues with as many slots as a ring has.

use crate::plan::{Call, Choice, Own, Plan, Prim, Recv, Send, Span, Turn};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elem {
    /// Which ranks' inputs have been added up in it, one bit each.
    pub(super) set: u64,
    /// Which element of those inputs it is.
    pub(super) at: usize,
    /// In which order they were added.
    pub(super) order: u64,
}

/// Nothing: memory that nobody has written, or a hole in a message.
pub(super) const POISON: Elem = Elem { set: u64::MAX, at: 0, order: 0 };

impl Elem {
    /// Element `at` of the input of `rank`.
    pub(super) fn input(rank: u32, at: usize) -> Self {
        Self { set: 1 << rank, at, order: u64::from(rank) + 1 }
    }

    /// The sum, `self` being the first operand.
    pub(super) fn add(self, other: Self) -> Self {
        assert!(self != POISON && other != POISON, "a hole or an unwritten element takes part");
        assert_eq!(self.at, other.at, "two different elements are added");
        assert_eq!(self.set & other.set, 0, "a rank's input is added twice");
        let order = (self.order.rotate_left(9) ^ other.order).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { set: self.set | other.set, at: self.at, order }
    }
}

/// Where an operation's buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Apart,
    /// As NCCL defines it for the kind.
    InPlace,
}

/// One rank: its plan, how far it is on each channel, its memory.
struct Machine {
    plan: Plan,
    index: Vec<u64>,
    memory: Vec<Elem>,
    input: usize,
    output: usize,
    /// Pair rings that it has sent to and received from.
    used: [BTreeSet<u32>; 2],
    fan: bool,
    relay: bool,
}

impl Machine {
    fn new(plan: Plan, rank: u32, n: u32, place: Place) -> Self {
        let (input_len, output_len) = plan.call.buffers(rank, n);
        let block = if plan.call.kind.has_blocks() { plan.call.block(rank).at } else { 0 };
        let (input, output, len) = match place {
            Place::Apart => (0, input_len, input_len + output_len),
            // The shorter buffer is the own block of the longer one.
            Place::InPlace if input_len < output_len => (block, 0, output_len.max(block + input_len)),
            Place::InPlace if output_len > 0 && output_len < input_len => (0, block, input_len),
            Place::InPlace => (0, 0, input_len.max(output_len)),
        };
        let mut memory = vec![POISON; len];
        for at in 0..input_len {
            memory[input + at] = Elem::input(rank, at);
        }
        let index = vec![0; plan.channels()];
        Self { plan, index, memory, input, output, used: Default::default(), fan: false, relay: false }
    }

    /// Notes the use of a ring, to (0) or from (1) another rank.
    fn note(&mut self, direction: usize, peer: u32, fan: bool) {
        self.fan |= fan;
        if !fan {
            self.used[direction].insert(peer);
        }
    }

    /// What another rank reads of the input.
    fn read(&self, at: usize, len: usize) -> Vec<Elem> {
        assert!(at + len <= self.plan.input, "{at} + {len} is outside the input");
        self.memory[self.input + at..][..len].to_vec()
    }

    /// What another rank reads of the output.
    fn result(&self, at: usize, len: usize) -> Vec<Elem> {
        assert!(at + len <= self.plan.output, "{at} + {len} is outside the output");
        self.memory[self.output + at..][..len].to_vec()
    }

    fn store(&mut self, span: Span, elements: &[Elem]) {
        assert!(span.end() <= self.plan.output, "{span:?} is outside the output");
        self.memory[self.output + span.at..self.output + span.end()].copy_from_slice(elements);
    }

    /// Once the operation is over for this rank, its program may change the input.
    fn forget_input(&mut self) {
        let is_over =
            (0..self.index.len()).all(|channel| self.plan.prim(channel, self.index[channel]).is_none());
        let output = self.output..self.output + self.plan.output;
        for at in (self.input..self.input + self.plan.input).filter(|at| is_over && !output.contains(at)) {
            self.memory[at] = POISON;
        }
    }

    /// The rank's own input that a primitive uses.
    fn own(&self, own: Own, rank: u32) -> Vec<Elem> {
        let read = |span: Span| {
            assert!(span.end() <= self.plan.input, "{span:?} is outside the input");
            self.memory[self.input + span.at..self.input + span.end()].to_vec()
        };
        match own {
            Own::Span { span, hole } => {
                let mut elements = read(span);
                if hole.len > 0 {
                    elements[hole.at - span.at..hole.end() - span.at].fill(POISON);
                }
                elements
            }
            Own::Blocks(stretch) => {
                let block = |of: u32| {
                    let part = read(self.plan.call.place(stretch.span, of));
                    if of == rank { vec![POISON; part.len()] } else { part }
                };
                (stretch.first..stretch.end).flat_map(block).collect()
            }
        }
    }
}

/// The messages on their way, by (channel, from, to, fan or pair).
#[derive(Default)]
struct Rings(BTreeMap<(usize, u32, u32, bool), VecDeque<Vec<Elem>>>, BTreeMap<usize, Relay>);

/// A relay of four blocks.
#[derive(Default)]
struct Relay {
    /// Turns passed on a piece, and what is in it.
    pieces: BTreeMap<(u64, u32), (u32, Vec<Elem>)>,
    /// Blocks that each rank has done with.
    done: BTreeMap<u32, u64>,
}

impl Relay {
    /// Whether the primitive can run.
    fn is_ready(&self, prim: &Prim, n: u32) -> bool {
        let credit = match prim.send {
            Send::Relay(Turn { block, turn: 0, .. }) => {
                (0..n).all(|rank| block < self.done.get(&rank).unwrap_or(&0) + 4)
            }
            _ => true,
        };
        credit
            && match prim.recv {
                Recv::Relay(Turn { block, piece, turn }) => {
                    self.pieces.get(&(block, piece)).is_some_and(|(passed, _)| *passed == turn + 1)
                }
                _ => true,
            }
    }

    fn take(&mut self, prim: &Prim, rank: u32, n: u32, result: &[Elem]) {
        match prim.send {
            Send::Relay(Turn { block, piece, turn }) => {
                let (passed, content) = self.pieces.entry((block, piece)).or_default();
                assert_eq!(*passed, turn, "rank {rank} takes a turn that is not up");
                assert_eq!((piece + turn) % n, rank, "rank {rank} takes another rank's turn");
                (*passed, *content) = (turn + 1, result.to_vec());
            }
            Send::Finish => {
                let done = self.done.entry(rank).or_default();
                let block = *done;
                *done += 1;
                if (0..n).all(|rank| *self.done.get(&rank).unwrap_or(&0) > block) {
                    for piece in 0..n {
                        let (passed, _) = self.pieces.remove(&(block, piece)).unwrap();
                        assert_eq!(passed, n, "a block is given back before all have added to it");
                    }
                }
            }
            _ => {}
        }
    }
}

impl Rings {
    fn queue(&mut self, channel: usize, from: u32, to: u32, fan: bool) -> &mut VecDeque<Vec<Elem>> {
        self.0.entry((channel, from, to, fan)).or_default()
    }
}

/// From whom a primitive receives, and to whom it sends, and whether by fan rings.
fn ends(prim: &Prim, rank: u32, n: u32) -> [Vec<(u32, bool)>; 2] {
    let others = |fan: bool| (0..n).filter(|r| *r != rank).map(|r| (r, fan)).collect();
    let sources = match prim.recv {
        Recv::None | Recv::Relay(_) | Recv::Peer(_) | Recv::PeerOutput(_) | Recv::Peers => vec![],
        Recv::Pair(from) => vec![(from, false)],
        Recv::Pairs(pair) => pair.map(|from| (from, false)).into(),
        Recv::From(from) => vec![(from, true)],
        Recv::All => others(true),
        Recv::AllPairs => others(false),
    };
    let targets = match prim.send {
        Send::None | Send::Relay(_) | Send::Finish => vec![],
        Send::Pair(to) => vec![(to, false)],
        Send::Pairs(pair) => pair.map(|to| (to, false)).into(),
        Send::Fan => others(true),
    };
    [sources, targets]
}

/// Runs the next primitive of `rank` on `channel`; false if it must wait.
fn step(machines: &mut [Machine], rings: &mut Rings, rank: u32, n: u32, channel: usize) -> bool {
    let machine = &mut machines[rank as usize];
    let Some(prim) = machine.plan.prim(channel, machine.index[channel]) else { return false };
    let [sources, targets] = ends(&prim, rank, n);
    let slots = |fan: bool| if fan { 4 } else { 8 };
    let credit = targets.iter().all(|(to, fan)| rings.queue(channel, rank, *to, *fan).len() < slots(*fan));
    let here = sources.iter().all(|(from, fan)| !rings.queue(channel, *from, rank, *fan).is_empty());
    let relay = rings.1.entry(channel).or_default();
    if !credit || !here || !relay.is_ready(&prim, n) {
        return false;
    }
    machine.relay |= matches!((prim.recv, prim.send), (Recv::Relay(_), _) | (_, Send::Relay(_)));
    let own = prim.own.map(|own| machine.own(own, rank));
    let ordered = matches!(prim.recv, Recv::All | Recv::AllPairs);
    let mut parts: Vec<(u32, Vec<Elem>)> = Vec::new();
    for (from, fan) in &sources {
        let message = rings.queue(channel, *from, rank, *fan).pop_front().unwrap();
        assert_eq!(message.len(), prim.message, "rank {rank} expects another length from rank {from}");
        parts.push((*from, message[prim.part..prim.part + prim.len].to_vec()));
        machine.note(1, *from, *fan);
    }
    if let Recv::Relay(Turn { block, piece, .. }) = prim.recv {
        let content = &rings.1[&channel].pieces[&(block, piece)].1;
        assert_eq!(content.len(), prim.message, "rank {rank} expects another length in piece {piece}");
        parts.push((0, content.clone()));
    }
    for peer in peers(&prim, n) {
        let other = &machines[peer as usize];
        let of_output = matches!(prim.recv, Recv::PeerOutput(_));
        let read =
            if of_output { other.result(prim.part, prim.len) } else { other.read(prim.part, prim.len) };
        parts.push((peer, read));
    }
    let machine = &mut machines[rank as usize];
    // As the executor: in rank order from all, the received value first from one.
    parts.extend(own.map(|own| (if ordered { rank } else { n }, own)));
    if ordered {
        parts.sort_by_key(|(rank, _)| *rank);
    }
    let result = parts.into_iter().map(|(_, part)| part).reduce(|sum, part| {
        assert_eq!(sum.len(), part.len());
        sum.into_iter().zip(part).map(|(a, b)| a.add(b)).collect()
    });
    let result = result.unwrap_or_default();
    assert_eq!(result.len(), prim.len, "{prim:?}");
    assert!(!prim.last || result.iter().all(|e| e.set == (1 << n) - 1), "`last` on an unfinished sum");
    if let Some(span) = prim.dst {
        assert!(span.end() <= machine.plan.output && span.len == prim.len, "{prim:?} stores elsewhere");
        machine.store(span, &result);
    }
    let machine = &mut machines[rank as usize];
    let largest = machine.plan.choice.chunk_bytes / machine.plan.call.dtype.size_bytes();
    for (to, fan) in targets {
        assert!(result.len() <= largest, "{prim:?} does not fit");
        rings.queue(channel, rank, to, fan).push_back(result.clone());
        machine.note(0, to, fan);
    }
    if let Some(relay) = rings.1.get_mut(&channel) {
        assert!(result.len() <= largest || !matches!(prim.send, Send::Relay(_)), "{prim:?} does not fit");
        relay.take(&prim, rank, n, &result);
    }
    machine.index[channel] += 1;
    machine.forget_input();
    true
}

/// The ranks whose inputs a primitive reads where they are.
fn peers(prim: &Prim, n: u32) -> std::ops::Range<u32> {
    match prim.recv {
        Recv::Peer(peer) | Recv::PeerOutput(peer) => peer..peer + 1,
        Recv::Peers => 0..n,
        _ => 0..0,
    }
}

/// Runs all ranks, in an order drawn from `seed`, until nothing moves; returns their outputs.
///
/// Panics when a rank is stuck, a message is left over, or a plan uses other pair rings than it names.
pub(super) fn run(call: &Call, choice: Choice, n: u32, place: Place, seed: u64) -> Vec<Vec<Elem>> {
    run_plans((0..n).map(|rank| Plan::new(call.clone(), choice, rank, n)).collect(), place, seed)
}

/// The same with a plan for each rank.
pub(super) fn run_plans(plans: Vec<Plan>, place: Place, seed: u64) -> Vec<Vec<Elem>> {
    let n = plans.len() as u32;
    let mut machines: Vec<Machine> =
        (0..n).zip(plans).map(|(rank, plan)| Machine::new(plan, rank, n, place)).collect();
    let channels = machines[0].plan.channels();
    assert!(machines.iter().all(|machine| machine.plan.channels() == channels));
    let mut rings = Rings::default();
    let mut state = seed | 1;
    let mut draw = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut moved = true;
    while moved {
        moved = false;
        let mut turns: Vec<(u32, usize)> = (0..n).flat_map(|r| (0..channels).map(move |c| (r, c))).collect();
        while !turns.is_empty() {
            let (rank, channel) = turns.swap_remove(draw(turns.len()));
            for _ in 0..=draw(4) {
                moved |= step(&mut machines, &mut rings, rank, n, channel);
            }
        }
    }
    for (rank, machine) in machines.iter().enumerate() {
        for (channel, index) in machine.index.iter().enumerate() {
            let next = machine.plan.prim(channel, *index);
            assert!(next.is_none(), "rank {rank} is stuck at {index} of {:?}: {next:?}", machine.plan);
        }
        let wires = machine.plan.wires;
        let named = [wires.to, wires.from].map(|peers| {
            (0..channels).flat_map(|channel| peers.iter(channel, rank as u32, n)).collect::<BTreeSet<u32>>()
        });
        assert_eq!(machine.used, named, "rank {rank} of {:?}", machine.plan);
        assert!(!machine.fan || wires.fan, "rank {rank} of {:?}", machine.plan);
        assert!(!machine.relay || wires.relay, "rank {rank} of {:?}", machine.plan);
    }
    assert!(rings.0.values().all(VecDeque::is_empty), "messages are left over");
    assert!(rings.1.values().all(|relay| relay.pieces.is_empty()), "a block is left over");
    machines.into_iter().map(|m| m.memory[m.output..m.output + m.plan.output].to_vec()).collect()
}
