//! A prediction as text.

use std::fmt::Write as _;

use ::topo::nccl::log::show_pattern;
use ::topo::nccl::tuner::{Cell, Correction, Estimate, Flip, Setup};

use super::{Answer, links};

/// NCCL's line, what it means, the table behind it and why.
pub(super) fn answer(answer: &Answer) -> String {
    let mut text = String::new();
    match answer.line() {
        Some(line) => push(&mut text, &line),
        None => push(&mut text, &format!("(NCCL {} prints no line)", answer.tuner().setup().release)),
    }
    text.push('\n');
    head(&mut text, answer);
    text.push('\n');
    graphs(&mut text, answer.tuner().setup());
    text.push('\n');
    table(&mut text, answer);
    text.push('\n');
    why(&mut text, answer);
    text.push('\n');
    changes(&mut text, answer);
    text.push('\n');
    links::section(&mut text, answer);
    text
}

fn push(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

fn plural(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn head(text: &mut String, answer: &Answer) {
    let setup = answer.tuner().setup();
    let Estimate { algorithm, protocol, time, .. } = &answer.choice.best;
    let operation = answer.operation;
    let unit = if operation.collective.counts_all_ranks() { " of all ranks" } else { "" };
    push(
        text,
        &format!(
            "{} of {} bytes{unit} on {}, {}, NCCL {}",
            operation.collective,
            operation.bytes,
            plural(setup.ranks, "rank"),
            plural(setup.nodes, "node"),
            setup.release
        ),
    );
    let spread = answer.spread;
    push(
        text,
        &format!(
            "tuner: {algorithm} {protocol}, {time:.6} us, {} {{0..{}}} of {}, {} threads",
            plural(spread.last_channel + 1, "channel"),
            spread.last_channel,
            setup.channels(),
            spread.threads
        ),
    );
    if answer.choice.is_fallback {
        push(text, "everything is off: NCCL takes the ring that it keeps aside");
    }
    push(text, &links::head(answer));
    push(text, "NCCL chooses by the tuner's time; the prediction is how long the operation takes.");
}

fn graphs(text: &mut String, setup: &Setup) {
    push(text, "graphs");
    let graphs = &setup.graphs;
    for graph in [&graphs.ring, &graphs.tree].into_iter().chain(&graphs.nvls) {
        push(text, &format!("  {}", show_pattern(graph)));
    }
}

/// Every cell of the collective: those that NCCL considers by time, then those that are off.
fn table(text: &mut String, answer: &Answer) {
    let tuner = answer.tuner();
    push(
        text,
        &format!(
            "{:<24}{:>12}{:>14}{:>20}",
            answer.operation.collective.name(),
            "latency us",
            "GB/s",
            "time us"
        ),
    );
    for one in &answer.choice.candidates {
        let Some(cell) = tuner.cell(answer.operation.collective, one.algorithm, one.protocol) else {
            continue;
        };
        let (latency, bandwidth) = (cell.latency.total, cell.bandwidth.total);
        let corrected = corrections(one);
        push(
            text,
            &format!(
                "  {:<13} {:<8}{latency:>12.1}{bandwidth:>14.3}{:>20.6}{corrected}",
                one.algorithm, one.protocol, one.time
            ),
        );
    }
    let considered = |cell: &&Cell| {
        answer
            .choice
            .candidates
            .iter()
            .any(|one| (one.algorithm, one.protocol) == (cell.algorithm, cell.protocol))
    };
    for cell in tuner.cells_of(answer.operation.collective).filter(|cell| !considered(cell)) {
        let reason = cell.off.as_ref().map_or("the NVSwitch cannot reduce this", |off| &off.reason);
        push(text, &format!("  {:<13} {:<8}off: {reason}", cell.algorithm, cell.protocol));
    }
}

/// What the size changed, behind a time.
fn corrections(estimate: &Estimate) -> String {
    let mut text = String::new();
    for correction in &estimate.corrections {
        // Writing to a String cannot fail.
        let _ = match correction {
            Correction::Tree { factor, .. } => write!(text, "  GB/s x {factor}"),
            Correction::RingPlateau { factor, .. } => write!(text, "  latency x {factor}"),
            Correction::Fp8Ring => write!(text, "  time x 1024"),
        };
    }
    text
}

/// The derivation of the chosen cell.
fn why(text: &mut String, answer: &Answer) {
    let best = &answer.choice.best;
    push(text, &format!("why {} {} takes {:.6} us", best.algorithm, best.protocol, best.time));
    if let Some(cell) = answer.tuner().cell(answer.operation.collective, best.algorithm, best.protocol) {
        derivation(text, cell);
    }
    for correction in &best.corrections {
        push(text, &format!("  {}", explain(correction, answer.operation.bytes)));
    }
    let fp8 = if best.corrections.contains(&Correction::Fp8Ring) { ", times 1024" } else { "" };
    push(
        text,
        &format!(
            "  time = {} us + {} bytes / (1000 x {} GB/s){fp8} = {:.6} us",
            best.latency, answer.operation.bytes, best.bandwidth, best.time
        ),
    );
}

/// Steps of the bandwidth and terms of the latency.
pub(super) fn derivation(text: &mut String, cell: &Cell) {
    push(text, "  bandwidth, GB/s");
    for (i, step) in cell.bandwidth.steps.iter().enumerate() {
        let operand = rounded(step.operand);
        let how = match (i, step.rule.is_cap(), step.active) {
            (0, ..) => String::new(),
            (_, true, true) => format!("cut to {operand}"),
            (_, true, false) => format!("below {operand}"),
            _ => format!("x {operand}"),
        };
        push(text, &format!("    {:>12}  {how:<16} {}", rounded(step.after.into()), step.rule));
    }
    push(text, "  latency, us");
    for term in &cell.latency.terms {
        let how = if term.count == 1.0 {
            String::new()
        } else {
            format!("{} x {}", rounded(term.count), rounded(term.each))
        };
        push(text, &format!("    {:>12}  {how:<16} {}", rounded(term.count * term.each), term.part));
    }
    push(text, &format!("    {:>12}  {:<16} in all", rounded(cell.latency.total.into()), ""));
}

/// At most six significant digits, without zeros at the end.
pub(super) fn rounded(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let before = value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", (5 - before).clamp(0, 12) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn explain(correction: &Correction, bytes: u64) -> String {
    match correction {
        Correction::Tree { factor, from } => {
            format!(
                "tree correction: GB/s x {factor} from {from} to {} bytes; this has {bytes}",
                2 * from - 1
            )
        }
        Correction::RingPlateau { factor, from } => {
            format!("ring plateau: latency x {factor} from {from} bytes on")
        }
        Correction::Fp8Ring => {
            "sums of 8-bit floats over more than 8 ranks shall not go round a ring".to_owned()
        }
    }
}

/// A number of bytes in the largest binary unit that it reaches.
fn human(bytes: u64) -> String {
    let unit = (bytes.max(1).ilog2() / 10).min(4);
    let value = bytes as f64 / f64::from(1u32 << 10).powi(unit as i32);
    format!(
        "{} {}",
        rounded((value * 100.0).round() / 100.0),
        ["B", "KiB", "MiB", "GiB", "TiB"][unit as usize]
    )
}

/// Runner-up and sizes at which the choice changes.
fn changes(text: &mut String, answer: &Answer) {
    let best = &answer.choice.best;
    match answer.choice.runner_up() {
        Some(second) => push(
            text,
            &format!(
                "runner-up: {} {}, {:.6} us, {:.3} us or {:.2} % more",
                second.algorithm,
                second.protocol,
                second.time,
                second.time - best.time,
                100.0 * (second.time / best.time - 1.0)
            ),
        ),
        None => push(text, "runner-up: none"),
    }
    let flip = |flip: Option<Flip>, none: &str| match flip {
        Some(Flip { bytes, algorithm, protocol }) => {
            format!("{algorithm} {protocol} at {bytes} bytes ({})", human(bytes))
        }
        None => none.to_owned(),
    };
    let operation = answer.operation;
    push(
        text,
        &format!("smaller: {}", flip(answer.tuner().flip_down(operation), "the same down to 0 bytes")),
    );
    push(text, &format!("larger: {}", flip(answer.tuner().flip_up(operation), "the same up to 16 TiB")));
    if answer.choice.candidates.iter().any(|one| one.algorithm.is_collnet()) {
        push(text, "CollNet's numbers have not been compared with NCCL's.");
    }
}
