//! Every setting with its value and where that comes from.

use ringccl::settings::{Describe, Unset, Vars, shown, table};
use serde::Serialize;

/// A setting as it is.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) name: &'static str,
    /// The value as it was given, or the default in words.
    pub(crate) value: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) unit: &'static str,
    /// `default`, a variable, or an option of the command line.
    pub(crate) origin: &'static str,
    /// What the value comes to where that is not what it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

/// All settings in the order of the page, for a job of `ranks`.
pub(crate) fn lines(vars: &Vars, ranks: u32) -> Vec<Line> {
    table::ALL.iter().map(|setting| line(*setting, vars, ranks)).collect()
}

fn line(setting: &dyn Describe, vars: &Vars, ranks: u32) -> Line {
    let about = setting.about();
    let name = setting.variables()[0];
    // Words have no unit.
    let unit_of = |value: &str| if value.starts_with(|c: char| c.is_ascii_digit()) { about.unit } else { "" };
    match setting.look(vars) {
        Ok(None) => {
            let value = match about.default {
                Unset::Is(text) => text.replace('`', ""),
                Unset::ByRanks(of, _) => of(ranks),
            };
            Line { name, unit: unit_of(&value), value, origin: "default", note: None }
        }
        Ok(Some(found)) => {
            let origin = vars.option(found.name).unwrap_or(found.name);
            Line { name, unit: unit_of(&found.text), value: found.text, origin, note: found.note }
        }
        Err(_) => {
            // The finding says what is wrong.
            let set = setting.variables().into_iter().find_map(|name| Some((name, vars.get(name)?)));
            let (origin, text) = set.unwrap_or((name, "".as_ref()));
            let value = if about.secret { "(not shown)".into() } else { shown(text) };
            let origin = vars.option(origin).unwrap_or(origin);
            Line { name, value, unit: "", origin, note: Some("bad value".into()) }
        }
    }
}
