//! Values of `NCCL_ALGO` and `NCCL_PROTO`: one list for all collectives, or from 2.24 one for each.

use super::bad;
use crate::nccl::release::Release;
use crate::nccl::tuner::error::TunerError;
use crate::nccl::tuner::names::Collective;
use crate::near::near;

/// What a variable leaves on for each collective, a bit per id; `None` where it says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lists([Option<u8>; 5]);

impl Lists {
    /// Reads `list` or, from 2.24, `[function:]list;function:list...`; a list is `name,name...` or `^name,name...`.
    pub(super) fn parse(
        variable: &'static str,
        value: &str,
        names: &[&str],
        release: Release,
    ) -> Result<Self, TunerError> {
        let per_function = release.since(24, 0);
        let refuse =
            |problem: String| bad(variable, value, format!("{problem}; {}", forms(names, per_function)));
        if !per_function && value.contains([':', ';']) {
            return Err(refuse(format!("NCCL {release} has no lists per function, they came with 2.24")));
        }
        let mut lists = [None; 5];
        for (i, part) in value.split(';').enumerate() {
            let (function, list) = match part.split_once(':') {
                Some((function, list)) => (Some(function.trim()), list),
                None => (None, part),
            };
            let bits = read_list(list, names).map_err(refuse)?;
            match function {
                None if i == 0 => lists = [Some(bits); 5],
                None => return Err(refuse(format!("the list `{}` has no function", shown(part)))),
                Some(function) => {
                    let known =
                        Collective::ALL.into_iter().find(|one| one.name().eq_ignore_ascii_case(function));
                    let Some(collective) = known else {
                        return Err(refuse(format!("`{}` is no function", shown(function))));
                    };
                    lists[collective as usize] = Some(bits);
                }
            }
        }
        Ok(Self(lists))
    }

    /// What is on for a collective, a bit per id, if the variable says so.
    pub(super) fn of(&self, collective: Collective) -> Option<u8> {
        self.0[collective as usize]
    }
}

/// One list as bits by position in `names`.
fn read_list(list: &str, names: &[&str]) -> Result<u8, String> {
    let list = list.trim();
    let (excludes, listed) = match list.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, list),
    };
    let mut bits = 0u8;
    for word in listed.split(',') {
        let word = word.trim();
        let Some(id) = names.iter().position(|name| name.eq_ignore_ascii_case(word)) else {
            let hint = near(word, names).first().map(|meant| format!("; did you mean {meant}?"));
            return Err(format!("`{}` is unknown{}", shown(word), hint.unwrap_or_default()));
        };
        bits |= 1 << id;
    }
    let all = (1u8 << names.len()) - 1;
    Ok(if excludes { all & !bits } else { bits })
}

fn forms(names: &[&str], per_function: bool) -> String {
    let names = names.join(", ");
    let more = "; `;` between lists for single functions, such as `ring;allreduce:tree,ring` (broadcast, reduce, \
                allgather, reducescatter, allreduce)";
    format!(
        "write a list with commas, or `^` and a list to exclude, of {names}{}",
        if per_function { more } else { "" }
    )
}

fn shown(text: &str) -> String {
    text.chars().take(32).collect()
}
