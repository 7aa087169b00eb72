//! Where a report is written, and what is left alone.

use super::*;
use std::os::unix::fs::FileTypeExt;

/// A file is replaced whole and nothing is left beside it, also when it cannot be put in place.
#[test]
fn files_are_replaced_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    put_file(&path, b"first, and longer").unwrap();
    put_file(&path, b"second").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"second");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    let taken = dir.path().join("taken");
    std::fs::create_dir(&taken).unwrap();
    assert!(put_file(&taken, b"text").is_err());
    assert!(put_file(&dir.path().join("missing/report.json"), b"text").is_err());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// A pipe stays a pipe and gets the text; a full device stays a device and is an error.
#[test]
fn special_files_are_written_to() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    put_file(&pipe, b"text").unwrap();
    assert_eq!(reader.join().unwrap(), b"text");
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let full = Path::new("/dev/full");
    assert_eq!(put_file(full, b"text").unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(std::fs::metadata(full).unwrap().file_type().is_char_device());
}

/// A path in a directory that does not exist is refused before the run.
#[test]
fn missing_directories_are_told_early() {
    let dir = tempfile::tempdir().unwrap();
    check_path(&dir.path().join("report.json")).unwrap();
    check_path(Path::new("report.json")).unwrap();
    let text = check_path(&dir.path().join("missing/report.json")).unwrap_err().to_string();
    assert!(text.contains("missing/report.json"), "{text}");
}
