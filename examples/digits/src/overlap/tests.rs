use std::io::Write;

use tempfile::NamedTempFile;

use super::{BucketOverlap, overlap};

/// A trace file with complete events `(name, ts, dur)`, written in the given order.
fn trace(events: &[(&str, f64, f64)]) -> NamedTempFile {
    let mut seqno = 0;
    let events = events.iter().map(|(name, ts, dur)| {
        seqno += u64::from(*name == "all_reduce");
        let args = if *name == "all_reduce" {
            serde_json::json!({"seqno": seqno, "bytes": 4})
        } else {
            serde_json::json!({})
        };
        serde_json::json!({"name": name, "ph": "X", "ts": ts, "dur": dur, "pid": 0, "tid": 1, "args": args})
    });
    raw(&serde_json::Value::from(events.collect::<Vec<_>>()).to_string())
}

fn raw(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

/// A step of three layers from `t` on whose exchanges start at the given times after `t`.
fn step(t: f64, starts: [f64; 3]) -> Vec<(&'static str, f64, f64)> {
    vec![
        ("forward", t, 10.0),
        ("backward layer 3", t + 10.0, 10.0),
        ("bucket 3 submitted", t + 20.0, 1.0),
        ("backward layer 2", t + 21.0, 10.0),
        ("bucket 2 submitted", t + 31.0, 1.0),
        ("backward layer 1", t + 32.0, 10.0),
        ("bucket 1 submitted", t + 42.0, 1.0),
        ("all_reduce", t + starts[0], 4.0),
        ("all_reduce", t + starts[1], 4.0),
        ("all_reduce", t + starts[2], 4.0),
    ]
}

fn problem(events: &[(&str, f64, f64)]) -> String {
    overlap(&[trace(events)]).unwrap_err().to_string()
}

#[test]
fn counts_pairs_of_step_and_bucket() {
    // Proves the counting rule on two ranks: started before the end of the layer below, the end itself
    // excluded.
    let mut first = step(0.0, [22.0, 33.0, 43.0]);
    first.extend(step(100.0, [22.0, 42.0, 46.0]));
    let second = step(0.0, [30.9, 41.9, 50.0]);
    let summary = overlap(&[trace(&first), trace(&second)]).unwrap();
    assert_eq!((summary.ranks, summary.steps, summary.pairs, summary.overlapped), (2, 3, 6, 5));
    assert_eq!(summary.buckets[&3], BucketOverlap { pairs: 3, overlapped: 3 });
    assert_eq!(summary.buckets[&2], BucketOverlap { pairs: 3, overlapped: 2 });
    assert_eq!(summary.buckets.len(), 2);
    assert_eq!(summary.all_reduce_us, 36.0);
    // 22..26 and 33..37 twice the first alone, then 30.9..31 with 32..34.9, and 41.9..42.
    assert!((summary.hidden_us - (8.0 + 4.0 + 3.0 + 0.1)).abs() < 1e-9, "{}", summary.hidden_us);
}

#[test]
fn exchanges_after_the_backward_pass_do_not_count() {
    // Proves that a run that exchanges everything at the end is told from one that overlaps.
    let summary = overlap(&[trace(&step(0.0, [43.0, 47.0, 51.0]))]).unwrap();
    assert_eq!((summary.pairs, summary.overlapped, summary.hidden_us), (2, 0, 0.0));
}

#[test]
fn control_exchanges_are_not_buckets() {
    // Proves that all_reduces of metrics before, between and after the steps do not shift the pairing.
    let mut events = vec![("control exchange", 0.0, 9.0), ("all_reduce", 1.0, 2.0), ("all_reduce", 4.0, 2.0)];
    events.extend(step(10.0, [22.0, 33.0, 43.0]));
    events.extend([("control exchange", 70.0, 9.0), ("all_reduce", 70.0, 9.0)]);
    events.extend(step(100.0, [22.0, 33.0, 43.0]));
    events.extend([("control exchange", 170.0, 9.0), ("all_reduce", 172.0, 9.0)]);
    let summary = overlap(&[trace(&events)]).unwrap();
    assert_eq!((summary.steps, summary.pairs, summary.overlapped), (2, 4, 4));
}

#[test]
fn order_in_the_file_does_not_matter() {
    // Proves that a trace written thread by thread, or at the end of each span, counts the same.
    let mut events = step(0.0, [22.0, 33.0, 43.0]);
    events.rotate_left(7);
    assert_eq!(overlap(&[trace(&events)]).unwrap().overlapped, 2);
}

#[test]
fn shared_buckets() {
    // Proves that a bucket of layers 3 and 2 is compared with the backward of layer 1.
    let events = [
        ("backward layer 3", 0.0, 10.0),
        ("backward layer 2", 10.0, 10.0),
        ("bucket 2 submitted", 20.0, 1.0),
        ("backward layer 1", 21.0, 10.0),
        ("bucket 1 submitted", 31.0, 1.0),
        ("all_reduce", 22.0, 1.0),
        ("all_reduce", 32.0, 1.0),
    ];
    let summary = overlap(&[trace(&events)]).unwrap();
    assert_eq!((summary.pairs, summary.overlapped), (1, 1));
}

#[test]
fn other_events_are_ignored() {
    // Proves that metadata, other phases and other fields of a Chrome trace do no harm.
    let file = trace(&step(0.0, [22.0, 33.0, 43.0]));
    let text = std::fs::read_to_string(file.path()).unwrap();
    let extra = r#"[{"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}},
        {"name":"all_reduce","ph":"i","ts":1,"s":"t"},
        {"name":"broadcast","ph":"X","ts":2,"dur":1,"cat":"c"},"#;
    assert_eq!(overlap(&[raw(&text.replacen('[', extra, 1))]).unwrap().overlapped, 2);
}

#[test]
fn incomplete_traces_are_refused() {
    // Proves that a trace that would be counted wrongly is an error that names the file and the reason.
    let good = step(0.0, [22.0, 33.0, 43.0]);
    assert!(problem(&good[..9]).contains("3 buckets were submitted but 2 all_reduces ran"));
    assert!(problem(&[]).contains("no `bucket K submitted`"));
    assert!(problem(&step(0.0, [19.0, 33.0, 43.0])).contains("before its bucket"));
    let without = |name| good.iter().copied().filter(|event| event.0 != name).collect::<Vec<_>>();
    assert!(problem(&without("backward layer 2")).contains("layer 1 follows layer 3"));
    assert!(problem(&without("backward layer 1")).contains("no `backward layer 1`"));
    assert!(problem(&[("bucket 1 submitted", 0.0, 1.0)]).contains("before any backward"));
    assert!(problem(&[("forward", 0.0, -1.0)]).contains("dur -1"));
    let file = raw("[{\"name\":");
    let error = overlap(&[file.path()]).unwrap_err().to_string();
    assert!(error.contains(&*file.path().to_string_lossy()) && error.contains("not a JSON array"), "{error}");
    assert!(overlap(&[file.path().join("none")]).unwrap_err().to_string().contains("cannot read"));
}

#[test]
fn mixed_communicators_are_refused() {
    // Proves that sequence numbers out of order, a sign of two communicators in one file, are not paired.
    let text = r#"[{"name":"all_reduce","ph":"X","ts":1,"dur":1,"args":{"seqno":5}},
        {"name":"all_reduce","ph":"X","ts":3,"dur":1,"args":{"seqno":5}}]"#;
    assert!(overlap(&[raw(text)]).unwrap_err().to_string().contains("seqno 5 follows seqno 5"));
}
