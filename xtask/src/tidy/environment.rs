//! The environment is read in one place, so that every variable has its entry in the table of settings.

use super::{Problem, Source};

/// Folders whose code is shipped.
const SHIPPED: [&str; 5] = ["shmring/src/", "runtime/src/", "coordinator-lite/src/", "topo/src/", "cli/src/"];
/// The one file that reads it.
const READER: &str = "runtime/src/settings/env.rs";
/// `var`, `var_os`, `vars` and `vars_os` of the standard library, and the C library's function.
const READS: [&str; 2] = [concat!("env::", "var"), concat!("get", "env(")];

/// Finds code that reads the environment by itself; tests may.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    let shipped = SHIPPED.iter().any(|folder| source.path.starts_with(folder));
    if !shipped || !source.is_rust() || source.path == READER {
        return Vec::new();
    }
    let code = source.code().map(|(number, line)| (number, line.split("//").next().unwrap_or(line)));
    let found = code.filter(|(_, line)| READS.iter().any(|read| line.contains(read)));
    let remedy = "reads the environment; give the variable an entry in runtime/src/settings/table.rs";
    found.map(|(number, _)| format!("{}:{number}: {remedy}", source.path)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::source;
    use super::*;

    /// Every way to read is found in shipped code, but not in comments, in tests, elsewhere or in the one reader.
    #[test]
    fn reads_are_found() {
        for read in ["var(\"A\")", "var_os(\"A\")", "vars()", "vars_os()"] {
            let text = format!("fn f() {{\n    std::{}{read};\n}}\n", concat!("env", "::"));
            for path in ["runtime/src/comm/init.rs", "cli/src/run.rs", "coordinator-lite/src/server.rs"] {
                assert_eq!(check(&source(path, &text)).len(), 1, "{path} {read}");
            }
            for path in [READER, "xtask/src/run.rs", "runtime/tests/a.rs", "runtime/src/settings/tests.rs"] {
                assert_eq!(check(&source(path, &text)).len(), 0, "{path}");
            }
            let comment = format!("// std::{}{read}\n", concat!("env", "::"));
            assert_eq!(check(&source("cli/src/run.rs", &comment)).len(), 0);
        }
        assert_eq!(check(&source("cli/src/run.rs", "std::env::args_os();\n")).len(), 0);
    }
}
