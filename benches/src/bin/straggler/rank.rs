//! What one rank does.

use crate::work::{Speed, process_cpu_us};
use anyhow::{Context, Result};
use ringccl::{Communicator, ReduceOp};
use ringccl_benches::figures::{mean, median, quantile, round3};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::Instant;

/// The figures of one computing time, in microseconds per iteration unless said otherwise.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) ranks: u32,
    /// What rank 0 was to compute, in CPU time calibrated alone.
    pub(crate) compute_us: u64,
    pub(crate) iterations: u64,
    /// Wall time of the computation while no rank waits: median, 99 of 100, CPU time.
    pub(crate) alone_us: f64,
    pub(crate) alone_p99_us: f64,
    pub(crate) alone_cpu_us: f64,
    /// The same while the others wait.
    pub(crate) awaited_us: f64,
    pub(crate) awaited_p99_us: f64,
    pub(crate) awaited_cpu_us: f64,
    /// Wall time awaited over wall time alone: of the medians, and of the means, which few long interruptions move.
    pub(crate) slowdown: f64,
    pub(crate) slowdown_mean: f64,
    /// Rank 0's time in the all-reduce, for which all others are ready: median.
    pub(crate) reduce_us: f64,
    /// Wall time of an iteration: mean.
    pub(crate) iteration_us: f64,
    /// CPU time of all waiting ranks together.
    pub(crate) waiters_cpu_us: f64,
    /// CPU time of one waiting rank over the time of an iteration: 1 is a whole core.
    pub(crate) waiter_share: f64,
    /// How often a waiting rank gave its core away, and slept, in one iteration.
    pub(crate) yields_per_wait: f64,
    pub(crate) sleeps_per_wait: f64,
}

/// Wall and CPU times of rank 0's computations.
#[derive(Clone, Debug, Default)]
struct Times {
    wall: Vec<f64>,
    cpu: Vec<f64>,
}

impl Times {
    fn compute(&mut self, speed: &Speed, us: u64) -> Result<()> {
        let (wall, cpu) = speed.compute_us(us)?;
        self.wall.push(wall);
        self.cpu.push(cpu);
        Ok(())
    }
}

/// The figures of the loop that the ranks ran together, beside those of [`Times`].
#[derive(Clone, Copy, Debug, Default)]
struct Shared {
    reduce_us: f64,
    iteration_us: f64,
    /// CPU time, yields and sleeps of all waiting ranks in the whole loop.
    waiters: [f64; 3],
}

fn iterations(us: u64, budget_ms: u64) -> u64 {
    (budget_ms * 1000 / us).clamp(5, 2000)
}

/// Runs every computing time; rank 0 prints a row for each.
pub(crate) fn main(compute_us: &[u64], budget_ms: u64) -> Result<()> {
    // Known before the ranks meet: rank 0 computes alone first, while the others sleep in the rendezvous.
    let rank = std::env::var("RANK").context("a rank without RANK: start `straggler` without --as-rank")?;
    let speed = (rank == "0").then(Speed::calibrate).transpose()?;
    let mut alone = vec![Times::default(); compute_us.len()];
    compute_alone(speed.as_ref(), &mut alone, compute_us, budget_ms)?;

    let mut comm = Communicator::from_env()?;
    let ranks = comm.nranks() as u32;
    let mut together = Vec::new();
    for &us in compute_us {
        together.push(run(&mut comm, speed.as_ref(), us, iterations(us, budget_ms))?);
    }
    comm.finalize()?;

    // The other ranks are gone now: if the machine's speed has drifted meanwhile, this half of the times shows it.
    compute_alone(speed.as_ref(), &mut alone, compute_us, budget_ms)?;
    if speed.is_some() {
        for ((&us, alone), (awaited, shared)) in compute_us.iter().zip(&alone).zip(&together) {
            let row = row(ranks, us, alone, awaited, shared)?;
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&row)?)?;
        }
    }
    Ok(())
}

/// Half of the iterations, with nobody waiting.
fn compute_alone(
    speed: Option<&Speed>,
    alone: &mut [Times],
    compute_us: &[u64],
    budget_ms: u64,
) -> Result<()> {
    let Some(speed) = speed else { return Ok(()) };
    for (times, &us) in alone.iter_mut().zip(compute_us) {
        for _ in 0..iterations(us, budget_ms).div_ceil(2) {
            times.compute(speed, us)?;
        }
    }
    Ok(())
}

/// One computing time: warm-up, then the measured loop.
fn run(comm: &mut Communicator, speed: Option<&Speed>, us: u64, iterations: u64) -> Result<(Times, Shared)> {
    // The waiters learn from these how long to yield before they sleep.
    for _ in 0..(iterations / 10).clamp(5, 50) {
        iterate(comm, speed, us, &mut Times::default())?;
    }
    comm.barrier()?;
    let (mut times, mut reduces) = (Times::default(), Vec::new());
    let (before, cpu, start) = (comm.wait_stats(), process_cpu_us()?, Instant::now());
    for _ in 0..iterations {
        reduces.push(iterate(comm, speed, us, &mut times)?);
    }
    let elapsed = start.elapsed().as_secs_f64() * 1e6;
    let (cpu, after) = (process_cpu_us()? - cpu, comm.wait_stats());
    let (yields, sleeps) = (after.yields - before.yields, after.sleeps - before.sleeps);
    let mut waiters = if speed.is_some() { [0.0; 3] } else { [cpu, yields as f64, sleeps as f64] };
    comm.all_reduce_in_place(&mut waiters, ReduceOp::Sum)?;
    let reduce_us = median(&reduces).unwrap_or(0.0);
    Ok((times, Shared { reduce_us, iteration_us: elapsed / iterations as f64, waiters }))
}

/// Computes, if this is rank 0, and all-reduces 8 bytes; returns the time of the latter in microseconds.
fn iterate(comm: &mut Communicator, speed: Option<&Speed>, us: u64, times: &mut Times) -> Result<f64> {
    if let Some(speed) = speed {
        times.compute(speed, us)?;
    }
    let mut value = [1.0_f64];
    let start = Instant::now();
    comm.all_reduce_in_place(&mut value, ReduceOp::Sum)?;
    Ok(start.elapsed().as_nanos() as f64 / 1e3)
}

fn row(ranks: u32, compute_us: u64, alone: &Times, awaited: &Times, shared: &Shared) -> Result<Row> {
    let figure = |of: fn(&[f64]) -> Option<f64>, values: &[f64]| of(values).context("nothing was measured");
    let p99 = |values: &[f64]| quantile(values, 0.99).map(round3).context("nothing was measured");
    let iterations = awaited.wall.len() as u64;
    let waits = f64::from(ranks - 1) * iterations as f64;
    let [cpu, yields, sleeps] = shared.waiters;
    Ok(Row {
        ranks,
        compute_us,
        iterations,
        alone_us: round3(figure(median, &alone.wall)?),
        alone_p99_us: p99(&alone.wall)?,
        alone_cpu_us: round3(figure(mean, &alone.cpu)?),
        awaited_us: round3(figure(median, &awaited.wall)?),
        awaited_p99_us: p99(&awaited.wall)?,
        awaited_cpu_us: round3(figure(mean, &awaited.cpu)?),
        slowdown: round3(figure(median, &awaited.wall)? / figure(median, &alone.wall)?),
        slowdown_mean: round3(figure(mean, &awaited.wall)? / figure(mean, &alone.wall)?),
        reduce_us: round3(shared.reduce_us),
        iteration_us: round3(shared.iteration_us),
        waiters_cpu_us: round3(cpu / iterations as f64),
        waiter_share: round3(cpu / waits / shared.iteration_us),
        yields_per_wait: round3(yields / waits),
        sleeps_per_wait: round3(sleeps / waits),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every time gets enough iterations for a median, and not more than its budget allows by much.
    #[test]
    fn iterations_fit_the_budget() {
        assert_eq!([20, 200, 2000, 20_000, 200_000].map(|us| iterations(us, 600)), [2000, 2000, 300, 30, 5]);
    }

    /// Shares and ratios of a made-up measurement come out as by hand.
    #[test]
    fn figures_add_up() {
        let times = |us| Times { wall: vec![us; 10], cpu: vec![us; 10] };
        let shared = Shared { reduce_us: 1.0, iteration_us: 120.0, waiters: [3600.0, 60.0, 30.0] };
        let row = row(4, 100, &times(100.0), &times(110.0), &shared).unwrap();
        assert_eq!((row.slowdown, row.slowdown_mean), (1.1, 1.1));
        assert_eq!((row.waiters_cpu_us, row.waiter_share), (360.0, 1.0));
        assert_eq!((row.yields_per_wait, row.sleeps_per_wait), (2.0, 1.0));
    }
}
