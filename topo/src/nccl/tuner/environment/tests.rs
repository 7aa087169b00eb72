use super::*;

fn parse(pairs: &[(&str, &str)], minor: u16) -> Result<Environment, TunerError> {
    Environment::parse(pairs.iter().copied(), Release::new(2, minor, 7))
}

/// Names of the algorithms that are left.
fn left(value: &str, collective: Collective, minor: u16) -> String {
    let environment = parse(&[("NCCL_ALGO", value)], minor).unwrap();
    let names = Algorithm::ALL.into_iter().filter(|one| environment.allows(collective, *one));
    names.map(Algorithm::name).collect::<Vec<_>>().join(" ")
}

#[test]
fn lists_of_algorithms_include_or_exclude() {
    // One list holds for every collective; case does not matter, `^` turns it round.
    for collective in Collective::ALL {
        assert_eq!(left("Tree", collective, 22), "Tree");
        assert_eq!(left("nvlstree,RING", collective, 22), "Ring NVLSTree");
        assert_eq!(left("^Tree,NVLS", collective, 30), "Ring CollNetDirect CollNetChain NVLSTree PAT");
    }
}

#[test]
fn lists_per_function_leave_other_functions_alone() {
    // From 2.24 a list may name its function; what comes first without one holds for the rest.
    let value = "ring;allreduce:tree,ring;AllGather:^pat";
    assert_eq!(left(value, Collective::AllReduce, 24), "Tree Ring");
    assert_eq!(left(value, Collective::Broadcast, 24), "Ring");
    assert!(!left(value, Collective::AllGather, 24).contains("PAT"));
    let alone = left("broadcast:tree", Collective::AllReduce, 30);
    assert_eq!(alone.split(' ').count(), Algorithm::ALL.len());
}

#[test]
fn any_list_of_protocols_ends_the_rule_of_ll128() {
    // `^LL` and `^Simple` turn LL128 on where the default would decide.
    use Permission::{Decide, Off, On};
    let all = |pairs: &[(&str, &str)]| {
        let environment = parse(pairs, 24).unwrap();
        Protocol::ALL.map(|protocol| environment.permission(Collective::AllReduce, protocol))
    };
    assert_eq!(all(&[]), [On, Decide, On]);
    assert_eq!(all(&[("NCCL_PROTO", "LL128")]), [Off, On, Off]);
    assert_eq!(all(&[("NCCL_PROTO", "^LL")]), [Off, On, On]);
    assert_eq!(all(&[("NCCL_PROTO", "^LL128")]), [On, Off, On]);
    assert_eq!(all(&[("NCCL_PROTO", "broadcast:LL")]), [On, Decide, On]);
}

#[test]
fn hostile_values_name_what_is_accepted() {
    // Each value is refused, and the message shows a form that would do.
    let long = "x".repeat(1 << 20);
    for (name, value, says) in [
        ("NCCL_ALGO", "", "write a list"),
        ("NCCL_ALGO", "tre", "did you mean Tree?"),
        ("NCCL_ALGO", "tree;", "write a list"),
        ("NCCL_ALGO", "tree;ring", "has no function"),
        ("NCCL_ALGO", "allreducee:tree", "is no function"),
        ("NCCL_ALGO", "^^tree", "is unknown"),
        ("NCCL_ALGO", "tree,,ring", "is unknown"),
        ("NCCL_ALGO", long.as_str(), "at most 4096"),
        ("NCCL_PROTO", "LL64", "LL, LL128, Simple"),
        ("NCCL_PROTO", "\u{0}", "write a list"),
        ("NCCL_MAX_NCHANNELS", "0", "from 1 to 64"),
        ("NCCL_MAX_NCHANNELS", "-1", "from 1 to 64"),
        ("NCCL_MIN_NCHANNELS", "99999999999999999999", "from 1 to 64"),
        ("NCCL_NTHREADS", "100", "multiple of 32"),
        ("NCCL_LL128_NTHREADS", "64", "multiple of 32 from 160"),
        ("NCCL_THREAD_THRESHOLDS", "1 2 3 4 5 6 7", "one to six"),
        ("NCCL_THREAD_THRESHOLDS", "9223372036854775807", "one to six"),
        ("NCCL_NET_OVERHEAD", "1e3", "whole number"),
        ("NCCL_NVLS_ENABLE", "yes", "from 0 to 2"),
        ("NCCL_LL128_C2C", "2", "from 0 to 1"),
        ("NCCL_ALGOS", "tree", "did you mean NCCL_ALGO?"),
        ("NCCL_GRAPH_FILE", "/x", "give them instead"),
        ("PATH", "/bin", "those are NCCL_ALGO"),
        ("", "", "those are NCCL_ALGO"),
    ] {
        let error = parse(&[(name, value)], 30).map_err(|error| error.to_string());
        let shown = value.get(..value.len().min(40));
        assert!(error.as_ref().is_err_and(|error| error.contains(says)), "{name}={shown:?}: {error:?}");
        assert!(error.is_err_and(|error| error.len() < 600));
    }
}

#[test]
fn lists_per_function_need_2_24() {
    // The older release says which one has them.
    let error = parse(&[("NCCL_ALGO", "allreduce:tree")], 23).unwrap_err().to_string();
    assert!(error.contains("came with 2.24"), "{error}");
}

#[test]
fn the_last_of_a_name_counts_and_the_search_keeps_its_own() {
    // As in a shell; and what the tuner does not read is handed on unread.
    let environment =
        parse(&[("NCCL_ALGO", "Ring"), ("NCCL_P2P_LEVEL", "SYS"), ("NCCL_ALGO", "Tree")], 22).unwrap();
    assert!(!environment.allows(Collective::AllReduce, Algorithm::Ring));
    assert_eq!(environment.search(), [("NCCL_P2P_LEVEL".to_owned(), "SYS".to_owned())]);
    let twice = parse(&[("NCCL_MAX_NCHANNELS", "8"), ("NCCL_MAX_CTAS", "4")], 22).unwrap();
    assert_eq!(twice.channels(), (None, Some(4)));
}
