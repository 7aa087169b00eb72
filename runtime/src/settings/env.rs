//! The process environment: the only file of the shipped crates that reads it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// The variables under which a process runs, as they were when this was made.
///
/// An empty value counts as not set, so `NAME= command` switches a variable off.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vars {
    set: BTreeMap<String, Given>,
}

/// A value and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    value: OsString,
    /// The option of the command line that stands for the variable.
    option: Option<&'static str>,
}

impl Vars {
    /// The variables of this process now. Names that are not UTF-8 are left out: no setting has one.
    pub fn of_process() -> Self {
        let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        Self::from_pairs(named)
    }

    /// These variables and no others.
    pub fn from_pairs<N: Into<String>, V: Into<OsString>>(pairs: impl IntoIterator<Item = (N, V)>) -> Self {
        let given = pairs.into_iter().map(|(name, value)| (name.into(), value.into()));
        let set = given.filter(|(_, value)| !value.is_empty());
        Self { set: set.map(|(name, value)| (name, Given { value, option: None })).collect() }
    }

    /// Sets a variable as an option of the command line does; it counts more than the environment.
    pub fn set_by_option(&mut self, name: &str, value: impl Into<OsString>, option: &'static str) {
        self.set.insert(name.into(), Given { value: value.into(), option: Some(option) });
    }

    /// The value of a variable, if it is set and not empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.set.get(name).map(|given| given.value.as_os_str())
    }

    /// The option of the command line by which a variable was set.
    pub fn option(&self, name: &str) -> Option<&'static str> {
        self.set.get(name)?.option
    }

    /// The names that are set, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.set.keys().map(String::as_str)
    }
}
