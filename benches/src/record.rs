//! Records: `benches/record/MACHINE/DATE.csv`, with the columns of `peers/compare.py`.

use crate::figures::round3;
use crate::machine::{describe, said};
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

const COLUMNS: &str =
    "date,machine,cores,kernel,compiler,commit,peer,op,ranks,bytes,median_us,p99_us,cpu_us,ok";

/// One line of a record.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured: `ringccl`, with algorithm and protocol where they were forced.
    pub peer: String,
    /// The operation.
    pub op: String,
    /// Number of ranks.
    pub ranks: u32,
    /// Bytes of the operation.
    pub bytes: u64,
    /// Median time of one operation, in microseconds.
    pub median_us: f64,
    /// Time that 99 of 100 operations did not exceed, in microseconds.
    pub p99_us: f64,
    /// CPU time of all ranks per operation, in microseconds.
    pub cpu_us: f64,
    /// Whether the results were right.
    pub ok: bool,
}

/// Appends rows to a record; a new file gets the columns' names first.
///
/// # Errors
/// When the file cannot be written.
pub fn append_csv(path: &Path, rows: &[Row]) -> Result<()> {
    let date = said("date", &["+%Y-%m-%d"]);
    let made = describe().map(|text| quoted(&text)).join(",");
    let mut text = String::new();
    for row in rows {
        let Row { peer, op, ranks, bytes, median_us, p99_us, cpu_us, ok } = row;
        let figures = [median_us, p99_us, cpu_us].map(|x| round3(*x).to_string()).join(",");
        let (peer, op) = (quoted(peer), quoted(op));
        text += &format!("{date},{made},{peer},{op},{ranks},{bytes},{figures},{ok}\n");
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    }
    let start = if path.exists() { String::new() } else { format!("{COLUMNS}\n") };
    append(path, &(start + &text))
}

/// Appends one JSON object per row, with everything that was measured.
///
/// # Errors
/// When the file cannot be written.
pub fn append_json<T: Serialize>(path: &Path, rows: &[T]) -> Result<()> {
    let mut text = String::new();
    for row in rows {
        text += &serde_json::to_string(row).context("a row that JSON cannot hold")?;
        text.push('\n');
    }
    append(path, &text)
}

fn append(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("cannot write `{}`", path.display()))
}

/// A CSV field: in quotes if it has a comma or a quote.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record has its header once, a line per row with as many fields as columns, and keeps what was there.
    #[test]
    fn records_grow() {
        let folder = std::env::temp_dir().join(format!("ringccl-record-{}", std::process::id()));
        let path = folder.join("machine/2020-01-01.csv");
        let (peer, op) = ("ringccl flat/LL".to_owned(), "allreduce".to_owned());
        let row =
            Row { peer, op, ranks: 2, bytes: 8, median_us: 0.12345, p99_us: 1.0, cpu_us: 0.5, ok: true };
        append_csv(&path, std::slice::from_ref(&row)).unwrap();
        append_csv(&path, &[row.clone(), row]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0]), (4, COLUMNS));
        assert!(lines[1].ends_with(",ringccl flat/LL,allreduce,2,8,0.123,1,0.5,true"), "{}", lines[1]);
        assert_eq!(lines[1], lines[3]);
    }

    /// Fields with a comma or a quote stay one field.
    #[test]
    fn fields_are_quoted() {
        assert_eq!(quoted("Intel(R) Xeon(R)"), "Intel(R) Xeon(R)");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
