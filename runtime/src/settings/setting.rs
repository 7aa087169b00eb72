//! One setting: its names, how each is read, and what is to be said of it.

use super::env::Vars;
use super::form::{Form, Reading, shown};
use crate::error::Error;
use std::ffi::OsStr;

/// A setting of type `T`: the only way to read its variables.
pub struct Setting<T: 'static> {
    /// What is to be said of it.
    pub(super) about: About,
    /// Its variables; of those that are set the first counts.
    pub(super) names: &'static [Name<T>],
}

/// A variable and how its text is read.
pub(super) struct Name<T: 'static> {
    pub(super) name: &'static str,
    pub(super) form: &'static dyn Form<T>,
    /// What is different under this name, for the page.
    pub(super) differs: &'static str,
}

/// What is to be said of a setting, besides its names and range.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// Under which heading it stands.
    pub group: Group,
    /// What holds when no variable is set.
    pub default: Unset,
    /// Unit of its value, if it has one.
    pub unit: &'static str,
    /// What it is, in a line of Markdown.
    pub what: &'static str,
    /// The file that uses it.
    pub reader: &'static str,
    /// Whether the ranks of a communicator need the same value.
    pub ranks: Ranks,
    /// Whether its value must not be shown.
    pub secret: bool,
}

/// Headings of the page of settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Of a communicator.
    Communicator,
    /// Of the modes.
    Mode,
    /// Of joining.
    Joining,
    /// Of what a run leaves behind.
    Output,
    /// Known so that nobody wonders, but without effect in this version.
    NoEffect,
}

/// What holds when no variable is set.
#[derive(Clone, Copy, Debug)]
pub enum Unset {
    /// This, whatever the number of ranks.
    Is(&'static str),
    /// A value that depends on the number of ranks, and how the page says that.
    ByRanks(fn(u32) -> String, &'static str),
}

/// Whether the ranks of a communicator need the same value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// Yes; it is compared when they join.
    Compared,
    /// Yes, without a comparison.
    Equal,
    /// Each has its own.
    Own,
}

/// Which program a variable belongs to: of variables of one setting, an earlier level counts more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Ours, and those that every launcher sets.
    Own,
    /// NCCL's.
    Nccl,
    /// FakeGPU's.
    FakeGpu,
}

/// The level of a variable.
pub fn level(name: &str) -> Level {
    match name {
        _ if name.starts_with("NCCL_") => Level::Nccl,
        _ if name.starts_with("FAKEGPU_") => Level::FakeGpu,
        _ => Level::Own,
    }
}

/// The value of a setting and the variable it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found<T> {
    /// The variable.
    pub name: &'static str,
    /// The value; `None` where the variable asks for what this version does not have, and the default holds.
    pub value: Option<T>,
    /// What the user should know about the value.
    pub note: Option<String>,
    /// The text as it was given, fit for one line of a message.
    pub text: String,
}

impl<T: 'static> Setting<T> {
    /// The name of the setting.
    pub const fn name(&self) -> &'static str {
        self.names[0].name
    }

    /// The setting's value, if one of its variables is set.
    ///
    /// # Errors
    /// [`Error::Setting`] for a bad value, with the good ones, and for two variables of one level that differ.
    pub fn find(&self, vars: &Vars) -> Result<Option<Found<T>>, Error> {
        let mut set = self.names.iter().filter_map(|name| Some((name, vars.get(name.name)?)));
        let Some((name, text)) = set.next() else { return Ok(None) };
        if let Some((other, other_text)) = set.find(|(n, t)| level(n.name) == level(name.name) && *t != text)
        {
            let other = format!("{}={}", other.name, self.shown(other_text));
            return Err(self.error(name.name, text, format!("what {other} says; unset one of the two")));
        }
        let read = name.form.read(text).map_err(|expected| self.error(name.name, text, expected))?;
        let (value, note) = match read {
            Reading::Value(value) => (Some(value), None),
            Reading::Near(value, note) => (Some(value), Some(note)),
            Reading::Default(note) => (None, Some(note)),
        };
        Ok(Some(Found { name: name.name, value, note, text: self.shown(text) }))
    }

    /// The setting's value, if it has one.
    ///
    /// # Errors
    /// As [`Setting::find`].
    pub fn get(&self, vars: &Vars) -> Result<Option<T>, Error> {
        Ok(self.find(vars)?.and_then(|found| found.value))
    }

    /// The setting's value, without which nothing can begin.
    ///
    /// # Errors
    /// [`Error::MissingSetting`]; otherwise as [`Setting::find`].
    pub fn require(&self, vars: &Vars) -> Result<T, Error> {
        self.get(vars)?.ok_or(Error::MissingSetting { name: self.name() })
    }

    fn error(&self, name: &'static str, text: &OsStr, expected: String) -> Error {
        Error::Setting { name, value: self.shown(text), expected }
    }

    /// The text of a variable, unless it must not be shown.
    fn shown(&self, text: &OsStr) -> String {
        if self.about.secret { "(not shown)".into() } else { shown(text) }
    }
}

/// A setting whatever its type, to list and to check.
pub trait Describe: Sync {
    /// Its variables, those that count most first.
    fn variables(&self) -> Vec<&'static str>;
    /// What is to be said of it.
    fn about(&self) -> &About;
    /// What its first variable may hold.
    fn allowed(&self) -> String;
    /// Per further variable: its name, what it may hold, what is different under it.
    fn aliases(&self) -> Vec<(&'static str, String, &'static str)>;
    /// The value's text and where it comes from.
    ///
    /// # Errors
    /// As [`Setting::find`].
    fn look(&self, vars: &Vars) -> Result<Option<Found<()>>, Error>;
}

impl<T: 'static> Describe for Setting<T> {
    fn variables(&self) -> Vec<&'static str> {
        self.names.iter().map(|name| name.name).collect()
    }

    fn about(&self) -> &About {
        &self.about
    }

    fn allowed(&self) -> String {
        self.names[0].form.allowed()
    }

    fn aliases(&self) -> Vec<(&'static str, String, &'static str)> {
        self.names[1..].iter().map(|name| (name.name, name.form.allowed(), name.differs)).collect()
    }

    fn look(&self, vars: &Vars) -> Result<Option<Found<()>>, Error> {
        let found = self.find(vars)?;
        Ok(found.map(|Found { name, value, note, text }| Found {
            name,
            value: value.map(|_| ()),
            note,
            text,
        }))
    }
}

impl<T: 'static> std::fmt::Debug for Setting<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setting").field("name", &self.name()).finish_non_exhaustive()
    }
}
