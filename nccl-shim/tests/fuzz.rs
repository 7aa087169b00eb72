//! Random calls: no crash, no call past its deadline, nothing left in /dev/shm.

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

/// What the library has in /dev/shm.
fn left() -> BTreeSet<String> {
    let names = std::fs::read_dir("/dev/shm").into_iter().flatten().filter_map(Result::ok);
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.contains("ringccl"))
        .collect()
}

/// Seeds of a few seconds each; `RINGCCL_FUZZ_SECONDS` sets how long all take together.
#[test]
fn random_calls() {
    const OF_A_SEED: u64 = 4;
    let seconds =
        std::env::var("RINGCCL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8u64);
    let Some(program) = common::compile("fuzz", &[]) else { return };
    let first = std::env::var("RINGCCL_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1u64);
    for seed in first..first + seconds.div_ceil(OF_A_SEED) {
        let before = left();
        let mut command = common::with_library(&program);
        command.args([seed.to_string(), OF_A_SEED.to_string()]);
        command
            .env("RINGCCL_TIMEOUT_MS", "300")
            .env("RINGCCL_JOIN_TIMEOUT_MS", "500")
            .env("RINGCCL_LOG", "off");
        let output = common::run(&mut command, Duration::from_secs(60));
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let tail = &text[text.len().saturating_sub(4000)..];
        assert!(output.status.success(), "seed {seed}: {}\n{tail}", output.status);
        println!("seed {seed}: {}", text.trim());
        let new: Vec<_> = left().difference(&before).cloned().collect();
        // Other tests run at the same time; theirs go by themselves.
        let is_ours = |name: &String| std::fs::metadata(format!("/dev/shm/{name}")).is_ok();
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while new.iter().any(is_ours) {
            assert!(std::time::Instant::now() < until, "seed {seed} leaves {new:?} in /dev/shm");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
