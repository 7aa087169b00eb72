//! Bad settings and their messages, precedence, contradictions, unknown names.

use super::*;
use crate::config::Config;
use crate::plan::{Algorithm, Tuning};
use proptest::prelude::*;
use shmring::Protocol;
use std::path::Path;
use std::time::Duration;

fn config(nranks: u32, pairs: &[(&str, &str)]) -> Config {
    Config::from_vars(nranks, &Vars::from_pairs(pairs.iter().copied())).unwrap()
}

/// Every problem of these variables on 8 ranks, those of joining included.
fn problems(pairs: &[(&str, &str)]) -> Vec<String> {
    let vars = Vars::from_pairs(pairs.iter().copied());
    let mut problems = resolve(8, &vars).problems;
    let joining = table::ALL.iter().filter(|setting| {
        matches!(setting.about().group, Group::Joining) || setting.variables()[0] == table::LOG.name()
    });
    problems.extend(joining.filter_map(|setting| setting.look(&vars).err()));
    if problems.is_empty() {
        problems.extend(coordinator(&vars).err());
    }
    problems.iter().map(ToString::to_string).collect()
}

type Row = (&'static [(&'static str, &'static str)], &'static str);

const MS: &str = "not a whole number from 1 to 86400000";
const INVALID: &[Row] = &[
    (&[("RINGCCL_JOIN_TIMEOUT_MS", "soon")], "RINGCCL_JOIN_TIMEOUT_MS=soon: {MS}"),
    (&[("RINGCCL_JOIN_TIMEOUT_MS", "0")], "RINGCCL_JOIN_TIMEOUT_MS=0: {MS}"),
    (&[("RINGCCL_TIMEOUT_MS", "86400001")], "RINGCCL_TIMEOUT_MS=86400001: {MS}"),
    (&[("RINGCCL_TIMEOUT_MS", "-1")], "RINGCCL_TIMEOUT_MS=-1: {MS}"),
    (&[("RINGCCL_TIMEOUT_MS", "1.5")], "RINGCCL_TIMEOUT_MS=1.5: {MS}"),
    (&[("RINGCCL_TIMEOUT_MS", " 5")], "RINGCCL_TIMEOUT_MS= 5: {MS}"),
    (
        &[("RINGCCL_TIMEOUT_MS", "99999999999999999999999")],
        "RINGCCL_TIMEOUT_MS=99999999999999999999999: {MS}",
    ),
    (&[("RINGCCL_CONNECT_TIMEOUT_MS", "1s")], "RINGCCL_CONNECT_TIMEOUT_MS=1s: {MS}"),
    (&[("RINGCCL_FINALIZE_TIMEOUT_MS", "never")], "RINGCCL_FINALIZE_TIMEOUT_MS=never: {MS}"),
    (&[("FAKEGPU_COORDINATOR_TIMEOUT_MS", "0")], "FAKEGPU_COORDINATOR_TIMEOUT_MS=0: {MS}"),
    (&[("RINGCCL_CHANNELS", "17")], "RINGCCL_CHANNELS=17: not a whole number from 1 to 16"),
    (&[("RINGCCL_MIN_CHANNELS", "0")], "RINGCCL_MIN_CHANNELS=0: not a whole number from 1 to 16"),
    (&[("NCCL_MAX_NCHANNELS", "0")], "NCCL_MAX_NCHANNELS=0: not a whole number from 1"),
    (&[("NCCL_MIN_NCHANNELS", "-2")], "NCCL_MIN_NCHANNELS=-2: not a whole number from 1"),
    (&[("RINGCCL_ALGO", "pat")], "RINGCCL_ALGO=pat: not one of flat, twoshot, ring, tree, relay"),
    (&[("RINGCCL_ALGO", "ring,flat")], "RINGCCL_ALGO=ring,flat: not one of flat, twoshot, ring, tree, relay"),
    (
        &[("NCCL_ALGO", "Ringg")],
        "NCCL_ALGO=Ringg: not a list of Tree, Ring, CollnetDirect, CollnetChain, NVLS, NVLSTree, PAT, \
         with commas between and perhaps ^ in front",
    ),
    (&[("RINGCCL_PROTO", "LL64")], "RINGCCL_PROTO=LL64: not one of LL, LL128, Simple"),
    (&[("RINGCCL_PROTO", "^LL")], "RINGCCL_PROTO=^LL: not one of LL, LL128, Simple"),
    (
        &[("NCCL_PROTO", "Simple;LL256")],
        "NCCL_PROTO=Simple;LL256: not a list of LL, LL128, Simple, with commas between and perhaps ^ in front",
    ),
    (
        &[("NCCL_PROTO", "^LL,LL128,Simple")],
        "NCCL_PROTO=^LL,LL128,Simple: not a list that leaves one of LL, LL128, Simple",
    ),
    (&[("RINGCCL_CHUNK_BYTES", "100")], "RINGCCL_CHUNK_BYTES=100: not a multiple of 64"),
    (&[("RINGCCL_CHUNK_BYTES", "1M")], "RINGCCL_CHUNK_BYTES=1M: not a whole number from 64 to 16777216"),
    (
        &[("RINGCCL_CHUNK_BYTES", "16777280")],
        "RINGCCL_CHUNK_BYTES=16777280: not a whole number from 64 to 16777216",
    ),
    (&[("FAKEGPU_STAGING_CHUNK_BYTES", "0")], "FAKEGPU_STAGING_CHUNK_BYTES=0: not a whole number from 1"),
    (&[("FAKEGPU_STAGING_CHUNK_BYTES", "4k")], "FAKEGPU_STAGING_CHUNK_BYTES=4k: not a whole number from 1"),
    (&[("RINGCCL_BUFFER_BYTES", "1000")], "RINGCCL_BUFFER_BYTES=1000: not a multiple of 512"),
    (&[("NCCL_BUFFSIZE", "4MiB")], "NCCL_BUFFSIZE=4MiB: not a whole number from 1"),
    (
        &[("RINGCCL_STAGING_MAX_BYTES", "124415")],
        "RINGCCL_STAGING_MAX_BYTES=124415: not at least 124416, what 8 ranks need on 1 channel(s)",
    ),
    (
        &[("FAKEGPU_STAGING_MAX_BYTES", "325631"), ("RINGCCL_CHANNELS", "4")],
        "FAKEGPU_STAGING_MAX_BYTES=325631: not at least 325632, what 8 ranks need on 4 channel(s)",
    ),
    (
        &[("RINGCCL_STAGING_MAX_BYTES", "all")],
        "RINGCCL_STAGING_MAX_BYTES=all: not a whole number from 1 to 1099511627776",
    ),
    (
        &[("FAKEGPU_STAGING_FORCE_SOCKET", "1")],
        "FAKEGPU_STAGING_FORCE_SOCKET=1: not off, as it must be: this version has no socket transport; unset it",
    ),
    (&[("RINGCCL_NUMERICS", "ring")], "RINGCCL_NUMERICS=ring: not one of host, nccl"),
    (
        &[("RINGCCL_NUMERICS", "nccl"), ("RINGCCL_ALGO", "flat")],
        "RINGCCL_ALGO=flat: not ring, the algorithm of RINGCCL_NUMERICS=nccl; change one of the two",
    ),
    (
        &[("RINGCCL_NUMERICS", "nccl"), ("RINGCCL_ALGO", "twoshot")],
        "RINGCCL_ALGO=twoshot: not ring, the algorithm of RINGCCL_NUMERICS=nccl; change one of the two",
    ),
    (
        &[("RINGCCL_NUMERICS", "nccl"), ("NCCL_BUFFSIZE", "600")],
        "NCCL_BUFFSIZE=600: not at least 1024, half of which is one grain of NCCL's ring, with RINGCCL_NUMERICS=nccl",
    ),
    (&[("NCCL_LL_BUFFSIZE", "255")], "NCCL_LL_BUFFSIZE=255: not a whole number from 256 to 1073741824"),
    (&[("NCCL_LL128_BUFFSIZE", "1k")], "NCCL_LL128_BUFFSIZE=1k: not a whole number from 16384 to 1073741824"),
    (&[("RINGCCL_BIND", "core")], "RINGCCL_BIND=core: not one of none, even"),
    (
        &[("RINGCCL_FAIL_POINT", "op.sent:die")],
        "RINGCCL_FAIL_POINT=op.sent:die: not POINT[@TIME]:kill|stop with a POINT of init.join, init.welcome, \
         init.attached, init.barrier, init.done, op.begin, op.called, op.sent, op.blocked, op.done, finalize.begin, \
         finalize.met, finalize.reported, finalize.left",
    ),
    (&[("RINGCCL_MODE", "real")], "RINGCCL_MODE=real: not one of simulate, hybrid, passthrough"),
    (
        &[("RINGCCL_MODE", "hybrid")],
        "RINGCCL_MODE=hybrid: not available in this version, which has simulate; unset it or set simulate",
    ),
    (
        &[("FAKEGPU_MODE", "passthrough")],
        "FAKEGPU_MODE=passthrough: not available in this version, which has simulate; unset it or set simulate",
    ),
    (
        &[("FAKEGPU_DIST_MODE", "on")],
        "FAKEGPU_DIST_MODE=on: not one of disabled, simulate, proxy, passthrough",
    ),
    (
        &[("FAKEGPU_DIST_MODE", "disabled")],
        "FAKEGPU_DIST_MODE=disabled: not possible with 8 ranks; unset it or set simulate",
    ),
    (
        &[("RINGCCL_DIST_MODE", "proxy")],
        "RINGCCL_DIST_MODE=proxy: not available in this version, which has simulate and disabled; unset it or set simulate",
    ),
    (&[("RINGCCL_LOG", "loud")], "RINGCCL_LOG=loud: not one of off, error, warn, info, debug, trace"),
    (&[("NCCL_DEBUG", "5")], "NCCL_DEBUG=5: not one of NONE, VERSION, WARN, INFO, ABORT, TRACE"),
    (&[("RANK", "first")], "RANK=first: not a whole number from 0 to 1048576"),
    (&[("WORLD_SIZE", "1048577")], "WORLD_SIZE=1048577: not a whole number from 0 to 1048576"),
    (&[("LOCAL_RANK", "-1")], "LOCAL_RANK=-1: not a whole number from 0 to 1048576"),
    (
        &[("RINGCCL_JOB", "my job")],
        "RINGCCL_JOB=my job: not a name of 1 to 64 letters, digits, `-`, `.` and `_`",
    ),
    (&[("MASTER_PORT", "65536")], "MASTER_PORT=65536: not a whole number from 0 to 65535"),
    (
        &[("FAKEGPU_COORDINATOR_ADDR", "run/c.sock")],
        "FAKEGPU_COORDINATOR_ADDR=run/c.sock: not the absolute path of a socket, or HOST:PORT with a port from 1 to 65535",
    ),
    (
        &[("RINGCCL_COORDINATOR_ADDR", "localhost:0")],
        "RINGCCL_COORDINATOR_ADDR=localhost:0: not the absolute path of a socket, or HOST:PORT with a port from 1 to 65535",
    ),
    (&[("FAKEGPU_COORDINATOR_TRANSPORT", "udp")], "FAKEGPU_COORDINATOR_TRANSPORT=udp: not one of tcp, unix"),
    (
        &[("FAKEGPU_COORDINATOR_TRANSPORT", "tcp"), ("FAKEGPU_COORDINATOR_ADDR", "/run/c.sock")],
        "FAKEGPU_COORDINATOR_TRANSPORT=tcp: not what fits FAKEGPU_COORDINATOR_ADDR=/run/c.sock; unset the transport",
    ),
    (&[("FAKEGPU_DEVICE_COUNT", "0")], "FAKEGPU_DEVICE_COUNT=0: not a whole number from 1 to 1024"),
    (
        &[("FAKEGPU_CLUSTER_REPORT_MAX_OPERATIONS", "few")],
        "FAKEGPU_CLUSTER_REPORT_MAX_OPERATIONS=few: not a whole number from 0 to 4294967296",
    ),
    (
        &[("RINGCCL_CHANNELS", "2"), ("RINGCCL_MIN_CHANNELS", "3")],
        "RINGCCL_MIN_CHANNELS=3: not at most RINGCCL_CHANNELS=2; lower it or raise that",
    ),
    (
        &[("NCCL_MAX_NCHANNELS", "2"), ("NCCL_MIN_NCHANNELS", "3")],
        "NCCL_MIN_NCHANNELS=3: not at most NCCL_MAX_NCHANNELS=2; lower it or raise that",
    ),
    (
        &[("RINGCCL_ALGO", "twoshot"), ("RINGCCL_PROTO", "LL")],
        "RINGCCL_PROTO=LL: not Simple, the only layout of RINGCCL_ALGO=twoshot; change one of the two",
    ),
    (
        &[("RINGCCL_ALGO", "relay"), ("RINGCCL_PROTO", "LL128")],
        "RINGCCL_PROTO=LL128: not Simple, the only layout of RINGCCL_ALGO=relay; change one of the two",
    ),
    (
        &[("RINGCCL_CONNECT_TIMEOUT_MS", "60001")],
        "RINGCCL_CONNECT_TIMEOUT_MS=60001: not at most the join time-out, 60000: raise RINGCCL_JOIN_TIMEOUT_MS or lower this",
    ),
    (
        &[("RINGCCL_CHUNK_BYTES", "262144"), ("RINGCCL_STAGING_MAX_BYTES", "131072")],
        "RINGCCL_CHUNK_BYTES=262144: not within RINGCCL_STAGING_MAX_BYTES=131072; lower it or raise that",
    ),
    (
        &[("FAKEGPU_STAGING_CHUNK_BYTES", "262144"), ("FAKEGPU_STAGING_MAX_BYTES", "131072")],
        "FAKEGPU_STAGING_CHUNK_BYTES=262144: not within FAKEGPU_STAGING_MAX_BYTES=131072; lower it or raise that",
    ),
    (
        &[("RINGCCL_CHUNK_BYTES", "65536"), ("RINGCCL_BUFFER_BYTES", "131072")],
        "RINGCCL_CHUNK_BYTES=65536: not at most 32768, a quarter of RINGCCL_BUFFER_BYTES=131072; lower it or raise that",
    ),
    (&[("RINGCCL_ALGO", "a\nb")], "RINGCCL_ALGO=a\\nb: not one of flat, twoshot, ring, tree, relay"),
];

/// Each bad value, and each contradiction, has exactly this one problem, told in one line with the remedy.
#[test]
fn invalid_settings_have_their_messages() {
    assert!(INVALID.len() >= 40);
    for (pairs, message) in INVALID {
        assert_eq!(problems(pairs), [message.replace("{MS}", MS)], "{pairs:?}");
    }
}

/// All problems are found at once, in the order of the page.
#[test]
fn problems_come_together() {
    let all = problems(&[
        ("RINGCCL_BIND", "core"),
        ("RINGCCL_TIMEOUT_MS", "x"),
        ("NCCL_ALGO", "x"),
        ("FAKEGPU_MODE", "x"),
        ("RANK", "x"),
    ]);
    let names: Vec<&str> = all.iter().filter_map(|line| Some(line.split_once('=')?.0)).collect();
    assert_eq!(names, ["RINGCCL_TIMEOUT_MS", "NCCL_ALGO", "RINGCCL_BIND", "FAKEGPU_MODE", "RANK"]);
}

/// Nothing set, empty values and FakeGPU's unset mode give the defaults.
#[test]
fn defaults_hold_when_nothing_is_set() {
    assert_eq!(config(4, &[]), Config::new(4));
    assert_eq!(config(4, &[("RINGCCL_TIMEOUT_MS", ""), ("FAKEGPU_DIST_MODE", "")]), Config::new(4));
    assert_eq!(config(1, &[("FAKEGPU_DIST_MODE", "disabled")]), Config::new(1));
    let off = [("FAKEGPU_STAGING_FORCE_SOCKET", "false"), ("FAKEGPU_MODE", "Simulate")];
    assert_eq!(config(4, &off), Config::new(4));
}

/// Every field of the configuration is reached by its variable.
#[test]
fn values_arrive() {
    let all = config(
        8,
        &[
            ("RINGCCL_JOIN_TIMEOUT_MS", "7000"),
            ("RINGCCL_CONNECT_TIMEOUT_MS", "500"),
            ("RINGCCL_TIMEOUT_MS", "9000"),
            ("RINGCCL_FINALIZE_TIMEOUT_MS", "800"),
            ("RINGCCL_CHANNELS", "3"),
            ("RINGCCL_MIN_CHANNELS", "2"),
            ("RINGCCL_ALGO", "Ring"),
            ("RINGCCL_PROTO", "ll128"),
            ("RINGCCL_CHUNK_BYTES", "4096"),
            ("RINGCCL_BUFFER_BYTES", "65536"),
            ("RINGCCL_STAGING_MAX_BYTES", "1000000"),
            ("RINGCCL_SHM_DIR", "/tmp"),
            ("RINGCCL_REPORT", "r.json"),
            ("RINGCCL_NUMERICS", "NCCL"),
            ("NCCL_LL_BUFFSIZE", "1000"),
            ("NCCL_LL128_BUFFSIZE", "20000"),
            ("RINGCCL_PIN", "1"),
            ("RINGCCL_SCHED", "0"),
            ("RINGCCL_FAIL_POINT", "op.sent@3:kill"),
        ],
    );
    let expected = Config {
        tuning: Tuning::shipped(),
        join_timeout: Duration::from_secs(7),
        connect_timeout: Some(Duration::from_millis(500)),
        timeout: Duration::from_secs(9),
        finalize_timeout: Some(Duration::from_millis(800)),
        channels: 3,
        min_channels: 2,
        algorithm: Some(Algorithm::Ring),
        protocol: Some(Protocol::Ll128),
        protocols: [false, true, false],
        chunk_bytes: 4096,
        buffer_bytes: Some(65536),
        staging_max_bytes: Some(1_000_000),
        numerics: crate::config::Numerics::Nccl,
        ll_buffer_bytes: Some(1000),
        ll128_buffer_bytes: Some(20_000),
        shm_dir: "/tmp".into(),
        cluster: None,
        plan: crate::model::PlanSource::Host,
        pace: None,
        report: Some("r.json".into()),
        bind: crate::config::Bind::Even,
        scheduling: false,
        fail_point: Some("op.sent@3:kill".into()),
    };
    assert_eq!(all, expected);
    assert_eq!(
        (all.connect_limit(), all.finalize_limit()),
        (Duration::from_millis(500), Duration::from_millis(800))
    );
    let defaults = Config::new(8);
    assert_eq!(
        (defaults.connect_limit(), defaults.finalize_limit()),
        (defaults.join_timeout, defaults.timeout)
    );
}

/// Ours beats NCCL's beats FakeGPU's, and what is beaten is not even looked at.
#[test]
fn precedence() {
    let channels = |pairs| config(8, pairs).channels;
    assert_eq!(channels(&[("NCCL_MAX_NCHANNELS", "4")]), 4);
    assert_eq!(channels(&[("NCCL_MAX_NCHANNELS", "4"), ("RINGCCL_CHANNELS", "2")]), 2);
    assert_eq!(channels(&[("NCCL_MAX_NCHANNELS", "many"), ("RINGCCL_CHANNELS", "2")]), 2);
    let chunk = |pairs| config(8, pairs).chunk_bytes;
    assert_eq!(chunk(&[("FAKEGPU_STAGING_CHUNK_BYTES", "8192"), ("RINGCCL_CHUNK_BYTES", "4096")]), 4096);
    let times = config(8, &[("FAKEGPU_COORDINATOR_TIMEOUT_MS", "5000"), ("RINGCCL_TIMEOUT_MS", "7000")]);
    assert_eq!((times.join_timeout, times.timeout), (Duration::from_secs(5), Duration::from_secs(7)));
    config(8, &[("FAKEGPU_MODE", "hybrid"), ("RINGCCL_MODE", "simulate")]);

    // Two settings of different programs that contradict each other: the weaker gives way.
    let least = config(8, &[("RINGCCL_CHANNELS", "2"), ("NCCL_MIN_NCHANNELS", "4")]);
    assert_eq!((least.min_channels, least.channels), (2, 2));
    let layout = config(8, &[("RINGCCL_ALGO", "twoshot"), ("NCCL_PROTO", "LL")]);
    assert_eq!((layout.algorithm, layout.protocol), (Some(Algorithm::TwoShot), Some(Protocol::Ll)));
}

/// Sizes of FakeGPU and NCCL that our ranges do not have become the next smaller ones; least channels raise the most.
#[test]
fn aliases_are_lenient() {
    for (asked, used) in [
        ("1", 64),
        ("63", 64),
        ("100", 64),
        ("129", 128),
        ("16777217", 16 << 20),
        ("9999999999999999999999", 16 << 20),
    ] {
        assert_eq!(config(8, &[("FAKEGPU_STAGING_CHUNK_BYTES", asked)]).chunk_bytes, used, "{asked}");
    }
    assert_eq!(config(8, &[("NCCL_BUFFSIZE", "4194304")]).buffer_bytes, Some(4 << 20));
    assert_eq!(config(8, &[("NCCL_BUFFSIZE", "5000")]).buffer_bytes, Some(4608));
    assert_eq!(config(8, &[("NCCL_MAX_NCHANNELS", "64")]).channels, 16);
    assert_eq!(config(8, &[("NCCL_MIN_NCHANNELS", "4")]).channels, 4);
    let report = config(8, &[("FAKEGPU_CLUSTER_REPORT_PATH", "r.json")]).report;
    assert_eq!(report, Some("r.json".into()));
}

/// What NCCL's variables exclude is never chosen, at any size.
#[test]
fn excluded_layouts_are_not_chosen() {
    for (text, forbidden) in [("^LL", 0), ("^LL128", 1), ("LL,Simple", 1), ("LL,LL128", 2), ("^Simple", 2)] {
        let config = config(4, &[("NCCL_PROTO", text), ("RINGCCL_ALGO", "flat")]);
        for bytes in [2, 56, 58, 480, 482, 4096, 1 << 20] {
            let choice = config.choice(4, bytes).unwrap();
            assert_ne!(choice.protocol as usize, forbidden, "{text}: {choice:?}");
        }
    }
    let config = config(4, &[("NCCL_MIN_NCHANNELS", "3")]);
    assert_eq!(config.choice(4, 1 << 10).unwrap().channels, 3);
}

/// What decides NCCL's cut is compared between ranks, and only where it decides: numerics, protocol and its buffer.
#[test]
fn ranks_agree_on_nccls_cut() {
    let agreement = |pairs: &[(&'static str, &'static str)]| {
        let numerics = [("RINGCCL_NUMERICS", "nccl")];
        let all = numerics.into_iter().chain(pairs.iter().copied());
        Config::from_vars(8, &Vars::from_pairs(all)).unwrap().agreement(8)
    };
    let plain = agreement(&[]);
    assert_ne!(plain, Config::new(8).agreement(8));
    assert_eq!(plain, agreement(&[("NCCL_BUFFSIZE", "4194304"), ("NCCL_LL_BUFFSIZE", "4096")]));
    let ll = [("NCCL_PROTO", "LL"), ("NCCL_LL_BUFFSIZE", "4096")];
    let different = [agreement(&[("NCCL_BUFFSIZE", "2097152")]), agreement(&ll[..1]), agreement(&ll)];
    for (i, other) in different.iter().enumerate() {
        assert!(*other != plain && !different[..i].contains(other), "{i}");
    }
    assert_eq!(config(8, &[("NCCL_LL_BUFFSIZE", "4096")]).agreement(8), 0);
}

/// What is used in another way than it says is noted.
#[test]
fn notes_are_taken() {
    let notes = |pairs: &[(&'static str, &'static str)]| {
        resolve(8, &Vars::from_pairs(pairs.iter().copied())).notes.join("\n")
    };
    assert_eq!(
        notes(&[("NCCL_ALGO", "NVLS")]),
        "NCCL_ALGO=NVLS: it names none of the host's algorithms; the choice is by size"
    );
    assert!(notes(&[("FAKEGPU_STAGING_CHUNK_BYTES", "100")]).contains("64 is used"));
    assert!(
        notes(&[("RINGCCL_CHANNELS", "2"), ("NCCL_MIN_NCHANNELS", "4")])
            .contains("gives way to RINGCCL_CHANNELS=2")
    );
    assert!(notes(&[("FAKEGPU_DEVICE_COUNT", "4")]).contains("no effect"));
    assert_eq!(notes(&[("RINGCCL_CHANNELS", "2")]), "");
}

/// A slip leads to the setting that was meant; a name like nothing leads to the list; others' names are left alone.
#[test]
fn unknown_names_are_told() {
    let vars = |name: &str| Vars::from_pairs([(name, "1")]);
    for (slip, meant) in [
        ("RINGCCL_TIMEOUT", "RINGCCL_TIMEOUT_MS"),
        ("RINGCCL_TIMOUT_MS", "RINGCCL_TIMEOUT_MS"),
        ("RINGCCL_CHANNEL", "RINGCCL_CHANNELS"),
        ("RINGCCL_PROTOCOL", "RINGCCL_PROTO"),
        ("RINGCCL_CHUNK_SIZE", "RINGCCL_CHUNK_BYTES"),
        ("RINGCCL_STAGING_MAX", "RINGCCL_STAGING_MAX_BYTES"),
        ("RINGCCL_Bind", "RINGCCL_BIND"),
    ] {
        assert_eq!(unknown(&vars(slip)), [format!("{slip} is not a setting: did you mean {meant}?")]);
    }
    assert_eq!(
        unknown(&vars("RINGCCL_XYZZY_PLUGH")),
        ["RINGCCL_XYZZY_PLUGH is not a setting: `ringccl doctor` lists all settings"]
    );
    for other in ["RINGCCL_BIN", "NCCL_IB_HCA", "FAKEGPU_SEED", "PATH", "RINGCC"] {
        assert_eq!(unknown(&vars(other)), [""; 0], "{other}");
    }
}

/// Names are unique over the whole table, the secret is never shown, every text is one line.
#[test]
fn the_table_is_sound() {
    let mut names: Vec<&str> = table::ALL.iter().flat_map(|setting| setting.variables()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    let vars = Vars::from_pairs([("RINGCCL_SECRET", "abc")]);
    let secret = table::ALL.iter().find(|s| s.variables()[0] == "RINGCCL_SECRET").unwrap();
    assert_eq!(secret.look(&vars).unwrap().unwrap().text, "(not shown)");
    for setting in table::ALL {
        let about = setting.about();
        assert!(!about.what.contains('\n') && !about.what.contains("  "), "{}", about.what);
        // Aliases stand in the order in which they count.
        let levels: Vec<Level> = setting.variables().iter().map(|name| level(name)).collect();
        assert!(levels.is_sorted(), "{:?}", setting.variables());
    }
}

/// Two variables of one level that say the same are fine; two that differ are an error that names both.
#[test]
fn one_level_must_agree() {
    use super::form::{Number, Text};
    use super::setting::Name;
    const RANGE: Number = Number { min: 1, max: 9, step: 1 };
    const NAMES: &[Name<u64>] = &[
        Name { name: "NCCL_NEW", form: &RANGE, differs: "" },
        Name { name: "NCCL_OLD", form: &RANGE, differs: "" },
        Name { name: "FAKEGPU_SAME", form: &RANGE, differs: "" },
    ];
    let setting = Setting { about: table::CHANNELS.about, names: NAMES };
    let get = |pairs: &[(&'static str, &'static str)]| setting.get(&Vars::from_pairs(pairs.iter().copied()));
    assert_eq!(get(&[("NCCL_NEW", "3"), ("NCCL_OLD", "3"), ("FAKEGPU_SAME", "4")]).unwrap(), Some(3));
    let error = get(&[("NCCL_NEW", "3"), ("NCCL_OLD", "4")]).unwrap_err().to_string();
    assert_eq!(error, "NCCL_NEW=3: not what NCCL_OLD=4 says; unset one of the two");

    // What must not be shown is not shown in errors either.
    let about = About { secret: true, ..table::CHANNELS.about };
    let secret = Setting::<String> { about, names: &[Name { name: "S", form: &Text("text"), differs: "" }] };
    let bytes: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(b"hidden\xff".to_vec());
    let error = secret.get(&Vars::from_pairs([("S", bytes)])).unwrap_err().to_string();
    assert_eq!(error, "S=(not shown): not text in UTF-8");
    assert_eq!(secret.look(&Vars::from_pairs([("S", "hidden")])).unwrap().unwrap().text, "(not shown)");
}

/// An address is a path or a host with a port, with or without what says which.
#[test]
fn coordinators_are_named() {
    let of = |addr: &str| coordinator(&Vars::from_pairs([("FAKEGPU_COORDINATOR_ADDR", addr)]));
    let unix = |path: &str| CoordinatorAddr::Unix(path.into());
    assert_eq!(of("/run/c.sock").unwrap(), Some(unix("/run/c.sock")));
    assert_eq!(of("unix:/run/c.sock").unwrap(), Some(unix("/run/c.sock")));
    for addr in ["localhost:7000", "tcp:localhost:7000"] {
        assert_eq!(of(addr).unwrap(), Some(CoordinatorAddr::Tcp("localhost:7000".into())));
    }
    assert_eq!(of("").unwrap(), None);
    assert!(of(&format!("/{}", "x".repeat(107))).unwrap_err().to_string().contains("107 bytes"));
}

/// Texts of any kind, of digits, and such as lists have.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["\\PC*", "[0-9]{1,25}", "[\\^,;:a-zA-Z0-9]{0,20}", "(?s).{0,300}"]
}

proptest! {
    /// Whatever the variables hold, nothing panics, and every problem is one line of bounded length.
    #[test]
    fn random_values_never_panic(
        values in prop::collection::vec((0usize..200, text()), 0..8),
        nranks in 1u32..=1024,
    ) {
        let names: Vec<&str> = table::ALL.iter().flat_map(|setting| setting.variables()).collect();
        let vars = Vars::from_pairs(values.into_iter().map(|(at, text)| (names[at % names.len()], text)));
        let resolved = resolve(nranks, &vars);
        if resolved.problems.is_empty() {
            prop_assert!(resolved.config.geometry(nranks).is_ok_and(|geometry| geometry.validate().is_ok()));
        }
        let looked = table::ALL.iter().filter_map(|setting| setting.look(&vars).err());
        let coordinator = coordinator(&vars).err();
        for problem in resolved.problems.into_iter().chain(looked).chain(coordinator) {
            let text = problem.to_string();
            prop_assert!(!text.contains('\n') && text.len() < 2000, "{}", text);
        }
    }
}

/// The user's table counts if it is there, another one if it is named, and the one that is built in if that is asked
/// for; ranks with different rows do not agree.
#[test]
fn tables_are_found() {
    let home = tempfile::tempdir().unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let table = |ll| {
        let mut row = Tuning::shipped().row(8).clone();
        row.lines.ll = ll;
        Tuning { machine: format!("a machine of {ll}"), rows: vec![row] }
    };
    let ll = |pairs: &[(&'static str, &str)]| {
        let vars = Vars::from_pairs(pairs.iter().map(|(name, value)| (*name, *value)));
        let Resolved { config, problems, notes } = resolve(8, &vars);
        assert!(problems.is_empty(), "{problems:?}");
        (config.tuning.row(8).lines.ll, config.agreement(8), notes)
    };
    let built_in = Tuning::shipped().row(8).lines.ll;
    let home_text = text(home.path());
    assert_eq!(ll(&[("HOME", &home_text)]), (built_in, 0, vec![]));

    let users = home.path().join(".config/ringccl/tuning.yaml");
    std::fs::create_dir_all(users.parent().unwrap()).unwrap();
    std::fs::write(&users, table(16).text().unwrap()).unwrap();
    let (found, mark, notes) = ll(&[("HOME", &home_text)]);
    assert!(found == 16 && mark != 0, "{found} {mark}");
    assert_eq!(notes, [format!("RINGCCL_TUNING={}: measured on a machine of 16", users.display())]);
    let config_home = text(&home.path().join(".config"));
    assert_eq!(ll(&[("HOME", "/nowhere"), ("XDG_CONFIG_HOME", &config_home)]).0, 16);
    assert_eq!(ll(&[("HOME", &home_text), ("RINGCCL_TUNING", "none")]), (built_in, 0, vec![]));

    let other = home.path().join("other.yaml");
    std::fs::write(&other, table(24).text().unwrap()).unwrap();
    let (found, other_mark, _) = ll(&[("HOME", &home_text), ("RINGCCL_TUNING", &text(&other))]);
    assert!(found == 24 && other_mark != mark, "{found} {other_mark} {mark}");
}

/// A file that is no table is an error with what is wrong and what to do; nothing waits for a pipe or reads on and on.
#[test]
fn bad_tables_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let told = |path: &Path| {
        let vars = Vars::from_pairs([("RINGCCL_TUNING", path.as_os_str())]);
        let problems = resolve(8, &vars).problems;
        assert_eq!(problems.len(), 1, "{problems:?}");
        let text = problems[0].to_string();
        assert!(text.contains("RINGCCL_TUNING=") && text.contains("run `ringccl tune` again"), "{text}");
        text
    };
    let file = home.path().join("table");
    assert!(told(&file).contains("No such file"), "{}", told(&file));
    assert!(told(home.path()).contains("no regular file"));
    assert!(told(Path::new("/dev/zero")).contains("no regular file"));
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(told(&file).contains("no regular file"));
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, vec![b' '; (1 << 20) + 1]).unwrap();
    assert!(told(&file).contains("more than 1048576 bytes"));
    std::fs::write(&file, b"\xff").unwrap();
    assert!(told(&file).contains("UTF-8"), "{}", told(&file));
    std::fs::write(&file, "machine: x\nrows: [{}]\n").unwrap();
    assert!(told(&file).contains("rows[0]: missing field"), "{}", told(&file));
}
