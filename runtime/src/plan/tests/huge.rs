//! Counts beyond what fits into 32 bits, up to what memory could ever have: offsets are right, and nothing overflows.

use super::*;

/// How many primitives a channel has.
fn length(plan: &Plan, channel: usize) -> u64 {
    let (mut some, mut none) = (0, 1u64 << 62);
    assert!(plan.prim(channel, some).is_some() && plan.prim(channel, none).is_none());
    while some + 1 < none {
        let middle = some + (none - some) / 2;
        if plan.prim(channel, middle).is_some() { some = middle } else { none = middle }
    }
    none
}

/// The primitives of some stretches of a plan: its begin, its end and between.
fn stretches(plan: &Plan, channel: usize, n: u32) -> Vec<Vec<Prim>> {
    let (length, look) = (length(plan, channel), 12 * u64::from(n));
    let starts = [0, length / 3, length / 2 + 1, length / 7 * 6, length.saturating_sub(look)];
    let prims =
        |start: u64| (start..(start + look).min(length)).map(|i| plan.prim(channel, i).unwrap()).collect();
    starts.map(prims).into()
}

/// Every kind with blocks of 5 Gi, 2^40 and almost as many elements as memory could have: each primitive stays inside
/// the buffers and its message, what is stored comes without gaps, and the last element is reached.
#[test]
fn counts_beyond_4_gi_elements() {
    for n in [2u32, 3, 8] {
        let most = isize::MAX as usize / 4 / n as usize;
        for count in [(5 << 30) + 3, (1 << 40) + 1, most / 2] {
            for (call, _) in calls(count, n, 0x1234_5678_9abc_def1) {
                for algorithm in Algorithm::ALL {
                    let choice = Choice {
                        algorithm,
                        protocol: Protocol::Simple,
                        channels: 3,
                        chunk_bytes: 512 << 10,
                        nccl: None,
                    };
                    (0..n).for_each(|rank| look_at(&Plan::new(call.clone(), choice, rank, n), n));
                }
            }
        }
    }
}

fn look_at(plan: &Plan, n: u32) {
    let mut last = 0;
    for channel in 0..plan.channels() {
        for prims in stretches(plan, channel, n) {
            let mut stored: Vec<Span> = Vec::new();
            for prim in prims {
                assert!(prim.len.max(prim.message) <= 128 << 10, "{plan:?} {prim:?}");
                assert!(prim.part + prim.len <= prim.message || prim.recv == Recv::None, "{plan:?} {prim:?}");
                if let Some(Own::Span { span, hole }) = prim.own {
                    assert!(span.end() <= plan.input, "{plan:?} {prim:?}");
                    assert!(hole.len == 0 || hole.at >= span.at && hole.end() <= span.end());
                }
                if let Some(Own::Blocks(stretch)) = prim.own {
                    let parts = (stretch.first..stretch.end).map(|r| plan.call.place(stretch.span, r));
                    let sum = parts.inspect(|part| assert!(part.end() <= plan.input)).map(|part| part.len);
                    assert_eq!(sum.sum::<usize>(), prim.len, "{plan:?} {prim:?}");
                }
                stored.extend(prim.dst.filter(|span| span.len > 0));
            }
            assert!(stored.iter().all(|span| span.end() <= plan.output), "{plan:?}");
            last = stored.iter().map(|span| span.end()).max().unwrap_or(0).max(last);
            stored.sort_by_key(|span| span.at);
            assert!(stored.windows(2).all(|two| two[0].end() <= two[1].at), "{plan:?} stores twice");
        }
    }
    // A block that is shorter than others ends somewhere between the stretches.
    assert!(last == plan.output || plan.call.counts.is_some(), "{plan:?} ends at {last}");
}

/// Counts whose sum cannot be told are refused; others have their blocks one after the other.
#[test]
fn sums_of_counts() {
    assert!(Counts::new(&[usize::MAX, 1]).is_none());
    let counts = Counts::new(&[usize::MAX - 5, 0, 5]).unwrap();
    assert_eq!(counts.total(), usize::MAX);
    assert_eq!(counts.block(1), Span::new(usize::MAX - 5, 0));
    assert_eq!(counts.block(2), Span::new(usize::MAX - 5, 5));
}
