//! Uneven exchanges between all ranks: a send to and a receive from each.
//!
//! ```text
//!               send, parts by destination         recv, parts by source
//! rank 0 of 3   | 0 to 0 | to 1 |   to 2   |       | 0 from 0 | from 1 | from 2 |
//! ```

use super::Communicator;
use crate::error::Error;
use crate::mail::Letter;
use crate::reduce::{self, DType, Dst, Store};
use crate::task::{Task, drive};

impl Communicator {
    /// Whether counts fit their buffers, given by their lengths, and the ranks.
    pub(crate) fn check_parts(&self, send: (usize, &[usize]), recv: (usize, &[usize])) -> Result<(), Error> {
        let n = self.nranks();
        for (what, (len, counts)) in [("send", send), ("receive", recv)] {
            let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
            if counts.len() != n || total != Some(len) {
                let what = format!(
                    "the {} {what} counts must be one for each of {n} ranks and add up to the {len} elements of the buffer",
                    counts.len()
                );
                return Err(self.argument("all_to_all_v", what));
            }
        }
        Ok(())
    }

    /// Whether counts fit the ranks, and buffers of `dtype` can have their sums.
    pub(crate) fn check_raw_parts(&self, send: &[usize], recv: &[usize], dtype: DType) -> Result<(), Error> {
        let n = self.nranks();
        for (what, counts) in [("send", send), ("receive", recv)] {
            let total = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
            let bytes = total.and_then(|total| total.checked_mul(dtype.size_bytes()));
            if counts.len() != n || bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
                let what = format!(
                    "the {} {what} counts must be one for each of {n} ranks and together at most the {} bytes that memory can have",
                    counts.len(),
                    isize::MAX
                );
                return Err(self.argument("all_to_all_v", what));
            }
        }
        Ok(())
    }

    /// Exchanges in the calling thread.
    ///
    /// # Safety
    /// - As [`Communicator::exchange_parts`], during the call.
    pub(crate) unsafe fn exchange_now(
        &mut self,
        send: (*const u8, &[usize]),
        recv: (*mut u8, &[usize]),
        dtype: DType,
    ) -> Result<(), Error> {
        let (rank, size) = (self.rank(), dtype.size_bytes());
        let own = (send.1[rank], recv.1[rank]);
        let start = |counts: &[usize]| counts[..rank].iter().sum::<usize>() * size;
        // SAFETY: the caller's contract; parts that differ in length go by the mail, which tells of them.
        let tasks = unsafe {
            if own.0 == own.1 {
                let to = Dst { ptr: recv.0.add(start(recv.1)), store: Store::Cached };
                reduce::copy(send.0.add(start(send.1)), &[to], own.0 * size);
            }
            self.exchange_parts(send, recv, dtype, own.0 != own.1)?
        };
        drive(tasks)
    }

    /// The sends and receives of an exchange of parts, whose counts were checked. Without `own` nothing is sent to this
    /// rank itself.
    ///
    /// # Safety
    /// - `send` is readable for its counts' sum of elements of `dtype` and `recv` writable, from any thread, until the
    ///   tasks are over or dropped. They do not overlap.
    pub(crate) unsafe fn exchange_parts(
        &mut self,
        (mut send, send_counts): (*const u8, &[usize]),
        (mut recv, recv_counts): (*mut u8, &[usize]),
        dtype: DType,
        own: bool,
    ) -> Result<Vec<Task>, Error> {
        let letter = |count| Letter { count, dtype, tag: 0 };
        let mut tasks = Vec::with_capacity(2 * self.nranks());
        for (rank, (&sent, &received)) in send_counts.iter().zip(recv_counts).enumerate() {
            // SAFETY: the caller's contract: parts follow each other, and each ends inside its buffer.
            unsafe {
                if own || rank != self.rank() {
                    tasks.push(self.recv_task(recv, letter(received), Some(rank))?);
                    tasks.push(self.send_task(send, letter(sent), rank)?);
                }
                send = send.add(letter(sent).bytes());
                recv = recv.add(letter(received).bytes());
            }
        }
        Ok(tasks)
    }
}
