//! Operations of one rank.

use crate::executor::Buffers;
use crate::plan::Call;
use crate::reduce::{self, Dst, ReduceOp, Reducer, Store};

/// What a call does with one rank: every reduction is a copy but that with a factor.
///
/// # Safety
/// - `buffers` are as [`Buffers`] says, for the call's bytes.
pub(super) unsafe fn alone(call: &Call, buffers: Buffers) {
    let Buffers { input, output } = buffers;
    let to = [Dst { ptr: output, store: Store::Streaming }];
    // SAFETY: the caller's contract.
    unsafe {
        if let (true, ReduceOp::PreMulSum(_)) = (call.kind.reduces(), call.op) {
            Reducer::new(call.dtype, call.op, 1).fold(&[input], Some(0), &to, call.count, true);
        } else if input != output.cast_const() {
            reduce::copy(input, &to, call.bytes(1));
        }
    }
}
