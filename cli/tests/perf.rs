//! `ringccl perf`: every operation runs, checks its results and is told by nccl-tests' definitions.

mod common;

use common::{output, ringccl, text};
use serde_json::Value;

/// Every operation that there is.
const OPERATIONS: [&str; 13] = [
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_to_all_v",
    "gather",
    "scatter",
    "all_gather_v",
    "reduce_scatter_v",
    "sendrecv",
    "barrier",
];

/// The points that `perf` prints for these options, after they were checked for wrong elements.
fn points(operation: &str, options: &[&str]) -> Vec<Value> {
    let mut command = ringccl();
    command.args(["perf", operation, "--json", "--iters", "2", "-w", "1"]).args(options);
    let output = output(command);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{operation}: {out}{err}");
    let points: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for point in &points {
        assert_eq!((&point["kind"], &point["wrong"]), (&operation.into(), &0.into()), "{point}");
    }
    points
}

/// Each operation runs on several ranks with small and large sizes, in place where that exists, and nothing is wrong.
#[test]
fn every_operation_is_measured() {
    for operation in OPERATIONS {
        let points = points(operation, &["-n", "3", "-b", "12", "-e", "200K", "-f", "160", "-d", "int32"]);
        let in_place = points.iter().filter(|point| point["inplace"] == true).count();
        let (sizes, both) = match operation {
            "barrier" => (1, false),
            "sendrecv" | "all_to_all_v" => (2, false),
            _ => (2, true),
        };
        let expected = if both { (2 * sizes, sizes) } else { (sizes, 0) };
        assert_eq!((points.len(), in_place), expected, "{operation}");
    }
}

/// The sum with a factor of each rank is measured and checked in every type, by nccl-tests' name and by ours.
#[test]
fn sums_with_factors_are_measured() {
    let types = ["int8", "uint64", "half", "bfloat16", "float", "double", "fp8_e4m3", "fp8_e5m2"];
    for (at, dtype) in types.into_iter().enumerate() {
        let operation = ["all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v"][at % 4];
        let op = ["mulsum", "premulsum"][at % 2];
        let points =
            points(operation, &["-n", "3", "-b", "96", "-e", "9600", "-f", "100", "-d", dtype, "-o", op]);
        assert_eq!(points.len(), 4, "{dtype}");
    }
}

/// The bus bandwidth is the size over the time by nccl-tests' factor, and the size is what nccl-tests means by it.
#[test]
fn bandwidths_are_those_of_nccl_tests() {
    let factors = [("all_reduce", 1.5), ("all_to_all", 0.75), ("all_to_all_v", 0.75), ("sendrecv", 1.0)];
    for (operation, factor) in factors {
        let points = points(operation, &["-n", "4", "-b", "1M", "-e", "1M"]);
        for point in &points {
            let number = |name: &str| point[name].as_f64().unwrap();
            assert!((number("bytes") - 1_048_576.0).abs() < 1.0, "{point}");
            let algbw = number("bytes") / number("time_us") / 1e3;
            // Both are told with three decimals.
            assert!((number("algbw_gbs") - algbw).abs() < 2e-3, "{point}");
            assert!((number("busbw_gbs") - factor * algbw).abs() < 4e-3, "{point}");
        }
    }
}

/// Messages have neither algorithm nor protocol to tell; collectives have both.
#[test]
fn messages_have_no_algorithm() {
    for (operation, is_chosen) in [("sendrecv", false), ("all_to_all_v", false), ("all_to_all", true)] {
        for point in points(operation, &["-n", "2", "-b", "1K", "-e", "1K"]) {
            assert_eq!(point["algo"].is_string(), is_chosen, "{point}");
        }
    }
}

/// One rank exchanges with itself, and eight-bit types with odd sizes come out right.
#[test]
fn corners_of_messages() {
    for operation in ["sendrecv", "all_to_all_v"] {
        for options in [
            ["-n", "1", "-b", "1", "-e", "1000", "-d", "int8"],
            ["-n", "5", "-b", "1", "-e", "7K", "-d", "fp8_e4m3"],
        ] {
            assert!(points(operation, &options).len() > 5);
        }
    }
}

/// An operation that does not exist is refused with the names of those that do.
#[test]
fn unknown_operations_are_refused() {
    let mut command = ringccl();
    command.args(["perf", "all_to_none"]);
    let output = output(command);
    let err = text(&output.stderr);
    assert!(!output.status.success());
    assert!(OPERATIONS.iter().all(|operation| err.contains(operation)), "{err}");
}
