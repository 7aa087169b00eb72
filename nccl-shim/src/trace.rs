//! Log lines of calls.

use crate::log::{self, Level, Subsys};
use crate::op::Op;
use std::ffi::c_int;

/// Tells the log of a call, if it wants to know.
#[inline]
pub(crate) fn call(name: &str, op: &Op, reduction: c_int, root: c_int) {
    if log::level_is(Level::Info) {
        tell(name, op, reduction, root);
    }
}

#[cold]
fn tell(name: &str, op: &Op, reduction: c_int, root: c_int) {
    let (send, recv, count, dtype) = (op.send.addr(), op.recv.addr(), op.count, op.dtype.nccl_code());
    let (number, about) = (op.comm.number(), &op.comm.about);
    // NCCL shows the buffer of a send where it shows that of a receive.
    let (send, recv) = if recv == 0 { (0, send) } else { (send, recv) };
    log::info(
        Subsys::COLL,
        about.device,
        format_args!(
            "{name}: opCount {:x} sendbuff {send:#x} recvbuff {recv:#x} count {count} datatype {dtype} op {reduction} root \
             {root} comm {number:#x} [nranks={}] stream {:#x}",
            op.comm.launches(),
            about.nranks,
            op.stream.addr()
        ),
    );
    log::call(format_args!(
        "nccl{name}({send:x},{recv:x},{count},{dtype},{reduction},{root},{number:x},{:x})",
        op.stream.addr()
    ));
    if about.rank == 0
        && log::says(Subsys::TUNING)
        && let Some(line) = crate::model::line(op)
    {
        log::info(Subsys::TUNING, about.device, format_args!("{line}"));
    }
}
