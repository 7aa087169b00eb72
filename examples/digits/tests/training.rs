//! Training as a whole, with ranks that are threads of this process.

use std::cell::RefCell;
use std::io::Write;

use digits_ddp::data::{Dataset, Split};
use digits_ddp::overlap::{CONTROL_SPAN, overlap};
use digits_ddp::sampler::Sampler;
use digits_ddp::sync::memory::{MemoryHandle, MemorySync};
use digits_ddp::sync::{Extreme, GradientSync};
use digits_ddp::train::Replica;
use digits_ddp::{Error, Outcome, Result, TrainOptions, train};

/// Runs `f` as every rank of a group and returns what each gave, by rank.
fn ranks<T: Send>(nranks: usize, f: impl Fn(MemorySync) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> =
            MemorySync::group(nranks).into_iter().map(|sync| scope.spawn(move || f(sync))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn run(nranks: usize, options: &TrainOptions) -> Vec<Outcome> {
    let data = Dataset::built_in().unwrap();
    ranks(nranks, |mut sync| train(&mut sync, &data, options, |_| Ok(())).unwrap())
}

fn short(epochs: usize) -> TrainOptions {
    TrainOptions { epochs, ..TrainOptions::default() }
}

#[test]
fn default_options_reach_96_percent() {
    // Proves that the main job learns: at least 96 % of unseen digits with 1, 4 and 8 ranks.
    for nranks in [1, 4, 8] {
        let outcomes = run(nranks, &TrainOptions::default());
        assert!(outcomes.iter().all(|outcome| outcome.accuracy >= 96.0), "{nranks} ranks: {outcomes:?}");
        assert!(outcomes.iter().all(|outcome| outcome.loss < 0.1), "{nranks} ranks: {outcomes:?}");
    }
}

#[test]
fn replicas_are_identical_and_runs_repeat() {
    // Proves that all ranks end with the same bits, that a second run gives them again, and another seed does
    // not.
    let first = run(4, &short(2));
    assert!(
        first.iter().all(|outcome| outcome.hash == first[0].hash && outcome.accuracy == first[0].accuracy)
    );
    assert_eq!(run(4, &short(2))[0].hash, first[0].hash);
    assert_ne!(run(4, &TrainOptions { seed: 2, ..short(2) })[0].hash, first[0].hash);
}

#[test]
fn bucket_size_changes_no_bit() {
    // Proves that how gradients are cut into buckets is invisible in the result.
    let hashes: Vec<u64> = [None, Some(1), Some(150 << 10), Some(1 << 20)]
        .map(|bucket_bytes| run(4, &TrainOptions { bucket_bytes, ..short(1) })[0].hash)
        .to_vec();
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:x?}");
}

/// Parameters after `steps` steps of `nranks` ranks with `batch` images each.
fn params_after(split: &Split, nranks: usize, batch: usize, steps: usize) -> Vec<Vec<f32>> {
    let options = short(1);
    ranks(nranks, |mut sync| {
        let mut replica = Replica::new(&mut sync, &options).unwrap();
        let rows = Sampler::new(split.train.len(), sync.rank(), nranks, 11).epoch(1);
        for rows in rows.chunks(batch).take(steps) {
            replica.gradient(&mut sync, &split.train, rows).unwrap();
            replica.descend(options.lr);
        }
        replica.model().params().to_vec()
    })
}

#[test]
fn four_ranks_equal_one_process_with_the_whole_batch() {
    // Proves that data parallelism is the same mathematics: ten steps of 4 x 8 images equal ten steps of 32.
    let split = Dataset::built_in().unwrap().split().unwrap();
    let one = params_after(&split, 1, 32, 10).remove(0);
    for four in params_after(&split, 4, 8, 10) {
        let distance = one.iter().zip(&four).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        // Only the order of additions differs: some rounding errors (6e-8 each) of values below 1, over ten
        // steps.
        assert!(distance < 1e-5, "largest difference {distance}");
    }
    let fewer = params_after(&split, 1, 32, 9).remove(0);
    let step = one.iter().zip(&fewer).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(step > 1e-3, "the bound above would not notice a missing step: {step}");
}

/// A rank that records its spans on a clock that ticks at every event, and can be told to misbehave.
///
/// A bucket's exchange is recorded at the moment it is handed over; hence the trace shows the order in which
/// training hands buckets over, whatever the machine does with threads.
struct Recorder {
    inner: MemorySync,
    trace: std::rc::Rc<RefCell<Trace>>,
    /// Add one unit in the last place to what this rank receives, once.
    flip: bool,
}

#[derive(Default)]
struct Trace {
    clock: u64,
    events: Vec<serde_json::Value>,
}

impl Trace {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn push(&mut self, name: &str, start: u64) {
        let duration = self.tick() - start;
        self.events.push(
            serde_json::json!({"name": name, "ph": "X", "ts": start, "dur": duration, "pid": 0, "tid": 0}),
        );
    }
}

struct Guard {
    trace: std::rc::Rc<RefCell<Trace>>,
    name: String,
    start: u64,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.trace.borrow_mut().push(&self.name, self.start);
    }
}

impl GradientSync for Recorder {
    type Handle = MemoryHandle;
    type Span = Guard;

    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn nranks(&self) -> usize {
        self.inner.nranks()
    }

    fn start(&mut self, bucket: Vec<f32>) -> Result<MemoryHandle> {
        drop(self.span("all_reduce"));
        self.inner.start(bucket)
    }

    fn wait(&mut self, handle: MemoryHandle) -> Result<Vec<f32>> {
        let mut bucket = self.inner.wait(handle)?;
        if std::mem::take(&mut self.flip) {
            bucket[0] += 1e-3;
        }
        Ok(bucket)
    }

    fn broadcast(&mut self, values: &mut [f32]) -> Result<()> {
        self.inner.broadcast(values)
    }

    fn sum(&mut self, values: &mut [f64]) -> Result<()> {
        drop(self.span("all_reduce"));
        self.inner.sum(values)
    }

    fn extreme(&mut self, values: &mut [i64], which: Extreme) -> Result<()> {
        drop(self.span("all_reduce"));
        self.inner.extreme(values, which)
    }

    fn barrier(&mut self) -> Result<()> {
        self.inner.barrier()
    }

    fn span(&self, name: &str) -> Guard {
        let start = self.trace.borrow_mut().tick();
        Guard { trace: self.trace.clone(), name: name.into(), start }
    }

    fn finish(self) -> Result<()> {
        self.inner.finish()
    }
}

fn recorder(inner: MemorySync, flip: bool) -> Recorder {
    Recorder { inner, trace: std::rc::Rc::default(), flip }
}

#[test]
fn buckets_are_handed_over_before_the_layer_below() {
    // Proves that training starts every exchange before the backward of the layer below, in every step and
    // rank.
    let data = Dataset::built_in().unwrap();
    let files = ranks(2, |sync| {
        let mut sync = recorder(sync, false);
        train(&mut sync, &data, &short(2), |_| Ok(())).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let events = serde_json::Value::from(std::mem::take(&mut sync.trace.borrow_mut().events));
        assert!(events.to_string().contains(CONTROL_SPAN));
        write!(file, "{events}").unwrap();
        file
    });
    let summary = overlap(&files).unwrap();
    // 719 images per rank and epoch in batches of 16.
    assert_eq!((summary.ranks, summary.steps), (2, 2 * 2 * 45));
    assert_eq!((summary.pairs, summary.overlapped), (2 * summary.steps, 2 * summary.steps));
    assert_eq!(summary.buckets.keys().copied().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_diverged_replica_is_found() {
    // Proves that one rank that received one wrong number makes the run fail on every rank.
    let data = Dataset::built_in().unwrap();
    let results = ranks(3, |sync| {
        let flip = sync.rank() == 1;
        train(&mut recorder(sync, flip), &data, &short(1), |_| Ok(()))
    });
    for result in results {
        assert!(matches!(result, Err(Error::Differ { what: "parameters after training", .. })), "{result:?}");
    }
}

#[test]
fn ranks_with_different_options_are_stopped_at_the_start() {
    // Proves that a rank started with another batch size is noticed before it can make the others wait.
    let data = Dataset::built_in().unwrap();
    let results = ranks(3, |mut sync| {
        let options = TrainOptions { batch: 16 + sync.rank() / 2, ..short(1) };
        train(&mut sync, &data, &options, |_| panic!("an epoch was trained"))
    });
    assert!(
        results.iter().all(|result| matches!(result, Err(Error::Differ { what: "options or data", .. })))
    );
}

#[test]
fn a_rank_that_fails_ends_the_others() {
    // Proves that the failure of one rank in the middle of training is an error on all, not a hang.
    let data = Dataset::built_in().unwrap();
    let results = ranks(3, |mut sync| {
        let rank = sync.rank();
        train(&mut sync, &data, &short(3), |report| match (rank, report.epoch) {
            (2, 2) => Err(Error::Output(std::io::Error::other("disk full"))),
            _ => Ok(()),
        })
    });
    assert!(matches!(results[2], Err(Error::Output(_))));
    for result in &results[..2] {
        assert!(result.as_ref().unwrap_err().to_string().contains("rank 2 has left"), "{result:?}");
    }
}

#[test]
fn divergence_and_bad_options_are_errors() {
    // Proves that a learning rate that ruins training is reported as such, and that impossible options are
    // named.
    let data = Dataset::built_in().unwrap();
    let attempt = |options: TrainOptions| {
        ranks(1, |mut sync| train(&mut sync, &data, &options, |_| Ok(()))).remove(0).unwrap_err().to_string()
    };
    assert!(attempt(TrainOptions { lr: 1e20, ..short(3) }).contains("lower --lr"));
    assert!(attempt(TrainOptions { lr: f32::NAN, ..short(1) }).contains("--lr is NaN"));
    assert!(attempt(TrainOptions { lr: 0.0, ..short(1) }).contains("--lr is 0"));
    assert!(attempt(TrainOptions { batch: 0, ..short(1) }).contains("--batch is 0"));
    assert!(attempt(short(0)).contains("--epochs is 0"));
}
