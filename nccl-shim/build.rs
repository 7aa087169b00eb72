//! The name by which programs ask for the library, and what it exports.
//!
//! rustc exports what is strong and hides the weak aliases that `src/export.rs` makes by an assembler directive. Its
//! linker (LLD, the default of this target) takes further patterns from a second script.

fn main() {
    println!("cargo::rerun-if-changed=exports.map");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnccl.so.2");
    let root = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| ".".into());
    println!("cargo::rustc-cdylib-link-arg=-Wl,--version-script={root}/exports.map");
}
