//! Output of `ringccl perf`: nccl-tests' table, or a JSON object per point.

use super::Spec;
use crate::print::print;
use anyhow::Result;
use ringccl::Choice;
use serde::Serialize;

/// One measured point.
#[derive(Clone, Debug)]
pub(super) struct Point {
    in_place: bool,
    time_us: f64,
    p99_us: f64,
    cpu_us: f64,
    pub(super) wrong: Option<u64>,
    choice: Option<Choice>,
}

impl Point {
    /// From the sorted times of the iterations.
    pub(super) fn new(
        in_place: bool,
        times: &[f64],
        cpu_us: f64,
        wrong: Option<u64>,
        choice: Option<Choice>,
    ) -> Self {
        let n = times.len();
        let time_us = if n % 2 == 1 { times[n / 2] } else { (times[n / 2 - 1] + times[n / 2]) / 2.0 };
        // Nearest rank: the least value that 99 of 100 do not exceed.
        let p99_us = times[(n * 99).div_ceil(100) - 1];
        Self { in_place, time_us, p99_us, cpu_us, wrong, choice }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    kind: &'a str,
    ranks: u32,
    bytes: u64,
    dtype: &'a str,
    redop: &'a str,
    inplace: bool,
    time_us: f64,
    p99_us: f64,
    cpu_us: f64,
    algbw_gbs: f64,
    busbw_gbs: f64,
    wrong: Option<u64>,
    algo: Option<&'a str>,
    proto: Option<&'a str>,
    channels: Option<u32>,
}

/// Prints points as they come, on one rank.
pub(super) struct Table<'a> {
    spec: &'a Spec,
    prints: bool,
    bus_bandwidths: Vec<f64>,
    wrong: u64,
}

/// Three decimals are enough for a nanosecond and for a megabyte per second.
fn round3(x: f64) -> f64 {
    (x * 1e3).round() / 1e3
}

impl<'a> Table<'a> {
    pub(super) fn new(spec: &'a Spec, prints: bool) -> Self {
        Self { spec, prints, bus_bandwidths: Vec::new(), wrong: 0 }
    }

    fn print(&self, text: &str) -> Result<()> {
        if self.prints {
            print(&format!("{text}\n"))?;
        }
        Ok(())
    }

    pub(super) fn start(&self, init_ms: f64) -> Result<()> {
        if self.spec.json {
            return Ok(());
        }
        let s = self.spec;
        self.print(&format!(
            "# {} nranks {} warmup iters: {} iters: {} validation: {} (median of the slowest rank, us)",
            s.kind.name(),
            s.ranks,
            s.warmup,
            s.iters,
            u8::from(s.check)
        ))?;
        self.print(&format!(
            "# init: {init_ms:.1} ms, the slowest rank from its start past the first barrier"
        ))?;
        self.print("#")?;
        let side = format!("{:>8} {:>7} {:>7} {:>6}", "time", "algbw", "busbw", "#wrong");
        let units = format!("{:>8} {:>7} {:>7} {:>6}", "(us)", "(GB/s)", "(GB/s)", "");
        self.print(&format!("#{:>44}  {:^31}  {:^31}", "", "out-of-place", "in-place"))?;
        self.print(&format!(
            "#{:>11} {:>11} {:>8} {:>6} {:>5}  {side}  {side}",
            "size", "count", "type", "redop", "root"
        ))?;
        self.print(&format!(
            "#{:>11} {:>11} {:>8} {:>6} {:>5}  {units}  {units}",
            "(B)", "(elements)", "", "", ""
        ))
    }

    pub(super) fn row(&mut self, bytes: u64, count: usize, points: &[Point]) -> Result<()> {
        let bandwidths: Vec<(f64, f64)> = points.iter().map(|point| self.bandwidths(bytes, point)).collect();
        self.wrong += points.iter().map(|point| point.wrong.unwrap_or(0)).sum::<u64>();
        self.bus_bandwidths.extend(bandwidths.iter().map(|(_, bus)| *bus));
        if self.spec.json {
            for (point, bandwidth) in points.iter().zip(&bandwidths) {
                self.print(&self.json(bytes, point, *bandwidth)?)?;
            }
            return Ok(());
        }
        let root = self.spec.kind.root().map_or(-1, i64::from);
        let mut text = format!(
            "{bytes:>12} {count:>11} {:>8} {:>6} {root:>5}",
            self.spec.dtype.name(),
            self.spec.redop()
        );
        for (point, (alg, bus)) in points.iter().zip(&bandwidths) {
            let wrong = point.wrong.map_or("N/A".into(), |wrong| wrong.to_string());
            text += &format!("  {:>8.2} {alg:>7.2} {bus:>7.2} {wrong:>6}", point.time_us);
        }
        self.print(&text)
    }

    /// Bytes over time, and that times the part that must cross a link, as nccl-tests defines them.
    fn bandwidths(&self, bytes: u64, point: &Point) -> (f64, f64) {
        let alg = bytes as f64 / point.time_us / 1e3;
        (alg, alg * self.spec.kind.bus_factor(self.spec.ranks))
    }

    fn json(&self, bytes: u64, point: &Point, (alg, bus): (f64, f64)) -> Result<String> {
        Ok(serde_json::to_string(&Line {
            kind: self.spec.kind.name(),
            ranks: self.spec.ranks,
            bytes,
            dtype: self.spec.dtype.name(),
            redop: self.spec.redop(),
            inplace: point.in_place,
            time_us: round3(point.time_us),
            p99_us: round3(point.p99_us),
            cpu_us: round3(point.cpu_us),
            algbw_gbs: round3(alg),
            busbw_gbs: round3(bus),
            wrong: point.wrong,
            algo: point.choice.map(|choice| choice.algorithm.name()),
            proto: point.choice.map(|choice| choice.protocol.name()),
            channels: point.choice.map(|choice| choice.channels),
        })?)
    }

    pub(super) fn end(&self, shared_bytes: u64) -> Result<()> {
        if self.spec.json {
            return Ok(());
        }
        let verdict = if self.wrong == 0 { "OK" } else { "FAILED" };
        let mean = self.bus_bandwidths.iter().sum::<f64>() / self.bus_bandwidths.len().max(1) as f64;
        self.print(&format!("# Out of bounds values : {} {verdict}", self.wrong))?;
        self.print(&format!("# Shared memory        : {shared_bytes} bytes of all ranks together"))?;
        self.print(&format!("# Avg bus bandwidth    : {mean:.5}"))?;
        self.print("#")
    }
}
