//! Takes fields out of YAML values and notes what is wrong with them.

use serde_yaml::{Mapping, Value};

use crate::Problem;
use crate::lines::{Lines, join};
use crate::near::near;

/// Notes problems and goes on, so that one reading finds them all.
pub(super) struct Reader {
    lines: Lines,
    problems: Vec<Problem>,
}

/// A table of the file with its place.
pub(super) struct Table<'a> {
    field: String,
    entries: &'a Mapping,
}

/// A range of numbers and its name in messages.
#[derive(Clone, Copy)]
pub(super) struct Range {
    holds: fn(f64) -> bool,
    name: &'static str,
}

/// Numbers above 0.
pub(super) const ABOVE_ZERO: Range = Range { holds: |x| x > 0.0, name: "a number above 0" };
/// Numbers from 0.
pub(super) const AT_LEAST_ZERO: Range = Range { holds: |x| x >= 0.0, name: "a number, 0 or more" };

impl Reader {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, problems: Vec::new() }
    }

    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    pub(super) fn problem(&mut self, field: &str, message: String) {
        self.problems.push(Problem { line: self.lines.line(field), field: field.to_owned(), message });
    }

    /// `value` as a table with no keys but `keys`.
    pub(super) fn table<'a>(&mut self, value: &'a Value, field: &str, keys: &[&str]) -> Option<Table<'a>> {
        let Value::Mapping(entries) = value else {
            self.problem(
                field,
                format!("found {}; write a table with the keys {}", show(value), keys.join(", ")),
            );
            return None;
        };
        for key in entries.keys() {
            let name = key.as_str().map_or_else(|| show(key), str::to_owned);
            if keys.contains(&name.as_str()) {
                continue;
            }
            let hint = match near(&name, keys).first() {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("remove it; known keys are {}", keys.join(", ")),
            };
            self.problem(&join(field, &name), format!("unknown key `{name}`; {hint}"));
        }
        Some(Table { field: field.to_owned(), entries })
    }

    /// The required table behind `key`.
    pub(super) fn part<'a>(&mut self, table: &Table<'a>, key: &str, keys: &[&str]) -> Option<Table<'a>> {
        let value = self.required(table, key, &format!("a table with the keys {}", keys.join(", ")))?;
        self.table(value, &join(&table.field, key), keys)
    }

    /// The entries of the required list behind `key`, each with its field; at least one.
    pub(super) fn list<'a>(
        &mut self,
        table: &Table<'a>,
        key: &str,
        what: &str,
    ) -> Option<Vec<(String, &'a Value)>> {
        let value = self.required(table, key, what)?;
        let field = join(&table.field, key);
        match value {
            Value::Sequence(items) if !items.is_empty() => {
                Some(items.iter().enumerate().map(|(i, item)| (format!("{field}[{i}]"), item)).collect())
            }
            Value::Sequence(_) => {
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
    pub(super) fn text(&mut self, table: &Table<'_>, key: &str) -> Option<String> {
        let value = self.required(table, key, "a text")?;
        match value {
            Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(truth) => Some(truth.to_string()),
            other => {
                self.problem(&join(&table.field, key), format!("found {}; write a text", show(other)));
                None
            }
        }
    }

    /// The number behind `key`, or `default` if there is one and the key is absent.
    pub(super) fn number(
        &mut self,
        table: &Table<'_>,
        key: &str,
        default: Option<f64>,
        range: Range,
    ) -> Option<f64> {
        if let (Some(default), false) = (default, table.entries.contains_key(key)) {
            return Some(default);
        }
        let value = self.required(table, key, range.name)?;
        let number = value.as_f64().filter(|&x| x.is_finite() && (range.holds)(x));
        if number.is_none() {
            self.problem(&join(&table.field, key), format!("found {}; write {}", show(value), range.name));
        }
        number
    }

    /// The format version: any whole number above 0.
    pub(super) fn version(&mut self, file: &Table<'_>) -> Option<u64> {
        let value = self.required(file, "version", "`version: 1`")?;
        let version = value.as_u64().filter(|&version| version > 0);
        if version.is_none() {
            self.problem("version", format!("found {}; write `version: 1`", show(value)));
        }
        version
    }

    /// A global rank.
    pub(super) fn rank(&mut self, value: &Value, field: &str) -> Option<u32> {
        let rank = value.as_u64().and_then(|rank| u32::try_from(rank).ok());
        if rank.is_none() {
            self.problem(field, format!("found {}; ranks are whole numbers from 0", show(value)));
        }
        rank
    }

    fn required<'a>(&mut self, table: &Table<'a>, key: &str, what: &str) -> Option<&'a Value> {
        let value = table.entries.get(key);
        if value.is_none() {
            self.problem(&join(&table.field, key), format!("missing; write {what}"));
        }
        value
    }
}

/// A value as a message shows it.
fn show(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(truth) => format!("`{truth}`"),
        Value::Number(number) => format!("`{number}`"),
        Value::String(text) if text.chars().count() > 40 => {
            format!("`{}...`", text.chars().take(40).collect::<String>().escape_debug())
        }
        Value::String(text) => format!("`{}`", text.escape_debug()),
        Value::Sequence(_) => "a list".into(),
        Value::Mapping(_) => "a table".into(),
        Value::Tagged(tagged) => format!("the tag `{}`", tagged.tag),
    }
}
