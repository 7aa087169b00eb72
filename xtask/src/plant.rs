//! Planting errors in a copy of a part of the workspace, to see that something notices them.

use crate::run;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a special build of `workspace` goes.
///
/// A copy has a folder of its own: cargo tells packages of two workspaces apart by their paths within them, which are
/// equal, and files by their age. In one folder, the project would run what was last planted in its copy.
pub(crate) fn build_folder(workspace: &Path, build: &str) -> PathBuf {
    let is_copy = workspace != run::root();
    run::root().join("target").join(if is_copy { format!("{build}-copy") } else { build.into() })
}

/// One replacement.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    pub(crate) find: &'static str,
    pub(crate) replace: &'static str,
}

/// Replaces `find`, which must occur exactly once in `file`.
pub(crate) const fn edit(file: &'static str, find: &'static str, replace: &'static str) -> Edit {
    Edit { file, find, replace }
}

/// A workspace of some of the members.
#[derive(Debug)]
pub(crate) struct WorkspaceCopy {
    folder: PathBuf,
}

impl WorkspaceCopy {
    /// Copies `members` to `target/NAME`, whose earlier content is removed.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub(crate) fn make(name: &str, members: &[&str]) -> Result<Self> {
        let root = run::root();
        let folder = root.join("target").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| format!("cannot clear target/{name}"))?;
        }
        for member in members {
            copy_folder(&root.join(member), &folder.join(member))?;
        }
        let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
        fs::write(folder.join("Cargo.toml"), only_members(&manifest, members)?)?;
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        Ok(Self { folder })
    }

    /// Where the copy is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs `body` while the edits are made, in order, and takes them back.
    ///
    /// # Errors
    /// When an edit does not apply.
    pub(crate) fn with<R>(&self, edits: &[Edit], body: impl FnOnce() -> R) -> Result<R> {
        let mut originals: Vec<(PathBuf, String)> = Vec::new();
        for edit in edits {
            let path = self.folder.join(edit.file);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", edit.file))?;
            fs::write(&path, apply(edit, &text)?)?;
            originals.push((path, text));
        }
        let result = body();
        // In reverse, so that the first text of a file that was changed twice is the one that stays.
        for (path, text) in originals.into_iter().rev() {
            fs::write(path, text)?;
        }
        Ok(result)
    }
}

/// Why `edits`, made in order, do not apply to the workspace as it is; `None` if they do.
pub(crate) fn stale(edits: &[Edit]) -> Option<String> {
    let root = run::root();
    let mut changed: BTreeMap<&str, String> = BTreeMap::new();
    for edit in edits {
        let text = match changed.remove(edit.file) {
            Some(text) => text,
            None => match fs::read_to_string(root.join(edit.file)) {
                Ok(text) => text,
                Err(error) => return Some(format!("cannot read {}: {error}", edit.file)),
            },
        };
        match apply(edit, &text) {
            Ok(text) => changed.insert(edit.file, text),
            Err(error) => return Some(error.to_string()),
        };
    }
    None
}

fn apply(edit: &Edit, text: &str) -> Result<String> {
    let found = text.matches(edit.find).count();
    if found != 1 {
        bail!(
            "{}: expected once, found {found} times: `{}`; adapt the list of mutants",
            edit.file,
            edit.find
        );
    }
    Ok(text.replacen(edit.find, edit.replace, 1))
}

/// The root manifest with only the copied folders as members.
fn only_members(manifest: &str, members: &[&str]) -> Result<String> {
    let start = manifest.find("members = [").context("the root Cargo.toml has no `members = [`")?;
    let end = start + manifest[start..].find(']').context("`members` in the root Cargo.toml does not end")?;
    let members: Vec<String> = members.iter().map(|name| format!("\"{name}\"")).collect();
    Ok(format!("{}members = [{}{}", &manifest[..start], members.join(", "), &manifest[end..]))
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EDIT: Edit = edit("f", "bb", "c");

    /// A text that is missing or ambiguous is an error, never a mutant that changes nothing or too much.
    #[test]
    fn edits_apply_exactly_once() {
        assert_eq!(apply(&EDIT, "abba").unwrap(), "aca");
        for text in ["aba", "bb bb"] {
            assert!(apply(&EDIT, text).unwrap_err().to_string().contains("expected once"), "{text}");
        }
    }

    /// Edits follow each other in one file, and the first that does not apply is told.
    #[test]
    fn stale_edits_are_told() {
        const NAME: Edit = edit("Cargo.toml", "[workspace]\n", "[place]\n");
        const AFTER: Edit = edit("Cargo.toml", "[place]\n", "[workspace]\n");
        assert_eq!(stale(&[NAME, AFTER]), None);
        assert!(stale(&[AFTER]).unwrap().contains("found 0 times"));
        assert!(stale(&[NAME, NAME]).unwrap().contains("found 0 times"));
        assert!(stale(&[edit("no-such-file", "a", "b")]).unwrap().starts_with("cannot read no-such-file"));
    }

    /// The copy's manifest keeps everything but the members.
    #[test]
    fn members_are_replaced() {
        let text = only_members("[workspace]\nmembers = [\n \"a\",\n]\nx = 1\n", &["b", "c"]).unwrap();
        assert_eq!(text, "[workspace]\nmembers = [\"b\", \"c\"]\nx = 1\n");
    }
}
