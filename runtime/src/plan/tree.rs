//! All-reduce over a double binary tree, as NCCL's Tree: sums go up to a root, results come down from there.
//!
//! ```text
//! iteration i, rank with     parent and children       children, no parent           a parent, no children
//!   up     c[i]              recvReduceSend            recvReduceCopySend (final)    send
//!   down   c[i - lag]        recvCopySend              -                             recv
//! ```
//!
//! A rank has one parent and two children at most, over pair rings. On even channels the tree is one that is in order:
//! a rank whose number has k trailing zeros stands k levels above the leaves, and rank 0 above all. On odd channels it
//! is the same tree with the ranks in another order, in which the leaves of the first are inner nodes: so each rank
//! sends and receives 2 S of a buffer S in both directions together, as in a ring, but in 2 log2 n hand-overs instead
//! of 2 (n - 1).
//!
//! A rank goes on with the next chunks while results of `lag` earlier ones are on their way down. A ring holds more
//! messages than that, so that the root, whose results leave at once, never waits for a rank that waits for it.
//!
//! What comes from below is added in the order of children, then the own input: every rank gets the bits of the root.

use super::primitive::{Prim, Recv, Send};
use super::slice::Chunks;

/// Most results that are on their way while a rank works on others: below the slots of a ring, eight.
const LAG_MAX: u32 = 6;

/// A rank's neighbours in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Branch {
    /// `None` for the root.
    pub(crate) parent: Option<u32>,
    pub(crate) children: [Option<u32>; 2],
}

impl Branch {
    /// The place of `rank` of `nranks` in the tree of a channel.
    pub(crate) fn of(channel: usize, rank: u32, nranks: u32) -> Self {
        if channel.is_multiple_of(2) {
            return Self::in_order(rank, nranks);
        }
        // A leaf has an odd number in the first tree. With an even number of ranks the mirror image makes it even;
        // otherwise, a step to the next rank does.
        let n = nranks;
        let even = n.is_multiple_of(2);
        let there = |rank: u32| if even { n - 1 - rank } else { (rank + n - 1) % n };
        let back = |place: u32| if even { n - 1 - place } else { (place + 1) % n };
        let Self { parent, children } = Self::in_order(there(rank), n);
        Self { parent: parent.map(back), children: children.map(|child| child.map(back)) }
    }

    fn in_order(rank: u32, nranks: u32) -> Self {
        if rank == 0 {
            // The largest power of two below the number of ranks.
            let top = if nranks < 2 { None } else { Some(1 << (nranks - 1).ilog2()) };
            return Self { parent: None, children: [top, None] };
        }
        let bit = 1 << rank.trailing_zeros();
        // The parent has one more trailing zero; where there is no such rank, the subtree hangs lower.
        let above = rank & !bit | bit << 1;
        let parent = if above < nranks { above } else { rank & !bit };
        // Of the ranks behind, those that are there: the highest.
        let below =
            std::iter::successors(Some(bit >> 1), |step| Some(step >> 1)).take_while(|step| *step > 0);
        let before = (bit > 1).then(|| rank - (bit >> 1));
        let behind = below.map(|step| rank + step).find(|behind| *behind < nranks);
        Self { parent: Some(parent), children: [before, behind] }
    }

    /// Parent and children, in this order.
    #[inline]
    pub(crate) fn neighbours(self) -> impl Iterator<Item = u32> {
        self.parent.into_iter().chain(self.children.into_iter().flatten())
    }
}

pub(super) fn all_reduce(chunks: Chunks, index: u64, branch: Branch, nranks: u32) -> Option<Prim> {
    let count = chunks.count();
    // A result comes back after a way up and a way down.
    let lag = u64::from((2 * (nranks - 1).ilog2().max(1)).min(LAG_MAX));
    let (iteration, is_down) = (index / 2, index % 2 == 1);
    if count == 0 || iteration >= count + lag {
        return None;
    }
    let (up, down) = (iteration, iteration.wrapping_sub(lag));
    let below = match branch.children {
        [None, None] => None,
        [Some(one), None] | [None, Some(one)] => Some((Recv::Pair(one), Send::Pair(one))),
        [Some(one), Some(other)] => Some((Recv::Pairs([one, other]), Send::Pairs([one, other]))),
    };
    Some(match (is_down, branch.parent, below) {
        (false, parent, below) if up < count => {
            let span = chunks.get(up);
            match (parent, below) {
                (Some(parent), None) => Prim::send(Send::Pair(parent), span),
                (Some(parent), Some((from, _))) => Prim::recv_reduce_send(from, span, Send::Pair(parent)),
                (None, Some((from, to))) => Prim::recv_reduce_copy_send(from, span, to),
                (None, None) => Prim::copy(span, span),
            }
        }
        (true, Some(parent), below) if down < count => {
            let (from, span) = (Recv::Pair(parent), chunks.get(down));
            match below {
                None => Prim::recv(from, span),
                Some((_, to)) => Prim::recv_copy_send(from, span, to),
            }
        }
        _ => Prim::NOTHING,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every rank but one has a parent that has it as a child; all are below the root, not deeper than a balanced tree
    /// of so many and one level more.
    #[test]
    fn trees_span_all_ranks() {
        for nranks in 2..=130 {
            for channel in [0, 1] {
                let branches: Vec<Branch> =
                    (0..nranks).map(|rank| Branch::of(channel, rank, nranks)).collect();
                let mut depths = Vec::new();
                for rank in 0..nranks {
                    let (mut at, mut depth) = (rank, 0);
                    while let Some(parent) = branches[at as usize].parent {
                        assert!(branches[parent as usize].children.contains(&Some(at)), "{nranks}: {at}");
                        (at, depth) = (parent, depth + 1);
                        assert!(depth <= nranks, "{nranks}: {rank} is in a circle");
                    }
                    depths.push((at, depth));
                }
                let children = branches.iter().flat_map(|branch| branch.children).flatten().count();
                assert_eq!(children as u32, nranks - 1);
                assert!(depths.iter().all(|(root, _)| *root == depths[0].0));
                let deepest = depths.iter().map(|(_, depth)| *depth).max().unwrap();
                assert!(deepest <= (nranks - 1).ilog2() + 1, "{nranks}: {deepest}");
            }
        }
    }

    /// No rank has two children in both trees, and of an even number of ranks none has any in both but the roots: the
    /// work is spread.
    #[test]
    fn leaves_of_one_are_inner_in_the_other() {
        for nranks in 2..=130u32 {
            for rank in 0..nranks {
                let inner = [0, 1].map(|channel| {
                    let Branch { parent, children } = Branch::of(channel, rank, nranks);
                    (parent.is_some() && children != [None, None], children.iter().flatten().count())
                });
                assert!(inner[0].1 + inner[1].1 < 4, "{nranks}: {rank}");
                assert!(nranks % 2 == 1 || !(inner[0].0 && inner[1].0), "{nranks}: {rank}");
            }
        }
    }
}
