//! The name that was probably meant.

/// The one of `known` that is nearest to `name`, unless none is near. `prefix` is what all of them begin with.
pub(super) fn nearest<'a>(name: &str, prefix: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let own = |name: &str| name.strip_prefix(prefix).unwrap_or(name).to_ascii_uppercase();
    let asked = own(name);
    // Two letters of five may differ; beyond that a guess would mislead.
    let allowed = (asked.chars().count() * 2 / 5).max(2);
    let ranked = known.map(|candidate| {
        let part = own(candidate);
        // `TIMEOUT` for `TIMEOUT_MS`, `PROTOCOL` for `PROTO`: an end more or less counts as one slip.
        let begins = asked.len() >= 3 && (part.starts_with(&asked) || asked.starts_with(&part));
        (if begins { 1 } else { distance(&asked, &part) }, candidate)
    });
    ranked.min().filter(|(edits, _)| *edits <= allowed).map(|(_, candidate)| candidate)
}

/// Letters that must be put in, left out or replaced to make `b` of `a`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances agree with those counted by hand, in both directions.
    #[test]
    fn distances() {
        for (a, b, edits) in [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }
}
