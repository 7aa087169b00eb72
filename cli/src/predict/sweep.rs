//! A range of sizes as a table and a plot.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use ::topo::links::Model;
use ::topo::nccl::tuner::{Choice, Operation, Tuner};
use anyhow::{Context, Result, ensure};

use super::plot::{Axis, Curve, Plot};
use super::source::Source;
use super::{Args, BYTES_MAX, bytes, operation};

/// Sizes between a power of two and the next in the plot.
const PARTS: u64 = 4;

/// Writes the two files and says which, with the sizes at which the choice changes.
pub(super) fn write(source: &Source, args: &Args, range: &str) -> Result<String> {
    let (low, high) = bounds(range)?;
    let model = source.model(source.release(), &[])?;
    let tuner = model.tuner();
    let (csv, svg) = args.files();
    let rows = rows(&model, args, low, high)?;
    let release = source.release();
    let title = format!("{} on {}, NCCL {release}", args.collective, source.name());
    save(&csv, &table(tuner, &rows))?;
    save(&svg, &plot(&title, tuner, &rows))?;
    let mut text = format!("{title}\n");
    let mut last = None;
    for Row { operation, choice, .. } in &rows {
        let best = (choice.best.algorithm, choice.best.protocol);
        if last != Some(best) {
            // Writing to a String cannot fail. The first row has no change before it.
            let from = last
                .and_then(|_| tuner.flip_down(*operation))
                .map(|flip| operation_after(tuner, *operation, flip.bytes));
            let _ =
                writeln!(text, "  from {:>13} bytes  {} {}", from.unwrap_or(operation.bytes), best.0, best.1);
            last = Some(best);
        }
    }
    let _ = writeln!(text, "wrote {} and {}", csv.display(), svg.display());
    Ok(text)
}

/// The first size above the one at which the choice was another.
fn operation_after(tuner: &Tuner, operation: Operation, other: u64) -> u64 {
    let unit = if operation.collective.counts_all_ranks() { u64::from(tuner.setup().ranks) } else { 1 };
    other + unit
}

pub(super) fn bounds(range: &str) -> Result<(u64, u64)> {
    let (low, high) = range
        .split_once("..")
        .with_context(|| format!("--sweep={range}: write two sizes, such as --sweep=1K..1G"))?;
    let (low, high) = (bytes("--sweep", low)?, bytes("--sweep", high)?);
    ensure!(
        low >= 1 && low < high,
        "--sweep={range}: the first size is at least 1 byte and below the second"
    );
    ensure!(high <= BYTES_MAX, "--sweep={range}: sizes end at 16 TiB");
    Ok((low, high))
}

/// The answers for a size.
struct Row {
    operation: Operation,
    choice: Choice,
    predicted_us: f64,
}

/// The answers for each size, several between two powers of two; each size once.
fn rows(model: &Model, args: &Args, low: u64, high: u64) -> Result<Vec<Row>> {
    let tuner = model.tuner();
    let mut sizes: Vec<u64> = (0..44)
        .flat_map(|power| (0..PARTS).map(move |part| (1u64 << power) + ((part << power) / PARTS)))
        .filter(|size| (low..=high).contains(size))
        .chain([low, high])
        .map(|size| operation(tuner, args, size).bytes)
        .filter(|size| *size > 0)
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    let row = |size| {
        let operation = operation(tuner, args, size);
        let predicted_us = model.predict(operation)?.total_us;
        Ok(Row { operation, choice: tuner.choose(operation)?, predicted_us })
    };
    sizes.into_iter().map(row).collect()
}

/// Writes a file of a sweep.
pub(super) fn save(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write `{}`", path.display()))
}

/// One row a size: the choice, then the time of each algorithm and protocol that is considered at any size.
fn table(tuner: &Tuner, rows: &[Row]) -> String {
    let columns = columns(rows);
    let mut text = String::from("bytes,algorithm,protocol,time_us,predicted_us,channels,threads");
    for (algorithm, protocol) in &columns {
        let _ = write!(text, ",{algorithm}_{protocol}_us");
    }
    text.push('\n');
    for Row { operation, choice, predicted_us } in rows {
        let best = &choice.best;
        let spread = tuner.spread(*operation, best.algorithm, best.protocol);
        let _ = write!(
            text,
            "{},{},{},{:.6},{predicted_us:.3},{},{}",
            operation.bytes,
            best.algorithm,
            best.protocol,
            best.time,
            spread.last_channel + 1,
            spread.threads
        );
        for column in &columns {
            let found = choice.candidates.iter().find(|one| (one.algorithm, one.protocol) == *column);
            let _ = match found {
                Some(one) => write!(text, ",{:.6}", one.time),
                None => write!(text, ","),
            };
        }
        text.push('\n');
    }
    text
}

type Column = (::topo::nccl::tuner::Algorithm, ::topo::nccl::tuner::Protocol);

fn columns(rows: &[Row]) -> Vec<Column> {
    let mut columns: Vec<Column> =
        rows.iter().flat_map(|row| &row.choice.candidates).map(|one| (one.algorithm, one.protocol)).collect();
    columns.sort_unstable_by_key(|(algorithm, protocol)| (algorithm.id(), protocol.id()));
    columns.dedup();
    columns
}

fn plot(title: &str, tuner: &Tuner, rows: &[Row]) -> String {
    let curve = |column: Column| {
        let time = |choice: &Choice| {
            choice.candidates.iter().find(|one| (one.algorithm, one.protocol) == column).map(|one| one.time)
        };
        let points =
            rows.iter().filter_map(|row| Some((row.operation.bytes as f64, f64::from(time(&row.choice)?))));
        Curve { name: format!("{} {}", column.0, column.1), points: points.collect() }
    };
    let chosen = rows.iter().map(|row| (row.operation.bytes as f64, f64::from(row.choice.best.time)));
    let predicted = rows.iter().map(|row| (row.operation.bytes as f64, row.predicted_us));
    let predicted = Curve { name: "predicted".to_owned(), points: predicted.collect() };
    Plot {
        title: title.to_owned(),
        subtitle: format!(
            "{} ranks, {} nodes; the tuner's times and the prediction",
            tuner.setup().ranks,
            tuner.setup().nodes
        ),
        curves: columns(rows).into_iter().map(curve).chain([predicted]).collect(),
        chosen: Some(("NCCL's choice".to_owned(), chosen.collect())),
        axis: Axis::Bytes,
    }
    .svg()
}
