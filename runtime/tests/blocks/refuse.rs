//! Arguments that are refused, with both values; the communicator goes on.

use super::each;
use ringccl::{Communicator, Config, DType, Error, ReduceOp};

/// The text of an argument's error.
fn refused(outcome: Result<(), Error>) -> String {
    match outcome.unwrap_err() {
        error @ Error::Argument { .. } => error.to_string(),
        other => panic!("{other}"),
    }
}

fn lengths(comm: &mut Communicator) -> Vec<(String, &'static str)> {
    let (two, mut five, mut six, op) = ([0f32; 2], [0f32; 5], [0f32; 6], ReduceOp::Sum);
    vec![
        (refused(comm.all_gather(&two, &mut five)), "all_gather: the receive buffer has 5 elements"),
        (refused(comm.all_gather(&two, &mut five)), "a block of 2 for each of 3 ranks, 6 in all"),
        (refused(comm.all_gather_in_place(&mut five)), "5 elements, which 3 ranks cannot share"),
        (refused(comm.reduce_scatter(&two, &mut five, op)), "the send buffer has 2 elements"),
        (refused(comm.reduce_scatter_in_place(&mut five, op)), "5 elements, which 3 ranks cannot share"),
        (refused(comm.all_to_all(&two, &mut five)), "the send buffer has 2 elements, the receive buffer 5"),
        (refused(comm.all_to_all(&two, &mut [0.0; 2])), "2 elements, which 3 ranks cannot share"),
        (refused(comm.reduce(&two, &mut six, op, 3)), "root 3 is not a rank: there are 3"),
        (refused(comm.gather(&two, &mut six, usize::MAX)), "is not a rank: there are 3"),
        (refused(comm.scatter(&two, &mut six, 7)), "root 7 is not a rank"),
        (refused(comm.all_gather_v(&two, &mut six, &[2, 4])), "2 counts for 3 ranks"),
        (
            refused(comm.all_gather_v(&two, &mut six, &[3, 3, 3])),
            "send buffer has 2 elements; by the counts it must have 3",
        ),
        (
            refused(comm.all_gather_v(&two, &mut five, &[2, 2, 2])),
            "receive buffer has 5 elements; by the counts it must have 6",
        ),
        (
            refused(comm.reduce_scatter_v(&six, &mut [0.0; 2], &[2, 2, 3], op)),
            "send buffer has 6 elements; by the counts it must have 7",
        ),
        (refused(comm.all_gather_v(&two, &mut six, &[usize::MAX, 2, 2])), "overflow"),
    ]
}

/// Lengths, roots and counts that do not fit are refused with the values, and nothing is lost.
#[test]
fn arguments_are_checked() {
    each(&Config::new(3), 3, |mut comm| {
        for (text, told) in lengths(&mut comm) {
            assert!(text.contains(told), "`{told}` is not in: {text}");
        }
        // Only the root's buffer counts.
        let (root, rank) = (1, comm.rank());
        let mut short = [0f32; 1];
        if rank == root {
            let text = refused(comm.reduce(&[1.0; 2], &mut short, ReduceOp::Sum, root));
            assert!(text.contains("2 elements, the receive buffer 1"), "{text}");
            let text = refused(comm.gather(&[1.0; 2], &mut short, root));
            assert!(text.contains("reduce") || text.contains("gather: the receive buffer has 1"), "{text}");
            let text = refused(comm.scatter(&[1.0; 2], &mut short, root));
            assert!(text.contains("scatter: the send buffer has 2"), "{text}");
        }
        let mut one = [rank as i32];
        comm.all_reduce_in_place(&mut one, ReduceOp::Sum).unwrap();
        assert_eq!(one, [3]);
        comm.finalize().unwrap();
    });
}

/// Counts whose bytes no memory can have are refused before a pointer is looked at.
#[test]
fn overflowing_counts_are_refused() {
    each(&Config::new(3), 3, |mut comm| {
        let null = std::ptr::null_mut::<u8>();
        let third = isize::MAX as usize / 3 / 4 + 1;
        // SAFETY: the calls return before they use a pointer.
        let texts = unsafe {
            [
                refused(comm.all_gather_raw(null, null, third, DType::F32)),
                refused(comm.reduce_scatter_raw(null, null, third, DType::F32, ReduceOp::Sum)),
                refused(comm.all_to_all_raw(null, null, usize::MAX, DType::F16)),
                refused(comm.gather_raw(null, null, usize::MAX / 3 + 1, DType::F32, 0)),
                refused(comm.scatter_raw(null, null, third, DType::F32, 2)),
                refused(comm.all_reduce_raw(
                    null,
                    null,
                    isize::MAX as usize / 4 + 1,
                    DType::F32,
                    ReduceOp::Sum,
                )),
                refused(comm.broadcast_raw(null, null, usize::MAX, DType::F32, 1)),
                refused(comm.reduce_raw(null, null, usize::MAX, DType::F64, ReduceOp::Max, 1)),
                refused(comm.all_gather_v_raw(null, null, &[1 << 61, 1 << 61, 1], DType::F32)),
                refused(comm.reduce_scatter_v_raw(
                    null,
                    null,
                    &[1 << 61, 1 << 61, 1],
                    DType::F32,
                    ReduceOp::Sum,
                )),
            ]
        };
        assert!(texts.iter().all(|text| text.contains("more than the")), "{texts:?}");
        assert!(
            texts[0].contains(&format!("{third} elements of 4 bytes for each of 3 blocks")),
            "{}",
            texts[0]
        );
        comm.finalize().unwrap();
    });
}
