//! From the bytes of a file to one YAML document, or to why it is none.

use std::cell::Cell;
use std::path::Path;

use serde::de::DeserializeSeed;
use serde_yaml::Deserializer;

use super::tree::{Seed, TOO_MANY, Tree, VALUES_MAX};
use crate::Problem;

/// Deepest nesting of brackets that is handed to the YAML library, which needs time by the square of it. The
/// library itself refuses more than 128 levels; a count that knows no quotes must leave room.
const BRACKETS_MAX: usize = 1000;

/// The text of a file's bytes, without the mark that some editors put first.
pub(crate) fn text_of(bytes: &[u8]) -> Result<&str, Problem> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(at(Some(1), "the file is UTF-16; save it as UTF-8"));
    }
    let bytes = bytes.strip_prefix(&[0xef, 0xbb, 0xbf]).unwrap_or(bytes);
    std::str::from_utf8(bytes).map_err(|error| {
        let good = &bytes[..error.valid_up_to()];
        let line = 1 + good.iter().filter(|&&byte| byte == b'\n').count();
        let bad = bytes.get(good.len()).copied().unwrap_or_default();
        at(Some(line), &format!("byte {bad:#04x} is not UTF-8; save the file as UTF-8"))
    })
}

/// The one document of `text`.
pub(crate) fn parse(text: &str) -> Result<Tree, Problem> {
    if let Some((i, line)) = text.lines().enumerate().find(|(_, line)| line.contains(is_forbidden)) {
        let code = line.chars().find(|&c| is_forbidden(c)).map_or(0, u32::from);
        let message = format!(
            "character U+{code:04X} is not allowed in YAML; remove it, or save the file as plain text"
        );
        return Err(at(Some(i + 1), &message));
    }
    if let Some(line) = too_deep(text) {
        let message = format!("more than {BRACKETS_MAX} lists or tables in each other; close their brackets");
        return Err(at(Some(line), &message));
    }
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(at(None, "the file is empty; describe a cluster: version, cluster, nodes, fabric"));
    }
    let budget = Cell::new(VALUES_MAX);
    let mut documents = Deserializer::from_str(text);
    let refuse = |error: serde_yaml::Error| explain(text, &error);
    let Some(first) = documents.next() else {
        return Err(at(None, "the file has no YAML document; describe a cluster"));
    };
    let tree = Seed { budget: &budget }.deserialize(first).map_err(refuse)?;
    match documents.next() {
        // `...` or an empty second document say nothing more.
        Some(more) => match (Seed { budget: &budget }).deserialize(more) {
            Ok(Tree::Null) if documents.next().is_none() => Ok(tree),
            Ok(_) => Err(at(
                second_document(text),
                "a second document begins here; a cluster file has one: remove `---` and what follows",
            )),
            Err(error) => Err(refuse(error)),
        },
        None => Ok(tree),
    }
}

/// Control characters that YAML forbids; the YAML library would not say in which line they are.
fn is_forbidden(c: char) -> bool {
    matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f'..='\u{84}' | '\u{86}'..='\u{9f}')
}

/// The line where brackets nest too deeply, comments left out.
fn too_deep(text: &str) -> Option<usize> {
    let mut depth: usize = 0;
    for (i, line) in text.lines().enumerate() {
        let code = if line.trim_start().starts_with('#') { "" } else { line };
        let code = code.split_once(" #").map_or(code, |(code, _)| code);
        // Lists of lists may also begin on one line without brackets.
        let pairs = code.trim_start().as_bytes().chunks(2);
        let begun = pairs.take_while(|pair| matches!(pair, [b'-' | b'?', b' '])).count();
        if begun > BRACKETS_MAX {
            return Some(i + 1);
        }
        for byte in code.bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > BRACKETS_MAX {
                return Some(i + 1);
            }
        }
    }
    None
}

/// The line of the second `---`, or of the first that has a document before it.
fn second_document(text: &str) -> Option<usize> {
    let mut seen = false;
    for (i, line) in text.lines().enumerate() {
        if seen && line.starts_with("---") {
            return Some(i + 1);
        }
        seen |= !line.trim().is_empty() && !line.starts_with(['#', '%']);
    }
    None
}

/// What the YAML library says, with a remedy for what people do.
fn explain(text: &str, error: &serde_yaml::Error) -> Problem {
    let said = error.to_string();
    let place = error.location().filter(|location| location.line() > 0);
    let line = place.as_ref().map(|location| location.line());
    let indented_by_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
    let remedy = if said.contains("recursion limit") {
        "nest less deeply; a cluster file needs five levels"
    } else if said.contains(TOO_MANY) {
        "describe fewer nodes, without aliases of aliases"
    } else if said.contains("repetition limit") {
        "write the values out instead of repeating them by aliases"
    } else if said.contains("anchor") || said.contains("alias") {
        "quote names that begin with `&` or `*`, or write the value out"
    } else if let Some(tab) = text.lines().position(indented_by_tab) {
        let message = format!("not valid YAML: {said}; a tab indents line {}: use spaces", tab + 1);
        return at(line, &message);
    } else {
        "indent with spaces and write `key: value`"
    };
    at(line, &format!("not valid YAML: {said}; {remedy}"))
}

fn at(line: Option<usize>, message: &str) -> Problem {
    Problem { line, field: String::new(), message: message.to_owned() }
}

/// Why a path is no file to be read; `None` if it is one.
pub(crate) fn not_a_file(path: &Path) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    let kind = std::fs::metadata(path).ok()?.file_type();
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a directory"),
        // Opening a pipe would wait for somebody to write.
        kind if kind.is_fifo() => Some("a pipe"),
        _ => Some("no regular file"),
    }
}
