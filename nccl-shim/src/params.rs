//! Parameters that programs can read by name: those that NCCL 2.30 publishes, all of them text or a flag.

use crate::env;

/// A parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Param {
    /// The variable.
    pub name: &'static str,
    default: &'static str,
    /// Whether it is a number and not a text.
    pub is_number: bool,
}

/// The published parameters.
pub(crate) static PARAMS: [Param; 6] = [
    Param { name: "NCCL_DEBUG", default: "", is_number: false },
    Param { name: "NCCL_DEBUG_SUBSYS", default: "INIT,BOOTSTRAP,ENV", is_number: false },
    Param { name: "NCCL_DEBUG_FILE", default: "", is_number: false },
    Param { name: "NCCL_DEBUG_TIMESTAMP_FORMAT", default: "[%F %T] ", is_number: false },
    Param { name: "NCCL_DEBUG_TIMESTAMP_LEVELS", default: "WARN", is_number: false },
    Param { name: "NCCL_SET_THREAD_NAME", default: "0", is_number: true },
];

impl Param {
    /// The parameter of this name.
    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        PARAMS.iter().find(|param| param.name == name)
    }

    /// Its value as text.
    pub(crate) fn text(&self) -> String {
        env::text(&env::vars(), self.name).unwrap_or_else(|| self.default.into())
    }

    /// Its value as a number, if it is one.
    pub(crate) fn number(&self) -> Option<i64> {
        self.is_number.then(|| env::number(&env::vars(), self.name).unwrap_or(0))
    }
}
