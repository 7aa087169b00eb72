//! Calls made from the lengths of buffers, checked: for the blocking forms, for groups and for streams.

use super::super::Communicator;
use crate::error::Error;
use crate::plan::{Call, Kind};
use crate::reduce::{Element, ReduceOp};

impl Communicator {
    pub(crate) fn all_reduce_call<T: Element>(
        &self,
        send: usize,
        recv: usize,
        op: ReduceOp,
    ) -> Result<Call, Error> {
        self.same_length(Kind::AllReduce, send, recv)?;
        Ok(Call::new(Kind::AllReduce, recv, T::DTYPE, op))
    }

    pub(crate) fn broadcast_call<T: Element>(&self, count: usize, root: usize) -> Result<Call, Error> {
        let kind = self.rooted(root, |root| Kind::Broadcast { root })?;
        Ok(Call::new(kind, count, T::DTYPE, ReduceOp::Sum))
    }

    /// `recv` counts on the root alone.
    pub(crate) fn reduce_call<T: Element>(
        &self,
        send: usize,
        recv: usize,
        op: ReduceOp,
        root: usize,
    ) -> Result<Call, Error> {
        let kind = self.rooted(root, |root| Kind::Reduce { root })?;
        if root == self.rank() {
            self.same_length(kind, send, recv)?;
        }
        Ok(Call::new(kind, send, T::DTYPE, op))
    }

    pub(crate) fn all_gather_call<T: Element>(&self, send: usize, recv: usize) -> Result<Call, Error> {
        self.block_each(Kind::AllGather, "receive", recv, send)?;
        Ok(Call::new(Kind::AllGather, send, T::DTYPE, ReduceOp::Sum))
    }

    pub(crate) fn reduce_scatter_call<T: Element>(
        &self,
        send: usize,
        recv: usize,
        op: ReduceOp,
    ) -> Result<Call, Error> {
        self.block_each(Kind::ReduceScatter, "send", send, recv)?;
        Ok(Call::new(Kind::ReduceScatter, recv, T::DTYPE, op))
    }

    pub(crate) fn all_to_all_call<T: Element>(&self, send: usize, recv: usize) -> Result<Call, Error> {
        self.same_length(Kind::AllToAll, send, recv)?;
        let count = self.block_of(Kind::AllToAll, send)?;
        Ok(Call::new(Kind::AllToAll, count, T::DTYPE, ReduceOp::Sum))
    }

    /// `recv` counts on the root alone.
    pub(crate) fn gather_call<T: Element>(
        &self,
        send: usize,
        recv: usize,
        root: usize,
    ) -> Result<Call, Error> {
        let kind = self.rooted(root, |root| Kind::Gather { root })?;
        if root == self.rank() {
            self.block_each(kind, "receive", recv, send)?;
        }
        Ok(Call::new(kind, send, T::DTYPE, ReduceOp::Sum))
    }

    /// `send` counts on the root alone.
    pub(crate) fn scatter_call<T: Element>(
        &self,
        send: usize,
        recv: usize,
        root: usize,
    ) -> Result<Call, Error> {
        let kind = self.rooted(root, |root| Kind::Scatter { root })?;
        if root == self.rank() {
            self.block_each(kind, "send", send, recv)?;
        }
        Ok(Call::new(kind, recv, T::DTYPE, ReduceOp::Sum))
    }

    pub(crate) fn all_gather_v_call<T: Element>(
        &self,
        send: usize,
        recv: usize,
        counts: &[usize],
    ) -> Result<Call, Error> {
        let kind = Kind::AllGatherV;
        let blocks = self.counts(kind, counts)?;
        self.has(kind, "send buffer", send, counts[self.rank()])?;
        self.has(kind, "receive buffer", recv, blocks.total())?;
        Ok(Call::uneven(kind, blocks, T::DTYPE, ReduceOp::Sum))
    }

    pub(crate) fn reduce_scatter_v_call<T: Element>(
        &self,
        send: usize,
        recv: usize,
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<Call, Error> {
        let kind = Kind::ReduceScatterV;
        let blocks = self.counts(kind, counts)?;
        self.has(kind, "send buffer", send, blocks.total())?;
        self.has(kind, "receive buffer", recv, counts[self.rank()])?;
        Ok(Call::uneven(kind, blocks, T::DTYPE, op))
    }
}
