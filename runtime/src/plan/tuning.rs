//! From which size on which algorithm is the fastest: tables that are measured, never written by hand.
//!
//! ```text
//! machine: 2 cores, ...                                  for who reads the file
//! rows:
//! - ranks: 4                                             communicators of up to so many ranks, down to the row before
//!   cores: 2                                             usable cores when it was measured
//!   lines: { ll: 56, ll128: 480 }                        bytes of the largest message in such lines
//!   chunk: 524288                                        bytes of the largest message
//!   zero_copy: 65536                                     least bytes worth looking whether buffers are registered
//!   all_reduce: [{ algorithm: flat, up_to: 40960 }, { algorithm: relay }]
//!   ...
//! ```
//!
//! `ringccl tune` writes such a file for the machine that it runs on; `default.yaml` beside this file is one of them.

use super::{Algorithm, Kind};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};

/// The table that counts where no other is given.
const SHIPPED: &str = include_str!("tuning/default.yaml");
/// Most rows of a table: more than anybody measures.
const ROWS_MAX: usize = 64;
/// Rings hold larger messages in lines only in several parts.
const LINES_MAX: u64 = 1 << 20;
/// What a chunk may be: as `RINGCCL_CHUNK_BYTES`.
const CHUNKS: std::ops::RangeInclusive<u64> = 64..=16 << 20;

/// Which algorithm and message layout is the fastest, by kind, size, number of ranks and cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuning {
    /// Where it was measured, for its readers.
    pub machine: String,
    /// What was measured, by cores and number of ranks, in ascending order.
    pub rows: Vec<TuningRow>,
}

/// What is known of communicators of some number of ranks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuningRow {
    /// The number of ranks that was measured; it counts for fewer, too, down to the row before.
    pub ranks: u32,
    /// How many cores they could use.
    pub cores: u32,
    /// Messages that travel in lines with flags.
    pub lines: TuningLines,
    /// Bytes of the largest message; always within what [`Config::new`](crate::Config::new) allows for all rings.
    pub chunk: u64,
    /// Least bytes of an operation whose ranks tell each other whether all buffers are registered.
    pub zero_copy: u64,
    /// Of an all-reduce, by the bytes of its buffer.
    pub all_reduce: Vec<TuningStep>,
    /// Of a reduce, by the bytes of its buffer.
    pub reduce: Vec<TuningStep>,
    /// Of a broadcast, by the bytes of its buffer.
    pub broadcast: Vec<TuningStep>,
    /// Of an all-gather, even or not, by the bytes of all blocks.
    pub all_gather: Vec<TuningStep>,
    /// Of a reduce-scatter, even or not, by the bytes of all blocks.
    pub reduce_scatter: Vec<TuningStep>,
}

/// Up to which size messages travel in lines, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuningLines {
    /// In those of LL.
    pub ll: u64,
    /// In those of LL128, where they are longer.
    pub ll128: u64,
}

/// An algorithm and the largest size at which it is the fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuningStep {
    /// It is taken above the size of the step before.
    pub algorithm: Algorithm,
    /// Bytes; all larger ones if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
}

impl Tuning {
    /// The table that was measured by the authors of this library.
    pub fn shipped() -> Arc<Self> {
        static TABLE: OnceLock<Arc<Tuning>> = OnceLock::new();
        // A test reads it; with a text that is none there would be no library.
        let table =
            TABLE.get_or_init(|| Arc::new(Self::parse(SHIPPED).unwrap_or_else(|why| unreachable!("{why}"))));
        Arc::clone(table)
    }

    /// Reads a table as [`Tuning::text`] writes it.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut table: Self = serde_yaml::from_str(text).map_err(|problem| problem.to_string())?;
        if table.rows.is_empty() || table.rows.len() > ROWS_MAX {
            return Err(format!("{} rows, of 1 to {ROWS_MAX}", table.rows.len()));
        }
        table.rows.sort_by_key(|row| (row.cores, row.ranks));
        if let Some(twice) = table.rows.windows(2).find(|two| two[0].key() == two[1].key()) {
            return Err(format!("two rows of {} ranks on {} cores", twice[0].ranks, twice[0].cores));
        }
        for row in &table.rows {
            row.check().map_err(|why| format!("row of {} ranks on {} cores: {why}", row.ranks, row.cores))?;
        }
        Ok(table)
    }

    /// The table as text.
    ///
    /// # Errors
    /// What cannot be written of it.
    pub fn text(&self) -> Result<String, String> {
        serde_yaml::to_string(self).map_err(|problem| problem.to_string())
    }

    /// Leaves only the rows that were measured with so many cores, if there are any.
    #[must_use]
    pub fn for_cores(mut self, cores: u32) -> Self {
        if self.rows.iter().any(|row| row.cores == cores) {
            self.rows.retain(|row| row.cores == cores);
        }
        self
    }

    /// What counts for a communicator of `nranks`: the row of so many, or of the next larger number, or the last one.
    pub fn row(&self, nranks: u32) -> &TuningRow {
        let fitting = self.rows.iter().find(|row| row.ranks >= nranks);
        fitting.unwrap_or_else(|| &self.rows[self.rows.len() - 1])
    }

    /// A number for the row of `nranks` that is 0 with the table that is shipped and most likely another one with any
    /// other row.
    pub(crate) fn mark(&self, nranks: u32) -> u32 {
        let row = self.row(nranks);
        if row == Self::shipped().row(nranks) { 0 } else { row.hash() | 1 }
    }
}

impl TuningRow {
    fn key(&self) -> (u32, u32) {
        (self.cores, self.ranks)
    }

    /// Algorithms of a kind, where it has several.
    pub(crate) fn steps(&self, kind: Kind) -> Option<&[TuningStep]> {
        match kind {
            Kind::AllReduce => Some(&self.all_reduce),
            Kind::Reduce { .. } => Some(&self.reduce),
            Kind::Broadcast { .. } => Some(&self.broadcast),
            Kind::AllGather | Kind::AllGatherV => Some(&self.all_gather),
            Kind::ReduceScatter | Kind::ReduceScatterV => Some(&self.reduce_scatter),
            Kind::Barrier | Kind::AllToAll | Kind::Gather { .. } | Kind::Scatter { .. } => None,
        }
    }

    /// The algorithm for a size; flat for kinds that have no other.
    pub fn algorithm(&self, kind: Kind, bytes: usize) -> Algorithm {
        let fits = |step: &&TuningStep| step.up_to.is_none_or(|most| bytes as u64 <= most);
        let step = self.steps(kind).and_then(|steps| steps.iter().find(fits));
        step.map_or(Algorithm::Flat, |step| step.algorithm)
    }

    fn check(&self) -> Result<(), String> {
        let kinds: [(&str, &[TuningStep], Kind); 5] = [
            ("all_reduce", &self.all_reduce, Kind::AllReduce),
            ("reduce", &self.reduce, Kind::Reduce { root: 0 }),
            ("broadcast", &self.broadcast, Kind::Broadcast { root: 0 }),
            ("all_gather", &self.all_gather, Kind::AllGather),
            ("reduce_scatter", &self.reduce_scatter, Kind::ReduceScatter),
        ];
        for (name, steps, kind) in kinds {
            let sizes: Vec<u64> = steps.iter().map(|step| step.up_to.unwrap_or(u64::MAX)).collect();
            if !sizes.is_sorted_by(|a, b| a < b) || sizes.last() != Some(&u64::MAX) {
                return Err(format!("{name}: `up_to` rises from step to step, and the last step has none"));
            }
            if let Some(step) = steps.iter().find(|step| !step.algorithm.serves(kind)) {
                let known = Algorithm::ALL.into_iter().filter(|algorithm| algorithm.serves(kind));
                let known: Vec<&str> = known.map(Algorithm::name).collect();
                return Err(format!("{name}: {} is not one of {}", step.algorithm, known.join(", ")));
            }
        }
        if self.ranks < 2 || self.cores == 0 {
            return Err("at least 2 ranks and 1 core".into());
        }
        if self.lines.ll > self.lines.ll128 || self.lines.ll128 > LINES_MAX {
            return Err(format!("lines: ll128 is at least ll and at most {LINES_MAX}"));
        }
        if !CHUNKS.contains(&self.chunk) || !self.chunk.is_multiple_of(64) {
            return Err(format!("chunk: a multiple of 64 from {} to {}", CHUNKS.start(), CHUNKS.end()));
        }
        Ok(())
    }

    /// The same on every machine and with every compiler, since ranks compare it: FNV-1a over its text.
    fn hash(&self) -> u32 {
        let text = serde_yaml::to_string(self).unwrap_or_default();
        text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ranks: u32, cores: u32) -> TuningRow {
        let step = |algorithm, up_to| TuningStep { algorithm, up_to };
        let flat = || vec![step(Algorithm::Flat, None)];
        TuningRow {
            ranks,
            cores,
            lines: TuningLines { ll: 56, ll128: 480 },
            chunk: 65536,
            zero_copy: 65536,
            all_reduce: vec![step(Algorithm::Flat, Some(4096)), step(Algorithm::Relay, None)],
            reduce: flat(),
            broadcast: flat(),
            all_gather: flat(),
            reduce_scatter: flat(),
        }
    }

    fn table(rows: Vec<TuningRow>) -> Tuning {
        Tuning { machine: "a test's".into(), rows }
    }

    /// What is shipped can be read, and is what its text says.
    #[test]
    fn shipped_is_read() {
        let shipped = Tuning::shipped();
        assert_eq!(Tuning::parse(&shipped.text().unwrap()), Ok((*shipped).clone()));
        assert!((2..=64).all(|nranks| shipped.mark(nranks) == 0));
    }

    /// The row of the number of ranks counts, or the next larger one, or the last; rows of other numbers of cores do
    /// not, if there is one of the right number.
    #[test]
    fn rows_are_found() {
        let table = table(vec![row(2, 2), row(8, 2), row(4, 16)]);
        let ranks = |table: &Tuning, nranks| (table.row(nranks).cores, table.row(nranks).ranks);
        let two = table.clone().for_cores(2);
        assert_eq!([1, 2, 3, 8, 9].map(|n| ranks(&two, n)), [(2, 2), (2, 2), (2, 8), (2, 8), (2, 8)]);
        let sixteen = table.clone().for_cores(16);
        assert_eq!([2, 64].map(|n| ranks(&sixteen, n)), [(16, 4), (16, 4)]);
        assert_eq!(table.clone().for_cores(3), table);
    }

    /// Sizes are those of the steps, the bound itself included.
    #[test]
    fn steps_are_found() {
        let step = |algorithm, up_to| TuningStep { algorithm, up_to };
        let row = TuningRow {
            all_reduce: vec![
                step(Algorithm::Flat, Some(64)),
                step(Algorithm::TwoShot, Some(128)),
                step(Algorithm::Ring, None),
            ],
            ..row(4, 2)
        };
        let found = [0, 64, 65, 128, 129, usize::MAX].map(|bytes| row.algorithm(Kind::AllReduce, bytes));
        use Algorithm::{Flat, Ring, TwoShot};
        assert_eq!(found, [Flat, Flat, TwoShot, TwoShot, Ring, Ring]);
        assert_eq!(row.algorithm(Kind::AllToAll, 1 << 30), Flat);
    }

    /// Every mistake is told, with the row and what would be right.
    #[test]
    fn mistakes_are_told() {
        let good = table(vec![row(2, 2), row(8, 2)]).text().unwrap();
        let last = "- algorithm: relay\n";
        let cases = [
            ("ranks: 8", "ranks: 2", "two rows of 2 ranks on 2 cores"),
            ("ranks: 8", "ranks: 1", "row of 1 ranks on 2 cores: at least 2 ranks"),
            ("ranks: 8", "rank: 8", "unknown field `rank`"),
            ("algorithm: relay", "algorithm: rely", "unknown variant `rely`"),
            ("algorithm: relay", "algorithm: zerocopy", "unknown variant"),
            (last, "- algorithm: relay\n    up_to: 5\n", "all_reduce: `up_to` rises"),
            ("ll: ", "ll: 99999", "ll128 is at least ll"),
            ("chunk: ", "chunk: 1", "chunk: a multiple of 64"),
            ("chunk: ", "chunk: -", "invalid"),
            ("machine: ", "machin: ", "unknown field `machin`"),
        ];
        for (old, new, told) in cases {
            assert!(good.contains(old), "{old}: {good}");
            let text = Tuning::parse(&good.replacen(old, new, 1)).unwrap_err();
            assert!(text.contains(told), "{old} -> {new}: {text}");
        }
        for (text, told) in [("", "missing field"), ("machine: x\nrows: []\n", "0 rows"), ("[", "")] {
            let found = Tuning::parse(text).unwrap_err();
            assert!(found.contains(told), "{text}: {found}");
        }
        let twoshot = TuningStep { algorithm: Algorithm::TwoShot, up_to: None };
        let wrong = table(vec![TuningRow { broadcast: vec![twoshot], ..row(2, 2) }]).text().unwrap();
        let text = Tuning::parse(&wrong).unwrap_err();
        assert!(text.contains("broadcast: twoshot is not one of flat, ring"), "{text}");
    }

    /// Rows that differ in anything have different marks, and equal ones the same.
    #[test]
    fn marks_tell_rows_apart() {
        let other = TuningRow { chunk: 64, ..row(2, 2) };
        let marks: Vec<u32> = [row(2, 2), row(2, 3), other].map(|row| table(vec![row]).mark(2)).into();
        assert!(marks[1] != 0 && marks[2] != 0 && marks[1] != marks[2], "{marks:?}");
        assert_eq!(table(vec![row(2, 3), row(4, 3)]).mark(2), marks[1]);
    }
}
