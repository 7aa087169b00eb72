//! Takes fields out of a document and notes what is wrong with them.

use std::cell::OnceCell;
use std::collections::HashMap;

use super::tree::Tree;
use super::units::Unit;
use crate::Problem;
use crate::lines::{Lines, join};
use crate::near::near;

/// Most problems that are told; whoever has more has opened the wrong file.
const PROBLEMS_MAX: usize = 100;
/// Longest text in bytes: names travel in messages between ranks, which are bounded.
const TEXT_MAX: usize = 255;
/// Characters of a value that a message shows.
const SHOWN: usize = 40;

/// Notes problems and goes on, so that one reading finds them all.
pub(crate) struct Reader<'t> {
    text: &'t str,
    /// Made when a line is first asked for.
    lines: OnceCell<Lines<'t>>,
    found: Vec<Found>,
    /// Problems beyond the most that are told.
    more: usize,
}

/// A problem whose line is not known yet.
struct Found {
    field: String,
    /// Which of the keys with this name is meant, from 0.
    occurrence: usize,
    message: String,
}

/// A table of the file with its place.
pub(crate) struct Table<'a> {
    pub(crate) field: String,
    entries: &'a [(Tree, Tree)],
}

/// A range of numbers and its name in messages.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    holds: fn(f64) -> bool,
    name: &'static str,
}

impl Range {
    /// Numbers for which `holds`, called `name` in messages.
    pub(crate) const fn new(holds: fn(f64) -> bool, name: &'static str) -> Self {
        Self { holds, name }
    }
}

/// Numbers above 0.
pub(crate) const ABOVE_ZERO: Range = Range { holds: |x| x > 0.0, name: "a number above 0" };
/// Numbers from 0.
pub(crate) const AT_LEAST_ZERO: Range = Range { holds: |x| x >= 0.0, name: "a number, 0 or more" };

impl<'t> Reader<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, lines: OnceCell::new(), found: Vec::new(), more: 0 }
    }

    fn lines(&self) -> &Lines<'t> {
        self.lines.get_or_init(|| Lines::of(self.text))
    }

    /// Problems so far.
    pub(crate) fn count(&self) -> usize {
        self.found.len() + self.more
    }

    /// A table whose keys have been checked.
    pub(crate) fn table_again<'a>(&self, value: &'a Tree, field: &str) -> Table<'a> {
        let entries = if let Tree::Table(entries) = value { entries.as_slice() } else { &[] };
        Table { field: field.to_owned(), entries }
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.found.is_empty()
    }

    /// The problems in the order of the file's lines.
    pub(crate) fn into_problems(self) -> Vec<Problem> {
        let lines = self.lines.into_inner().unwrap_or_else(|| Lines::of(self.text));
        let mut problems: Vec<Problem> = self
            .found
            .into_iter()
            .map(|Found { field, occurrence, message }| {
                let line = lines.line_of(&field, occurrence);
                Problem { line, field, message }
            })
            .collect();
        problems.sort_by_key(|problem| problem.line);
        if self.more > 0 {
            let message = format!("{} more problems are not listed; is this a cluster file?", self.more);
            problems.push(Problem { line: None, field: String::new(), message });
        }
        problems
    }

    pub(crate) fn problem(&mut self, field: &str, message: String) {
        self.problem_at(field, 0, || message);
    }

    fn problem_at(&mut self, field: &str, occurrence: usize, message: impl FnOnce() -> String) {
        if self.found.len() < PROBLEMS_MAX {
            self.found.push(Found { field: field.to_owned(), occurrence, message: message() });
        } else {
            self.more += 1;
        }
    }

    /// `value` as a table with no keys but `keys`, each once.
    pub(crate) fn table<'a>(&mut self, value: &'a Tree, field: &str, keys: &[&str]) -> Option<Table<'a>> {
        let Tree::Table(entries) = value else {
            self.problem(
                field,
                format!("found {}; write a table with the keys {}", show(value), keys.join(", ")),
            );
            return None;
        };
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (key, _) in entries {
            let name = match key {
                Tree::Text(name) => name.as_str(),
                other => {
                    let message =
                        || format!("unknown key {}; known keys are {}", show(other), keys.join(", "));
                    self.problem_at(field, 0, message);
                    continue;
                }
            };
            let times = seen.entry(name).and_modify(|times| *times += 1).or_insert(1);
            let (place, occurrence) = (join(field, &shorten(name)), *times - 1);
            if keys.contains(&name) {
                if occurrence > 0 {
                    let message = || {
                        format!("the key `{name}` is there already; keep one of them, for each has one value")
                    };
                    self.problem_at(&place, occurrence, message);
                }
                continue;
            }
            self.problem_at(&place, occurrence, || {
                let hint = match near(name, keys).first() {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("remove it; known keys are {}", keys.join(", ")),
                };
                format!("unknown key `{}`; {hint}", shorten(name))
            });
        }
        Some(Table { field: field.to_owned(), entries })
    }

    /// The required table behind `key`.
    pub(crate) fn part<'a>(&mut self, table: &Table<'a>, key: &str, keys: &[&str]) -> Option<Table<'a>> {
        let value = self.required(table, key, &format!("a table with the keys {}", keys.join(", ")))?;
        self.table(value, &join(&table.field, key), keys)
    }

    /// The entries of the required list behind `key`, each with its field; at least one.
    pub(crate) fn list<'a>(
        &mut self,
        table: &Table<'a>,
        key: &str,
        what: &str,
    ) -> Option<Vec<(String, &'a Tree)>> {
        let value = self.required(table, key, what)?;
        let field = join(&table.field, key);
        match value {
            Tree::List(items) if !items.is_empty() => {
                Some(items.iter().enumerate().map(|(i, item)| (format!("{field}[{i}]"), item)).collect())
            }
            Tree::List(_) => {
                self.problem(&field, format!("the list is empty; write {what}"));
                None
            }
            other => {
                self.problem(&field, format!("found {}, not a list; write {what}", show(other)));
                None
            }
        }
    }

    /// The required text behind `key`; numbers and truth values are taken as they read.
    pub(crate) fn text(&mut self, table: &Table<'_>, key: &str) -> Option<String> {
        let value = self.required(table, key, "a text")?;
        let text = match value {
            Tree::Text(text) if !text.trim().is_empty() => text.clone(),
            Tree::Unsigned(number) => number.to_string(),
            Tree::Signed(number) => number.to_string(),
            Tree::Float(number) => number.to_string(),
            Tree::Bool(truth) => truth.to_string(),
            other => {
                if let (Tree::Null, Some(word)) = (other, self.null_word(&join(&table.field, key))) {
                    return Some(word.to_owned());
                }
                self.problem(&join(&table.field, key), format!("found {}; write a text", show(other)));
                return None;
            }
        };
        let remedy = if text.contains(char::is_control) {
            "a text without line breaks and control characters".to_owned()
        } else if text.len() > TEXT_MAX {
            format!("a text of at most {TEXT_MAX} bytes; this has {}", text.len())
        } else {
            return Some(text);
        };
        self.problem(&join(&table.field, key), format!("found {}; write {remedy}", show(value)));
        None
    }

    /// The word that YAML reads as nothing but FakeGPU as a name, if it stands behind the key `field`.
    fn null_word(&self, field: &str) -> Option<&'t str> {
        let value = self.lines().text_of(field)?.split_once(':')?.1;
        let value = value.split_once(" #").map_or(value, |(value, _)| value).trim();
        ["null", "Null", "NULL", "~"].contains(&value).then_some(value)
    }

    /// The number behind `key`, or `default` if there is one and the key is absent.
    pub(crate) fn number(
        &mut self,
        table: &Table<'_>,
        key: &str,
        default: Option<f64>,
        range: Range,
    ) -> Option<f64> {
        if let (Some(default), false) = (default, table.has(key)) {
            return Some(default);
        }
        let value = self.required(table, key, range.name)?;
        self.checked(&join(&table.field, key), value, value.as_f64(), range, "")
    }

    /// The same of a number behind which its unit may be written.
    pub(crate) fn measure(
        &mut self,
        table: &Table<'_>,
        key: &str,
        default: Option<f64>,
        (range, unit): (Range, Unit),
    ) -> Option<f64> {
        if let (Some(default), false) = (default, table.has(key)) {
            return Some(default);
        }
        let value = self.required(table, key, range.name)?;
        let written = if let Tree::Text(text) = value { unit.read(text) } else { None };
        let hint = format!(", or with its unit, such as {}", unit.example());
        let hint = if matches!(value, Tree::Text(text) if text.parse::<f64>().is_err()) {
            hint.as_str()
        } else {
            ""
        };
        self.checked(&join(&table.field, key), value, written.or(value.as_f64()), range, hint)
    }

    /// `number`, which `value` says, if it is in range; `hint` says how else to write it.
    fn checked(
        &mut self,
        field: &str,
        value: &Tree,
        number: Option<f64>,
        range: Range,
        hint: &str,
    ) -> Option<f64> {
        let number = number.filter(|&x| x.is_finite() && (range.holds)(x));
        if number.is_none() {
            self.problem(
                field,
                format!("found {}; write {}{hint}{}", show(value), range.name, unquote(value)),
            );
        }
        number
    }

    /// The truth value behind `key`, or `default` if the key is absent.
    pub(crate) fn truth(&mut self, table: &Table<'_>, key: &str, default: bool) -> Option<bool> {
        match table.get(key) {
            None => Some(default),
            Some(Tree::Bool(value)) => Some(*value),
            Some(other) => {
                self.problem(&join(&table.field, key), format!("found {}; write true or false", show(other)));
                None
            }
        }
    }

    /// The format version: any whole number above 0.
    pub(crate) fn version(&mut self, file: &Table<'_>) -> Option<u64> {
        let value = self.required(file, "version", "`version: 1`")?;
        let version = value.as_u64().filter(|&version| version > 0);
        if version.is_none() {
            self.problem("version", format!("found {}; write `version: 1`{}", show(value), unquote(value)));
        }
        version
    }

    /// A global rank.
    pub(crate) fn rank(&mut self, value: &Tree, field: &str) -> Option<u32> {
        let rank = value.as_u64().and_then(|rank| u32::try_from(rank).ok());
        if rank.is_none() {
            let message = format!(
                "found {}; ranks are whole numbers from 0 to {}{}",
                show(value),
                u32::MAX,
                unquote(value)
            );
            self.problem(field, message);
        }
        rank
    }

    pub(crate) fn required<'a>(&mut self, table: &Table<'a>, key: &str, what: &str) -> Option<&'a Tree> {
        let value = table.get(key);
        if value.is_none() {
            self.problem(&join(&table.field, key), format!("missing; write {what}"));
        }
        value
    }
}

impl<'a> Table<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&'a Tree> {
        self.entries
            .iter()
            .find(|(name, _)| matches!(name, Tree::Text(name) if name == key))
            .map(|(_, value)| value)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }
}

/// Whether a text can be a name: not too long, no control characters, not only blanks.
pub(crate) fn is_fit(text: &str) -> bool {
    text.len() <= TEXT_MAX && !text.contains(char::is_control) && !text.trim().is_empty()
}

/// What to do where a number stands in quotes.
fn unquote(value: &Tree) -> &'static str {
    match value {
        Tree::Text(text) if text.parse::<f64>().is_ok_and(f64::is_finite) => ", without quotes",
        _ => "",
    }
}

/// A value as a message shows it.
pub(crate) fn show(value: &Tree) -> String {
    match value {
        Tree::Null => "nothing".into(),
        Tree::Bool(truth) => format!("`{truth}`"),
        Tree::Unsigned(number) => format!("`{number}`"),
        Tree::Signed(number) => format!("`{number}`"),
        Tree::Float(number) if number.is_nan() => "`.nan`".into(),
        Tree::Float(number) if number.is_infinite() => {
            format!("`{}.inf`", if *number < 0.0 { "-" } else { "" })
        }
        Tree::Float(number) => format!("`{number}`"),
        Tree::Text(text) => format!("`{}`", shorten(text)),
        Tree::List(_) => "a list".into(),
        Tree::Table(_) => "a table".into(),
        Tree::Tagged(tag) => format!("the tag `!{}`", shorten(tag.trim_start_matches('!'))),
    }
}

/// The beginning of a text, on one line.
fn shorten(text: &str) -> String {
    let dots = if text.chars().nth(SHOWN).is_some() { "..." } else { "" };
    format!("{}{dots}", text.chars().take(SHOWN).collect::<String>().escape_debug())
}
