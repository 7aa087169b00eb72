//! How long an operation would take on the machine of a cluster file, and what NCCL would print of it.

use crate::comm::Comm;
use crate::env;
use crate::log::{self, Subsys};
use crate::op::Op;
use ringccl::model::{Estimator, What};
use std::sync::{Arc, Once};

/// The model for a communicator of `nranks`.
fn estimator(nranks: u32) -> Arc<Estimator> {
    Estimator::of_vars(nranks, &env::vars(), log::warn)
}

fn what(op: &Op) -> Option<What> {
    Some(What { collective: op.collective()?, bytes: op.bytes() as u64 })
}

/// The time of a collective in microseconds; `None` for messages.
pub(crate) fn time_us(op: &Op) -> Option<f32> {
    estimator(op.comm.about.nranks).time_us(what(op)?)
}

/// What NCCL would print of its choice, if the cluster file's machine is known.
pub(crate) fn line(op: &Op) -> Option<String> {
    estimator(op.comm.about.nranks).line(what(op)?)
}

/// Says that this library prints NCCL's lines itself.
pub(crate) fn claim_lines() {
    static ONCE: Once = Once::new();
    ONCE.call_once(ringccl::model::leave_lines);
}

/// Tells the log what NCCL would print of the communicator: its graphs and its table.
pub(crate) fn tell_head(comm: &Comm) {
    let about = &comm.about;
    if about.rank != 0 || about.nranks < 2 || !(log::says(Subsys::GRAPH) || log::says(Subsys::TUNING)) {
        return;
    }
    let head = estimator(about.nranks).head();
    for (subsys, lines) in [(Subsys::GRAPH, head.graphs), (Subsys::TUNING, head.table)] {
        for line in lines {
            log::info(subsys, about.device, format_args!("{line}"));
        }
    }
}
