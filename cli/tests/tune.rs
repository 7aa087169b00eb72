//! `ringccl tune` end to end: what it writes, keeps, and refuses.

mod common;

use common::{output, text};
use ringccl::Tuning;
use std::path::Path;
use std::process::{Command, Output};

/// Runs `ringccl` with none of the caller's settings.
fn ringccl(args: &[&str], vars: &[(&str, &Path)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringccl"));
    for name in ["HOME", "XDG_CONFIG_HOME", "RINGCCL_TUNING"] {
        command.env_remove(name);
    }
    command.args(args).envs(vars.iter().copied());
    output(command)
}

/// One short run.
const SHORT: [&str; 5] = ["tune", "-e", "1K", "--rounds", "1"];

/// A table is written where communicators look for it, other numbers of ranks stay in it, and nothing else is left.
#[test]
fn tables_are_written_and_kept() {
    let home = tempfile::tempdir().unwrap();
    let vars = [("HOME", home.path())];
    let file = home.path().join(".config/ringccl/tuning.yaml");
    for (ranks, known) in [("2", vec![2]), ("3", vec![2, 3]), ("2", vec![2, 3])] {
        let done = ringccl(&[&SHORT[..], &["-n", ranks]].concat(), &vars);
        assert!(done.status.success(), "{}", text(&done.stderr));
        let said = text(&done.stdout);
        assert!(said.starts_with(&format!("{ranks} ranks on ")), "{said}");
        assert!(said.contains(&format!("written to {}", file.display())), "{said}");
        let table = Tuning::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(table.rows.iter().map(|row| row.ranks).collect::<Vec<_>>(), known);
        let names = std::fs::read_dir(file.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 1, "something is left beside the table");
    }
    // And it is what a communicator goes by.
    let used = ringccl(
        &["perf", "all_reduce", "-n", "2", "-b", "8", "-e", "8", "--iters", "1"],
        &[vars[0], ("RINGCCL_LOG", Path::new("debug"))],
    );
    let log = text(&used.stderr);
    assert!(log.contains(&format!("RINGCCL_TUNING={}: measured on ", file.display())), "{log}");
    assert!(log.contains("rank 0 of 2: all_reduce of 8 bytes by "), "{log}");
}

/// Arguments, variables, and what is told.
type Case<'a> = (&'a [&'a str], &'a [(&'a str, &'a Path)], &'a str);

/// What is there and is no table is not overwritten; with nowhere to write, or nonsense, one line says what to do.
#[test]
fn mistakes_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("notes.txt");
    std::fs::write(&file, "not a table\n").unwrap();
    let path = file.to_str().unwrap();
    let none = Path::new("none");
    let cases: [Case<'_>; 6] = [
        (&["-n", "2", "-o", path], &[], "is no table"),
        (&["-n", "2"], &[("RINGCCL_TUNING", &file)], "is no table"),
        (&["-n", "2"], &[("RINGCCL_TUNING", none)], "give -o FILE"),
        (&["-n", "2"], &[], "give -o FILE"),
        (&["-n", "1", "-o", path], &[], "1 is not in 2.."),
        (&["-n", "2", "-o", path, "-e", "8"], &[], "-e 8: from 64 bytes"),
    ];
    for (args, vars, told) in cases {
        // The last of two equal options counts.
        let args =
            if args.contains(&"-e") { [&["tune"], args].concat() } else { [&SHORT[..], args].concat() };
        let refused = ringccl(&args, vars);
        let said = text(&refused.stderr);
        assert!(!refused.status.success() && said.contains(told), "{args:?}: {said}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "not a table\n");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
}

/// A dry run prints the table, and leaves nothing.
#[test]
fn dry_runs_print() {
    let home = tempfile::tempdir().unwrap();
    let done = ringccl(&[&SHORT[..], &["-n", "2", "--dry-run"]].concat(), &[("HOME", home.path())]);
    let said = text(&done.stdout);
    let table = said.find("machine: ").map(|at| Tuning::parse(&said[at..]));
    assert!(table.is_some_and(|table| table.is_ok()), "{said}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}
