//! Releases of NCCL whose behaviour is modelled.

use std::fmt;
use std::str::FromStr;

/// A release of NCCL, such as 2.22.3; releases compare by age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    /// First number; 2.
    pub major: u16,
    /// Second number, 18 to 30 for what is modelled.
    pub minor: u16,
    /// Third number.
    pub patch: u16,
}

/// Last patch of each modelled minor release, from 2.18 on.
const LAST_PATCH: [u16; 13] = [6, 4, 5, 5, 3, 4, 3, 1, 6, 7, 9, 7, 7];
/// First modelled minor release.
const FIRST_MINOR: u16 = 18;
/// Largest patch number that is taken; NCCL's version code has two digits for it.
const PATCH_MAX: u16 = 99;

impl Release {
    /// The newest release that is modelled.
    pub const NEWEST: Self = Self::new(2, 30, 7);

    /// The release with these numbers, modelled or not; [`Release::check`] tells.
    pub const fn new(major: u16, minor: u16, patch: u16) -> Self {
        Self { major, minor, patch }
    }

    /// The last known release of each modelled minor number, the oldest first.
    pub fn last_of_each_minor() -> impl Iterator<Item = Self> {
        (FIRST_MINOR..).zip(LAST_PATCH).map(|(minor, patch)| Self::new(2, minor, patch))
    }

    /// Whether the release is 2.`minor`.`patch` or newer.
    pub const fn since(self, minor: u16, patch: u16) -> bool {
        self.minor > minor || (self.minor == minor && self.patch >= patch)
    }

    /// Checks that the release is modelled.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::NotModelled`] outside of 2.18.1 to 2.30.
    pub fn check(self) -> Result<Self, ReleaseError> {
        let minors = FIRST_MINOR..FIRST_MINOR + LAST_PATCH.len() as u16;
        if self.major == 2 && minors.contains(&self.minor) && (1..=PATCH_MAX).contains(&self.patch) {
            Ok(self)
        } else {
            Err(ReleaseError::NotModelled(self))
        }
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Why a text names no release of the model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The text is no release.
    #[error("`{0}` is no release of NCCL; write it as 2.22.3, or 2.22 for its last patch")]
    Malformed(String),
    /// The release is not modelled.
    #[error("NCCL {0} is not modelled; releases from 2.18.1 to {newest} are", newest = Release::NEWEST)]
    NotModelled(Release),
}

impl FromStr for Release {
    type Err = ReleaseError;

    /// Reads `2.22.3`, `2.22` (the last known patch), and `2.22.3-1` or `2.22.3+cuda12.5` as packages and logs have it.
    ///
    /// # Errors
    ///
    /// [`ReleaseError`] if the text is no release, or one that is not modelled.
    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        // What is quoted is bounded: the text may be of any length.
        let malformed = || ReleaseError::Malformed(text.chars().take(32).collect());
        let bare = text.split(['+', '-']).next().unwrap_or_default();
        let numbers: Option<Vec<u16>> = bare.split('.').map(number).collect();
        match numbers.ok_or_else(malformed)?[..] {
            [major, minor, patch] => Self::new(major, minor, patch).check(),
            [major, minor] => {
                let known = Self::last_of_each_minor().find(|release| release.minor == minor && major == 2);
                known.ok_or(ReleaseError::NotModelled(Self::new(major, minor, 0)))
            }
            _ => Err(malformed()),
        }
    }
}

/// Digits alone, as they are printed: no sign, no leading zero.
fn number(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit()) && !(text.len() > 1 && text.starts_with('0'));
    digits.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_people_write_them() {
        // Full, bare and packaged forms; a bare minor is its last patch.
        for (text, release) in [
            ("2.22.3", (2, 22, 3)),
            ("2.18", (2, 18, 6)),
            ("2.30", (2, 30, 7)),
            ("2.27.7-1", (2, 27, 7)),
            ("2.21.5+cuda12.4", (2, 21, 5)),
        ] {
            let (major, minor, patch) = release;
            assert_eq!(text.parse(), Ok(Release::new(major, minor, patch)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_is_accepted() {
        // Malformed texts and releases outside of the model, each with its own message.
        for text in ["", "2", "two", "2.22.3.4", "2.022", "2.+3", "2.99999.1", "2..3", "-2.22"] {
            let error = text.parse::<Release>().unwrap_err();
            assert!(matches!(error, ReleaseError::Malformed(_)), "{text}: {error}");
        }
        for text in ["2.17.1", "2.31.1", "2.31", "1.22.3", "3.22", "2.18.0", "2.18.100"] {
            let error = text.parse::<Release>().unwrap_err().to_string();
            assert!(error.contains("from 2.18.1 to 2.30.7"), "{text}: {error}");
        }
        assert!("x".repeat(1 << 20).parse::<Release>().unwrap_err().to_string().len() < 200);
    }

    #[test]
    fn releases_compare_by_age() {
        // The derived order and the short form agree.
        let releases: Vec<Release> = Release::last_of_each_minor().collect();
        assert!(releases.is_sorted() && releases.last() == Some(&Release::NEWEST));
        let release = Release::new(2, 28, 7);
        assert!(
            release.since(28, 7) && release.since(27, 9) && !release.since(28, 9) && !release.since(29, 0)
        );
    }
}
