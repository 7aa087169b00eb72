//! What is called: the collectives and their arguments.

use super::blocks::Counts;
use super::slice::Span;
use crate::reduce::{DType, ReduceOp};
use std::sync::Arc;

/// The collectives.
///
/// A *block* is one rank's part of a buffer that holds something of every rank; blocks lie in the order of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Every rank gets the reduction of all inputs.
    AllReduce,
    /// Every rank gets the root's input.
    Broadcast {
        /// The rank whose input is sent.
        root: u32,
    },
    /// No data: nobody leaves before everybody has come.
    Barrier,
    /// One rank gets the reduction of all inputs.
    Reduce {
        /// The rank that gets it.
        root: u32,
    },
    /// Every rank gets the inputs of all, a block each.
    AllGather,
    /// Each rank gets its block of the reduction of all inputs.
    ReduceScatter,
    /// Each rank gets its block of every rank's input.
    AllToAll,
    /// One rank gets the inputs of all, a block each.
    Gather {
        /// The rank that gets them.
        root: u32,
    },
    /// Each rank gets its block of the root's input.
    Scatter {
        /// The rank whose input is cut.
        root: u32,
    },
    /// [`Kind::AllGather`] with blocks of different lengths.
    AllGatherV,
    /// [`Kind::ReduceScatter`] with blocks of different lengths.
    ReduceScatterV,
}

impl Kind {
    /// Name in reports and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Broadcast { .. } => "broadcast",
            Self::Barrier => "barrier",
            Self::Reduce { .. } => "reduce",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::AllGatherV => "all_gather_v",
            Self::ReduceScatterV => "reduce_scatter_v",
        }
    }

    /// The rank that an operation comes from or goes to.
    pub fn root(self) -> Option<u32> {
        match self {
            Self::Broadcast { root }
            | Self::Reduce { root }
            | Self::Gather { root }
            | Self::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// Whether it combines elements of different ranks.
    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce { .. } | Self::ReduceScatter | Self::ReduceScatterV)
    }

    /// Whether the larger of the buffers holds a block of every rank.
    pub(crate) fn has_blocks(self) -> bool {
        match self {
            Self::AllReduce | Self::Broadcast { .. } | Self::Barrier | Self::Reduce { .. } => false,
            Self::AllGather
            | Self::ReduceScatter
            | Self::AllToAll
            | Self::Gather { .. }
            | Self::Scatter { .. }
            | Self::AllGatherV
            | Self::ReduceScatterV => true,
        }
    }
}

/// The arguments of one operation, equal on every rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// Elements: of the buffer; of each block, where the kind has equal ones; of all blocks together where `counts`
    /// says how long each is.
    pub(crate) count: usize,
    pub(crate) dtype: DType,
    pub(crate) op: ReduceOp,
    /// Lengths of the blocks of a kind with uneven ones; `None` for every other kind.
    pub(crate) counts: Option<Arc<Counts>>,
}

impl Call {
    pub(crate) const BARRIER: Self =
        Self { kind: Kind::Barrier, count: 0, dtype: DType::F32, op: ReduceOp::Sum, counts: None };

    /// A call of a kind whose blocks, if it has any, are equally long.
    #[inline]
    pub(crate) fn new(kind: Kind, count: usize, dtype: DType, op: ReduceOp) -> Self {
        Self { kind, count, dtype, op, counts: None }
    }

    /// A call of a kind with blocks of different lengths.
    pub(crate) fn uneven(kind: Kind, counts: Counts, dtype: DType, op: ReduceOp) -> Self {
        Self { kind, count: counts.total(), dtype, op, counts: Some(Arc::new(counts)) }
    }

    /// Elements of the largest buffer that a rank of `nranks` passes: what `size` means in nccl-tests.
    #[inline]
    pub(crate) fn elements(&self, nranks: u32) -> usize {
        if self.counts.is_none() && self.kind.has_blocks() {
            self.count * nranks as usize
        } else {
            self.count
        }
    }

    /// The same in bytes.
    #[inline]
    pub(crate) fn bytes(&self, nranks: u32) -> usize {
        self.elements(nranks) * self.dtype.size_bytes()
    }

    /// The block of `rank` in a buffer that has one of every rank.
    #[inline]
    pub(crate) fn block(&self, rank: u32) -> Span {
        match &self.counts {
            None => Span::new(rank as usize * self.count, self.count),
            Some(counts) => counts.block(rank),
        }
    }

    /// What `span`, counted from the start of each block, is in the block of `rank`: less where that is shorter.
    #[inline]
    pub(crate) fn place(&self, span: Span, rank: u32) -> Span {
        let block = self.block(rank);
        let (from, to) = (span.at.min(block.len), span.end().min(block.len));
        Span::new(block.at + from, to - from)
    }

    /// Elements of the longest block.
    pub(crate) fn longest_block(&self) -> usize {
        self.counts.as_ref().map_or(self.count, |counts| counts.longest())
    }

    /// Elements that are read of the input and written of the output on `rank` of `nranks`.
    pub(crate) fn buffers(&self, rank: u32, nranks: u32) -> (usize, usize) {
        let at = |root: u32, elements: usize| if rank == root { elements } else { 0 };
        let all = self.elements(nranks);
        match self.kind {
            Kind::Barrier => (0, 0),
            Kind::AllReduce | Kind::AllToAll => (all, all),
            Kind::Broadcast { root } => (at(root, all), all),
            Kind::Reduce { root } => (all, at(root, all)),
            Kind::AllGather | Kind::AllGatherV => (self.block(rank).len, all),
            Kind::ReduceScatter | Kind::ReduceScatterV => (all, self.block(rank).len),
            Kind::Gather { root } => (self.count, at(root, all)),
            Kind::Scatter { root } => (at(root, all), self.count),
        }
    }
}
