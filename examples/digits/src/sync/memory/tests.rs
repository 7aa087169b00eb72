use std::time::Duration;

use super::MemorySync;
use crate::error::{Error, Result};
use crate::sync::{Extreme, GradientSync, ensure_same};

/// Runs `f` as every rank of a group and returns what each gave.
fn ranks<T: Send>(nranks: usize, f: impl Fn(&mut MemorySync) -> T + Sync) -> Vec<T> {
    let group = MemorySync::group_with_deadline(nranks, Duration::from_secs(20));
    std::thread::scope(|scope| {
        let f = &f;
        let threads: Vec<_> = group.into_iter().map(|mut sync| scope.spawn(move || f(&mut sync))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn averages_in_rank_order() {
    // Proves that the average is the sum in rank order, then one division: these values tell orders apart.
    let parts = [1e8f32, 1.0, -1e8, 3.0];
    let expected = (((parts[0] + parts[1]) + parts[2]) + parts[3]) / 4.0;
    let other_order = (((parts[3] + parts[1]) + parts[2]) + parts[0]) / 4.0;
    assert_ne!(expected.to_bits(), other_order.to_bits());
    for _ in 0..50 {
        let results = ranks(4, |sync| {
            let handle = sync.start(vec![parts[sync.rank()], sync.rank() as f32]).unwrap();
            sync.wait(handle).unwrap()
        });
        assert!(results.iter().all(|result| *result == [expected, 1.5]));
    }
}

#[test]
fn many_buckets_are_under_way_at_once() {
    // Proves that starting does not wait for anyone, and that buckets may be waited for in any order.
    let results = ranks(3, |sync| {
        let handles: Vec<_> = (0..10).map(|i| sync.start(vec![i as f32; i]).unwrap()).collect();
        sync.barrier().unwrap();
        handles.into_iter().rev().map(|handle| sync.wait(handle).unwrap()).collect::<Vec<_>>()
    });
    for result in results {
        assert!(result.iter().zip((0..10).rev()).all(|(bucket, i)| *bucket == vec![i as f32; i]));
    }
}

#[test]
fn other_exchanges() {
    // Proves broadcast from rank 0, sums, extremes and the comparison of hashes beyond the signed range.
    ranks(3, |sync| {
        let rank = sync.rank();
        let mut values = [rank as f32 + 5.0, 2.0];
        sync.broadcast(&mut values).unwrap();
        assert_eq!(values, [5.0, 2.0]);
        let mut sums = [rank as f64, 1.0];
        sync.sum(&mut sums).unwrap();
        assert_eq!(sums, [3.0, 3.0]);
        let (mut min, mut max) = ([rank as i64 - 1, i64::MAX], [rank as i64 - 1, i64::MIN]);
        sync.extreme(&mut min, Extreme::Min).unwrap();
        sync.extreme(&mut max, Extreme::Max).unwrap();
        assert_eq!((min, max), ([-1, i64::MAX], [1, i64::MIN]));
        ensure_same(sync, "hashes", u64::MAX - 3, "").unwrap();
        let different = ensure_same(sync, "hashes", u64::MAX - rank as u64, "");
        let range = match different {
            Err(Error::Differ { lowest, highest, .. }) => lowest..=highest,
            other => panic!("{other:?}"),
        };
        assert_eq!(range, u64::MAX - 2..=u64::MAX);
    });
}

#[test]
fn misuse_fails_on_every_rank() {
    // Proves that different calls or lengths are errors on all ranks and that nobody hangs.
    let calls: Vec<Result<()>> = ranks(3, |sync| match sync.rank() {
        1 => sync.barrier(),
        _ => sync.sum(&mut [1.0]),
    });
    assert!(calls.iter().all(|result| matches!(result, Err(Error::Sync { .. }))));
    let lengths: Vec<Result<()>> = ranks(3, |sync| sync.sum(&mut vec![1.0; 1 + sync.rank() / 2]));
    for result in lengths {
        assert!(result.unwrap_err().to_string().contains("rank 2 gave a different type or length"));
    }
}

#[test]
fn nobody_waits_for_a_rank_that_left() {
    // Proves that a rank that ends early is named by the others at once, and that absence has a deadline.
    let results = ranks(3, |sync| if sync.rank() == 1 { Ok(()) } else { sync.barrier() });
    assert!(results[0].as_ref().unwrap_err().to_string().contains("rank 1 has left"));
    assert!(results[2].is_err() && results[1].is_ok());
    let mut absent = MemorySync::group_with_deadline(2, Duration::from_millis(1));
    let error = absent[0].barrier().unwrap_err().to_string();
    assert!(error.contains("ranks [1] did not come"), "{error}");
}
