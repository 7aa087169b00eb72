//! Names that a person may have meant.

/// Longest text in bytes that is compared with names.
const LONGEST: usize = 64;

/// Up to three of `known` that look like `name` in any case, the nearest first.
pub(crate) fn near<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    // No name is that long, and the comparison takes time by the product of the lengths.
    if name.len() > LONGEST {
        return Vec::new();
    }
    let name = name.to_lowercase();
    let allowed = (name.chars().count() / 3).max(1);
    let mut found: Vec<(usize, &str)> = known
        .iter()
        .filter_map(|&candidate| {
            let lower = candidate.to_lowercase();
            let edits = distance(&name, &lower);
            let part = name.len() >= 2 && (lower.contains(&name) || name.contains(&lower));
            (edits <= allowed || part).then_some((edits, candidate))
        })
        .collect();
    found.sort_unstable();
    found.truncate(3);
    found.into_iter().map(|(_, candidate)| candidate).collect()
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, &cb) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(ca != cb);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PROFILES;

    #[test]
    fn distances_are_levenshtein() {
        // Checked against distances counted by hand.
        for (a, b, edits) in
            [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("a100", "a10", 1), ("ab", "ba", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (edits, edits), "{a} {b}");
        }
    }

    #[test]
    fn slips_find_the_meant_profile() {
        // Case, a missing part and a swapped digit lead to the profile.
        for (slip, meant) in
            [("A100", "a100"), ("a100-sxm", "a100"), ("h10", "h100"), ("rtx3080it", "rtx3080ti")]
        {
            assert!(near(slip, PROFILES).contains(&meant), "{slip}: {:?}", near(slip, PROFILES));
        }
        assert_eq!(near("tre", &["Tree", "Ring"]), ["Tree"]);
        assert_eq!(near("toaster", PROFILES), [""; 0]);
        assert_eq!(near("", PROFILES), [""; 0]);
    }
}
