//! Log lines of what NCCL would choose on the machine of a cluster file.

use crate::log::{self, Subsys};
use crate::op::Op;

/// Tells the log, on rank 0, which algorithm this host runs a collective with: that of the last operation, as the
/// choice is made when it runs.
pub(crate) fn tell(op: &Op) {
    let about = &op.comm.about;
    let Some(collective) = op.collective().filter(|_| about.rank == 0 && log::says(Subsys::TUNING)) else {
        return;
    };
    let last = about.config.channels.max(1) - 1;
    let choice = op.comm.about.config.protocol.map_or("SIMPLE", ringccl::Protocol::name).to_uppercase();
    log::info(
        Subsys::TUNING,
        about.device,
        format_args!(
            "{}: {} Bytes -> Algo RING proto {choice} channel{{Lo..Hi}}={{0..{last}}}",
            collective.name(),
            op.bytes()
        ),
    );
}
