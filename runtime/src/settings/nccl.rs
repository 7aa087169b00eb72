//! NCCL's own syntax of its variables, as NCCL 2.30 documents it.

use super::form::{Form, Reading, utf8};
use crate::plan::Algorithm;
use shmring::Protocol;
use std::ffi::OsStr;

/// NCCL's algorithms. The host plan has two of them.
const ALGORITHMS: [&str; 7] = ["Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"];

/// A list as `NCCL_ALGO` and `NCCL_PROTO` have it.
#[derive(Debug)]
struct List {
    /// Per known name, whether it is named.
    named: Vec<bool>,
    /// Whether the named ones are those to leave out (`^` in front).
    excludes: bool,
}

impl List {
    /// Reads `a,b`, `^a,b`, or `function:a,b;function:...`, of which only what concerns all-reduce counts here.
    fn read(text: &OsStr, known: &[&str]) -> Result<Self, String> {
        let wrong = || format!("a list of {}, with commas between and perhaps ^ in front", known.join(", "));
        let mut list = Self { named: vec![false; known.len()], excludes: false };
        for part in utf8(text).split(';') {
            let (function, names) = part.split_once(':').unwrap_or(("allreduce", part));
            let concerns = function.trim().eq_ignore_ascii_case("allreduce");
            let excludes = names.trim_start().strip_prefix('^');
            list.excludes |= concerns && excludes.is_some();
            for name in excludes.unwrap_or(names).split(',') {
                let at = known.iter().position(|k| k.eq_ignore_ascii_case(name.trim())).ok_or_else(wrong)?;
                list.named[at] |= concerns;
            }
        }
        Ok(list)
    }
}

/// `NCCL_ALGO`.
#[derive(Debug)]
pub(super) struct Algo;

impl Form<Algorithm> for Algo {
    fn read(&self, text: &OsStr) -> Result<Reading<Algorithm>, String> {
        let list = List::read(text, &ALGORITHMS)?;
        let names =
            |wanted: &str| ALGORITHMS.iter().zip(&list.named).any(|(name, named)| *named && *name == wanted);
        for algorithm in [Algorithm::Ring, Algorithm::Tree] {
            if !list.excludes && names(if algorithm == Algorithm::Ring { "Ring" } else { "Tree" }) {
                return Ok(Reading::Value(algorithm));
            }
        }
        // What is excluded is left out only where the user's machine was found to be fastest with it.
        let note = if list.excludes { "excludes none" } else { "names none" };
        Ok(Reading::Default(format!("it {note} of the host's algorithms; the choice is by size")))
    }

    fn allowed(&self) -> String {
        "NCCL's list, `^` excludes".into()
    }
}

/// The protocols that operations may use, by `Protocol as usize`.
pub(super) type Protocols = [bool; 3];

/// `NCCL_PROTO`.
#[derive(Debug)]
pub(super) struct Proto;

impl Form<Protocols> for Proto {
    fn read(&self, text: &OsStr) -> Result<Reading<Protocols>, String> {
        let list = List::read(text, &Protocol::ALL.map(Protocol::name))?;
        let mut allowed = [false; 3];
        for (allowed, named) in allowed.iter_mut().zip(&list.named) {
            *allowed = *named != list.excludes;
        }
        match allowed {
            [false, false, false] if list.excludes => {
                Err("a list that leaves one of LL, LL128, Simple".into())
            }
            // Names for other functions only.
            [false, false, false] => Ok(Reading::Default("it says nothing of all-reduce".into())),
            allowed => Ok(Reading::Value(allowed)),
        }
    }

    fn allowed(&self) -> String {
        "NCCL's list, `^` excludes".into()
    }
}

/// One of our protocols by name.
#[derive(Debug)]
pub(super) struct OneProtocol;

impl Form<Protocols> for OneProtocol {
    fn read(&self, text: &OsStr) -> Result<Reading<Protocols>, String> {
        let found = Protocol::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(utf8(text)));
        let found = found.ok_or("one of LL, LL128, Simple")?;
        Ok(Reading::Value(Protocol::ALL.map(|p| p == found)))
    }

    fn allowed(&self) -> String {
        "`LL`, `LL128`, `Simple`, in any case".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn algo(text: &str) -> Result<Reading<Algorithm>, String> {
        Algo.read(OsStr::new(text))
    }

    fn proto(text: &str) -> Result<Reading<Protocols>, String> {
        Proto.read(OsStr::new(text))
    }

    /// Lists, exclusions and parts for one function are read as NCCL reads them.
    #[test]
    fn lists_are_ncclish() {
        for text in ["Ring", "ring", "Tree,RING", "allreduce:ring;broadcast:tree", " ring , pat "] {
            assert_eq!(algo(text), Ok(Reading::Value(Algorithm::Ring)), "{text}");
        }
        for text in ["Tree", "broadcast:ring;allreduce:tree", "tree,NVLS"] {
            assert_eq!(algo(text), Ok(Reading::Value(Algorithm::Tree)), "{text}");
        }
        for text in ["NVLS,NVLSTree", "^Ring", "^Tree", "broadcast:ring", "CollNetDirect"] {
            assert!(matches!(algo(text), Ok(Reading::Default(_))), "{text}");
        }
        for (text, allowed) in [
            ("LL", [true, false, false]),
            ("^LL128", [true, false, true]),
            ("LL,LL128", [true, true, false]),
            ("^ll,ll128", [false, false, true]),
            ("allreduce:^LL;broadcast:LL", [false, true, true]),
        ] {
            assert_eq!(proto(text), Ok(Reading::Value(allowed)), "{text}");
        }
        assert!(matches!(proto("broadcast:LL"), Ok(Reading::Default(_))));
        for text in ["LL64", "^LL,LL128,Simple", "LL,,Simple", "^", ":", ";", "LL;"] {
            assert!(proto(text).is_err(), "{text}");
        }
    }
}
