//! `ringccl doctor`: settings with their origins, problems all at once, exit codes.

mod common;

use common::{output, text};
use std::process::{Command, Output};

/// `ringccl doctor OPTIONS` under these variables and no others.
fn doctor(options: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringccl"));
    command.arg("doctor").args(options).env_clear().envs(variables.iter().copied());
    output(command)
}

/// The lines under one heading.
fn section(output: &Output, heading: &str) -> Vec<String> {
    let all = text(&output.stdout);
    let lines = all.lines().skip_while(|line| *line != heading).skip(1);
    lines.take_while(|line| !line.is_empty()).map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn every_setting_is_listed() {
    // The list under an empty environment is the one in testdata, which is reviewed as code.
    let listed = section(&doctor(&[], &[]), "settings").join("\n") + "\n";
    let golden = include_str!("../testdata/doctor_settings.txt");
    assert_eq!(
        listed, golden,
        "if this is meant: ringccl doctor's list goes to cli/testdata/doctor_settings.txt"
    );
}

#[test]
fn origins_are_named() {
    // Defaults, our own variables, those of other programs and options of the command line; notes stand behind.
    let variables = [
        ("RINGCCL_TIMEOUT_MS", "9000"),
        ("NCCL_MAX_NCHANNELS", "4"),
        ("FAKEGPU_STAGING_CHUNK_BYTES", "1000"),
        ("RINGCCL_BIND", "none"),
        ("RINGCCL_SECRET", "0123456789"),
    ];
    let output = doctor(&["-n", "2", "--bind", "even", "--timeout-start", "1.5"], &variables);
    let lines: Vec<String> = section(&output, "settings")
        .iter()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .filter(|line| !line.ends_with(" default"))
        .collect();
    assert_eq!(
        lines,
        [
            "RINGCCL_JOIN_TIMEOUT_MS 1500 ms --timeout-start",
            "RINGCCL_TIMEOUT_MS 9000 ms RINGCCL_TIMEOUT_MS",
            "RINGCCL_CHANNELS 4 NCCL_MAX_NCHANNELS",
            "RINGCCL_CHUNK_BYTES 1000 bytes FAKEGPU_STAGING_CHUNK_BYTES (960 is used, of 64 to 16777216, a multiple of 64)",
            "RINGCCL_BIND even --bind",
            "RINGCCL_SECRET (not shown) RINGCCL_SECRET",
        ]
    );
    assert!(!text(&output.stdout).contains("0123456789"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn problems_are_told_together() {
    // Every bad value and every contradiction is an error, a slip is a warning with the name that was meant.
    let variables = [
        ("RINGCCL_CHANNELS", "99"),
        ("FAKEGPU_MODE", "hybrid"),
        ("RINGCCL_ALGO", "twoshot"),
        ("RINGCCL_PROTO", "LL"),
        ("RINGCCL_LOG", "loud"),
        ("RINGCCL_TIMEOUT", "5"),
        ("NCCL_PROTO", "Simple"),
        ("RINGCCL_REPORT", "/nowhere/at/all/report.json"),
    ];
    let output = doctor(&[], &variables);
    let findings = section(&output, "findings");
    let expected = [
        "  error    RINGCCL_CHANNELS=99: not a whole number from 1 to 16",
        "  error    RINGCCL_PROTO=LL: not Simple, the only layout of RINGCCL_ALGO=twoshot; change one of the two",
        "  error    FAKEGPU_MODE=hybrid: not available in this version, which has simulate; unset it or set simulate",
        "  error    RINGCCL_LOG=loud: not one of off, error, warn, info, debug, trace",
        "  error    the report `/nowhere/at/all/report.json` cannot be written: `/nowhere/at/all` is not a directory: \
         make it (mkdir -p /nowhere/at/all), or name another",
        "  warning  RINGCCL_TIMEOUT is not a setting: did you mean RINGCCL_TIMEOUT_MS?",
        "  warning  NCCL_PROTO=Simple is not used: RINGCCL_PROTO counts more: unset it",
    ];
    assert_eq!(findings[..expected.len()], expected);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_machine_that_cannot_is_told() {
    // A directory that does not exist, one without room, and a cluster file that is none: exit code 1 and a remedy.
    for (variables, said) in [
        (vec![("RINGCCL_SHM_DIR", "/nowhere")], "set RINGCCL_SHM_DIR to a directory on a tmpfs"),
        (vec![("RINGCCL_CLUSTER_CONFIG", "/nowhere.yaml")], "/nowhere.yaml"),
        // Sixteen channels of the largest chunk for 1024 ranks: a terabyte.
        (
            vec![("RINGCCL_CHANNELS", "16"), ("RINGCCL_CHUNK_BYTES", "16777216")],
            "or set RINGCCL_STAGING_MAX_BYTES=",
        ),
    ] {
        let output = doctor(&["-n", "1024"], &variables);
        let findings = section(&output, "findings").join("\n");
        assert!(findings.contains("  error ") && findings.contains(said), "{variables:?}: {findings}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn the_remedy_for_a_small_segment_works() {
    // The bound that the doctor proposes passes its own check.
    let large = [("RINGCCL_CHANNELS", "16"), ("RINGCCL_CHUNK_BYTES", "16777216")];
    let findings = section(&doctor(&["-n", "64"], &large), "findings").join("\n");
    let bound = findings.split_once("RINGCCL_STAGING_MAX_BYTES=").unwrap().1;
    let bound: String = bound.chars().take_while(char::is_ascii_digit).collect();
    let channels = [("RINGCCL_CHANNELS", "16"), ("RINGCCL_STAGING_MAX_BYTES", &bound)];
    let output = doctor(&["-n", "64"], &channels);
    let findings = section(&output, "findings").join("\n");
    assert!(!findings.contains("RINGCCL_STAGING_MAX_BYTES="), "{findings}");
}

#[test]
fn json_has_the_same() {
    // The object has every part, the settings by name, and no secret.
    let output = doctor(&["--json", "-n", "3"], &[("NCCL_ALGO", "Ring"), ("RINGCCL_SECRET", "0123456789")]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["ok"], &report["ranks"]), (&true.into(), &3.into()));
    let setting = |name: &str| {
        let settings = report["settings"].as_array().unwrap();
        settings.iter().find(|setting| setting["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (&setting("RINGCCL_ALGO")["value"], &setting("RINGCCL_ALGO")["origin"]),
        (&"Ring".into(), &"NCCL_ALGO".into())
    );
    assert_eq!(setting("RINGCCL_TIMEOUT_MS")["origin"], "default");
    assert_eq!(report["used"]["all_reduce"][0]["algorithm"], "ring");
    assert!(report["machine"]["cores"]["usable"].as_u64().unwrap() >= 1);
    assert!(!text(&output.stdout).contains("0123456789"));
}

#[test]
fn other_subcommands_refuse_a_bad_log_level() {
    // The level is read before anything else; one line says what would be right.
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringccl"));
    command.args(["run", "-n", "1", "--", "/bin/true"]).env_clear().env("NCCL_DEBUG", "loud");
    let output = output(command);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "ringccl: NCCL_DEBUG=loud: not one of NONE, VERSION, WARN, INFO, ABORT, TRACE\n"
    );
}

#[test]
fn unknown_names_are_warned_about_once_per_process() {
    // `perf` reads the settings in itself and in each of two ranks, twice in none.
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringccl"));
    command.args(["perf", "barrier", "-n", "2", "--iters", "1"]).env_clear().env("RINGCCL_CHANEL", "2");
    let output = output(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let warning = "RINGCCL_CHANEL is not a setting: did you mean RINGCCL_CHANNELS?";
    assert_eq!(text(&output.stderr).matches(warning).count(), 3, "{}", text(&output.stderr));
}

#[test]
fn a_coordinator_is_asked() {
    // One that answers is quoted; one that is not there, another secret and a missing one keep a job from running.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s");
    let path = path.to_str().unwrap();
    let ask = |variables: &[(&str, &str)]| {
        let output = doctor(&["-n", "2"], variables);
        assert_eq!(text(&output.stderr), "");
        (section(&output, "findings").join("\n"), output.status.code())
    };
    let at = ("FAKEGPU_COORDINATOR_ADDR", path);
    let (findings, code) = ask(&[at]);
    let absent = format!("  error    no coordinator at unix:{path}, which FAKEGPU_COORDINATOR_ADDR names: ");
    let remedy =
        format!("start it (ringccl coordinator --listen unix:{path}), or unset FAKEGPU_COORDINATOR_ADDR");
    assert!(findings.contains(&absent) && findings.contains(&remedy), "{findings}");
    assert_eq!(code, Some(1));

    let secret = coordinator_lite::Secret::random().unwrap();
    let hex = secret.to_hex();
    let open =
        |endpoint: &str| coordinator_lite::Coordinator::open(&endpoint.parse().unwrap(), secret.clone());
    let _unix = open(&format!("unix:{path}")).unwrap();
    let answers =
        format!("  note     the coordinator at unix:{path} answers: OK ringccl status=ready version=1");
    let (findings, code) = ask(&[at, ("RINGCCL_SECRET", &hex)]);
    assert!(findings.contains(&answers) && !findings.contains("--trust-uid"), "{findings}");
    assert!(findings.contains("a job may meet another one there: set RINGCCL_JOB"), "{findings}");
    assert_eq!(code, Some(0));
    let (findings, code) = ask(&[at, ("SLURM_JOB_ID", "5")]);
    assert!(findings.contains("  note     ranks meet there as job `slurm-5`"), "{findings}");
    assert!(findings.contains(&answers) && findings.contains("start it with --trust-uid"), "{findings}");
    assert_eq!(code, Some(0));
    let (findings, code) = ask(&[at, ("RINGCCL_SECRET", &"ab".repeat(32))]);
    assert!(findings.contains("  error    wrong secret"), "{findings}");
    assert_eq!(code, Some(1));

    let tcp = open("tcp:127.0.0.1:0").unwrap();
    let addr = tcp.endpoint().addr().unwrap().to_string();
    let (findings, code) = ask(&[("RINGCCL_COORDINATOR_ADDR", &addr)]);
    assert!(findings.contains("lets no rank in without the secret: set RINGCCL_SECRET"), "{findings}");
    assert_eq!(code, Some(1));
}
