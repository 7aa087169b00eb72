//! Proof that exchanging gradients overlapped with computing them, read from the traces of the ranks.
//!
//! A rank's trace is a JSON array of Chrome trace events. Of these, complete events (`"ph": "X"`, times in
//! microseconds) with the following names count:
//!
//! | name | written by | meaning |
//! | --- | --- | --- |
//! | `backward layer K` | training | the backward of layer K, counted from 1 at the input |
//! | `bucket K submitted` | training | the bucket whose lowest layer is K was handed over |
//! | `all_reduce` | communication library | an exchange, from its start to its end on the worker |
//! | `control exchange` | training | all_reduces that begin in here are not buckets |
//!
//! The n-th submission belongs to the n-th all_reduce outside of control exchanges. Bucket `K` overlapped if
//! its all_reduce started before the backward of layer `K - 1` of the same step ended. The bucket of layer 1
//! has nothing below it to overlap with and is not counted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::{Error, Result};

/// The span in which training exchanges anything but buckets.
pub const CONTROL_SPAN: &str = "control exchange";
const ALL_REDUCE: &str = "all_reduce";

/// How often an exchange of gradients ran beside the backward pass, over all ranks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OverlapSummary {
    /// Traces that were read.
    pub ranks: usize,
    /// Training steps in them, of all ranks together.
    pub steps: usize,
    /// Pairs of step and bucket that have a layer below.
    pub pairs: usize,
    /// Those in which the exchange started before the backward of the layer below had ended.
    pub overlapped: usize,
    /// `pairs` and `overlapped` by bucket number.
    pub buckets: BTreeMap<usize, BucketOverlap>,
    /// Time of all bucket exchanges in microseconds.
    pub all_reduce_us: f64,
    /// The part of `all_reduce_us` during which the same rank was in the backward of some layer.
    pub hidden_us: f64,
}

/// The counts for one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketOverlap {
    /// Steps in which the bucket was exchanged.
    pub pairs: usize,
    /// Those in which that overlapped.
    pub overlapped: usize,
}

/// Reads one trace file per rank and counts.
///
/// # Errors
/// [`Error::Read`] if a file cannot be read, [`Error::Trace`] if it is not the complete trace of a training
/// rank.
pub fn overlap<P: AsRef<Path>>(trace_files: &[P]) -> Result<OverlapSummary> {
    let mut summary = OverlapSummary::default();
    for file in trace_files {
        let file = file.as_ref();
        let events = read(file)?;
        let trace = |problem| Error::Trace { file: file.to_path_buf(), problem };
        let rank = RankTrace::sort(events).map_err(trace)?;
        rank.count(&mut summary).map_err(trace)?;
    }
    Ok(summary)
}

fn read(file: &Path) -> Result<Vec<Event>> {
    let opened = File::open(file).map_err(|source| Error::Read { file: file.to_path_buf(), source })?;
    serde_json::from_reader(BufReader::new(opened)).map_err(|problem| Error::Trace {
        file: PathBuf::from(file),
        problem: format!("not a JSON array of trace events: {problem}"),
    })
}

/// One event; fields of other tools are ignored.
#[derive(Debug, Deserialize)]
struct Event {
    name: String,
    ph: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: serde_json::Map<String, serde_json::Value>,
}

/// A stretch of time in microseconds.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: f64,
    end: f64,
}

/// The backward pass and the submissions of one step.
#[derive(Debug, Default)]
struct Step {
    /// By layer.
    backward: BTreeMap<usize, Span>,
    /// Bucket number, and the place of the submission among all of the rank.
    submitted: Vec<(usize, usize)>,
}

/// The events of one rank that count, in their order.
#[derive(Debug, Default)]
struct RankTrace {
    steps: Vec<Step>,
    /// Start of each submission.
    submissions: Vec<f64>,
    /// The all_reduces of buckets.
    exchanges: Vec<Span>,
}

impl RankTrace {
    fn sort(mut events: Vec<Event>) -> std::result::Result<Self, String> {
        events.retain(|event| event.ph == "X");
        if let Some(bad) = events.iter().find(|e| !(e.ts.is_finite() && e.dur.is_finite() && e.dur >= 0.0)) {
            return Err(format!("event `{}` has ts {} and dur {}", bad.name, bad.ts, bad.dur));
        }
        // Stable, so that events with equal times keep the order in which they were written.
        events.sort_by(|a, b| a.ts.total_cmp(&b.ts));
        let control: Vec<Span> = events.iter().filter(|event| event.name == CONTROL_SPAN).map(span).collect();
        let mut trace = Self::default();
        let mut seqno = None;
        for event in &events {
            if let Some(layer) = number_in(&event.name, "backward layer ", "") {
                trace.backward(layer, span(event))?;
            } else if let Some(bucket) = number_in(&event.name, "bucket ", " submitted") {
                let step = trace.steps.last_mut().ok_or("a bucket was submitted before any backward")?;
                step.submitted.push((bucket, trace.submissions.len()));
                trace.submissions.push(event.ts);
            } else if event.name == ALL_REDUCE {
                check_order(&mut seqno, event)?;
                if !begins_in(&control, event.ts) {
                    trace.exchanges.push(span(event));
                }
            }
        }
        trace.check()?;
        Ok(trace)
    }

    /// A layer that is not below the one before opens a new step.
    fn backward(&mut self, layer: usize, span: Span) -> std::result::Result<(), String> {
        let lowest = self.steps.last().and_then(|step| step.backward.keys().next().copied());
        match lowest {
            Some(above) if above == layer + 1 => {}
            None | Some(1) => self.steps.push(Step::default()),
            Some(above) => {
                return Err(format!("step {}: layer {layer} follows layer {above}", self.steps.len()));
            }
        }
        if let Some(step) = self.steps.last_mut() {
            step.backward.insert(layer, span);
        }
        Ok(())
    }

    fn check(&self) -> std::result::Result<(), String> {
        let (submitted, exchanged) = (self.submissions.len(), self.exchanges.len());
        if submitted == 0 {
            return Err("no `bucket K submitted` event".into());
        }
        if submitted != exchanged {
            return Err(format!("{submitted} buckets were submitted but {exchanged} all_reduces ran"));
        }
        for (index, (submitted, exchange)) in self.submissions.iter().zip(&self.exchanges).enumerate() {
            if exchange.start < *submitted {
                let start = exchange.start;
                return Err(format!(
                    "all_reduce {index} starts at {start} us, before its bucket came at {submitted} us"
                ));
            }
        }
        Ok(())
    }

    fn count(&self, summary: &mut OverlapSummary) -> std::result::Result<(), String> {
        summary.ranks += 1;
        summary.steps += self.steps.len();
        for (index, step) in self.steps.iter().enumerate() {
            for (bucket, place) in &step.submitted {
                let exchange = self.exchanges[*place];
                summary.all_reduce_us += exchange.end - exchange.start;
                summary.hidden_us +=
                    step.backward.values().map(|layer| common(exchange, *layer)).sum::<f64>();
                if *bucket <= 1 {
                    continue;
                }
                let below = step
                    .backward
                    .get(&(bucket - 1))
                    .ok_or_else(|| format!("step {}: no `backward layer {}`", index + 1, bucket - 1))?;
                let overlapped = usize::from(exchange.start < below.end);
                let counts = summary.buckets.entry(*bucket).or_default();
                counts.pairs += 1;
                counts.overlapped += overlapped;
                summary.pairs += 1;
                summary.overlapped += overlapped;
            }
        }
        Ok(())
    }
}

fn span(event: &Event) -> Span {
    Span { start: event.ts, end: event.ts + event.dur }
}

/// The number between `prefix` and `suffix`, if `name` has that form.
fn number_in(name: &str, prefix: &str, suffix: &str) -> Option<usize> {
    name.strip_prefix(prefix)?.strip_suffix(suffix)?.parse().ok()
}

/// Whether `time` lies in one of `spans`, which are in order and do not overlap.
fn begins_in(spans: &[Span], time: f64) -> bool {
    let after = spans.partition_point(|span| span.start <= time);
    after > 0 && time <= spans[after - 1].end
}

/// The time that two spans have in common.
fn common(a: Span, b: Span) -> f64 {
    (a.end.min(b.end) - a.start.max(b.start)).max(0.0)
}

/// One communicator runs its operations in the order of their sequence numbers; anything else means that the
/// trace mixes ranks or communicators and that counting would pair the wrong events.
fn check_order(last: &mut Option<u64>, event: &Event) -> std::result::Result<(), String> {
    let Some(seqno) = event.args.get("seqno").and_then(serde_json::Value::as_u64) else { return Ok(()) };
    match last.replace(seqno) {
        Some(before) if before >= seqno => {
            Err(format!("all_reduce with seqno {seqno} follows seqno {before}"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
