//! What another release or variable changes.

use std::fmt::Write as _;

use ::topo::nccl::release::Release;
use ::topo::nccl::tuner::{Cell, Estimate};
use anyhow::Result;

use super::source::{Source, variable};
use super::text::{derivation, rounded};
use super::{Answer, Args};

/// The answer under another release, or with one more variable.
pub(super) fn other(source: &Source, args: &Args, versus: &str, size: u64) -> Result<Answer> {
    let model = if versus.contains('=') {
        source.model(source.release(), &[variable(versus)?])?
    } else {
        source.model(versus.parse::<Release>()?, &[])?
    };
    Answer::new(model, args, size)
}

/// The other line, and every cell that differs.
pub(super) fn compare(answer: &Answer, other: &Answer, versus: &str) -> String {
    let mut text = format!("\nversus {versus}\n");
    // Writing to a String cannot fail.
    let _ = match other.line() {
        Some(line) => writeln!(text, "  {line}"),
        None => writeln!(text, "  (NCCL {} prints no line)", other.tuner().setup().release),
    };
    let (a, b) = (&answer.choice.best, &other.choice.best);
    let same = (a.algorithm, a.protocol) == (b.algorithm, b.protocol);
    let _ = writeln!(
        text,
        "  {} {}, {:.6} us: {}, {:+.3} us ({:+.2} %); channels {{0..{}}}, here {{0..{}}}",
        b.algorithm,
        b.protocol,
        b.time,
        if same { "the same choice" } else { "another choice" },
        b.time - a.time,
        100.0 * (b.time / a.time - 1.0),
        other.spread.last_channel,
        answer.spread.last_channel,
    );
    let differing = differing(answer, other);
    if differing.is_empty() {
        text.push_str("  no cell of the table differs\n");
        return text;
    }
    let _ =
        writeln!(text, "  {:<22}{:>24}{:>24}{:>34}", "cells that differ", "latency us", "GB/s", "time us");
    for (cell, change) in &differing {
        let _ = writeln!(text, "  {:<13} {:<8}{change}", cell.algorithm, cell.protocol);
    }
    // Why the other choice takes what it takes, if the choice or its numbers are new.
    let chosen = |one: &Cell| (one.algorithm, one.protocol) == (b.algorithm, b.protocol);
    if let Some((cell, _)) = differing.iter().find(|(cell, _)| chosen(cell)) {
        let _ = writeln!(text, "why {} {} takes {:.6} us there", b.algorithm, b.protocol, b.time);
        derivation(&mut text, cell);
    }
    text
}

/// Cells of the other table with what changed; also those that one of them lacks.
fn differing<'a>(answer: &'a Answer, other: &'a Answer) -> Vec<(&'a Cell, String)> {
    let collective = answer.operation.collective;
    let mut found = Vec::new();
    for cell in other.tuner().cells_of(collective) {
        let before = answer.tuner().cell(collective, cell.algorithm, cell.protocol);
        let (old, new) = (numbers(answer, before), numbers(other, Some(cell)));
        if old != new {
            let pair = |i: usize| match (&old, &new) {
                (Some(old), Some(new)) if old[i] == new[i] => old[i].clone(),
                _ => {
                    let show = |side: &Option<[String; 3]>| {
                        side.as_ref().map_or("off".into(), |side| side[i].clone())
                    };
                    format!("{} -> {}", show(&old), show(&new))
                }
            };
            found.push((cell, format!("{:>24}{:>24}{:>34}", pair(0), pair(1), pair(2))));
        }
    }
    found
}

/// Latency, bandwidth and time of a cell; `None` if NCCL does not consider it.
fn numbers(answer: &Answer, cell: Option<&Cell>) -> Option<[String; 3]> {
    let cell = cell?;
    let is_same = |one: &&Estimate| (one.algorithm, one.protocol) == (cell.algorithm, cell.protocol);
    let estimate = answer.choice.candidates.iter().find(is_same)?;
    let table = [cell.latency.total, cell.bandwidth.total].map(|number| rounded(number.into()));
    let [latency, bandwidth] = table;
    Some([latency, bandwidth, format!("{:.6}", estimate.time)])
}
