//! Subcommands whose reader goes away, as `| head -1` does.

mod common;

use common::{Job, ringccl, text};
use std::io::pipe;

/// What a subcommand says on stderr, and its exit code, when nobody reads its output.
fn unread(arguments: &[&str]) -> (String, Option<i32>) {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let mut command = ringccl();
    command.args(arguments).env_clear();
    let output = Job::start_into(command, writer).finish();
    (text(&output.stderr), output.status.code())
}

#[test]
fn a_reader_that_goes_is_no_error() {
    // Every subcommand that prints much ends quietly: with its own exit code, or, where ranks print, as one that
    // SIGPIPE has ended.
    let directory = tempfile::tempdir().unwrap();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../topo/testdata/valid/comments.yaml");
    let (dump, log) = (directory.path().join("box.xml"), directory.path().join("nccl.log"));
    let gpu = r#"<pci busid="1" class="0x030200" link_width="16"><gpu dev="0" sm="80"/></pci>"#;
    let cpu = r#"<cpu numaid="0" arch="x86_64" vendor="AuthenticAMD" familyid="143" modelid="49">"#;
    std::fs::write(&dump, format!("<system version=\"1\">{cpu}{gpu}</cpu></system>")).unwrap();
    std::fs::write(&log, "NCCL version 2.22.3\nNCCL INFO 67108864 Bytes -> Algo 1 proto 2 time 867.660767\n")
        .unwrap();
    let (dump, log) = (dump.to_str().unwrap(), log.to_str().unwrap());
    let listen = format!("unix:{}", directory.path().join("s").display());
    let endpoint = listen.parse().unwrap();
    let secret = coordinator_lite::Secret::random().unwrap();
    let access = coordinator_lite::Access { secret, trust_uid: true };
    let _coordinator = coordinator_lite::Coordinator::open(&endpoint, access).unwrap();
    let cases: &[(&[&str], i32)] = &[
        (&["topo", "show", file], 0),
        (&["topo", "check", file], 0),
        (&["topo", "show", "dgx-h100"], 0),
        (&["topo", "import", dump], 0),
        (&["topo", "infer", log], 0),
        (&["topo", "infer", log, "--json"], 0),
        (&["predict", "--profile", "dgx-h100", "--bytes", "64M"], 0),
        (&["predict", "--profile", "dgx-h100", "--bytes", "64M", "--json"], 0),
        (&["doctor", "-n", "2"], 0),
        (&["doctor", "-n", "2", "--json"], 0),
        (&["doctor", "--markdown"], 0),
        (&["coordinator", "ping", "--listen", &listen], 0),
        (&["coordinator", "status", "--listen", &listen], 0),
        (&["coordinator", "status", "--listen", &listen, "--json"], 0),
        (&["--help"], 0),
        (&["perf", "barrier", "-n", "2", "--iters", "1"], 141),
        (&["perf", "all_reduce", "-n", "2", "-b", "8", "-e", "1K", "--iters", "1", "--json"], 141),
        (&["run", "-n", "2", "--", "/bin/echo", "line"], 141),
        // The last, since it ends the coordinator.
        (&["coordinator", "shutdown", "--listen", &listen], 0),
    ];
    for (arguments, code) in cases {
        assert_eq!(unread(arguments), (String::new(), Some(*code)), "{arguments:?}");
    }
}
