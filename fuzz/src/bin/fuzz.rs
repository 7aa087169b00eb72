//! The fuzzer: libFuzzer with the target that `RINGCCL_FUZZ_TARGET` names. `cargo xtask fuzz` builds and runs it.
#![no_main]

use std::sync::OnceLock;

use ringccl_fuzz::{TARGETS, Target, target};

/// The target of this process.
static CHOSEN: OnceLock<&Target> = OnceLock::new();

fn choose() -> &'static Target {
    let name = std::env::var("RINGCCL_FUZZ_TARGET").unwrap_or_default();
    target(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("RINGCCL_FUZZ_TARGET={name}: not one of {}", names.join(", "));
        std::process::exit(2);
    })
}

libfuzzer_sys::fuzz_target!(init: { CHOSEN.get_or_init(choose); }, |data: &[u8]| {
    (CHOSEN.get_or_init(choose).run)(data);
});
