//! Which training rows a rank sees in an epoch, as PyTorch's `DistributedSampler` deals them.

use crate::rng::Rng;

/// Deals the rows of a training set to the ranks anew in every epoch.
///
/// All ranks shuffle `0..rows` with the same seed, extend the order from its own start until the ranks divide
/// it, and rank `r` takes positions `r, r + nranks, r + 2 nranks, ...`. So every rank has equally many rows,
/// and batch `s` of all ranks together is a contiguous stretch of the shuffled order: what a single process
/// with a batch `nranks` times as large would see.
#[derive(Debug, Clone)]
pub struct Sampler {
    rows: usize,
    rank: usize,
    nranks: usize,
    seed: u64,
}

impl Sampler {
    /// A sampler of `rows` rows for `rank` of `nranks`; `seed` must be the same on every rank.
    ///
    /// # Panics
    /// If `rank` is not below `nranks`.
    pub fn new(rows: usize, rank: usize, nranks: usize, seed: u64) -> Self {
        assert!(rank < nranks, "rank {rank} of {nranks}");
        Self { rows, rank, nranks, seed }
    }

    /// Rows that every rank sees in an epoch.
    pub fn rows_per_rank(&self) -> usize {
        self.rows.div_ceil(self.nranks)
    }

    /// The rows of this rank in `epoch`, in the order in which they are to be visited.
    pub fn epoch(&self, epoch: usize) -> Vec<usize> {
        let order = Rng::stream(self.seed, epoch as u64).permutation(self.rows);
        let total = self.rows_per_rank() * self.nranks;
        order.iter().cycle().take(total).skip(self.rank).step_by(self.nranks).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Sampler;

    #[test]
    fn ranks_together_see_the_single_process_order() {
        // Proves that batch s of all ranks is the global batch s of one process, and that nothing is lost.
        let (rows, nranks) = (1437, 8);
        let single = Sampler::new(rows, 0, 1, 3).epoch(2);
        let shards: Vec<_> = (0..nranks).map(|rank| Sampler::new(rows, rank, nranks, 3).epoch(2)).collect();
        assert!(shards.iter().all(|shard| shard.len() == 180));
        for (position, row) in single.iter().enumerate() {
            assert_eq!(shards[position % nranks][position / nranks], *row);
        }
        // The three positions beyond the rows repeat the start of the order.
        assert_eq!([shards[5][179], shards[6][179], shards[7][179]], single[..3]);
    }

    #[test]
    fn epochs_differ() {
        // Proves that the order is dealt anew in every epoch and is the same when asked for again.
        let sampler = Sampler::new(100, 1, 4, 3);
        assert_eq!(sampler.epoch(1), sampler.epoch(1));
        assert_ne!(sampler.epoch(1), sampler.epoch(2));
    }

    #[test]
    fn more_ranks_than_rows() {
        // Proves that every rank gets a row even when there are fewer rows than ranks.
        let rows: Vec<_> = (0..5).map(|rank| Sampler::new(2, rank, 5, 0).epoch(0)).collect();
        assert!(rows.iter().all(|shard| shard.len() == 1 && shard[0] < 2));
    }
}
