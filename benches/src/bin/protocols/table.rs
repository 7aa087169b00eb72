//! Medians over the rounds, and the winners.

use crate::of;
use crate::race::{Case, Sample};
use ringccl_benches::figures::{bytes_name, median, short};
use ringccl_benches::machine::{QUIET_CORES, usable_cores};
use ringccl_benches::record::Row;
use std::collections::BTreeSet;

/// Runners-up within this factor are not told apart from the winner.
const TIE: f64 = 1.05;

/// The cases that differ in protocol only.
fn protocols() -> impl Iterator<Item = &'static Case> {
    Case::ALL.iter().filter(|case| case.proto.is_some())
}

/// Median time of a case at a point, in microseconds.
fn time(samples: &[Sample], case: &Case, ranks: u32, bytes: u64) -> Option<f64> {
    median(&of(samples, case, ranks, bytes).map(|s| s.point.time_us).collect::<Vec<_>>())
}

/// Median over the rounds of how much longer `slow` takes than `fast` in the same round.
fn ratio(samples: &[Sample], slow: &Case, fast: &Case, ranks: u32, bytes: u64) -> Option<f64> {
    let ratios: Vec<f64> = of(samples, slow, ranks, bytes)
        .filter_map(|s| {
            let other = of(samples, fast, ranks, bytes).find(|f| f.round == s.round)?;
            Some(s.point.time_us / other.point.time_us)
        })
        .collect();
    median(&ratios)
}

/// A case with its time.
type Timed = (&'static Case, f64);

fn ranked(
    samples: &[Sample],
    cases: impl Iterator<Item = &'static Case>,
    ranks: u32,
    bytes: u64,
) -> Vec<Timed> {
    let mut timed: Vec<_> =
        cases.filter_map(|case| Some((case, time(samples, case, ranks, bytes)?))).collect();
    timed.sort_by(|a, b| a.1.total_cmp(&b.1));
    timed
}

/// `NAME 1.30`: the next best takes 1.3 times as long; `NAME = OTHER` where they cannot be told apart.
fn verdict(timed: &[Timed], name: fn(&Case) -> &str, samples: &[Sample], ranks: u32, bytes: u64) -> String {
    let [(first, _), rest @ ..] = timed else { return "-".into() };
    let Some((second, _)) = rest.first() else { return name(first).into() };
    match ratio(samples, second, first, ranks, bytes) {
        Some(ratio) if ratio >= TIE => format!("{} {ratio:.2}", name(first)),
        _ => format!("{} = {}", name(first), name(second)),
    }
}

/// The winner among the protocols of the flat algorithm.
fn protocol_verdict(samples: &[Sample], ranks: u32, bytes: u64) -> String {
    let timed = ranked(samples, protocols(), ranks, bytes);
    verdict(&timed, |case| case.proto.unwrap_or("-"), samples, ranks, bytes)
}

/// The winner among the algorithms, of which flat is as fast as its best protocol; with how much longer the
/// runtime's own choice takes.
fn algorithm_verdict(samples: &[Sample], ranks: u32, bytes: u64) -> (String, Option<f64>) {
    let flat = ranked(samples, protocols(), ranks, bytes).first().map(|(case, _)| *case);
    let others = Case::ALL.iter().filter(|case| case.algo.is_some() && case.proto.is_none());
    let timed = ranked(samples, others.chain(flat), ranks, bytes);
    let default = Case::ALL.iter().find(|case| case.algo.is_none());
    let miss = default.zip(timed.first()).and_then(|(d, (best, _))| ratio(samples, d, best, ranks, bytes));
    (verdict(&timed, |case| case.algo.unwrap_or("-"), samples, ranks, bytes), miss)
}

/// Prints the table of one number of ranks.
pub(crate) fn print(ranks: u32, rounds: u32, samples: &[Sample]) {
    let cores = usable_cores();
    let over =
        if ranks as usize > cores { format!(", more ranks than the {cores} cores") } else { String::new() };
    println!();
    println!(
        "# {ranks} ranks{over}: all-reduce of float sum, out of place, measured; us, median of {rounds} rounds"
    );
    println!(
        "# ~ other programs took CPU time. protocol, algorithm: the fastest, and how many times as long the next"
    );
    println!("# takes (= if less than {TIE}); x best: how many times as long the runtime's choice takes");
    let names: String = Case::ALL.iter().map(|case| format!("{:>12}", case.name)).collect();
    println!("{:>6} {names}  {:<15} {:<18} {:>7}  chosen", "bytes", "protocol", "algorithm", "x best");
    let sizes: BTreeSet<u64> = samples.iter().filter(|s| s.ranks == ranks).map(|s| s.point.bytes).collect();
    for bytes in sizes {
        println!("{}", line(samples, ranks, bytes));
    }
}

fn line(samples: &[Sample], ranks: u32, bytes: u64) -> String {
    let mut text = format!("{:>6} ", bytes_name(bytes));
    let mut chosen = String::new();
    for case in &Case::ALL {
        let foreign: Vec<f64> = of(samples, case, ranks, bytes).map(|s| s.foreign_cpus).collect();
        let noise = if median(&foreign).is_some_and(|cores| cores > QUIET_CORES) { "~" } else { "" };
        text += &format!("{:>12}", noise.to_owned() + &short(time(samples, case, ranks, bytes)));
        if case.algo.is_none() {
            chosen = of(samples, case, ranks, bytes).next().map(Sample::ran).unwrap_or_default();
        }
    }
    let (algorithm, miss) = algorithm_verdict(samples, ranks, bytes);
    let protocol = protocol_verdict(samples, ranks, bytes);
    format!("{text}  {protocol:<15} {algorithm:<18} {:>7}  {chosen}", short(miss))
}

/// The medians, for a record.
pub(crate) fn records(ranks: &[u32], samples: &[Sample]) -> Vec<Row> {
    let mut rows = Vec::new();
    let sizes: BTreeSet<u64> = samples.iter().map(|s| s.point.bytes).collect();
    for (&ranks, &bytes) in ranks.iter().flat_map(|n| sizes.iter().map(move |bytes| (n, bytes))) {
        for case in &Case::ALL {
            let field =
                |field: fn(&Sample) -> f64| of(samples, case, ranks, bytes).map(field).collect::<Vec<_>>();
            let Some(median_us) = median(&field(|s| s.point.time_us)) else { continue };
            rows.push(Row {
                peer: format!("ringccl {}", case.name),
                op: "allreduce".into(),
                ranks,
                bytes,
                median_us,
                p99_us: median(&field(|s| s.point.p99_us)).unwrap_or(median_us),
                cpu_us: median(&field(|s| s.point.cpu_us)).unwrap_or(0.0),
                ok: true, // wrong results end the run
            });
        }
    }
    rows
}
