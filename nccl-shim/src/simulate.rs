//! `ncclGroupSimulateEnd`: how long the operations of a group would take.

use crate::failure::Outcome;
use crate::group::Batch;
use crate::op::Op;
use topo::nccl::tuner::Collective;

/// Time of a hand-over between two ranks of this host, in microseconds, and its bandwidth in bytes per microsecond.
///
/// *Source*: measured on the project's kind of machine: a cache line crosses cores in 0.15 us, of which a hand-over has
/// several and a wait; memory is copied at 6.5 GB/s out of the cache.
const HOP_US: f64 = 1.0;
const BYTES_PER_US: f64 = 6500.0;

/// Writes the time of the last operation that has one, in microseconds; a group without one leaves it as it is.
pub(crate) fn estimate(batch: &Batch, time: &mut f32) -> Outcome {
    for op in batch.ops() {
        if let Some(collective) = op.collective() {
            *time = host_time(op, collective) as f32;
        }
    }
    Ok(())
}

/// What a ring on this host takes: hops one after the other, and every byte that a rank moves.
fn host_time(op: &Op, collective: Collective) -> f64 {
    let ranks = f64::from(op.comm.about.nranks);
    let bytes = op.bytes() as f64;
    let (steps, moved) = match collective {
        Collective::AllReduce => (2.0 * (ranks - 1.0), 2.0 * bytes * (ranks - 1.0) / ranks),
        Collective::AllGather | Collective::ReduceScatter => (ranks - 1.0, bytes * (ranks - 1.0)),
        Collective::Broadcast | Collective::Reduce => (ranks - 1.0, bytes),
    };
    steps * HOP_US + moved / BYTES_PER_US
}
