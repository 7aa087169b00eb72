//! What is wrong with arguments, with the values: nothing is done then, and the communicator can go on.

use super::super::Communicator;
use crate::error::Error;
use crate::plan::{Call, Counts, Kind};

impl Communicator {
    #[cold]
    pub(crate) fn argument(&self, call: &'static str, what: String) -> Error {
        Error::Argument { rank: self.shared.rank, call, what }
    }

    /// The kind with this root, if that is a rank.
    pub(super) fn rooted(&self, root: usize, kind: impl Fn(u32) -> Kind) -> Result<Kind, Error> {
        if root < self.nranks() {
            return Ok(kind(root as u32));
        }
        let what = format!("root {root} is not a rank: there are {}", self.nranks());
        Err(self.argument(kind(0).name(), what))
    }

    #[inline]
    pub(super) fn same_length(&self, kind: Kind, send: usize, recv: usize) -> Result<(), Error> {
        if send == recv { Ok(()) } else { Err(self.unequal(kind, send, recv)) }
    }

    #[cold]
    fn unequal(&self, kind: Kind, send: usize, recv: usize) -> Error {
        let what =
            format!("the send buffer has {send} elements, the receive buffer {recv}; they must be equal");
        self.argument(kind.name(), what)
    }

    /// Whether `all` elements are a block of `count` for each rank; `whole` is the buffer that has them.
    pub(super) fn block_each(
        &self,
        kind: Kind,
        whole: &'static str,
        all: usize,
        count: usize,
    ) -> Result<(), Error> {
        let n = self.nranks();
        if count.checked_mul(n) == Some(all) {
            return Ok(());
        }
        let what = format!(
            "the {whole} buffer has {all} elements; it must have a block of {count} for each of {n} ranks, {} in all",
            count.saturating_mul(n)
        );
        Err(self.argument(kind.name(), what))
    }

    /// The length of a block in a buffer of `all` elements with one of every rank.
    pub(super) fn block_of(&self, kind: Kind, all: usize) -> Result<usize, Error> {
        let n = self.nranks();
        if all.is_multiple_of(n) {
            return Ok(all / n);
        }
        let what = format!("the buffer has {all} elements, which {n} ranks cannot share in equal blocks");
        Err(self.argument(kind.name(), what))
    }

    /// Lengths of blocks, one for each rank.
    pub(super) fn counts(&self, kind: Kind, counts: &[usize]) -> Result<Counts, Error> {
        if counts.len() != self.nranks() {
            let what = format!("{} counts for {} ranks; each has one", counts.len(), self.nranks());
            return Err(self.argument(kind.name(), what));
        }
        Counts::new(counts).ok_or_else(|| {
            self.argument(
                kind.name(),
                format!("the counts of {} ranks overflow a buffer's length", self.nranks()),
            )
        })
    }

    /// Whether a buffer has as many elements as it must; `buffer` says which.
    pub(super) fn has(
        &self,
        kind: Kind,
        buffer: &'static str,
        found: usize,
        wanted: usize,
    ) -> Result<(), Error> {
        if found == wanted {
            return Ok(());
        }
        let what = format!("the {buffer} has {found} elements; by the counts it must have {wanted}");
        Err(self.argument(kind.name(), what))
    }

    /// The call, if its buffers can be addressed.
    pub(super) fn addressable(&self, call: Call) -> Result<Call, Error> {
        let (n, size) = (self.nranks(), call.dtype.size_bytes());
        let blocks = if call.counts.is_none() && call.kind.has_blocks() { n } else { 1 };
        let bytes = call.count.checked_mul(blocks).and_then(|elements| elements.checked_mul(size));
        if bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
            return Ok(call);
        }
        let what = format!(
            "{} elements of {size} bytes for each of {blocks} blocks are more than the {} bytes that memory can have",
            call.count,
            isize::MAX
        );
        Err(self.argument(call.kind.name(), what))
    }
}
