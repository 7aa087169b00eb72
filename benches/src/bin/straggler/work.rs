//! Arithmetic that takes a known time, and the clocks.

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::time::Instant;

/// CPU time over which the speed of the arithmetic is measured, in microseconds.
const CALIBRATION_US: f64 = 50e3;

/// CPU time of the calling thread so far, in microseconds.
pub(crate) fn thread_cpu_us() -> Result<f64> {
    cpu_us(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of this process so far, in microseconds.
pub(crate) fn process_cpu_us() -> Result<f64> {
    cpu_us(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

fn cpu_us(clock: ClockId) -> Result<f64> {
    let time = clock_gettime(clock).context("cannot read a CPU clock")?;
    Ok(time.tv_sec() as f64 * 1e6 + time.tv_nsec() as f64 / 1e3)
}

/// A chain of multiplications in registers: no memory, so that only the core is shared with others.
fn compute(units: u64) {
    let mut x = black_box(1_u64);
    for _ in 0..units {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
}

/// How fast this machine computes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    units_per_us: f64,
}

impl Speed {
    /// Measures it in CPU time, to which others' use of the core does not count.
    pub(crate) fn calibrate() -> Result<Self> {
        let mut units = 1000;
        loop {
            let start = thread_cpu_us()?;
            compute(units);
            let took = thread_cpu_us()? - start;
            if took >= CALIBRATION_US {
                return Ok(Self { units_per_us: units as f64 / took });
            }
            units *= 2;
        }
    }

    /// Computes for `us` microseconds; returns wall time and CPU time that it took, in microseconds.
    pub(crate) fn compute_us(&self, us: u64) -> Result<(f64, f64)> {
        let units = (us as f64 * self.units_per_us) as u64;
        let cpu = thread_cpu_us()?;
        let start = Instant::now();
        compute(units);
        let wall = start.elapsed().as_nanos() as f64 / 1e3;
        Ok((wall, thread_cpu_us()? - cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calibrated work takes the CPU time asked for, within what the clock of a busy machine wavers.
    #[test]
    fn work_takes_its_time() {
        let speed = Speed::calibrate().unwrap();
        let best = (0..20).map(|_| speed.compute_us(2000).unwrap().1).fold(f64::MAX, f64::min);
        assert!((1000.0..4000.0).contains(&best), "{best} us instead of 2000");
    }
}
